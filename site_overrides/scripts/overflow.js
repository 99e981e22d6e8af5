// What is wider than its place scrolls, and then takes the focus so that keys can scroll it.
(function () {
  "use strict";
  const wide = "math[display='block'], .pd-scroll, pre";

  function mark() {
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
