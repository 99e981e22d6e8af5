// @ts-check
// Reading depth: 30 seconds, two minutes, all. Styles hide what is deeper; a link into it brings it back.
(function () {
  "use strict";
  const { all, around, get, set, onSet, element, say, target } = window.pd;

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

  for (const card of all(".pd-card")) {
    const further = element("button", { type: "button", class: "pd-button pd-more" });
    further.addEventListener("click", () => set("depth", get("depth") === "answer" ? "brief" : "deep"));
    const label = () => further.replaceChildren(...furtherWords(card));
    onSet("depth", label);
    label();
    all(":scope > .pd-section", card).at(-1)?.after(further);
  }

  window.addEventListener("hashchange", reveal);
  reveal();
})();
