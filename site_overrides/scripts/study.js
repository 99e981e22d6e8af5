// Study mode: follow-ups, pitfalls and proven numbers, on the schedule of FSRS.
// An item is known by its id, so an edited text keeps its schedule. All state stays in this browser.
(function () {
  "use strict";
  const page = document.querySelector("[data-pd-study]");
  if (!page) return;
  const { handbook, element, say, words, key, address, data, library, announce, onSet } = window.pd;

  const ROUND = 20;
  const KINDS = { followup: ["追问", "Follow-up"], pitfall: ["陷阱", "Pitfall"], number: ["数字", "Number"] };
  const RATINGS = [
    [1, "忘了", "Again"], [2, "吃力", "Hard"], [3, "记得", "Good"], [4, "轻松", "Easy"],
  ];
  const MINUTE = 60_000;

  let base; // what there is to study
  let progress; // how far the reader is with it
  let round; // { queue, at, shown, right } while one goes on

  const dueAt = (item) => new Date(progress.of(item.id).due);

  function rate(rating) {
    progress.rate(round.queue[round.at].id, rating);
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
    return items.filter((item) => progress.of(item.id) && dueAt(item) <= now).sort((a, b) => dueAt(a) - dueAt(b));
  }
  const fresh = (items) => items.filter((item) => !progress.of(item.id));

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
    const { at: now, options } = progress.next(item.id);
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

  let refresh = () => {}; // what the overview counts
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

    refresh = () => {
      const items = selected();
      const now = new Date();
      const waiting = due(items, now);
      const unseen = fresh(items);
      const fact = (number, zh, en) => element("div", {}, element("dt", {}, say(zh, en)), element("dd", {}, String(number)));
      counts.replaceChildren(fact(waiting.length, "到期", "due"), fact(unseen.length, "未学", "new"), fact(items.length - unseen.length - waiting.length, "已排期", "scheduled"));
      go.disabled = !waiting.length && !unseen.length;
      const next = items.filter((item) => progress.of(item.id)).sort((a, b) => dueAt(a) - dueAt(b)).slice(0, 50);
      rest.hidden = !next.length;
      list.replaceChildren(...next.map((item) =>
        element("li", {},
          element("a", { href: address(item.card) }, say(base.cards[item.card].title.zh, base.cards[item.card].title.en)), " ",
          element("span", {}, say(item.ask.zh, item.ask.en)), " ",
          element("small", {}, dueAt(item) <= now ? say("现在", "now") : wait(dueAt(item), now)))));
    };
    filters.addEventListener("change", refresh);
    refresh();
    page.replaceChildren(
      ...[news].filter(Boolean), counts, filters, element("p", {}, go),
      element("p", { class: "pd-sheet-about" }, say(
        "一轮二十题，先到期的，再没学过的。空格翻面，1–4 评分，数字题直接键入。",
        "Twenty a round: what is due, then what is new. Space turns, 1–4 rate, numbers are typed.")),
      rest, backup());
    go.focus({ preventScroll: true });
  }

  const counted = (number) => [`${number} 条进度`, number === 1 ? "1 item" : `${number} items`];

  function backup() {
    const said = element("p", { role: "status", class: "pd-sheet-about" });
    const tell = (...parts) => said.replaceChildren(...parts.flat());
    const file = element("input", { type: "file", accept: ".json,application/json", class: "pd-visually-hidden", id: "pd-study-file", tabindex: "-1", "aria-hidden": "true" });
    let act;
    const choose = (then) => () => {
      act = then;
      file.value = "";
      file.click();
    };
    file.addEventListener("change", async () => {
      const found = file.files.length && progress.read(await file.files[0].text().catch(() => ""));
      if (!found) return tell(say("这个文件不是学习进度。", "This file holds no study progress."));
      const number = Object.keys(found.progress.items).length;
      if (found.refused && !number) return tell(say("这个文件里没有能排期的进度。", "Nothing in this file can be scheduled."));
      if (!(await act(found.progress, number))) return;
      overview();
      page.querySelector(".pd-backup [role=status]").replaceChildren(
        ...say(`已载入，共 ${counted(progress.size())[0]}。`, `Loaded: ${counted(progress.size())[1]} with progress.`), " ",
        ...(found.refused ? say(`文件中有 ${found.refused} 条无法排期，没有载入。`, `Of the file, ${found.refused} could not be scheduled and ${found.refused === 1 ? "was" : "were"} left out.`) : []));
    });
    const merge = (other) => {
      progress.add(other);
      return true;
    };
    const replace = async (other, number) => {
      const sure = await asked(
        say(`用文件里的 ${counted(number)[0]}替换这里的 ${counted(progress.size())[0]}？之后可以撤销。`,
          `Replace the ${counted(progress.size())[1]} here with the ${counted(number)[1]} of the file? It can be undone.`),
        say("替换", "Replace"));
      if (sure) progress.replace(other);
      return sure;
    };
    const undo = () => {
      progress.undo();
      overview(element("p", { role: "status" }, say("已恢复替换前的进度。", "Your progress is as it was before.")));
    };
    return element("div", { class: "pd-backup" },
      element("p", { class: "pd-sheet-about" }, say("进度只存在这个浏览器里。", "Progress stays in this browser only.")),
      element("p", { class: "pd-buttons" },
        button(say("导出", "Export"), save),
        button(say("合并文件", "Merge a file"), choose(merge)),
        button(say("用文件替换", "Replace with a file"), choose(replace)),
        progress.canUndo() && button(say("撤销替换", "Undo the replacement"), undo)),
      file, said);
  }

  // A question in a dialog → whether it was answered with yes; Esc and a click outside say no.
  function asked(question, yes) {
    return new Promise((answer) => {
      const dialog = element("dialog", { class: "pd-dialog pd-ask", "aria-labelledby": "pd-asked" },
        element("form", { method: "dialog", class: "pd-help-sheet" },
          element("p", { id: "pd-asked" }, question),
          element("p", { class: "pd-buttons" },
            element("button", { class: "pd-button", value: "" }, say("取消", "Cancel")),
            element("button", { class: "pd-button pd-primary", value: "yes" }, yes))));
      dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
      dialog.addEventListener("close", () => {
        answer(dialog.returnValue === "yes");
        dialog.remove();
      });
      document.body.append(dialog);
      dialog.showModal();
    });
  }

  function download(name, text) {
    const link = element("a", { download: `proofdeck-${name}-${new Date().toISOString().slice(0, 10)}.json` });
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), MINUTE);
  }
  const save = () => download("study", progress.text());

  // What stays on screen until it is mended: progress that is not kept, and stored entries that were not read.
  const notices = element("div", { class: "pd-notices" });
  let noticed;
  function notice() {
    const refused = progress.refused();
    const now = `${progress.kept()} ${refused}`;
    if (now === noticed) return; // said once, and the focus stays where it is
    noticed = now;
    notices.replaceChildren(
      ...[
        !progress.kept() && element("div", { class: "pd-callout", "data-kind": "warning", role: "alert" },
          element("p", {}, say(
            "这个浏览器没有存下进度：存储已满，或不允许保存。进度只在这个标签页里，离开前请导出。",
            "This browser did not keep your progress: its storage is full or blocked. It is in this tab alone: export it before you leave.")),
          element("p", { class: "pd-buttons" }, button(say("导出", "Export"), save), button(say("再试一次", "Try again"), progress.again))),
        refused > 0 && element("div", { class: "pd-callout", "data-kind": "note", role: "status" },
          element("p", {}, say(
            `存储中有 ${refused} 条读不出来或无法排期，已另外存放。`,
            `Of what was stored, ${refused} could not be read or scheduled, and ${refused === 1 ? "was" : "were"} set aside.`)),
          element("p", { class: "pd-buttons" },
            button(say("导出这些", "Export them"), () => download("study-aside", progress.asideText())),
            button(say("丢弃", "Discard"), progress.discard))),
      ].filter(Boolean));
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
    let fsrs;
    page.replaceChildren(element("p", { role: "status" }, say("正在载入…", "Loading…")));
    try {
      [base, fsrs] = await Promise.all([data("study"), library("ts-fsrs.js", "FSRS")]);
    } catch {
      page.replaceChildren(element("p", { role: "status" }, say("没有载入，请检查网络后重试。", "It did not load: check the network and try again.")));
      return;
    }
    progress = window.pd.progress.open({
      scheduler: fsrs.fsrs({ enable_fuzz: false }), fresh: fsrs.createEmptyCard, successors: base.successors,
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
