// @ts-check
// The handbook shows one thing at a time: the contents, the graph, study, or one card; the address says which.
(function () {
  "use strict";
  const { root, handbook, all, around, element, label, inEach, htmlLang, one, say, key, target } = window.pd;
  if (!handbook) return;
  const cards = all(".pd-handbook-main > .pd-card");

  // --- the sections of the card on screen; styles leave out those that the depth hides ----------------

  const sections = element("nav", { class: "pd-sections", "aria-label": label("handbook.card_sections") });
  one(".pd-handbook-main").prepend(sections);
  /**
   * @param {HTMLElement} section
   * @param {Lang} lang
   */
  function heading(section, lang) {
    const headings = all(":scope > .pd-half > :is(h3, h4), :scope > h3 > span", section);
    return headings.find((each) => around(each, "[lang]")?.lang === htmlLang[lang])?.textContent || "";
  }
  /** @param {HTMLElement} section */
  function entry(section) {
    const { section: name, depth } = section.dataset;
    const to = { href: `#${section.id}`, "data-section": name, "data-depth": depth };
    const title = inEach((lang) => heading(section, lang));
    return element("a", to, say(title));
  }
  /** @param {HTMLElement} card */
  const list = (card) => sections.replaceChildren(...all(":scope > .pd-section", card).map(entry));

  // --- what the address names -------------------------------------------------------------------------

  /**
   * @param {Iterable<HTMLAnchorElement>} links
   * @param {string} hash
   * @param {string} sort
   */
  function markCurrent(links, hash, sort) {
    for (const each of links) {
      if (each.hash === hash) each.setAttribute("aria-current", sort);
      else each.removeAttribute("aria-current");
    }
  }

  /** @type {HTMLElement | null} */
  let shown = null;
  function show() {
    const found = target();
    const card = around(found, ".pd-card:not(.pd-sheet)");
    const part = around(found, "#graph, #study, #glossary");
    for (const each of cards) each.classList.toggle("pd-view", each === card);
    if (card && card !== shown) list(card);
    shown = card;
    root.dataset.pdView = card ? "card" : part?.id || "contents";
    markCurrent(all(".pd-nav a", document, HTMLAnchorElement), `#${root.dataset.pdView}`, "page");
    markCurrent(all("a", sections, HTMLAnchorElement), location.hash, "true");
    if (found && found !== card && found !== part) found.scrollIntoView();
    else window.scrollTo(0, 0);
  }
  window.addEventListener("hashchange", show);
  show();

  // From the contents to the first card; from there on the reader's way.
  key("n", "single_keys.next_card", () => {
    if (!shown && cards[0]) location.hash = cards[0].id;
    else return window.pd.way.follow("next");
    return true;
  });
  key("p", "single_keys.previous_card", () => window.pd.way.follow("prev"));
})();
