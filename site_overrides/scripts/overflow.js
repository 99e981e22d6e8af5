// What is wider than its place scrolls, and then takes the focus so that keys can scroll it.
(function () {
  "use strict";
  const { element } = window.pd;
  const wide = "math[display='block'], .pd-scroll, .pd-wide, pre";
  const inline = ".pd-half math:not([display='block'], .pd-scroll *, .pd-wide *)";

  // No browser breaks a formula in a line: one that is wider than the line gets a box of its own.
  function box() {
    const width = new Map();
    const place = (formula) => formula.closest("p, li, summary, h3, .pd-half");
    const seen = [...document.querySelectorAll(inline)].filter((formula) => formula.checkVisibility());
    for (const formula of seen) width.set(formula, formula.getBoundingClientRect().width - place(formula).clientWidth);
    for (const [formula, over] of width) {
      if (over <= 0) continue;
      const holder = element("span", { class: "pd-wide" });
      formula.replaceWith(holder);
      holder.append(formula);
    }
  }

  function mark() {
    box();
    for (const each of document.querySelectorAll(wide)) {
      if (!each.checkVisibility()) continue;
      if (each.scrollWidth > each.clientWidth + 1) each.setAttribute("tabindex", "0");
      else each.removeAttribute("tabindex");
    }
  }
  let waiting;
  const soon = () => {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(mark);
  };
  for (const name of ["resize", "hashchange"]) window.addEventListener(name, soon);
  for (const name of ["pd:set", "toggle"]) document.addEventListener(name, soon, true);
  document.fonts?.ready.then(soon);
  soon();
})();
