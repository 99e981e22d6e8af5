// Study mode: follow-ups, pitfalls and proven numbers, on the schedule of FSRS.
// An item is known by its id, so an edited text keeps its schedule. All state stays in this browser.
(function () {
  "use strict";
  const page = document.querySelector("[data-pd-study]");
  if (!page) return;
  const { handbook, store, element, say, words, key, address, data, library, announce, onSet } = window.pd;

  const ROUND = 20;
  const KINDS = { followup: ["追问", "Follow-up"], pitfall: ["陷阱", "Pitfall"], number: ["数字", "Number"] };
  const RATINGS = [
    [1, "忘了", "Again"], [2, "吃力", "Hard"], [3, "记得", "Good"], [4, "轻松", "Easy"],
  ];
  const MINUTE = 60_000;

  let base, fsrs, scheduler; // what there is to study, the library, and its scheduler
  let state; // { items: { id: schedule }, log: [[id, rating, time]] }
  let round; // { queue, at, shown, right } while one goes on

  // --- the schedule ----------------------------------------------------------------------------------

  const isState = (value) => value && typeof value.items === "object" && value.items !== null && Array.isArray(value.log);
  const keep = () => store.set("study", state);
  const time = (schedule) => new Date(schedule?.last_review || 0).getTime() || 0;
  const isDue = (item, now) => state.items[item.id] && new Date(state.items[item.id].due) <= now;

  // Two states of the same reader: of each item the one reviewed last, of the log every entry once.
  function merge(mine, other) {
    const items = { ...mine.items };
    for (const [id, schedule] of Object.entries(other.items)) {
      if (schedule && !Number.isNaN(Date.parse(schedule.due)) && (!items[id] || time(schedule) > time(items[id]))) items[id] = schedule;
    }
    const log = new Map([...mine.log, ...other.log].map((entry) => [JSON.stringify(entry), entry]));
    return { version: 1, items, log: [...log.values()].sort((a, b) => (a[2] < b[2] ? -1 : 1)) };
  }

  function rate(rating) {
    const item = round.queue[round.at];
    const now = new Date();
    const schedule = state.items[item.id] || fsrs.createEmptyCard(now);
    state.items[item.id] = scheduler.next(schedule, now, rating).card;
    state.log.push([item.id, rating, now.toISOString()]);
    keep();
    if (rating > 1) round.right += 1;
    round.at += 1;
    show();
  }

  // --- what is chosen --------------------------------------------------------------------------------

  let filters;
  const chosen = () => Object.fromEntries([...filters.elements].filter((each) => each.name).map((each) => [each.name, each.value]));
  function selected() {
    const { kind, module, path, tag } = chosen();
    const order = path && base.paths.find((each) => each.id === path).cards;
    return base.items
      .filter(({ kind: its, card }) => {
        const about = base.cards[card];
        return (!kind || its === kind) && (!module || about.module === module) && (!tag || about.tags.includes(tag)) && (!order || order.includes(card));
      })
      .sort((a, b) => (order ? order.indexOf(a.card) - order.indexOf(b.card) : 0));
  }
  function due(items, now = new Date()) {
    return items.filter((item) => isDue(item, now)).sort((a, b) => new Date(state.items[a.id].due) - new Date(state.items[b.id].due));
  }
  const fresh = (items) => items.filter((item) => !state.items[item.id]);

  // --- numbers that are typed ------------------------------------------------------------------------

  // "33.3 %", "1.2e-6", "1.2×10⁻⁶", "12 字节/参数", "1,024 KiB" → the value in the unit of the item, or null.
  function parse(text, item) {
    const raised = { "⁰": 0, "¹": 1, "²": 2, "³": 3, "⁴": 4, "⁵": 5, "⁶": 6, "⁷": 7, "⁸": 8, "⁹": 9, "⁻": "-" };
    const plain = text.trim().replace(/[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]/g, (mark) => raised[mark]).replace(/(\d)[,，](?=\d{3})/g, "$1").replace(/[−–]/g, "-").replace(/。/g, ".").replace(/％/g, "%");
    const found = plain.match(/^([-+]?)(?:(\d+)\s*\/\s*(\d+)|(\d*\.?\d+)(?:\s*[x×*·]\s*10\s*\^?\s*([-+]?\d+)|e([-+]?\d+))?)\s*(.*)$/iu);
    if (!found) return null;
    const [, sign, top, bottom, digits, power, exponent] = found;
    let unit = found[7].trim();
    let value = top ? top / bottom : digits * 10 ** Number(power ?? exponent ?? 0);
    if (sign === "-") value = -value;
    for (const [word, worth] of Object.entries(base.multipliers)) {
      if (unit.startsWith(word)) {
        unit = unit.slice(word.length).trim();
        value *= worth;
        break;
      }
    }
    if (!unit) return item.unit === "" && Math.abs(value - item.value) <= item.tolerance ? value : value * item.factor;
    const per = unit.match(/^(.*?)\s*(?:\/|每|per\s)\s*.*$/u);
    const known = base.units[unit] || (per && item.unit.includes("/") && base.units[per[1].trim()]);
    return known ? value * known[1] : null;
  }
  function score(text, item) {
    const value = parse(text, item);
    if (value === null) return "unread";
    const off = Math.abs(value - item.value);
    if (off <= item.tolerance + Math.abs(item.value) * 1e-9) return "right";
    return off <= Math.abs(item.value) * 0.05 ? "close" : "wrong";
  }

  // --- texts, from the card itself -------------------------------------------------------------------

  const pages = {};
  async function card(id) {
    if (handbook) return document;
    pages[id] ||= fetch(address(id)).then(async (answer) => {
      if (!answer.ok) throw new Error(String(answer.status));
      const read = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const link of read.querySelectorAll("a[href]")) link.setAttribute("href", new URL(link.getAttribute("href"), address(id)).href);
      return read;
    });
    pages[id].catch(() => delete pages[id]);
    return pages[id];
  }
  async function pieces(item, selector) {
    const source = (await card(item.card)).querySelector(`[data-item="${CSS.escape(item.id)}"]`);
    return [...(source?.querySelectorAll(selector) || [])].map((half) => {
      const { lang, dataset } = half.closest("[data-lang]");
      const copy = element("div", { class: "pd-half", lang, "data-lang": dataset.lang });
      copy.append(...[...half.childNodes].map((node) => document.importNode(node, true)));
      copy.querySelectorAll("[id]").forEach((marked) => marked.removeAttribute("id"));
      return copy;
    });
  }

  const halves = (text) =>
    ["zh", "en"].map((lang) => element("div", { class: "pd-half", lang: lang === "zh" ? "zh-Hans" : "en", "data-lang": lang }, text[lang]));

  // --- a round ---------------------------------------------------------------------------------------

  function start() {
    const items = selected();
    const queue = [...due(items), ...fresh(items)].slice(0, ROUND);
    if (!queue.length) return;
    round = { queue, at: 0, shown: false, right: 0 };
    if (!handbook) queue.slice(0, 3).forEach((item) => card(item.card).catch(() => {}));
    show();
  }

  function button(label, act, attributes = {}) {
    return element("button", { type: "button", class: "pd-button", onclick: act, ...attributes }, label);
  }

  async function show() {
    if (round.at >= round.queue.length) return finish();
    const item = round.queue[round.at];
    round.shown = false;
    if (!handbook && round.queue[round.at + 2]) card(round.queue[round.at + 2].card).catch(() => {});
    const about = base.cards[item.card];
    const question = element("div", { class: "pd-question-face" });
    const back = element("div", { class: "pd-back" });
    const reveal = button([...say("显示答案", "Show the answer"), " ", element("kbd", {}, "␣")], () => turn(item, back), { class: "pd-button pd-primary" });
    const sheet = element("section", { class: "pd-sheet pd-card" },
      element("div", { class: "pd-sheet-head" },
        element("span", { class: "pd-count" }, `${round.at + 1} / ${round.queue.length}`),
        element("progress", { max: round.queue.length, value: round.at, "aria-label": words("进度", "Progress") }),
        button(say("结束", "End"), finish)),
      element("p", { class: "pd-sheet-about" }, say(...KINDS[item.kind]), " — ", element("a", { href: address(item.card) }, say(about.title.zh, about.title.en))),
      question, back);
    page.replaceChildren(sheet);
    announce(`${round.at + 1} / ${round.queue.length}`);
    if (item.kind === "number") {
      const field = element("input", { id: "pd-typed", class: "pd-typed", autocomplete: "off", spellcheck: "false", inputmode: "text" });
      question.append(
        element("label", { for: "pd-typed" }, halves(item.ask)),
        element("p", { class: "pd-sheet-about" }, say(`${item.of.zh}：写出数值与单位`, `${item.of.en}: the number and its unit`)));
      const form = element("form", { class: "pd-typed-form" }, field, element("button", { class: "pd-button pd-primary" }, say("核对", "Check")));
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        if (field.value.trim() && !round.shown) turn(item, back, field.value);
      });
      back.append(form);
      field.focus();
      return;
    }
    back.append(reveal);
    if (item.kind === "pitfall") {
      question.append(...halves(item.ask), element("p", { class: "pd-sheet-about" }, say("错在哪里？", "What is wrong with it?")));
    } else {
      const own = await pieces(item, "summary").catch(() => []);
      if (round?.queue[round.at] !== item) return;
      question.append(...(own.length ? own : halves(item.ask)));
    }
    if (!round.shown) reveal.focus();
  }

  async function turn(item, back, typed) {
    round.shown = true;
    const answer = element("div", { class: "pd-answer-face" });
    let suggested = 3;
    if (item.kind === "number") {
      const found = score(typed, item);
      suggested = { right: 3, close: 2, wrong: 1, unread: 1 }[found];
      const verdict = {
        right: ["✓ 对", "✓ Right"], close: ["≈ 接近，但超出所印精度", "≈ Close, but not to the precision printed"],
        wrong: ["✗ 不对", "✗ Wrong"], unread: ["✗ 没有读出数值或单位", "✗ No number or unit was read"],
      }[found];
      answer.append(
        element("p", { class: "pd-score", "data-score": found, role: "status" }, say(...verdict)),
        element("p", { class: "pd-tip-value" }, say(item.text.zh || item.text.en, item.text.en || item.text.zh)),
        element("p", {}, say(item.how.zh, item.how.en)),
        element("p", {}, element("a", { href: address(item.card, item.evidence) }, say("看证据", "See the evidence"))));
    } else {
      try {
        answer.append(...(await pieces(item, item.kind === "pitfall" ? ".pd-pitfall" : ".pd-answer")));
      } catch {
        answer.append(element("p", {}, say("答案没有载入，请检查网络。", "The answer did not load: check the network.")));
      }
      if (round?.queue[round.at] !== item) return;
    }
    const now = new Date();
    const options = scheduler.repeat(state.items[item.id] || fsrs.createEmptyCard(now), now);
    const ratings = element("div", { class: "pd-ratings", role: "group", "aria-label": words("记得怎样？", "How well?") },
      RATINGS.map(([rating, zh, en]) =>
        button([element("kbd", {}, String(rating)), element("span", {}, say(zh, en)), element("small", {}, wait(options[rating].card.due, now))], () => rate(rating),
          { "data-rating": rating, class: rating === suggested ? "pd-button pd-primary" : "pd-button" })));
    back.replaceChildren(answer, ratings);
    ratings.querySelector(`[data-rating="${suggested}"]`).focus({ preventScroll: true });
  }

  function wait(until, now) {
    const minutes = Math.max(1, Math.round((new Date(until) - now) / MINUTE));
    if (minutes < 60) return words(`${minutes} 分钟`, `${minutes} min`);
    if (minutes < 60 * 24) return words(`${Math.round(minutes / 60)} 小时`, `${Math.round(minutes / 60)} h`);
    const days = Math.round(minutes / 60 / 24);
    return words(`${days} 天`, `${days} d`);
  }

  function finish() {
    const { right, at } = round;
    round = undefined;
    overview(at > 0 && element("p", { class: "pd-result", role: "status" }, say(`这一轮 ${at} 题，记得 ${right} 题。`, `${at} in this round, ${right} remembered.`)));
  }

  // --- the overview ----------------------------------------------------------------------------------

  function overview(news) {
    const counts = element("dl", { class: "pd-counts" });
    const list = element("ol", { class: "pd-due" });
    const rest = element("details", { class: "pd-due-list" }, element("summary", {}, say("到期清单", "Due list")), list);
    const go = button([...say("开始一轮", "Start a round"), " ", element("kbd", {}, "␣")], start, { class: "pd-button pd-primary pd-start" });
    const select = (name, zh, en, choices) =>
      element("select", { name, "aria-label": words(zh, en) }, element("option", { value: "" }, words(zh, en)), choices.map(([value, text]) => element("option", { value }, text)));
    const before = filters ? chosen() : {};
    const used = (field) => new Set(Object.values(base.cards).flatMap((about) => about[field]));
    filters = element("form", { class: "pd-search-filters" },
      select("kind", "全部种类", "All kinds", Object.entries(KINDS).map(([value, label]) => [value, words(...label)])),
      select("module", "全部模块", "All modules", base.modules.filter((each) => used("module").has(each.id)).map((each) => [each.id, words(each.title.zh, each.title.en)])),
      select("path", "全部路线", "All paths", base.paths.map((each) => [each.id, words(each.title.zh, each.title.en)])),
      select("tag", "全部标签", "All tags", [...used("tags")].sort().map((tag) => [tag, `#${tag}`])));
    for (const each of filters.elements) each.value = before[each.name] || "";
    filters.addEventListener("submit", (event) => event.preventDefault());

    function refresh() {
      const items = selected();
      const now = new Date();
      const waiting = due(items, now);
      const unseen = fresh(items);
      const fact = (number, zh, en) => element("div", {}, element("dt", {}, say(zh, en)), element("dd", {}, String(number)));
      counts.replaceChildren(fact(waiting.length, "到期", "due"), fact(unseen.length, "未学", "new"), fact(items.length - unseen.length - waiting.length, "已排期", "scheduled"));
      go.disabled = !waiting.length && !unseen.length;
      const next = items.filter((item) => state.items[item.id]).sort((a, b) => new Date(state.items[a.id].due) - new Date(state.items[b.id].due)).slice(0, 50);
      rest.hidden = !next.length;
      list.replaceChildren(...next.map((item) =>
        element("li", {},
          element("a", { href: address(item.card) }, say(base.cards[item.card].title.zh, base.cards[item.card].title.en)), " ",
          element("span", {}, say(item.ask.zh, item.ask.en)), " ",
          element("small", {}, new Date(state.items[item.id].due) <= now ? say("现在", "now") : wait(state.items[item.id].due, now)))));
    }
    filters.addEventListener("change", refresh);
    refresh();
    page.replaceChildren(
      ...[news].filter(Boolean), counts, filters, element("p", {}, go),
      element("p", { class: "pd-sheet-about" }, say(
        "一轮二十题，先到期的，再没学过的。空格翻面，1–4 评分，数字题直接键入。",
        "Twenty a round: what is due, then what is new. Space turns, 1–4 rate, numbers are typed.")),
      rest, backup(refresh));
    go.focus({ preventScroll: true });
  }

  function backup(refresh) {
    const said = element("p", { role: "status", class: "pd-sheet-about" });
    const file = element("input", { type: "file", accept: ".json,application/json", class: "pd-visually-hidden", id: "pd-study-file", tabindex: "-1", "aria-hidden": "true" });
    let replace = false;
    const ask = (whole) => () => {
      replace = whole;
      file.value = "";
      file.click();
    };
    file.addEventListener("change", async () => {
      let other;
      try {
        other = JSON.parse(await file.files[0].text());
      } catch {
        other = null;
      }
      if (!isState(other)) {
        said.replaceChildren(...say("这个文件不是学习进度。", "This file holds no study progress."));
        return;
      }
      state = merge(replace ? { items: {}, log: [] } : state, other);
      keep();
      refresh();
      const number = Object.keys(state.items).length;
      said.replaceChildren(...say(`已载入，共 ${number} 条进度。`, `Done: ${number} items with progress.`));
    });
    return element("div", { class: "pd-backup" },
      element("p", { class: "pd-sheet-about" }, say("进度只存在这个浏览器里。", "Progress stays in this browser only.")),
      button(say("导出", "Export"), save), " ", button(say("合并文件", "Merge a file"), ask(false)), " ", button(say("用文件替换", "Replace by a file"), ask(true)), file, said);
  }

  function save() {
    const link = element("a", { download: `proofdeck-study-${new Date().toISOString().slice(0, 10)}.json` });
    link.href = URL.createObjectURL(new Blob([JSON.stringify(state)], { type: "application/json" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), MINUTE);
  }

  // --- keys ------------------------------------------------------------------------------------------

  key(["1", "2", "3", "4"], "评分：忘了、吃力、记得、轻松", "rate: again, hard, good, easy", (event) => {
    const rating = page.querySelector(`[data-rating="${event.key}"]`);
    rating?.click();
    return Boolean(rating);
  });
  key(" ", "翻面，开始一轮", "turn over, start a round", (event) => {
    if (event.target.closest?.("button, a, summary")) return false;
    const first = page.querySelector(".pd-primary:not([disabled])");
    first?.click();
    return Boolean(first);
  });
  onSet("mode", () => base && !round && overview());

  async function begin() {
    page.replaceChildren(element("p", { role: "status" }, say("正在载入…", "Loading…")));
    try {
      [base, fsrs] = await Promise.all([data("study"), library("ts-fsrs.js", "FSRS")]);
    } catch {
      page.replaceChildren(element("p", { role: "status" }, say("没有载入，请检查网络后重试。", "It did not load: check the network and try again.")));
      return;
    }
    scheduler = fsrs.fsrs({ enable_fuzz: false });
    const kept = store.get("study", null);
    state = isState(kept) ? kept : { version: 1, items: {}, log: [] };
    if (!store.set("probe", 1)) page.before(element("p", { class: "pd-callout" }, say("这个浏览器不让页面保存进度，离开前请导出。", "This browser lets the page keep nothing: export before you leave.")));
    overview();
  }
  window.pd.score = score;
  begin();
})();
