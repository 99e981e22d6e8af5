// @ts-check
// For who returns: what is due and where they were, on the first page; how far they are, beside each path and on it.
// It comes behind reading.js and ways.js, which know.
(function () {
  "use strict";
  const { store, root, handbook, base, all, one, element, say, address, data, reading, way } = window.pd;
  const asked = all("[data-pd-resume], [data-pd-path]");
  if (!asked.length) return;

  // --- what is due: the study's own list is loaded where something was ever asked ----------------------

  /** @param {unknown} value */
  function dueOf(value) {
    const time = store.isObject(value) && typeof value.due === "string" ? Date.parse(value.due) : NaN;
    return Number.isNaN(time) ? undefined : time;
  }
  /** The items that are due, none where the list does not load. */
  async function due() {
    const kept = store.read("study", (value) =>
      store.dictionary(store.isObject(value) ? value.items : null, dueOf),
    );
    if (!Object.keys(kept).length) return [];
    const { items, successors } = await data("study");
    /** @type {Map<string, number>} */
    const times = new Map();
    for (const [name, time] of Object.entries(kept)) {
      const [card, item] = name.split("#");
      times.set(`${Object.hasOwn(successors, card) ? successors[card] : card}#${item}`, time);
    }
    return items.filter(({ id }) => (times.get(id) ?? Infinity) <= Date.now());
  }

  // --- paths -----------------------------------------------------------------------------------------

  /** The cards of a path, or of what names them. @param {Element} place */
  const cardsOf = (place) =>
    place instanceof HTMLElement && place.dataset.pdCards
      ? place.dataset.pdCards.split(" ")
      : all("a[data-card]", place).map(({ dataset }) => dataset.card || "");
  /** @param {string[]} cards */
  function progress(cards) {
    const states = reading();
    const number = cards.filter((card) => states[card]).length;
    return { count: cards.length, number, next: cards.find((card) => !states[card]) };
  }
  /** Say how much is read where any is. @param {HTMLElement} place */
  function tell(place) {
    const { count, number } = progress(cardsOf(place));
    if (!number) return;
    const text = place.matches("small") ? place : one("small", place);
    const bar = { max: count, value: number, "aria-hidden": "true" };
    text.replaceChildren(...say("resume.read", { count, number }), element("progress", bar));
  }
  /** A path's button leads to the first card that is not read. @param {HTMLAnchorElement} button */
  function lead(button) {
    const path = button.closest("[data-pd-path]");
    const steps = path ? all("li > a", path, HTMLAnchorElement) : [];
    const { number, next } = progress(steps.map((step) => step.closest("li")?.dataset.card || ""));
    const step = steps.find((each) => each.closest("li")?.dataset.card === next);
    if (!number || !step) return;
    button.href = step.href;
    button.replaceChildren(...say("resume.next", { title: bilingual(step) }));
  }
  /** @param {Element} of @returns {Bilingual} */
  function bilingual(of) {
    /** @param {Lang} lang */
    const text = (lang) => of.querySelector(`.pd-${lang}`)?.textContent || of.textContent || "";
    return { zh: text("zh"), en: text("en") };
  }

  // --- the first page --------------------------------------------------------------------------------

  /**
   * @param {HTMLElement[]} text
   * @param {string} href
   * @param {Record<string, string>} about
   */
  const line = (text, href, about = {}) => element("li", about, element("a", { href, ...about }, text));

  function readOn() {
    const { card, title } = way.read();
    return card ? [line(say("resume.read_on", { title }), address(card))] : [];
  }
  function pathOn() {
    const { path } = way.read();
    const place = path && document.querySelector(`[data-pd-path="${CSS.escape(path)}"]`);
    const name = place && (place.querySelector("strong") || document.getElementById(`path-${path}`));
    if (!place || !name) return [];
    const { count, number, next } = progress(cardsOf(place));
    if (!next) return [];
    const text = say("resume.path_on", { title: bilingual(name), count, number });
    const link = element("a", { href: address(next), "data-card": next }, text);
    return [element("li", { "data-pd-path": path }, link)];
  }
  /** @param {number} number */
  function review(number) {
    const href = handbook ? "#study" : new URL("study/?round=20", base).href;
    const text = say(number === 1 ? "resume.due_one" : "resume.due", { number });
    return element("li", {}, element("a", { href, "data-pd-round": 20 }, text));
  }

  async function fill() {
    all("[data-pd-cards]").forEach(tell);
    all("[data-pd-go]", document, HTMLAnchorElement).forEach(lead);
    const places = all("[data-pd-resume]");
    const known = places.length ? [...pathOn(), ...readOn()] : [];
    const waiting = await due().catch(() => []);
    const lines = waiting.length ? [review(waiting.length), ...known] : known;
    for (const place of places) {
      place.hidden = !lines.length;
      place.replaceChildren(element("h2", {}, say("resume.heading")), element("ul", {}, lines));
    }
    for (const step of all(".pd-steps li[data-card]")) {
      const number = waiting.filter(({ card }) => card === step.dataset.card).length;
      if (number) one(".pd-state-here", step).append(" · ", ...say("resume.card_due", { number }));
    }
  }
  fill();
  window.addEventListener("hashchange", () => root.dataset.pdView === "contents" && fill());
})();
