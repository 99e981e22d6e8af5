// @ts-check
// What is wider than its place scrolls, and then takes the focus so that keys can scroll it.
(function () {
  "use strict";
  const { all, element } = window.pd;
  const WIDE = "math[display='block'], .pd-scroll, .pd-wide, pre";
  const INLINE = ".pd-half math:not([display='block'], .pd-scroll *, .pd-wide *)";

  // How much wider a formula is than the place in which it stands, in pixels.
  /** @param {Element} formula */
  function excess(formula) {
    const place = formula.closest("p, li, summary, h3, .pd-half");
    return formula.getBoundingClientRect().width - (place?.clientWidth || 0);
  }

  // No browser breaks a formula in a line: one that is wider than the line gets a box of its own.
  function box() {
    const seen = all(INLINE, document, Element).filter((formula) => formula.checkVisibility());
    const widths = seen.map(excess); // all are measured before the first is moved
    seen.forEach((formula, i) => {
      if (widths[i] <= 0) return;
      const holder = element("span", { class: "pd-wide" });
      formula.replaceWith(holder);
      holder.append(formula);
    });
  }

  function mark() {
    box();
    for (const each of all(WIDE, document, Element)) {
      if (!each.checkVisibility()) continue;
      if (each.scrollWidth > each.clientWidth + 1) each.setAttribute("tabindex", "0");
      else each.removeAttribute("tabindex");
    }
  }

  let waiting = 0;
  function soon() {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(mark);
  }
  for (const name of ["resize", "hashchange"]) window.addEventListener(name, soon);
  for (const name of ["pd:set", "toggle"]) document.addEventListener(name, soon, true);
  document.fonts?.ready.then(soon);
  soon();
})();
