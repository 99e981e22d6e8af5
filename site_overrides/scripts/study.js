// @ts-check
// Study mode: follow-ups, pitfalls and proven numbers, on the schedule of FSRS.
// An item is known by its id, so an edited text keeps its schedule. All state stays in this browser.
(function () {
  "use strict";
  const { handbook, all, around, element, one, say, words, phrase, LANGS, htmlLang } = window.pd;
  const { key, address, data, library, announce, onSet } = window.pd;
  const [page] = all("[data-pd-study]");
  if (!page) return;

  /** @typedef {StudyItem | StudyNumber} Item */
  /** One that goes on; `right`: how many were remembered. @typedef {{ queue: Item[], at: number, shown: boolean, right: number }} Round */

  const ROUND = 20;
  const DUE_SHOWN = 50;
  const MINUTE = 60_000; // milliseconds
  const RATINGS = /** @type {const} */ ([
    [1, "again"],
    [2, "hard"],
    [3, "good"],
    [4, "easy"],
  ]);
  /** How a typed number fares, and the rating that this suggests. @type {Record<Score, Rating>} */
  const SUGGESTED = { right: 3, close: 2, wrong: 1, unread: 1 };
  /** @type {Item["kind"][]} */
  const KINDS = ["followup", "pitfall", "number"];

  /** What there is to study. @type {StudyData} */
  let base;
  /** How far the reader is with it. @type {OpenProgress} */
  let progress;
  /** @type {Round | undefined} */
  let round;

  /** @param {Item} item @returns {item is StudyNumber} */
  const isNumber = (item) => item.kind === "number";
  /** When an item that was asked before is due. @param {Item} item */
  const dueAt = (item) => new Date(progress.of(item.id)?.due || 0);
  /**
   * @param {Item} a
   * @param {Item} b
   */
  const byDue = (a, b) => Number(dueAt(a)) - Number(dueAt(b));

  // --- what is chosen --------------------------------------------------------------------------------

  let filters = element("form");
  const fields = () => all("select", filters, HTMLSelectElement);
  const chosen = () => Object.fromEntries(fields().map((each) => [each.name, each.value]));
  function selected() {
    const { kind, module, path, tag } = chosen();
    const order = base.paths.find((each) => each.id === path)?.cards;
    const items = base.items.filter((item) => {
      const about = base.cards[item.card];
      if (kind && item.kind !== kind) return false;
      if (module && about.module !== module) return false;
      if (tag && !about.tags.includes(tag)) return false;
      return !order || order.includes(item.card);
    });
    return order ? items.sort((a, b) => order.indexOf(a.card) - order.indexOf(b.card)) : items;
  }
  /** @param {Item[]} items */
  function due(items, now = new Date()) {
    return items.filter((item) => progress.of(item.id) && dueAt(item) <= now).sort(byDue);
  }
  /** @param {Item[]} items */
  const fresh = (items) => items.filter((item) => !progress.of(item.id));

  // --- numbers that are typed ------------------------------------------------------------------------

  const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const SIGN = /^([-+]?)/;
  const FRACTION = /(\d+)\s*\/\s*(\d+)/;
  const DECIMAL = /(\d*\.?\d+)(?:\s*[x×*·]\s*10\s*\^?\s*([-+]?\d+)|e([-+]?\d+))?/;
  const TYPED = new RegExp(`${SIGN.source}(?:${FRACTION.source}|${DECIMAL.source})\\s*(.*)$`, "iu");

  // One spelling of the marks that numbers are written with.
  /** @param {string} text */
  function plain(text) {
    return text
      .trim()
      .replace(/[⁰¹²³⁴⁵⁶⁷⁸⁹]/g, (mark) => String(RAISED.indexOf(mark)))
      .replace(/⁻/g, "-")
      .replace(/(\d)[,，](?=\d{3})/g, "$1")
      .replace(/[−–]/g, "-")
      .replace(/。/g, ".")
      .replace(/％/g, "%");
  }

  // A unit that may begin with a word such as 万 → the unit without it, and the word's worth.
  /** @param {string} unit @returns {[unit: string, worth: number]} */
  function multiplied(unit) {
    for (const [word, worth] of Object.entries(base.multipliers)) {
      if (unit.startsWith(word)) return [unit.slice(word.length).trim(), worth];
    }
    return [unit, 1];
  }

  /**
   * "33.3 %", "1.2e-6", "1.2×10⁻⁶", "12 字节/参数", "1,024 KiB" → the value in the unit of the item, or null.
   * @param {string} text
   * @param {StudyNumber} item
   */
  function parse(text, item) {
    const found = plain(text).match(TYPED);
    if (!found) return null;
    const [, sign, top, bottom, digits, power, exponent, rest] = found;
    const size = top ? Number(top) / Number(bottom) : Number(digits) * 10 ** Number(power ?? exponent ?? 0);
    const [unit, worth] = multiplied(rest.trim());
    const value = (sign === "-" ? -size : size) * worth;
    if (!unit) {
      const bare = item.unit === "" && Math.abs(value - item.value) <= item.tolerance;
      return bare ? value : value * item.factor;
    }
    // "KiB per layer", "KiB/层", "KiB 每层": what stands before counts. 每 is \u6bcf.
    const per = unit.match(/^(.*?)\s*(?:\/|\u6bcf|per\s)\s*.*$/u);
    const known = base.units[unit] || (per && item.unit.includes("/") && base.units[per[1].trim()]);
    return known ? value * known[1] : null;
  }
  /** @type {Proofdeck["score"]} */
  function score(text, item) {
    const value = parse(text, item);
    if (value === null) return "unread";
    const off = Math.abs(value - item.value);
    if (off <= item.tolerance + Math.abs(item.value) * 1e-9) return "right";
    return off <= Math.abs(item.value) * 0.05 ? "close" : "wrong";
  }

  // --- texts, from the card itself -------------------------------------------------------------------

  /** @type {Record<string, Promise<Document>>} */
  const pages = {};
  /** @param {string} id */
  async function fetched(id) {
    const answer = await fetch(address(id));
    if (!answer.ok) throw new Error(String(answer.status));
    const read = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const [selector, name] of [
      ["a[href]", "href"],
      ["img[src]", "src"],
    ]) {
      for (const each of all(selector, read, Element)) {
        each.setAttribute(name, new URL(each.getAttribute(name) || "", address(id)).href);
      }
    }
    return read;
  }
  /** The document that holds a card. @param {string} id */
  async function card(id) {
    if (handbook) return document;
    pages[id] ||= fetched(id);
    pages[id].catch(() => delete pages[id]);
    return pages[id];
  }
  /** Have a card at hand before it is asked for. @param {Item | undefined} item */
  function prefetch(item) {
    if (!handbook && item) card(item.card).catch(() => {});
  }

  /** @param {HTMLElement} half */
  function copyOf(half) {
    const { lang = "", dataset } = around(half, "[data-lang]") || half;
    const copy = element("div", { class: "pd-half", lang, "data-lang": dataset.lang });
    copy.append(...[...half.childNodes].map((node) => document.importNode(node, true)));
    for (const marked of all("[id]", copy, Element)) marked.removeAttribute("id");
    return copy;
  }
  /**
   * @param {Item} item
   * @param {string} selector
   */
  async function pieces(item, selector) {
    const source = (await card(item.card)).querySelector(`[data-item="${CSS.escape(item.id)}"]`);
    return source ? all(selector, source).map(copyOf) : [];
  }

  /** @param {Bilingual} text */
  const halves = (text) =>
    LANGS.map((lang) =>
      element("div", { class: "pd-half", lang: htmlLang[lang], "data-lang": lang }, text[lang]),
    );

  // --- a round ---------------------------------------------------------------------------------------

  function start() {
    const items = selected();
    play([...due(items), ...fresh(items)].slice(0, ROUND));
  }
  /**
   * A round that needs no choosing: what is due, then of each card something new, by the first path; nothing to type.
   * Cards of which least was asked come first.
   * @param {number} size
   */
  function quick(size) {
    const order = new Map(base.paths[0]?.cards.map((card, i) => [card, i]));
    /** @param {Item} item */
    const place = ({ card }) => order.get(card) ?? order.size;
    /** @type {Map<string, Item[]>} */
    const told = Map.groupBy(
      base.items.filter((item) => !isNumber(item)),
      ({ card }) => card,
    );
    const news = [...told.values()]
      .map((items) => ({ asked: items.length - fresh(items).length, item: fresh(items)[0] }))
      .filter(({ item }) => item)
      .sort((a, b) => a.asked - b.asked || place(a.item) - place(b.item));
    play([...due(base.items), ...news.map(({ item }) => item)].slice(0, size));
  }
  /** @param {Item[]} queue */
  function play(queue) {
    if (!queue.length) return;
    round = { queue, at: 0, shown: false, right: 0 };
    queue.slice(0, 3).forEach(prefetch);
    show(round);
  }

  /**
   * @param {Child | Child[]} label
   * @param {() => unknown} act
   * @param {Record<string, Attribute>} attributes
   */
  function button(label, act, attributes = {}) {
    return element("button", { type: "button", class: "pd-button", onclick: act, ...attributes }, label);
  }
  /** That the text of an item's card has changed since it was answered last. @param {Item} item */
  function changed(item) {
    const { updated } = base.cards[item.card];
    const answered = progress.of(item.id)?.last_review.slice(0, updated.length);
    if (!answered || answered >= updated) return undefined;
    return element("small", { class: "pd-changed" }, say("study.changed", { day: updated }));
  }
  /** The button that Space presses. @param {HTMLElement[]} label @param {() => unknown} act */
  function primary(label, act, more = "") {
    return button([...label, " ", element("kbd", {}, "␣")], act, { class: `pd-button pd-primary${more}` });
  }

  /**
   * How far the round is, and what kind of item this is.
   * @param {Round} round
   * @param {Item} item
   * @param {HTMLElement[]} faces
   */
  function sheet({ at, queue }, item, ...faces) {
    const { title } = base.cards[item.card];
    const head = element(
      "div",
      { class: "pd-sheet-head" },
      element("span", { class: "pd-count" }, `${at + 1} / ${queue.length}`),
      element("progress", { max: queue.length, value: at, "aria-label": words("study.progress") }),
      button(say("study.end"), finish),
    );
    const link = element("a", { href: address(item.card) }, say(title));
    const about = element(
      "p",
      { class: "pd-sheet-about" },
      say(`item_kinds.${item.kind}`),
      " — ",
      link,
      changed(item),
    );
    return element("section", { class: "pd-sheet pd-card" }, head, about, ...faces);
  }

  /** @param {Round} now */
  async function show(now) {
    if (now.at >= now.queue.length) return finish();
    const item = now.queue[now.at];
    now.shown = false;
    prefetch(now.queue[now.at + 2]);
    const question = element("div", { class: "pd-question-face" });
    const back = element("div", { class: "pd-back" });
    page.replaceChildren(sheet(now, item, question, back));
    announce(`${now.at + 1} / ${now.queue.length}`);
    if (isNumber(item)) askNumber(item, question, back);
    else await askText(item, question, back);
  }

  /**
   * @param {StudyNumber} item
   * @param {HTMLElement} question
   * @param {HTMLElement} back
   */
  function askNumber(item, question, back) {
    const field = element("input", {
      id: "pd-typed",
      class: "pd-typed",
      autocomplete: "off",
      spellcheck: "false",
      inputmode: "text",
    });
    const what = say("study.typed", { what: item.of });
    question.append(
      element("label", { for: "pd-typed" }, halves(item.ask)),
      element("p", { class: "pd-sheet-about" }, what),
    );
    const check = element("button", { class: "pd-button pd-primary" }, say("study.check"));
    const form = element("form", { class: "pd-typed-form" }, field, check);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim() && !round?.shown) turnNumber(item, back, field.value);
    });
    back.append(form);
    field.focus();
  }

  /**
   * @param {Item} item
   * @param {HTMLElement} question
   * @param {HTMLElement} back
   */
  async function askText(item, question, back) {
    const reveal = primary(say("study.reveal"), () => turnText(item, back));
    back.append(reveal);
    if (item.kind === "pitfall") {
      const wrong = element("p", { class: "pd-sheet-about" }, say("study.what_is_wrong"));
      question.append(...halves(item.ask), wrong);
    } else {
      const own = await pieces(item, "summary").catch(() => []);
      if (!isAsked(item)) return;
      question.append(...(own.length ? own : halves(item.ask)));
    }
    if (!round?.shown) reveal.focus();
  }
  /** Whether the round is still at an item. @param {Item} item */
  const isAsked = (item) => round?.queue[round.at] === item;

  /**
   * @param {StudyNumber} item
   * @param {HTMLElement} back
   * @param {string} typed
   */
  function turnNumber(item, back, typed) {
    if (round) round.shown = true;
    const found = score(typed, item);
    const { zh = "", en = "" } = item.text;
    const evidence = element("a", { href: address(item.card, item.evidence) }, say("study.evidence"));
    const answer = element(
      "div",
      { class: "pd-answer-face" },
      element("p", { class: "pd-score", "data-score": found, role: "status" }, say(`scores.${found}`)),
      element("p", { class: "pd-tip-value" }, say({ zh: zh || en, en: en || zh })),
      element("p", {}, say(item.how)),
      element("p", {}, evidence),
    );
    askRating(item, back, answer, SUGGESTED[found]);
  }

  /**
   * @param {Item} item
   * @param {HTMLElement} back
   */
  async function turnText(item, back) {
    if (round) round.shown = true;
    const answer = element("div", { class: "pd-answer-face" });
    try {
      answer.append(...(await pieces(item, item.kind === "pitfall" ? ".pd-pitfall" : ".pd-answer")));
    } catch {
      const missing = say("study.no_answer");
      answer.append(element("p", {}, missing));
    }
    if (isAsked(item)) askRating(item, back, answer, 3);
  }

  /**
   * @param {Item} item
   * @param {HTMLElement} back
   * @param {HTMLElement} answer
   * @param {Rating} suggested
   */
  function askRating(item, back, answer, suggested) {
    const { at: now, options } = progress.next(item.id);
    /** @param {typeof RATINGS[number]} rating */
    function rateButton([rating, name]) {
      const after = element("small", {}, wait(options[rating].card.due, now));
      const label = [element("kbd", {}, String(rating)), element("span", {}, say(`ratings.${name}`)), after];
      const sort = rating === suggested ? "pd-button pd-primary" : "pd-button";
      return button(label, () => rate(rating), { "data-rating": rating, class: sort });
    }
    const group = { class: "pd-ratings", role: "group", "aria-label": words("study.how_well") };
    const ratings = element("div", group, RATINGS.map(rateButton));
    back.replaceChildren(answer, ratings);
    one(`[data-rating="${suggested}"]`, ratings).focus({ preventScroll: true });
  }

  /** @param {Rating} rating */
  function rate(rating) {
    if (!round) return;
    progress.rate(round.queue[round.at].id, rating);
    if (rating > 1) round.right += 1;
    round.at += 1;
    show(round);
  }

  /**
   * @param {Date} until
   * @param {Date} now
   */
  function wait(until, now) {
    const minutes = Math.max(1, Math.round((Number(until) - Number(now)) / MINUTE));
    const hours = Math.round(minutes / 60);
    const days = Math.round(minutes / 60 / 24);
    if (minutes < 60) return words("study.minutes", { number: minutes });
    if (minutes < 60 * 24) return words("study.hours", { number: hours });
    return words("study.days", { number: days });
  }

  function finish() {
    const { right, at } = round || { right: 0, at: 0 };
    round = undefined;
    if (!at) return overview();
    const result = say("study.result", { asked: at, right });
    overview(element("p", { class: "pd-result", role: "status" }, result));
  }

  // --- the overview ----------------------------------------------------------------------------------

  /**
   * @param {string} name
   * @param {string} everything
   * @param {[value: string, text: string][]} choices
   */
  function select(name, everything, choices) {
    const options = choices.map(([value, text]) => element("option", { value }, text));
    return element(
      "select",
      { name, "aria-label": everything },
      element("option", { value: "" }, everything),
      options,
    );
  }
  /** @param {Named} each @returns {[string, string]} */
  const choice = ({ id, title }) => [id, words(title)];
  /** @returns {[string, string][]} */
  const kinds = () => KINDS.map((kind) => [kind, words(`item_kinds.${kind}`)]);

  // The filters in the language of the mode, set as they were.
  function makeFilters() {
    const before = chosen();
    const cards = Object.values(base.cards);
    const filled = new Set(cards.map((about) => about.module));
    const tags = [...new Set(cards.flatMap((about) => about.tags))].sort();
    const modules = base.modules.filter((each) => filled.has(each.id));
    filters = element(
      "form",
      { class: "pd-search-filters" },
      select("kind", words("filters.kinds"), kinds()),
      select("module", words("filters.modules"), modules.map(choice)),
      select("path", words("filters.paths"), base.paths.map(choice)),
      select(
        "tag",
        words("filters.all_tags"),
        tags.map((tag) => [tag, `#${tag}`]),
      ),
    );
    for (const each of fields()) each.value = before[each.name] || "";
    filters.addEventListener("submit", (event) => event.preventDefault());
    filters.addEventListener("change", () => refresh());
    return filters;
  }

  /** @param {number} number @param {Key} what */
  const fact = (number, what) =>
    element("div", {}, element("dt", {}, say(what)), element("dd", {}, String(number)));
  /**
   * @param {Item} item
   * @param {Date} now
   */
  function dueLine(item, now) {
    const { title } = base.cards[item.card];
    const link = element("a", { href: address(item.card) }, say(title));
    const ask = element("span", {}, say(item.ask));
    const when = dueAt(item) <= now ? say("study.now") : wait(dueAt(item), now);
    return element("li", {}, link, " ", ask, " ", element("small", {}, when), changed(item));
  }

  let refresh = () => {}; // what the overview counts
  /** @param {HTMLElement} [news] */
  function overview(news) {
    const counts = element("dl", { class: "pd-counts" });
    const list = element("ol", { class: "pd-due" });
    const summary = element("summary", {}, say("study.due_list"));
    const rest = element("details", { class: "pd-due-list" }, summary, list);
    const go = primary(say("study.start"), start, " pd-start");
    const how = say("study.how");
    makeFilters();
    refresh = () => {
      const now = new Date();
      const items = selected();
      const waiting = due(items, now).length;
      const unseen = fresh(items).length;
      counts.replaceChildren(
        fact(waiting, "study.due"),
        fact(unseen, "study.new"),
        fact(items.length - unseen - waiting, "study.scheduled"),
      );
      go.disabled = !waiting && !unseen;
      const next = items
        .filter((item) => progress.of(item.id))
        .sort(byDue)
        .slice(0, DUE_SHOWN);
      rest.hidden = !next.length;
      list.replaceChildren(...next.map((item) => dueLine(item, now)));
    };
    refresh();
    page.replaceChildren(
      ...(news ? [news] : []),
      counts,
      filters,
      element("p", {}, go),
      element("p", { class: "pd-sheet-about" }, how),
      rest,
      backup(),
    );
    go.focus({ preventScroll: true });
  }

  // --- progress to files and back ----------------------------------------------------------------------

  /** @param {number} number */
  const counted = (number) => phrase(number === 1 ? "study.counted_one" : "study.counted", { number });

  /** What to do with a progress from a file; whether it was done. @typedef {(found: Progress, number: number) => Promise<boolean>} Take */

  /** @type {Take} */
  async function merge(found) {
    progress.add(found);
    return true;
  }
  /** @type {Take} */
  async function replace(found, number) {
    const question = say("study.sure", { those: counted(number), these: counted(progress.size()) });
    const sure = await asked(question, say("study.replace"));
    if (sure) progress.replace(found);
    return sure;
  }
  function undo() {
    progress.undo();
    const news = say("study.undone");
    overview(element("p", { role: "status" }, news));
  }

  /** @param {number} refused */
  function refusedOfFile(refused) {
    return say(refused === 1 ? "study.left_out_one" : "study.left_out", { number: refused });
  }
  /**
   * Take the progress of a file. → what there is to say where nothing came of it.
   * @param {File | undefined} file
   * @param {Take} take
   */
  async function takeFile(file, take) {
    const found = file && progress.read(await file.text().catch(() => ""));
    if (!found) return say("study.not_progress");
    const number = Object.keys(found.progress.items).length;
    if (found.refused && !number) return say("study.nothing_in_file");
    if (!(await take(found.progress, number))) return undefined;
    overview();
    one(".pd-backup [role=status]", page).replaceChildren(
      ...say("study.loaded", { these: counted(progress.size()) }),
      " ",
      ...(found.refused ? refusedOfFile(found.refused) : []),
    );
    return undefined;
  }

  function backup() {
    const said = element("p", { role: "status", class: "pd-sheet-about" });
    const file = element("input", {
      type: "file",
      accept: ".json,application/json",
      class: "pd-visually-hidden",
      id: "pd-study-file",
      tabindex: "-1",
      "aria-hidden": "true",
    });
    /** @type {Take} */
    let take = merge;
    /** @param {Take} then */
    const choose = (then) => () => {
      take = then;
      file.value = "";
      file.click();
    };
    file.addEventListener("change", async () => {
      const trouble = await takeFile(file.files?.[0], take);
      if (trouble) said.replaceChildren(...trouble);
    });
    const buttons = element(
      "p",
      { class: "pd-buttons" },
      button(say("study.export"), save),
      button(say("study.merge"), choose(merge)),
      button(say("study.replace_with"), choose(replace)),
      progress.canUndo() && button(say("study.undo"), undo),
    );
    const where = say("study.where");
    const about = element("p", { class: "pd-sheet-about" }, where);
    return element("div", { class: "pd-backup" }, about, buttons, file, said);
  }

  /**
   * A question in a dialog → whether it was answered with yes; Esc and a click outside say no.
   * @param {HTMLElement[]} question
   * @param {HTMLElement[]} yes
   * @returns {Promise<boolean>}
   */
  function asked(question, yes) {
    const form = element(
      "form",
      { method: "dialog", class: "pd-help-sheet" },
      element("p", { id: "pd-asked" }, question),
      element(
        "p",
        { class: "pd-buttons" },
        element("button", { class: "pd-button", value: "" }, say("study.cancel")),
        element("button", { class: "pd-button pd-primary", value: "yes" }, yes),
      ),
    );
    const dialog = element("dialog", { class: "pd-dialog pd-ask", "aria-labelledby": "pd-asked" }, form);
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    document.body.append(dialog);
    dialog.showModal();
    return new Promise((answer) => {
      dialog.addEventListener("close", () => {
        answer(dialog.returnValue === "yes");
        dialog.remove();
      });
    });
  }

  /**
   * @param {string} name
   * @param {string} text
   */
  function download(name, text) {
    const link = element("a", { download: `proofdeck-${name}-${new Date().toISOString().slice(0, 10)}.json` });
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), MINUTE);
  }
  const save = () => download("study", progress.text());

  // --- what stays on screen until it is mended: progress that is not kept, and stored entries that were not read

  const notices = element("div", { class: "pd-notices" });
  /** @type {string | undefined} */
  let noticed;
  function notice() {
    const refused = progress.refused();
    const now = `${progress.kept()} ${refused}`;
    if (now === noticed) return; // said once, and the focus stays where it is
    noticed = now;
    const shown = [];
    if (!progress.kept()) shown.push(notKept());
    if (refused > 0) shown.push(notRead(refused));
    notices.replaceChildren(...shown);
  }

  /**
   * @param {Record<string, string>} sort
   * @param {HTMLElement[]} text
   * @param {HTMLElement[]} buttons
   */
  function callout(sort, text, ...buttons) {
    const acts = element("p", { class: "pd-buttons" }, buttons);
    return element("div", { class: "pd-callout", ...sort }, element("p", {}, text), acts);
  }
  function notKept() {
    const text = say("study.not_kept");
    return callout(
      { "data-kind": "warning", role: "alert" },
      text,
      button(say("study.export"), save),
      button(say("study.again"), progress.again),
    );
  }
  /** @param {number} refused */
  function notRead(refused) {
    const text = say(refused === 1 ? "study.aside_one" : "study.aside", { number: refused });
    const exportThem = () => download("study-aside", progress.asideText());
    return callout(
      { "data-kind": "note", role: "status" },
      text,
      button(say("study.export_them"), exportThem),
      button(say("study.discard"), progress.discard),
    );
  }

  // --- keys ------------------------------------------------------------------------------------------

  key(["1", "2", "3", "4"], "single_keys.rate", (event) => {
    const [rating] = all(`[data-rating="${event.key}"]`, page);
    rating?.click();
    return Boolean(rating);
  });
  key(" ", "single_keys.turn", (event) => {
    if (around(event.target, "button, a, summary")) return false;
    const [first] = all(".pd-primary:not([disabled])", page);
    first?.click();
    return Boolean(first);
  });
  onSet("mode", () => base && !round && overview());

  /** @param {HTMLElement[]} text */
  const tell = (text) => page.replaceChildren(element("p", { role: "status" }, text));
  async function begin() {
    /** @type {Fsrs} */
    let fsrs;
    tell(say("common.loading"));
    try {
      [base, fsrs] = await Promise.all([data("study"), library("ts-fsrs", "FSRS")]);
    } catch {
      tell(say("study.failed"));
      return;
    }
    progress = window.pd.progress.open({
      scheduler: fsrs.fsrs({ enable_fuzz: false }),
      fresh: fsrs.createEmptyCard,
      successors: base.successors,
    });
    progress.onChange(() => {
      notice();
      if (!round) refresh();
    });
    page.before(notices);
    notice();
    overview();
    askedFor();
  }

  // A link may ask for a round at once: by the address, in the handbook by itself.
  /** @param {unknown} size */
  function begun(size) {
    const number = Number(size);
    if (base && Number.isInteger(number) && number > 0) quick(number);
  }
  function askedFor() {
    const url = new URL(location.href);
    begun(url.searchParams.get("round"));
    url.searchParams.delete("round");
    history.replaceState(history.state, "", url);
  }
  document.addEventListener("click", (event) => {
    const size = around(event.target, "a[data-pd-round]")?.dataset.pdRound;
    if (size) window.addEventListener("hashchange", () => begun(size), { once: true });
  });
  window.pd.score = score;
  begin();
})();
