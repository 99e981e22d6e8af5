// @ts-check
// Study mode: follow-ups, pitfalls and proven numbers, on the schedule of FSRS.
// An item is known by its id, so an edited text keeps its schedule. All state stays in this browser.
(function () {
  "use strict";
  const { handbook, all, around, element, one, say, words, htmlLang } = window.pd;
  const { key, address, data, library, announce, onSet } = window.pd;
  const [page] = all("[data-pd-study]");
  if (!page) return;

  /** @typedef {StudyItem | StudyNumber} Item */
  /** One that goes on; `right`: how many were remembered. @typedef {{ queue: Item[], at: number, shown: boolean, right: number }} Round */
  /** @typedef {[zh: string, en: string]} Pair */

  const ROUND = 20;
  const DUE_SHOWN = 50;
  const MINUTE = 60_000; // milliseconds
  /** @type {Record<Item["kind"], Pair>} */
  const KINDS = { followup: ["追问", "Follow-up"], pitfall: ["陷阱", "Pitfall"], number: ["数字", "Number"] };
  /** @type {[rating: Rating, ...label: Pair][]} */
  const RATINGS = [
    [1, "忘了", "Again"],
    [2, "吃力", "Hard"],
    [3, "记得", "Good"],
    [4, "轻松", "Easy"],
  ];
  /** How a typed number fares, and the rating that this suggests. @type {Record<ReturnType<typeof score>, { suggested: Rating, verdict: Pair }>} */
  const SCORES = {
    right: { suggested: 3, verdict: ["✓ 对", "✓ Right"] },
    close: { suggested: 2, verdict: ["≈ 接近，但超出所印精度", "≈ Close, but not to the precision printed"] },
    wrong: { suggested: 1, verdict: ["✗ 不对", "✗ Wrong"] },
    unread: { suggested: 1, verdict: ["✗ 没有读出数值或单位", "✗ No number or unit was read"] },
  };

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
    const per = unit.match(/^(.*?)\s*(?:\/|每|per\s)\s*.*$/u);
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
    for (const link of all("a[href]", read, Element)) {
      link.setAttribute("href", new URL(link.getAttribute("href") || "", address(id)).href);
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
    /** @type {const} */ (["zh", "en"]).map((lang) =>
      element("div", { class: "pd-half", lang: htmlLang(lang), "data-lang": lang }, text[lang]),
    );

  // --- a round ---------------------------------------------------------------------------------------

  function start() {
    const items = selected();
    const queue = [...due(items), ...fresh(items)].slice(0, ROUND);
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
      element("progress", { max: queue.length, value: at, "aria-label": words("进度", "Progress") }),
      button(say("结束", "End"), finish),
    );
    const link = element("a", { href: address(item.card) }, say(title.zh, title.en));
    const about = element("p", { class: "pd-sheet-about" }, say(...KINDS[item.kind]), " — ", link);
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
    const what = say(`${item.of.zh}：写出数值与单位`, `${item.of.en}: the number and its unit`);
    question.append(
      element("label", { for: "pd-typed" }, halves(item.ask)),
      element("p", { class: "pd-sheet-about" }, what),
    );
    const check = element("button", { class: "pd-button pd-primary" }, say("核对", "Check"));
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
    const reveal = primary(say("显示答案", "Show the answer"), () => turnText(item, back));
    back.append(reveal);
    if (item.kind === "pitfall") {
      const wrong = element("p", { class: "pd-sheet-about" }, say("错在哪里？", "What is wrong with it?"));
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
    const { suggested, verdict } = SCORES[found];
    const { zh = "", en = "" } = item.text;
    const evidence = element(
      "a",
      { href: address(item.card, item.evidence) },
      say("看证据", "See the evidence"),
    );
    const answer = element(
      "div",
      { class: "pd-answer-face" },
      element("p", { class: "pd-score", "data-score": found, role: "status" }, say(...verdict)),
      element("p", { class: "pd-tip-value" }, say(zh || en, en || zh)),
      element("p", {}, say(item.how.zh, item.how.en)),
      element("p", {}, evidence),
    );
    askRating(item, back, answer, suggested);
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
      const missing = say("答案没有载入，请检查网络。", "The answer did not load: check the network.");
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
    function rateButton([rating, zh, en]) {
      const after = element("small", {}, wait(options[rating].card.due, now));
      const label = [element("kbd", {}, String(rating)), element("span", {}, say(zh, en)), after];
      const sort = rating === suggested ? "pd-button pd-primary" : "pd-button";
      return button(label, () => rate(rating), { "data-rating": rating, class: sort });
    }
    const group = { class: "pd-ratings", role: "group", "aria-label": words("记得怎样？", "How well?") };
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
    if (minutes < 60) return words(`${minutes} 分钟`, `${minutes} min`);
    if (minutes < 60 * 24) return words(`${hours} 小时`, `${hours} h`);
    return words(`${days} 天`, `${days} d`);
  }

  function finish() {
    const { right, at } = round || { right: 0, at: 0 };
    round = undefined;
    if (!at) return overview();
    const result = say(`这一轮 ${at} 题，记得 ${right} 题。`, `${at} in this round, ${right} remembered.`);
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
  const choice = ({ id, title }) => [id, words(title.zh, title.en)];
  /** @returns {[string, string][]} */
  const kinds = () => Object.entries(KINDS).map(([kind, pair]) => [kind, words(...pair)]);

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
      select("kind", words("全部种类", "All kinds"), kinds()),
      select("module", words("全部模块", "All modules"), modules.map(choice)),
      select("path", words("全部路线", "All paths"), base.paths.map(choice)),
      select(
        "tag",
        words("全部标签", "All tags"),
        tags.map((tag) => [tag, `#${tag}`]),
      ),
    );
    for (const each of fields()) each.value = before[each.name] || "";
    filters.addEventListener("submit", (event) => event.preventDefault());
    filters.addEventListener("change", () => refresh());
    return filters;
  }

  /** @param {number} number @param {string} zh @param {string} en */
  const fact = (number, zh, en) =>
    element("div", {}, element("dt", {}, say(zh, en)), element("dd", {}, String(number)));
  /**
   * @param {Item} item
   * @param {Date} now
   */
  function dueLine(item, now) {
    const { title } = base.cards[item.card];
    const link = element("a", { href: address(item.card) }, say(title.zh, title.en));
    const ask = element("span", {}, say(item.ask.zh, item.ask.en));
    const when = dueAt(item) <= now ? say("现在", "now") : wait(dueAt(item), now);
    return element("li", {}, link, " ", ask, " ", element("small", {}, when));
  }

  let refresh = () => {}; // what the overview counts
  /** @param {HTMLElement} [news] */
  function overview(news) {
    const counts = element("dl", { class: "pd-counts" });
    const list = element("ol", { class: "pd-due" });
    const summary = element("summary", {}, say("到期清单", "Due list"));
    const rest = element("details", { class: "pd-due-list" }, summary, list);
    const go = primary(say("开始一轮", "Start a round"), start, " pd-start");
    const how = say(
      "一轮二十题，先到期的，再没学过的。空格翻面，1–4 评分，数字题直接键入。",
      "Twenty a round: what is due, then what is new. Space turns, 1–4 rate, numbers are typed.",
    );
    makeFilters();
    refresh = () => {
      const now = new Date();
      const items = selected();
      const waiting = due(items, now).length;
      const unseen = fresh(items).length;
      counts.replaceChildren(
        fact(waiting, "到期", "due"),
        fact(unseen, "未学", "new"),
        fact(items.length - unseen - waiting, "已排期", "scheduled"),
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

  /** @param {number} number @returns {Pair} */
  const counted = (number) => [`${number} 条进度`, number === 1 ? "1 item" : `${number} items`];

  /** What to do with a progress from a file; whether it was done. @typedef {(found: Progress, number: number) => Promise<boolean>} Take */

  /** @type {Take} */
  async function merge(found) {
    progress.add(found);
    return true;
  }
  /** @type {Take} */
  async function replace(found, number) {
    const [zh, en] = counted(number);
    const [zhHere, enHere] = counted(progress.size());
    const question = say(
      `用文件里的 ${zh}替换这里的 ${zhHere}？之后可以撤销。`,
      `Replace the ${enHere} here with the ${en} of the file? It can be undone.`,
    );
    const sure = await asked(question, say("替换", "Replace"));
    if (sure) progress.replace(found);
    return sure;
  }
  function undo() {
    progress.undo();
    const news = say("已恢复替换前的进度。", "Your progress is as it was before.");
    overview(element("p", { role: "status" }, news));
  }

  /** @param {number} refused */
  function refusedOfFile(refused) {
    const were = refused === 1 ? "was" : "were";
    return say(
      `文件中有 ${refused} 条无法排期，没有载入。`,
      `Of the file, ${refused} could not be scheduled and ${were} left out.`,
    );
  }
  /**
   * Take the progress of a file. → what there is to say where nothing came of it.
   * @param {File | undefined} file
   * @param {Take} take
   */
  async function takeFile(file, take) {
    const found = file && progress.read(await file.text().catch(() => ""));
    if (!found) return say("这个文件不是学习进度。", "This file holds no study progress.");
    const number = Object.keys(found.progress.items).length;
    if (found.refused && !number)
      return say("这个文件里没有能排期的进度。", "Nothing in this file can be scheduled.");
    if (!(await take(found.progress, number))) return undefined;
    overview();
    const [zh, en] = counted(progress.size());
    one(".pd-backup [role=status]", page).replaceChildren(
      ...say(`已载入，共 ${zh}。`, `Loaded: ${en} with progress.`),
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
      button(say("导出", "Export"), save),
      button(say("合并文件", "Merge a file"), choose(merge)),
      button(say("用文件替换", "Replace with a file"), choose(replace)),
      progress.canUndo() && button(say("撤销替换", "Undo the replacement"), undo),
    );
    const where = say("进度只存在这个浏览器里。", "Progress stays in this browser only.");
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
        element("button", { class: "pd-button", value: "" }, say("取消", "Cancel")),
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
    const text = say(
      "这个浏览器没有存下进度：存储已满，或不允许保存。进度只在这个标签页里，离开前请导出。",
      "This browser did not keep your progress: its storage is full or blocked. It is in this tab alone: export it before you leave.",
    );
    return callout(
      { "data-kind": "warning", role: "alert" },
      text,
      button(say("导出", "Export"), save),
      button(say("再试一次", "Try again"), progress.again),
    );
  }
  /** @param {number} refused */
  function notRead(refused) {
    const were = refused === 1 ? "was" : "were";
    const text = say(
      `存储中有 ${refused} 条读不出来或无法排期，已另外存放。`,
      `Of what was stored, ${refused} could not be read or scheduled, and ${were} set aside.`,
    );
    const exportThem = () => download("study-aside", progress.asideText());
    return callout(
      { "data-kind": "note", role: "status" },
      text,
      button(say("导出这些", "Export them"), exportThem),
      button(say("丢弃", "Discard"), progress.discard),
    );
  }

  // --- keys ------------------------------------------------------------------------------------------

  key(["1", "2", "3", "4"], "评分：忘了、吃力、记得、轻松", "rate: again, hard, good, easy", (event) => {
    const [rating] = all(`[data-rating="${event.key}"]`, page);
    rating?.click();
    return Boolean(rating);
  });
  key(" ", "翻面，开始一轮", "turn over, start a round", (event) => {
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
    tell(say("正在载入…", "Loading…"));
    try {
      [base, fsrs] = await Promise.all([data("study"), library("ts-fsrs.js", "FSRS")]);
    } catch {
      tell(say("没有载入，请检查网络后重试。", "It did not load: check the network and try again."));
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
  }
  window.pd.score = score;
  begin();
})();
