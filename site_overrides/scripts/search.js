// Search in both languages: titles before aliases before text; any run of 汉字, any beginning of a Latin word.
// Titles and aliases are indexed (MiniSearch, which forgives slips of the keyboard); texts are scanned as they are:
// a thousand cards take some milliseconds, where an index of them would take a phone many seconds to make.
(function () {
  "use strict";
  const { handbook, set, element, say, words, languages, key, anchor, address, place, data, library, announce } = window.pd;

  const SECTIONS = {
    answer: ["一句话结论", "In one sentence"], insights: ["核心要义", "Key insights"], derivation: ["推导", "Derivation"],
    tradeoffs: ["工程权衡", "Trade-offs"], pitfalls: ["常见陷阱", "Pitfalls"], followups: ["追问", "Follow-ups"],
  };
  const DIFFICULTIES = { easy: ["基础", "Easy"], medium: ["进阶", "Medium"], hard: ["深入", "Hard"] };
  const PROOFS = {
    proven: ["全部已证明", "all proven"], computed: ["含计算或抽样", "some computed or sampled"],
    measured: ["含实测", "some measured"],
    stale: ["有过期", "some stale"], none: ["无数字", "no numbers"],
  };
  const CARDS_SHOWN = 20;
  const PARTS_SHOWN = 3;

  // --- words ---------------------------------------------------------------------------------------

  const normal = (text) => text.normalize("NFKC").toLowerCase();
  const runs = (text) => normal(text).match(/\p{Script=Han}+|(?:(?!\p{Script=Han})[\p{L}\p{N}])+/gu) || [];
  const isHan = (text) => /^\p{Script=Han}/u.test(text);
  const pairs = (run) => Array.from({ length: run.length - 1 }, (_, i) => run.slice(i, i + 2));
  // In the index a run of 汉字 is its characters and its pairs; it is asked for by pairs, or by its one character.
  const indexed = (text) => runs(text).flatMap((run) => (isHan(run) ? [...run, ...pairs(run)] : [run]));
  const asked = (text) => runs(text).flatMap((run) => (isHan(run) && run.length > 1 ? pairs(run) : [run]));

  // How often a term is in a text, up to five times; a Latin one only where a word begins.
  function count(text, term) {
    const anywhere = isHan(term);
    let found = 0;
    for (let at = text.indexOf(term); at >= 0 && found < 5; at = text.indexOf(term, at + term.length)) {
      if (anywhere || at === 0 || !/[\p{L}\p{N}]/u.test(text[at - 1]) || isHan(text[at - 1])) found += 1;
    }
    return found;
  }

  // --- finding -------------------------------------------------------------------------------------

  let ready;
  function load() {
    ready ||= Promise.all([data("search"), library("minisearch.js", "MiniSearch")]).then(([found, MiniSearch]) => {
      const index = new MiniSearch({
        fields: ["title", "alias"],
        tokenize: indexed,
        processTerm: (term) => term,
        searchOptions: {
          tokenize: asked,
          combineWith: "AND",
          boost: { title: 2 },
          prefix: (term) => !isHan(term),
          fuzzy: (term) => (!isHan(term) && term.length > 4 ? 0.2 : false),
        },
      });
      index.addAll(
        found.cards.map((card, id) => ({
          id,
          title: `${card.title.zh} ${card.title.en}`,
          alias: [...card.aliases.zh, ...card.aliases.en, ...card.tags, card.id.replaceAll("-", " ")].join(" "),
        })),
      );
      const texts = found.parts.map(([, , , , heading, text]) => [normal(heading), normal(text)]);
      return { ...found, index, texts };
    });
    return ready;
  }

  // For one term: what each card's title is worth, and what each part is.
  function weigh({ index, texts }, term) {
    const titles = new Map(index.search(term).map(({ id, score }) => [id, score]));
    const parts = new Map();
    texts.forEach(([heading, text], i) => {
      const hits = 3 * count(heading, term) + count(text, term) / Math.sqrt(1 + text.length / 200);
      if (hits) parts.set(i, hits);
    });
    const rarity = Math.log(1 + texts.length / (1 + parts.size));
    for (const [i, hits] of parts) parts.set(i, hits * rarity);
    return { titles, parts };
  }

  // Cards in which every term is found somewhere, best first, each with its best parts.
  function find(found, query, keep) {
    const { cards, parts } = found;
    let terms = runs(query).map((term) => [term, weigh(found, term)]);
    // 汉字 written in one go need not stand in one go: what is found nowhere is looked for pair by pair.
    terms = terms.flatMap(([term, weight]) =>
      isHan(term) && term.length > 3 && !weight.titles.size && !weight.parts.size
        ? pairs(term).map((pair) => [pair, weigh(found, pair)])
        : [[term, weight]],
    );
    const phrase = normal(query.trim());
    const groups = new Map();
    const group = (i) => {
      if (!groups.has(i)) groups.set(i, { card: cards[i], met: new Set(), title: 0, parts: new Map() });
      return groups.get(i);
    };
    for (const [term, { titles, parts: texts }] of terms) {
      for (const [i, worth] of titles) {
        group(i).met.add(term);
        group(i).title += worth;
      }
      for (const [i, worth] of texts) {
        const { met, parts: own } = group(parts[i][0]);
        met.add(term);
        own.set(i, (own.get(i) || 0) + worth);
      }
    }
    const met = [...groups.values()].filter((each) => keep(each.card) && terms.every(([term]) => each.met.has(term)));
    for (const each of met) {
      each.parts = [...each.parts].map(([i, worth]) => ({ part: parts[i], worth })).sort((a, b) => b.worth - a.worth);
      const named = Object.values(each.card.title).some((title) => normal(title).includes(phrase));
      each.score = each.title * (named ? 30 : 10) + (each.parts[0]?.worth || 0) + 0.1 * each.parts.length;
    }
    return met.sort((a, b) => b.score - a.score);
  }

  // The best parts of a card: a place once, in a language that is shown if it matches there.
  function best(group) {
    const shown = languages();
    const places = new Map();
    for (const each of group.parts) {
      const place = each.part[2];
      const other = places.get(place);
      if (!other || (!shown.includes(other.part[3]) && shown.includes(each.part[3]))) places.set(place, each);
    }
    return [...places.values()].slice(0, PARTS_SHOWN).map((each) => each.part);
  }

  // --- the words found, marked -----------------------------------------------------------------------

  function marked(text, query) {
    const low = text.toLowerCase();
    const sought = runs(query);
    const spans = [];
    for (const run of sought) {
      for (let at = low.indexOf(run); at >= 0 && spans.length < 50; at = low.indexOf(run, at + run.length)) {
        spans.push([at, at + run.length]);
      }
    }
    spans.sort((a, b) => a[0] - b[0]);
    const first = spans.length ? spans[0][0] : 0;
    const from = first > 40 ? Math.max(0, text.lastIndexOf(" ", first - 20), first - 40) : 0;
    const to = Math.min(text.length, from + 140);
    const made = [from > 0 ? "…" : ""];
    let at = from;
    for (const [start, end] of spans) {
      if (start < at || end > to) continue;
      made.push(text.slice(at, start), element("mark", {}, text.slice(start, end)));
      at = end;
    }
    made.push(text.slice(at, to), to < text.length ? "…" : "");
    return made;
  }

  // On arrival: the section is opened by its anchor; here its words are lit, without touching the page.
  function light(query, anchor, lang) {
    if (["zh", "en"].includes(lang) && !languages().includes(lang)) set("mode", "both", { keep: false });
    const scope = (anchor && document.getElementById(anchor)) || document.querySelector(".pd-card");
    if (!scope || !window.Highlight) return;
    const sought = runs(query);
    const ranges = [];
    const walker = document.createTreeWalker(scope, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const low = node.data.toLowerCase();
      for (const run of sought) {
        for (let at = low.indexOf(run); at >= 0; at = low.indexOf(run, at + run.length)) {
          const range = new Range();
          range.setStart(node, at);
          range.setEnd(node, at + run.length);
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set("pd-search", new Highlight(...ranges));
    const first = ranges.find((range) => range.getClientRects().length);
    first?.startContainer.parentElement.scrollIntoView({ block: "center" });
  }

  // --- the dialog ------------------------------------------------------------------------------------

  let dialog, input, list, status, filters;
  let active = -1;

  const options = () => [...list.querySelectorAll('[role="option"]')];

  function select(number) {
    const all = options();
    all[active]?.removeAttribute("aria-selected");
    active = all.length ? (number + all.length) % all.length : -1;
    all[active]?.setAttribute("aria-selected", "true");
    all[active]?.scrollIntoView({ block: "nearest" });
    if (active >= 0) input.setAttribute("aria-activedescendant", all[active].id);
    else input.removeAttribute("aria-activedescendant");
  }

  let numbered = 0;
  function option(kind, card, place, lang, query, ...content) {
    const link = element(
      "a",
      { role: "option", id: `pd-option-${numbered++}`, class: `pd-hit pd-hit-${kind}`, tabindex: "-1",
        href: address(card.id, place, query && { q: query, in: lang }) },
      content,
    );
    link.addEventListener("click", () => {
      dialog.close();
      if (handbook && query) setTimeout(() => light(query, anchor(card.id, place), lang), 50);
    });
    return link;
  }

  const both = (text) => say(text.zh, text.en);

  function show(groups, found, query) {
    numbered = 0;
    const modules = new Map(found.modules.map((module) => [module.id, module.title]));
    list.replaceChildren(
      ...groups.slice(0, CARDS_SHOWN).map((group) => {
        const { card } = group;
        const head = option(
          "card", card, "", undefined, query,
          element("span", { class: "pd-hit-title" }, both(card.title)),
          element("span", { class: "pd-hit-about" }, both(modules.get(card.module) || { zh: card.module, en: card.module }),
            " · ", say(...DIFFICULTIES[card.difficulty])),
        );
        const parts = group.parts ? best(group) : [];
        return element(
          "div",
          { role: "group", "aria-label": card.title[languages()[0]], class: "pd-hits" },
          head,
          parts.map(([, section, place, lang, heading, text]) =>
            option(
              "part", card, place, lang, query,
              element("span", { class: "pd-hit-section" }, say(...SECTIONS[section])),
              element("span", { class: "pd-hit-text", lang: lang === "zh" ? "zh-Hans" : "en" },
                heading && section === "followups" && element("b", {}, marked(heading, query), " "), marked(text, query)),
            ),
          ),
        );
      }),
    );
    const text = groups.length ? words(`${groups.length} 张卡片`, `${groups.length} card${groups.length > 1 ? "s" : ""}`) : words("没有找到", "Nothing found");
    status.textContent = text;
    announce(text);
    active = -1;
    select(0);
  }

  async function update() {
    let found;
    try {
      found = await load();
    } catch {
      status.textContent = words("搜索数据没有载入，请检查网络", "The search data did not load: check the network");
      return;
    }
    const query = input.value.trim();
    const chosen = Object.fromEntries([...filters.elements].map((each) => [each.name, each.value]));
    const keep = (card) =>
      (!chosen.module || card.module === chosen.module) && (!chosen.difficulty || card.difficulty === chosen.difficulty) &&
      (!chosen.tag || card.tags.includes(chosen.tag)) && (!chosen.proof || card.proof === chosen.proof);
    if (runs(query).length) show(find(found, query, keep), found, query);
    else if (Object.values(chosen).some(Boolean)) show(found.cards.filter(keep).map((card) => ({ card })), found, "");
    else {
      list.replaceChildren();
      status.textContent = words("输入中文、英文、别名或缩写", "Type Chinese, English, an alias or an abbreviation");
    }
    dialog.dataset.query = query; // what is shown answers this
  }

  function filter(name, zh, en, choices) {
    return element("select", { name, "aria-label": words(zh, en) },
      element("option", { value: "" }, words(zh, en)),
      choices.map(([value, text]) => element("option", { value }, text)));
  }

  function make() {
    input = element("input", {
      type: "search", class: "pd-search-input", role: "combobox", "aria-expanded": "true", "aria-controls": "pd-search-list",
      "aria-autocomplete": "list", autocomplete: "off", spellcheck: "false", enterkeyhint: "go",
    });
    list = element("div", { id: "pd-search-list", role: "listbox", class: "pd-search-list" });
    status = element("p", { class: "pd-search-status" });
    filters = element("form", { class: "pd-search-filters" });
    const close = element("button", { type: "button", class: "pd-icon-button", onclick: () => dialog.close() }, "✕");
    dialog = element("dialog", { class: "pd-dialog pd-search", onclick: (event) => event.target === dialog && dialog.close() },
      element("div", { class: "pd-search-bar" }, input, close), filters, status, list);
    input.addEventListener("input", update);
    filters.addEventListener("change", update);
    filters.addEventListener("submit", (event) => event.preventDefault());
    input.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "ArrowDown") select(active + 1);
      else if (event.key === "ArrowUp") select(active - 1);
      else if (event.key === "Enter") options()[active]?.click();
      else if (event.key === "Escape") dialog.close(); // Firefox would only empty the field
      else return;
      event.preventDefault();
    });
    document.body.append(dialog);
    return { close };
  }

  let parts;
  async function open() {
    parts ||= make();
    const name = words("搜索", "Search");
    dialog.setAttribute("aria-label", name);
    input.setAttribute("aria-label", name);
    input.placeholder = name;
    list.setAttribute("aria-label", words("结果", "Results"));
    parts.close.setAttribute("aria-label", words("关闭", "Close"));
    status.textContent = words("正在载入…", "Loading…");
    dialog.showModal();
    input.select();
    try {
      const { modules, cards } = await load();
      const label = ([value, [zh, en]]) => [value, words(zh, en)];
      const present = (field) => new Set(cards.flatMap((card) => card[field]));
      filters.replaceChildren(
        filter("module", "全部模块", "All modules", modules.filter((each) => present("module").has(each.id)).map((each) => [each.id, words(each.title.zh, each.title.en)])),
        filter("difficulty", "难度不限", "Any difficulty", Object.entries(DIFFICULTIES).map(label)),
        filter("tag", "标签不限", "Any tag", [...present("tags")].sort().map((tag) => [tag, `#${tag}`])),
        filter("proof", "证明状态不限", "Any state of proof", Object.entries(PROOFS).filter(([value]) => present("proof").has(value)).map(label)),
      );
    } catch {
      // update() says so.
    }
    update();
  }

  key(["/", "s", "f"], "搜索", "search", () => void open());
  document.addEventListener("click", (event) => event.target.closest('[data-pd-open="search"]') && open());

  const arrived = new URLSearchParams(location.search);
  if (arrived.get("q") && document.querySelector(".pd-card")) {
    light(arrived.get("q"), place(), arrived.get("in"));
    const clean = new URL(location.href);
    clean.searchParams.delete("q");
    clean.searchParams.delete("in");
    history.replaceState(null, "", clean);
  }
})();
