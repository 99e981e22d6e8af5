// @ts-check
// Reading depth: 30 seconds, two minutes, all. Styles hide what is deeper, and its place in the list of contents; a link
// into it brings it back.
(function () {
  "use strict";
  const { root, all, around, get, set, onSet, element, say, target } = window.pd;

  function reveal() {
    const section = around(target(), ".pd-section");
    if (!section || getComputedStyle(section).display !== "none") return;
    set("depth", "deep", { keep: false });
    target()?.scrollIntoView();
  }

  /** @param {HTMLElement} card */
  function furtherWords(card) {
    if (get("depth") !== "answer") return say("depth.furthest");
    return say(card.querySelector('[data-section="example"]') ? "depth.further_example" : "depth.further");
  }

  for (const card of all(".pd-card:has([data-depth])")) {
    const further = element("button", { type: "button", class: "pd-button pd-more" });
    further.addEventListener("click", () => set("depth", get("depth") === "answer" ? "brief" : "deep"));
    const label = () => further.replaceChildren(...furtherWords(card));
    onSet("depth", label);
    label();
    all(":scope > .pd-section", card).at(-1)?.after(further);
  }

  // The theme's list of contents names what is shown; the handbook's is made so.
  for (const entry of all(".md-nav--secondary a", document, HTMLAnchorElement)) {
    const depth = target(entry)?.dataset.depth;
    if (depth) around(entry, "li")?.setAttribute("data-depth", depth);
  }

  // The switch sticks below the header, whose height letters and languages change; on a phone the handbook's goes away.
  const header = document.querySelector(".md-header, .pd-handbook-header");
  function measure() {
    if (!header) return;
    const stays = getComputedStyle(header).position === "sticky";
    const height = stays ? header.getBoundingClientRect().bottom : 0;
    root.style.setProperty("--pd-stuck", `${Math.max(0, height)}px`);
  }
  if (header) new ResizeObserver(measure).observe(header);

  window.addEventListener("hashchange", reveal);
  reveal();
})();
