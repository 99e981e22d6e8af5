// @ts-check
// Reading state, in this browser only: what was opened, and what the reader marked as known.
(function () {
  "use strict";
  const { store, all, element, say, words, announce } = window.pd;

  // --- what is kept ----------------------------------------------------------------------------------

  /**
   * How far the reader is with a card: the day on which it was opened first, and of the text that was read the day on
   * which it had changed last, which those who have read before do not have.
   * @typedef {{ opened?: string, text?: string, known?: boolean }} State
   */

  /** @param {unknown} value */
  const day = (value) => (typeof value === "string" && /^\d{4}-\d\d-\d\d$/.test(value) ? value : undefined);
  /** @param {unknown} value @returns {State | undefined} */
  function sound(value) {
    if (!store.isObject(value)) return undefined;
    return { opened: day(value.opened), text: day(value.text), known: value.known === true };
  }

  /** What storage would not take holds for this page. @type {Record<string, State>} */
  let unkept = {};
  function read() {
    return Object.assign(
      store.read("reading", (value) => store.dictionary(value, sound)),
      unkept,
    );
  }
  /**
   * Note a change; whether it was kept.
   * @param {string} card
   * @param {State} change
   */
  function note(card, change) {
    const states = read();
    states[card] = { ...states[card], ...change };
    const kept = store.write("reading", states);
    unkept = kept ? {} : { ...unkept, [card]: states[card] };
    mark();
    return kept;
  }

  // A card that was called otherwise keeps what was noted under its former ids.
  for (const card of all("article.pd-card[data-formerly]")) {
    const { card: id = "", formerly = "" } = card.dataset;
    const states = read();
    const former = formerly.split(" ").find((each) => states[each]);
    if (former && !states[id]) note(id, states[former]);
  }

  /** As of which day a reader knows the text of a card. @param {State} state */
  const readAs = ({ text, opened }) => text || opened;
  /**
   * Whether a text has changed since it was read; days in this form are in order as text, too.
   * @param {State | undefined} state
   * @param {string | undefined} updated
   */
  function isChanged(state, updated) {
    const known = state && readAs(state);
    return Boolean(known && updated && known < updated);
  }

  // --- every link or row that names a card says how far the reader is with it -------------------------

  /** @param {HTMLElement} place */
  function addSign(place) {
    const sign = element("span", { class: "pd-state", role: "img" });
    const here = place.querySelector(".pd-state-here") || place.querySelector("td, th") || place;
    here.append(sign);
    return sign;
  }
  function mark() {
    const states = read();
    for (const place of all("a[data-card], tr[data-card], li[data-card]")) {
      const state = states[place.dataset.card || ""];
      const sign = place.querySelector(":scope .pd-state");
      if (state) show(state, place.dataset.updated, sign || addSign(place));
      else sign?.remove();
    }
  }
  /**
   * @param {State} state
   * @param {string | undefined} updated
   * @param {Element} sign
   */
  function show(state, updated, sign) {
    /** @type {[mark: string, name: Key]} */
    const [mark, name] = isChanged(state, updated)
      ? ["↻", "reading.changed"]
      : state.known
        ? ["✓", "reading.known"]
        : ["◐", "reading.opened"];
    sign.textContent = mark;
    sign.setAttribute("aria-label", words(name));
  }

  // --- a card's own mark -----------------------------------------------------------------------------

  /**
   * @param {HTMLElement} card
   * @param {string} id
   */
  function addButton(card, id) {
    const button = element("button", { type: "button", class: "pd-button pd-mark" });
    function label() {
      const known = Boolean(read()[id]?.known);
      button.setAttribute("aria-pressed", String(known));
      button.replaceChildren(known ? "✓ " : "○ ", ...say("reading.know"));
    }
    const notKept = element("span", { class: "pd-sheet-about", hidden: true }, say("reading.not_kept"));
    button.addEventListener("click", () => {
      notKept.hidden = note(id, { known: !read()[id]?.known });
      if (!notKept.hidden) announce(notKept.textContent);
      label();
    });
    store.follow("reading", label);
    label();
    const end = all(":scope > .pd-section, :scope > .pd-more", card).at(-1);
    end?.after(element("p", { class: "pd-mark-line" }, button, " ", notKept));
  }

  /**
   * Say at a card's head that its text is another than the one that was read.
   * @param {HTMLElement} card
   * @param {string} id
   */
  function tellChange(card, id) {
    const { updated = "" } = card.dataset;
    const state = read()[id];
    if (!isChanged(state, updated)) return;
    const text = say("reading.changed_on", { day: updated, before: readAs(state) || "" });
    card.querySelector(".pd-head")?.append(element("p", { class: "pd-changed" }, text));
  }

  // Opened is a card of which the insights, or what stands for them, came into view.
  /**
   * @param {HTMLElement} card
   * @param {string} id
   */
  function watch(card, id) {
    const seen = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      seen.disconnect();
      const { opened = new Date().toISOString().slice(0, 10), text } = read()[id] || {};
      if (text !== card.dataset.updated) note(id, { opened, text: card.dataset.updated });
    });
    seen.observe(card.querySelector('[data-section="insights"]') || card);
  }

  for (const card of all("article.pd-card[data-card]")) {
    const { card: id = "" } = card.dataset;
    addButton(card, id);
    tellChange(card, id);
    watch(card, id);
  }
  store.follow("reading", mark);
  mark();
  window.pd.reading = read;
})();
