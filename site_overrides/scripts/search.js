// @ts-check
// Search in both languages: titles before aliases before text; any run of 汉字, any beginning of a Latin word.
// Titles and aliases are indexed (MiniSearch, which forgives slips of the keyboard); texts are scanned as they are:
// a thousand cards take some milliseconds, where an index of them would take a phone many seconds to make.
// A word of the glossary is looked for as whatever else it is called, too.
(function () {
  "use strict";
  const { all, handbook, set, element, say, words, languages, htmlLang } = window.pd;
  const { anchor, address, data, library, announce } = window.pd;

  /** @typedef {Pick<SearchCard, "module" | "difficulty" | "tags" | "proof">} Facts */
  /** The data, indexed; of each part the heading and the text in one spelling. */
  /** @typedef {[heading: string, text: string]} Spelled */
  /** @typedef {SearchData & { index: import("minisearch").default, texts: Spelled[], said: Said[] }} Index */
  /** What a term of the glossary is called, and what else. @typedef {[form: string, others: string[]]} Said */
  /** What a term is worth to cards and to parts, by their numbers. */
  /** @typedef {{ titles: Map<number, number>, parts: Map<number, number> }} Weights */
  /** A card that is shown, with its parts, best first, and the words that they were found by. */
  /** @typedef {{ card: SearchCard, parts: SearchPart[], query: string }} Found */

  /** @type {Difficulty[]} */
  const DIFFICULTIES = ["easy", "medium", "hard"];
  /** @type {Proof[]} */
  const PROOFS = ["proven", "computed", "measured", "stale", "none"];
  const CARDS_SHOWN = 20;
  const PARTS_SHOWN = 3;

  // --- words ---------------------------------------------------------------------------------------

  /** @param {string} text */
  const normal = (text) => text.normalize("NFKC").toLowerCase();
  /** @param {string} text */
  const runs = (text) => normal(text).match(/\p{Script=Han}+|(?:(?!\p{Script=Han})[\p{L}\p{N}])+/gu) || [];
  /** @param {string} text */
  const isHan = (text) => /^\p{Script=Han}/u.test(text);
  /** @param {string} run */
  const pairs = (run) => Array.from({ length: run.length - 1 }, (_, i) => run.slice(i, i + 2));
  // In the index a run of 汉字 is its characters and its pairs; it is asked for by pairs, or by its one character.
  /** @param {string} text */
  const indexed = (text) => runs(text).flatMap((run) => (isHan(run) ? [...run, ...pairs(run)] : [run]));
  /** @param {string} text */
  const asked = (text) => runs(text).flatMap((run) => (isHan(run) && run.length > 1 ? pairs(run) : [run]));

  /**
   * Where a term begins in a text.
   * @param {string} text
   * @param {string} term
   */
  function* places(text, term) {
    for (let at = text.indexOf(term); at >= 0; at = text.indexOf(term, at + term.length)) yield at;
  }

  /**
   * How often a term is in a text, up to five times; a Latin one only where a word begins.
   * @param {string} text
   * @param {string} term
   */
  function count(text, term) {
    const anywhere = isHan(term);
    let found = 0;
    for (const at of places(text, term)) {
      const before = text[at - 1] || "";
      if (anywhere || !/[\p{L}\p{N}]/u.test(before) || isHan(before)) found += 1;
      if (found === 5) break;
    }
    return found;
  }

  // --- finding -------------------------------------------------------------------------------------

  /** @type {Promise<Index> | undefined} */
  let ready;
  function load() {
    ready ||= Promise.all([data("search"), library("minisearch", "MiniSearch")]).then(indexOf);
    return ready;
  }

  /** @param {[SearchData, MiniSearchClass]} loaded @returns {Index} */
  function indexOf([found, MiniSearch]) {
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
    const entries = found.cards.map(({ id: name, title, aliases, tags }, id) => ({
      id,
      title: `${title.zh} ${title.en}`,
      alias: [...aliases.zh, ...aliases.en, ...tags, name.replaceAll("-", " ")].join(" "),
    }));
    index.addAll(entries);
    /** @type {Index["texts"]} */
    const texts = found.parts.map(([, , , , heading, text]) => [normal(heading), normal(text)]);
    return { ...found, index, texts, said: found.terms.flatMap(saidAs).sort((a, b) => b[0].length - a[0].length) };
  }

  // Words between spaces, and 汉字 anywhere: " all gather ", "重计算".
  /** @param {string} text */
  const spaced = (text) => ` ${runs(text).join(" ")} `;
  /** @param {string} form */
  const edged = (form) => spaced(form).replace(/^ (?=\p{Script=Han})|(?<=\p{Script=Han}) $/gu, "");
  /** @param {string[]} forms @returns {Said[]} */
  function saidAs(forms) {
    const each = [...new Set(forms.map(edged))];
    return each.map((form) => [form, each.filter((other) => other !== form)]);
  }
  /**
   * A query, and what else it may be called: the longest word of the glossary in it as each of its other words.
   * @param {Index} index
   * @param {string} query
   */
  function widened({ said }, query) {
    const text = spaced(query);
    const [form, others] = said.find(([each]) => each.trim() && text.includes(each)) || ["", []];
    return [query, ...others.map((other) => text.replace(form, ` ${other} `).trim())];
  }

  /**
   * For one term: what each card's title is worth, and what each part is.
   * @param {Index} index
   * @param {string} term
   * @returns {Weights}
   */
  function weigh({ index, texts }, term) {
    /** @type {Weights["titles"]} */
    const titles = new Map(index.search(term).map(({ id, score }) => [id, score]));
    /** @type {Weights["parts"]} */
    const parts = new Map();
    texts.forEach(([heading, text], i) => {
      const hits = 3 * count(heading, term) + count(text, term) / Math.sqrt(1 + text.length / 200);
      if (hits) parts.set(i, hits);
    });
    const rarity = Math.log(1 + texts.length / (1 + parts.size));
    for (const [i, hits] of parts) parts.set(i, hits * rarity);
    return { titles, parts };
  }

  /**
   * The terms of a query, each with its weights.
   * @param {Index} index
   * @param {string} query
   * @returns {[term: string, weights: Weights][]}
   */
  function weighed(index, query) {
    return runs(query).flatMap((term) => {
      const weights = weigh(index, term);
      const nowhere = !weights.titles.size && !weights.parts.size;
      // 汉字 written in one go need not stand in one go: what is found nowhere is looked for pair by pair.
      const terms = nowhere && isHan(term) && term.length > 3 ? pairs(term) : undefined;
      if (!terms) return [[term, weights]];
      return terms.map((pair) => /** @type {[string, Weights]} */ ([pair, weigh(index, pair)]));
    });
  }

  const OTHERWISE = 0.5; // what a card is worth that only another word for a term finds

  /**
   * Cards that a query finds, or another word for it, best first.
   * @param {Index} index
   * @param {string} query
   * @param {(card: Facts) => boolean} keep
   * @returns {Found[]}
   */
  function find(index, query, keep) {
    /** @type {Map<SearchCard, Found & { score: number }>} */
    const found = new Map();
    widened(index, query).forEach((text, i) => {
      for (const each of meeting(index, text, keep)) {
        const score = each.score * (i ? OTHERWISE : 1);
        if (score > (found.get(each.card)?.score || 0)) found.set(each.card, { ...each, score });
      }
    });
    return [...found.values()].sort((a, b) => b.score - a.score);
  }

  /**
   * Cards in which every term is found somewhere, each with its best parts.
   * @param {Index} index
   * @param {string} query
   * @param {(card: Facts) => boolean} keep
   */
  function meeting(index, query, keep) {
    const { cards, parts } = index;
    /** @typedef {{ card: SearchCard, met: Set<string>, title: number, parts: Map<number, number> }} Group */
    /** @type {Map<number, Group>} */
    const groups = new Map();
    /** @param {number} i a card */
    function group(i) {
      const made = groups.get(i) || { card: cards[i], met: new Set(), title: 0, parts: new Map() };
      groups.set(i, made);
      return made;
    }
    const terms = weighed(index, query);
    for (const [term, weights] of terms) {
      for (const [i, worth] of weights.titles) {
        const { met } = group(i);
        met.add(term);
        group(i).title += worth;
      }
      for (const [i, worth] of weights.parts) {
        const { met, parts: own } = group(parts[i][0]);
        met.add(term);
        own.set(i, (own.get(i) || 0) + worth);
      }
    }
    const phrase = normal(query.trim());
    return [...groups.values()]
      .filter(({ card, met }) => keep(card) && terms.every(([term]) => met.has(term)))
      .map(({ card, title, parts: own }) => {
        const best = [...own].sort((a, b) => b[1] - a[1]);
        const named = Object.values(card.title).some((each) => normal(each).includes(phrase));
        const score = title * (named ? 30 : 10) + (best[0]?.[1] || 0) + 0.1 * best.length;
        return { card, parts: best.map(([i]) => parts[i]), query, score };
      });
  }

  /**
   * The best parts of a card: a place once, in a language that is shown if it matches there.
   * @param {SearchPart[]} parts
   */
  function best(parts) {
    const shown = languages();
    /** @type {Map<string, SearchPart>} */
    const chosen = new Map();
    for (const part of parts) {
      const other = chosen.get(part[2]);
      if (!other || (!shown.includes(other[3]) && shown.includes(part[3]))) chosen.set(part[2], part);
    }
    return [...chosen.values()].slice(0, PARTS_SHOWN);
  }

  // --- the words found, marked -----------------------------------------------------------------------

  /**
   * Where the words of a query stand in a text, in order.
   * @param {string} text
   * @param {string} query
   */
  function spansOf(text, query) {
    const low = text.toLowerCase();
    /** @type {[start: number, end: number][]} */
    const spans = [];
    for (const run of runs(query)) {
      for (const at of places(low, run)) {
        if (spans.length === 50) break;
        spans.push([at, at + run.length]);
      }
    }
    return spans.sort((a, b) => a[0] - b[0]);
  }

  /**
   * The piece of a text around the first of the words.
   * @param {string} text
   * @param {string} query
   */
  function marked(text, query) {
    const spans = spansOf(text, query);
    const first = spans.length ? spans[0][0] : 0;
    const from = first > 40 ? Math.max(0, text.lastIndexOf(" ", first - 20), first - 40) : 0;
    const to = Math.min(text.length, from + 140);
    /** @type {Child[]} */
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

  /**
   * Every place of the words in what stands on the page.
   * @param {Node} scope
   * @param {string} query
   */
  function rangesOf(scope, query) {
    const sought = runs(query);
    const ranges = [];
    const walker = document.createTreeWalker(scope, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = /** @type {CharacterData} */ (walker.currentNode);
      const low = node.data.toLowerCase();
      for (const run of sought) {
        for (const at of places(low, run)) {
          const range = new Range();
          range.setStart(node, at);
          range.setEnd(node, at + run.length);
          ranges.push(range);
        }
      }
    }
    return ranges;
  }

  /**
   * On arrival: the section is opened by its anchor; here its words are lit, without touching the page.
   * @param {string} query
   * @param {string} anchor
   * @param {string | null} lang
   */
  function light(query, anchor, lang) {
    if ((lang === "zh" || lang === "en") && !languages().includes(lang)) set("mode", "both", { keep: false });
    const scope = (anchor && document.getElementById(anchor)) || document.querySelector(".pd-card");
    if (!scope || !window.Highlight) return;
    const ranges = rangesOf(scope, query);
    const highlight = new Highlight();
    for (const range of ranges) highlight.add(range); // more of them than a call takes arguments
    CSS.highlights.set("pd-search", highlight);
    const first = ranges.find((range) => range.getClientRects().length);
    first?.startContainer.parentElement?.scrollIntoView({ block: "center" });
  }

  // --- the dialog ------------------------------------------------------------------------------------

  const input = element("input", {
    type: "search",
    class: "pd-search-input",
    role: "combobox",
    "aria-expanded": "true",
    "aria-controls": "pd-search-list",
    "aria-autocomplete": "list",
    autocomplete: "off",
    spellcheck: "false",
    enterkeyhint: "go",
  });
  const close = element("button", { type: "button", class: "pd-icon-button" }, "✕");
  const filters = element("form", { class: "pd-search-filters" });
  const status = element("p", { class: "pd-search-status" });
  const list = element("div", { id: "pd-search-list", role: "listbox", class: "pd-search-list" });
  const bar = element("div", { class: "pd-search-bar" }, input, close);
  const dialog = element("dialog", { class: "pd-dialog pd-search" }, bar, filters, status, list);

  // --- its options

  const options = () => all('[role="option"]', list);
  let active = -1;
  /** @param {number} number */
  function select(number) {
    const every = options();
    every[active]?.removeAttribute("aria-selected");
    active = every.length ? (number + every.length) % every.length : -1;
    const chosen = every[active];
    chosen?.setAttribute("aria-selected", "true");
    chosen?.scrollIntoView({ block: "nearest" });
    if (chosen) input.setAttribute("aria-activedescendant", chosen.id);
    else input.removeAttribute("aria-activedescendant");
  }

  let numbered = 0;
  /**
   * @param {{ kind: "card" | "part", card: SearchCard, place?: string, lang?: Lang, query: string }} hit
   * @param {...Child} content
   */
  function option({ kind, card, place, lang, query }, ...content) {
    /** @type {Record<string, string>} */
    const asks = {};
    if (query) asks.q = query;
    if (query && lang) asks.in = lang;
    const attributes = {
      role: "option",
      id: `pd-option-${numbered++}`,
      class: `pd-hit pd-hit-${kind}`,
      tabindex: "-1",
      href: address(card.id, place, asks),
    };
    const link = element("a", attributes, content);
    link.addEventListener("click", () => {
      dialog.close();
      if (handbook && query) setTimeout(() => light(query, anchor(card.id, place), lang || null), 50);
    });
    return link;
  }

  /**
   * @param {SearchCard} card
   * @param {Map<string, Bilingual>} modules
   * @param {string} query
   */
  function cardOption(card, modules, query) {
    const module = modules.get(card.module) || { zh: card.module, en: card.module };
    const about = [...say(module), " · ", ...say(`difficulties.${card.difficulty}`)];
    return option(
      { kind: "card", card, query },
      element("span", { class: "pd-hit-title" }, say(card.title)),
      element("span", { class: "pd-hit-about" }, about),
    );
  }
  /**
   * @param {SearchCard} card
   * @param {SearchPart} part
   * @param {string} query
   */
  function partOption(card, [, section, place, lang, heading, text], query) {
    const isQuestion = section === "followups" && heading;
    const question = isQuestion && element("b", {}, marked(heading, query), " ");
    return option(
      { kind: "part", card, place, lang, query },
      element("span", { class: "pd-hit-section" }, say(`sections.${section}`)),
      element("span", { class: "pd-hit-text", lang: htmlLang[lang] }, question, marked(text, query)),
    );
  }

  /**
   * @param {Found[]} groups
   * @param {SearchData} found
   */
  function show(groups, found) {
    numbered = 0;
    const modules = new Map(found.modules.map((module) => [module.id, module.title]));
    const shown = groups.slice(0, CARDS_SHOWN).map(({ card, parts, query }) => {
      const group = { role: "group", "aria-label": card.title[languages()[0]], class: "pd-hits" };
      const head = cardOption(card, modules, query);
      return element(
        "div",
        group,
        head,
        best(parts).map((part) => partOption(card, part, query)),
      );
    });
    list.replaceChildren(...shown);
    const text = outcome(groups.length);
    status.textContent = text;
    announce(text);
    active = -1;
    select(0);
  }
  /** @param {number} number of cards */
  function outcome(number) {
    if (!number) return words("search.nothing");
    return words(number === 1 ? "search.found_one" : "search.found", { number });
  }

  // --- its filters

  const fields = () => all("select", filters, HTMLSelectElement);
  /** Which cards the filters keep. @returns {((card: Facts) => boolean) | undefined} */
  function filtering() {
    const { module, difficulty, tag, proof } = Object.fromEntries(
      fields().map((each) => [each.name, each.value]),
    );
    if (!module && !difficulty && !tag && !proof) return undefined;
    return (card) => {
      if (module && card.module !== module) return false;
      if (difficulty && card.difficulty !== difficulty) return false;
      if (tag && !card.tags.includes(tag)) return false;
      return !proof || card.proof === proof;
    };
  }

  /**
   * @param {string} name
   * @param {string} anything
   * @param {[value: string, text: string][]} choices
   */
  function filter(name, anything, choices) {
    const options = choices.map(([value, text]) => element("option", { value }, text));
    const any = element("option", { value: "" }, anything);
    return element("select", { name, "aria-label": anything }, any, options);
  }
  /** @param {SearchData} found */
  function fillFilters({ modules, cards }) {
    const filled = new Set(cards.map((card) => card.module));
    const proofs = new Set(cards.map((card) => card.proof));
    const tags = [...new Set(cards.flatMap((card) => card.tags))].sort();
    /** @param {SearchData["modules"][number]} module @returns {[string, string]} */
    const named = ({ id, title }) => [id, words(title)];
    /** @param {Difficulty} each @returns {[string, string]} */
    const difficulty = (each) => [each, words(`difficulties.${each}`)];
    /** @param {Proof} each @returns {[string, string]} */
    const proof = (each) => [each, words(`proofs.${each}`)];
    filters.replaceChildren(
      filter("module", words("filters.modules"), modules.filter(({ id }) => filled.has(id)).map(named)),
      filter("difficulty", words("filters.difficulties"), DIFFICULTIES.map(difficulty)),
      filter(
        "tag",
        words("filters.tags"),
        tags.map((tag) => [tag, `#${tag}`]),
      ),
      filter("proof", words("filters.proofs"), PROOFS.filter((each) => proofs.has(each)).map(proof)),
    );
  }

  // --- its life

  async function update() {
    let found;
    try {
      found = await load();
    } catch {
      status.textContent = words("search.failed");
      return;
    }
    const query = input.value.trim();
    const keep = filtering();
    if (runs(query).length) {
      show(find(found, query, keep || (() => true)), found);
    } else if (keep) {
      show(
        found.cards.filter(keep).map((card) => ({ card, parts: [], query: "" })),
        found,
      );
    } else {
      list.replaceChildren();
      status.textContent = words("search.hint");
    }
    dialog.dataset.query = query; // what is shown answers this
  }

  /** @param {KeyboardEvent} event */
  function press(event) {
    if (event.isComposing) return;
    if (event.key === "ArrowDown") select(active + 1);
    else if (event.key === "ArrowUp") select(active - 1);
    else if (event.key === "Enter") options()[active]?.click();
    else if (event.key === "Escape")
      dialog.close(); // Firefox would only empty the field
    else return;
    event.preventDefault();
  }

  // Put the dialog into the page when it is first asked for.
  function attach() {
    if (dialog.isConnected) return;
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    close.addEventListener("click", () => dialog.close());
    input.addEventListener("input", update);
    input.addEventListener("keydown", press);
    filters.addEventListener("change", update);
    filters.addEventListener("submit", (event) => event.preventDefault());
    document.body.append(dialog);
  }

  // The words of the mode, which may have changed since.
  function label() {
    const name = words("common.search");
    dialog.setAttribute("aria-label", name);
    input.setAttribute("aria-label", name);
    input.placeholder = name;
    list.setAttribute("aria-label", words("search.results"));
    close.setAttribute("aria-label", words("common.close"));
    status.textContent = words("common.loading");
  }

  /**
   * @param {string} [query] what to look for at once
   * @param {string} [typed] what the reader has typed already, and goes on with
   */
  async function open(query, typed) {
    attach();
    label();
    if (query || typed) input.value = query || typed || "";
    dialog.showModal();
    input.setSelectionRange(typed ? input.value.length : 0, input.value.length); // who goes on does so at the end
    try {
      fillFilters(await load());
    } catch {
      // update() says so.
    }
    update();
  }

  window.pd.search = { open, light };
})();
