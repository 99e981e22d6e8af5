// @ts-check
// What is folded opens where an address leads into it, and on paper; afterwards the page is as it was.
(function () {
  "use strict";
  const { all, around, target } = window.pd;

  function reveal() {
    const fold = around(target(), "details.pd-fold", HTMLDetailsElement);
    if (!fold || fold.open) return;
    fold.open = true;
    target()?.scrollIntoView();
  }
  window.addEventListener("hashchange", reveal);
  reveal();

  /** @type {HTMLDetailsElement[]} */
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = all("details:is(.pd-followup, .pd-fold):not([open])", document, HTMLDetailsElement);
    for (const fold of closed) fold.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const fold of closed) fold.open = false;
  });
})();
