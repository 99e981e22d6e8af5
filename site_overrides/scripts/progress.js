// Study progress: the schedule of each item and the log of reviews, one value in this browser.
// Every change reads what is stored, merges, and writes, so that tabs that are open side by side lose nothing to each other.
(function () {
  "use strict";
  const { store } = window.pd;
  const { dictionary, isObject } = store;
  const KEY = "study";
  const BEFORE = "study-before"; // what a file has replaced: { replaced, progress }
  const ASIDE = "study-aside"; // what could not be read, as it stood: [{ refused, text }]
  const VERSION = 1;

  // Dates from 1970 on, and so early that no interval leads past the years that are written with four digits.
  const REVIEWED = Date.UTC(2900, 0);
  const DUE = Date.UTC(3000, 0);
  const date = (value, end) => {
    const time = typeof value === "string" ? Date.parse(value) : NaN;
    return time >= 0 && time < end ? new Date(time).toISOString() : undefined;
  };
  const count = (value) => (Number.isInteger(value) && value >= 0 ? value : undefined);
  const amount = (value) => (Number.isFinite(value) && value >= 0 ? value : undefined);
  const FIELDS = {
    due: (value) => date(value, DUE), last_review: (value) => date(value, REVIEWED),
    stability: amount, difficulty: amount, reps: count, lapses: count,
    state: (value) => ([0, 1, 2, 3].includes(value) ? value : undefined),
    scheduled_days: count, elapsed_days: (value) => count(value) ?? 0, learning_steps: (value) => count(value) ?? 0,
  };
  const isItem = (name) => typeof name === "string" && name.length < 300 && /^[^#\s]+#[^#\s]+$/.test(name);

  // What the scheduler gives and what JSON holds, in one form; nothing where a field is missing or is not what it should be.
  function schedule(value) {
    if (!isObject(value)) return undefined;
    const fields = Object.entries(FIELDS).map(([name, check]) => [name, check(value[name] instanceof Date ? value[name].toISOString() : value[name])]);
    return fields.every(([, each]) => each !== undefined) ? Object.fromEntries(fields) : undefined;
  }
  function review(value) {
    if (!Array.isArray(value)) return undefined;
    const [item, rating, at] = value;
    const time = date(at, REVIEWED);
    return isItem(item) && [1, 2, 3, 4].includes(rating) && time ? [item, rating, time] : undefined;
  }

  const none = () => ({ replaced: "", items: Object.create(null), log: [] });
  const size = ({ items }) => Object.keys(items).length;

  // The later review of two; where both are of one moment, the same one wherever it is asked.
  const order = (schedule) => schedule.last_review + JSON.stringify(schedule);
  const later = (one, other) => (!one || (other && order(other) > order(one)) ? other : one);

  // Two progresses of one reader: of each item the latest review, of the log every entry once. What a file has
  // replaced counts no more, but for reviews since. In whatever order tabs merge, they end up with the same.
  function merge(one, other) {
    const replaced = one.replaced > other.replaced ? one.replaced : other.replaced;
    const counts = (from, time) => from.replaced === replaced || time > replaced;
    const made = { ...none(), replaced };
    const log = new Map();
    for (const from of [one, other]) {
      for (const [name, each] of Object.entries(from.items)) {
        if (counts(from, each.last_review)) made.items[name] = later(made.items[name], each);
      }
      for (const entry of from.log) if (counts(from, entry[2])) log.set(JSON.stringify(entry), entry);
    }
    const place = ([item, rating, at]) => `${at} ${item} ${rating}`;
    made.log = [...log.values()].sort((a, b) => (place(a) < place(b) ? -1 : 1));
    return made;
  }

  function json({ replaced, items, log }) {
    const sorted = Object.fromEntries(Object.keys(items).sort().map((name) => [name, items[name]]));
    return { version: VERSION, ...(replaced && { replaced }), items: sorted, log };
  }
  const same = (one, other) => JSON.stringify(json(one)) === JSON.stringify(json(other));

  // `scheduler`: FSRS; `fresh(at)`: the schedule of what was never asked; `successors`: a card's former id → its id.
  function open({ scheduler, fresh, successors }) {
    let mine = none();
    let known; // the stored text that `mine` holds
    let kept = store.works();
    let unsaved = false;
    let aside = []; // what could not be set aside, since the storage is full
    let changed = () => {};

    // A review is never before the last one, though a clock may have been set back.
    const next = (from) => {
      const at = new Date(Math.max(Date.now(), from ? Date.parse(from.last_review) + 1 : 0));
      return { at, options: scheduler.repeat(from || fresh(at), at) };
    };
    function schedulable(from) {
      try {
        const { options } = next(from);
        return [1, 2, 3, 4].every((rating) => schedule(options[rating].card));
      } catch {
        return false;
      }
    }

    const named = (name) => {
      const [card, item] = name.split("#");
      return Object.hasOwn(successors, card) ? `${successors[card]}#${item}` : name;
    };

    // Text → { progress, refused }, or nothing where it is no progress at all.
    function read(text) {
      const value = store.parsed(text);
      if (!isObject(value) || value.version !== VERSION || !isObject(value.items) || !Array.isArray(value.log)) return undefined;
      const progress = { ...none(), replaced: date(value.replaced, REVIEWED) || "" };
      let refused = 0;
      for (const [name, each] of Object.entries(value.items)) {
        const sound = isItem(name) ? schedule(each) : undefined;
        if (sound && schedulable(sound)) progress.items[named(name)] = later(progress.items[named(name)], sound);
        else refused += 1;
      }
      for (const each of value.log) {
        const entry = review(each);
        if (entry) progress.log.push([named(entry[0]), entry[1], entry[2]]);
        else refused += 1;
      }
      return { progress: merge(progress, { ...none(), replaced: progress.replaced }), refused };
    }

    const notes = () => // what was set aside
      store.read(ASIDE, (value) =>
        (Array.isArray(value) ? value : []).filter((each) => typeof each?.text === "string" && count(each.refused) !== undefined));
    function setAside(more = []) {
      const all = new Map([...notes(), ...aside, ...more].map((each) => [each.text, each]));
      aside = all.size && !store.write(ASIDE, [...all.values()]) ? [...all.values()] : [];
    }
    const everyAside = () => [...new Map([...notes(), ...aside].map((each) => [each.text, each])).values()];

    // What other tabs have written since is taken over. → whether they lack something of ours.
    function pull() {
      const text = store.text(KEY);
      if (text === null) return size(mine) > 0 || mine.log.length > 0;
      if (text === known) return false;
      const found = read(text);
      if (!found || found.refused) setAside([{ refused: found ? found.refused : 1, text }]);
      known = text;
      mine = merge(mine, found ? found.progress : none());
      return Boolean(found) && !same(mine, found.progress);
    }
    function push() {
      kept = store.write(KEY, json(mine));
      if (kept) {
        known = store.text(KEY);
        unsaved = false;
        if (aside.length) setAside();
      } else {
        unsaved = true;
      }
    }
    function change(act) {
      pull();
      mine = act(mine);
      push();
      changed();
    }

    pull();
    store.follow(KEY, () => {
      if (store.text(KEY) === null) return; // cleared by hand: what this tab holds is written with the next review
      if (pull()) push();
      changed();
    });
    store.follow(ASIDE, () => changed());
    window.addEventListener("beforeunload", (event) => unsaved && event.preventDefault());

    let undone; // what was replaced last, where it could not be stored: an earlier one may stand there still
    const before = () =>
      undone || store.read(BEFORE, (value) => {
        const found = isObject(value) && date(value.replaced, REVIEWED) && read(JSON.stringify(value.progress));
        return found && { replaced: value.replaced, progress: found.progress };
      });
    // A moment that no earlier one of this progress reaches, though a clock may have been wrong.
    const now = () => new Date(Math.max(Date.now(), 1 + (Date.parse(mine.replaced) || 0))).toISOString();

    return {
      of: (item) => mine.items[item],
      size: () => size(mine),
      kept: () => kept,
      next: (item) => next(mine.items[item]),
      rate: (item, rating) => change(() => {
        const { at, options } = next(mine.items[item]);
        const items = Object.assign(Object.create(null), mine.items, { [item]: schedule(options[rating].card) });
        return { ...mine, items, log: [...mine.log, [item, rating, at.toISOString()]] };
      }),
      read,
      add: (progress) => change(() => merge(mine, { ...progress, replaced: mine.replaced })),
      replace: (progress) => change(() => {
        const replaced = now();
        const old = { replaced, progress: json(mine) };
        undone = store.write(BEFORE, old) ? undefined : { replaced, progress: mine };
        return { ...progress, replaced };
      }),
      canUndo: () => Boolean(before()),
      undo: () => change(() => {
        const found = before();
        if (!found) return mine; // another tab has undone it
        const { replaced, progress } = found;
        store.remove(BEFORE);
        undone = undefined;
        const again = now();
        const since = { ...none(), replaced: again, log: mine.log.filter((entry) => entry[2] > replaced) };
        for (const [name, each] of Object.entries(mine.items)) if (each.last_review > replaced) since.items[name] = each;
        return merge({ ...progress, replaced: again }, since);
      }),
      again: () => change(() => mine),
      text: () => JSON.stringify(json(mine)),
      refused: () => everyAside().reduce((sum, each) => sum + each.refused, 0),
      asideText: () => JSON.stringify(everyAside()),
      discard: () => {
        aside = [];
        store.remove(ASIDE);
        changed();
      },
      onChange: (act) => (changed = act),
    };
  }

  window.pd.progress = { open };
})();
