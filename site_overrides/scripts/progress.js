// @ts-check
// Study progress: the schedule of each item and the log of reviews, one value in this browser.
// Every change reads what is stored, merges, and writes, so that tabs that are open side by side lose nothing to each other.
(function () {
  "use strict";
  const { store } = window.pd;
  const { isObject } = store;
  const KEY = "study";
  const BEFORE = "study-before"; // what a file has replaced: { replaced, progress }
  const ASIDE = "study-aside"; // what could not be read, as it stood: [{ refused, text }]
  const VERSION = 1;
  /** @type {readonly Rating[]} */
  const RATINGS = [1, 2, 3, 4];

  // --- sound values ----------------------------------------------------------------------------------

  // Dates from 1970 on, and so early that no interval leads past the years that are written with four digits.
  const REVIEWED = Date.UTC(2900, 0);
  const DUE = Date.UTC(3000, 0);
  /**
   * @param {unknown} value
   * @param {number} end
   */
  function date(value, end) {
    const time = typeof value === "string" ? Date.parse(value) : NaN;
    return time >= 0 && time < end ? new Date(time).toISOString() : undefined;
  }
  /** @param {unknown} value */
  const amount = (value) =>
    typeof value === "number" && Number.isFinite(value) && value >= 0 ? value : undefined;
  /** @param {unknown} value */
  const count = (value) => (Number.isInteger(value) ? amount(value) : undefined);
  /** @param {unknown} value */
  const state = (value) => /** @type {const} */ ([0, 1, 2, 3]).find((each) => each === value);

  /** @type {Record<keyof Schedule, (value: unknown) => string | number | undefined>} */
  const FIELDS = {
    due: (value) => date(value, DUE),
    last_review: (value) => date(value, REVIEWED),
    stability: amount,
    difficulty: amount,
    reps: count,
    lapses: count,
    state,
    scheduled_days: count,
    elapsed_days: (value) => count(value) ?? 0,
    learning_steps: (value) => count(value) ?? 0,
  };
  /** @param {unknown} name @returns {name is string} */
  const isItem = (name) => typeof name === "string" && name.length < 300 && /^[^#\s]+#[^#\s]+$/.test(name);

  /**
   * What the scheduler gives and what JSON holds, in one form; nothing where a field is missing or is not what it should be.
   * @param {unknown} value
   * @returns {Schedule | undefined}
   */
  function schedule(value) {
    if (!isObject(value)) return undefined;
    /** @type {Record<string, unknown>} */
    const made = {};
    for (const [name, check] of Object.entries(FIELDS)) {
      const field = value[name];
      const sound = check(field instanceof Date ? field.toISOString() : field);
      if (sound === undefined) return undefined;
      made[name] = sound;
    }
    return /** @type {Schedule} */ (/** @type {unknown} */ (made));
  }
  /** @param {unknown} value @returns {Review | undefined} */
  function review(value) {
    if (!Array.isArray(value)) return undefined;
    const [item, rating, at] = value;
    const time = date(at, REVIEWED);
    return isItem(item) && RATINGS.includes(rating) && time ? [item, rating, time] : undefined;
  }

  // --- progress as a value ---------------------------------------------------------------------------

  /** @returns {Progress} */
  const none = () => ({ replaced: "", items: Object.create(null), log: [] });
  /** @param {Progress} progress */
  const size = ({ items }) => Object.keys(items).length;

  /** @param {Schedule} schedule */
  const order = (schedule) => schedule.last_review + JSON.stringify(schedule);
  /**
   * The later review of two; where both are of one moment, the same one wherever it is asked.
   * @param {Schedule | undefined} one
   * @param {Schedule} other
   */
  const later = (one, other) => (!one || order(other) > order(one) ? other : one);

  /**
   * Two progresses of one reader: of each item the latest review, of the log every entry once. What a file has
   * replaced counts no more, but for reviews since. In whatever order tabs merge, they end up with the same.
   * @param {Progress} one
   * @param {Progress} other
   */
  function merge(one, other) {
    const replaced = one.replaced > other.replaced ? one.replaced : other.replaced;
    const made = { ...none(), replaced };
    /** @type {Map<string, Review>} */
    const log = new Map();
    for (const from of [one, other]) {
      /** @param {string} time */
      const counts = (time) => from.replaced === replaced || time > replaced;
      for (const [name, each] of Object.entries(from.items)) {
        if (counts(each.last_review)) made.items[name] = later(made.items[name], each);
      }
      for (const entry of from.log) if (counts(entry[2])) log.set(JSON.stringify(entry), entry);
    }
    /** @param {Review} entry */
    const place = ([item, rating, at]) => `${at} ${item} ${rating}`;
    made.log = [...log.values()].sort((a, b) => (place(a) < place(b) ? -1 : 1));
    return made;
  }

  /**
   * Of a progress what was reviewed after a moment, as of another.
   * @param {Progress} progress
   * @param {string} moment
   * @param {string} replaced
   */
  function since({ items, log }, moment, replaced) {
    const made = { ...none(), replaced, log: log.filter((entry) => entry[2] > moment) };
    for (const [name, each] of Object.entries(items)) {
      if (each.last_review > moment) made.items[name] = each;
    }
    return made;
  }

  /** As it is stored and exported. @param {Progress} progress */
  function json({ replaced, items, log }) {
    const names = Object.keys(items).sort();
    const sorted = Object.fromEntries(names.map((name) => [name, items[name]]));
    return { version: VERSION, ...(replaced && { replaced }), items: sorted, log };
  }
  /**
   * @param {Progress} one
   * @param {Progress} other
   */
  const same = (one, other) => JSON.stringify(json(one)) === JSON.stringify(json(other));

  // --- what could not be read, set aside -------------------------------------------------------------

  /** As it stood, and how many entries of it were refused. @typedef {{ refused: number, text: string }} Note */

  /** @param {unknown} value @returns {value is Note} */
  const isNote = (value) =>
    isObject(value) && typeof value.text === "string" && count(value.refused) !== undefined;
  /** @returns {Note[]} */
  const stored = () => store.read(ASIDE, (value) => (Array.isArray(value) ? value.filter(isNote) : []));
  /** Each text once. @param {Note[]} notes */
  const once = (notes) => [...new Map(notes.map((each) => [each.text, each])).values()];

  // --- progress that is kept -------------------------------------------------------------------------

  /** @param {ProgressNeeds} needs @returns {OpenProgress} */
  function open({ scheduler, fresh, successors }) {
    let mine = none();
    /** The stored text that `mine` holds. @type {string | null | undefined} */
    let known;
    let kept = store.works();
    let unsaved = false;
    /** What could not be set aside, since the storage is full. @type {Note[]} */
    let aside = [];
    let changed = () => {};

    // A review is never before the last one, though a clock may have been set back.
    /** @param {Schedule | undefined} from */
    function next(from) {
      const at = new Date(Math.max(Date.now(), from ? Date.parse(from.last_review) + 1 : 0));
      return { at, options: scheduler.repeat(from || fresh(at), at) };
    }
    /** @param {Schedule} from */
    function schedulable(from) {
      try {
        const { options } = next(from);
        return RATINGS.every((rating) => schedule(options[rating].card));
      } catch {
        return false;
      }
    }

    // An item by the id that its card has now.
    /** @param {string} name */
    function named(name) {
      const [card, item] = name.split("#");
      return Object.hasOwn(successors, card) ? `${successors[card]}#${item}` : name;
    }

    /** @type {OpenProgress["read"]} */
    function read(text) {
      const value = store.parsed(text);
      if (!isObject(value) || value.version !== VERSION) return undefined;
      if (!isObject(value.items) || !Array.isArray(value.log)) return undefined;
      const progress = { ...none(), replaced: date(value.replaced, REVIEWED) || "" };
      let refused = 0;
      for (const [name, each] of Object.entries(value.items)) {
        const sound = isItem(name) ? schedule(each) : undefined;
        if (sound && schedulable(sound))
          progress.items[named(name)] = later(progress.items[named(name)], sound);
        else refused += 1;
      }
      for (const each of value.log) {
        const entry = review(each);
        if (entry) progress.log.push([named(entry[0]), entry[1], entry[2]]);
        else refused += 1;
      }
      return { progress: merge(progress, { ...none(), replaced: progress.replaced }), refused };
    }

    /** @param {Note[]} more */
    function setAside(more = []) {
      const notes = once([...stored(), ...aside, ...more]);
      aside = notes.length && !store.write(ASIDE, notes) ? notes : [];
    }
    const everyAside = () => once([...stored(), ...aside]);

    // What other tabs have written since is taken over. → whether they lack something of ours.
    function pull() {
      const text = store.text(KEY);
      if (text === null) return size(mine) > 0 || mine.log.length > 0;
      if (text === known) return false;
      const found = read(text);
      if (!found || found.refused) setAside([{ refused: found ? found.refused : 1, text }]);
      known = text;
      mine = merge(mine, found ? found.progress : none());
      return Boolean(found && !same(mine, found.progress));
    }
    function push() {
      kept = store.write(KEY, json(mine));
      unsaved = !kept;
      if (!kept) return;
      known = store.text(KEY);
      if (aside.length) setAside();
    }
    /** @param {(progress: Progress) => Progress} act */
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

    // --- a replacement and its undoing ---------------------------------------------------------------

    /** @typedef {{ replaced: string, progress: Progress }} Replacement */
    /** What was replaced last, where it could not be stored: an earlier one may stand there still. @type {Replacement | undefined} */
    let undone;
    /** @param {unknown} value @returns {Replacement | undefined} */
    function replacement(value) {
      if (!isObject(value) || typeof value.replaced !== "string" || !date(value.replaced, REVIEWED))
        return undefined;
      const found = read(JSON.stringify(value.progress));
      return found && { replaced: value.replaced, progress: found.progress };
    }
    const before = () => undone || store.read(BEFORE, replacement);
    // A moment that no earlier one of this progress reaches, though a clock may have been wrong.
    const now = () => new Date(Math.max(Date.now(), 1 + (Date.parse(mine.replaced) || 0))).toISOString();

    /** @param {Progress} progress */
    function replace(progress) {
      const replaced = now();
      const old = { replaced, progress: json(mine) };
      undone = store.write(BEFORE, old) ? undefined : { replaced, progress: mine };
      return { ...progress, replaced };
    }
    function undo() {
      const found = before();
      if (!found) return mine; // another tab has undone it
      store.remove(BEFORE);
      undone = undefined;
      const again = now();
      return merge({ ...found.progress, replaced: again }, since(mine, found.replaced, again));
    }

    /**
     * @param {string} item
     * @param {Rating} rating
     */
    function rated(item, rating) {
      const { at, options } = next(mine.items[item]);
      const items = Object.assign(Object.create(null), mine.items, { [item]: schedule(options[rating].card) });
      /** @type {Review} */
      const entry = [item, rating, at.toISOString()];
      return { ...mine, items, log: [...mine.log, entry] };
    }
    function discard() {
      aside = [];
      store.remove(ASIDE);
      changed();
    }

    return {
      of: (item) => mine.items[item],
      size: () => size(mine),
      kept: () => kept,
      next: (item) => next(mine.items[item]),
      rate: (item, rating) => change(() => rated(item, rating)),
      read,
      add: (progress) => change(() => merge(mine, { ...progress, replaced: mine.replaced })),
      replace: (progress) => change(() => replace(progress)),
      canUndo: () => Boolean(before()),
      undo: () => change(undo),
      again: () => change(() => mine),
      text: () => JSON.stringify(json(mine)),
      refused: () => everyAside().reduce((sum, each) => sum + each.refused, 0),
      asideText: () => JSON.stringify(everyAside()),
      discard,
      onChange: (act) => void (changed = act),
    };
  }

  window.pd.progress = { open };
})();
