// @ts-check
// A table that does not fit becomes rows, and each cell says its column. Without scripts it scrolls in its place.
(function () {
  "use strict";
  const { all, copies, element } = window.pd;
  const TABLES = ".pd-scroll table:not(.pd-metrics, .highlighttable)";
  const ROLES = [
    ["thead, tbody", "rowgroup"],
    ["tr", "row"],
    ["thead th", "columnheader"],
    ["td", "cell"],
    ["tbody th", "rowheader"],
  ];
  // A cell over several columns has no one head, and what is pressed in a head must stay in sight.
  const FIXED = "[colspan], [rowspan], thead :is(a, button)";
  /** @type {WeakMap<HTMLTableElement, number>} The width that a table needed as it was last set as one. */
  const needs = new WeakMap();

  /** @param {HTMLTableElement} table */
  const room = (table) => table.closest(".pd-scroll")?.clientWidth || 0;

  // Styles take a table's meaning away from some screen readers: roles keep it. The heads are still read from
  // where they stand, so the copies in the cells are for the eye alone.
  /** @param {HTMLTableElement} table */
  function label(table) {
    table.setAttribute("role", "table");
    for (const [selector, role] of ROLES) for (const each of all(selector, table)) each.setAttribute("role", role);
    const heads = [...(table.tHead?.rows[0]?.cells || [])];
    for (const body of table.tBodies) {
      for (const row of body.rows) {
        heads.forEach((head, i) => {
          if (!head.textContent?.trim()) return;
          row.cells[i]?.prepend(element("span", { class: "pd-column", "aria-hidden": "true" }, ...copies(head)));
        });
      }
    }
  }

  function fit() {
    const seen = all(TABLES, document, HTMLTableElement).filter(
      (table) => table.tHead && !table.querySelector(FIXED) && table.checkVisibility(),
    );
    for (const table of seen) {
      if (room(table) >= (needs.get(table) ?? 0)) table.classList.remove("pd-rows");
    }
    const plain = seen.filter((table) => !table.classList.contains("pd-rows"));
    const widths = plain.map((table) => [table.offsetWidth, room(table)]); // all are measured before the first changes
    plain.forEach((table, i) => {
      const [width, place] = widths[i];
      if (width <= place + 1) return;
      if (!needs.has(table)) label(table);
      needs.set(table, width);
      table.classList.add("pd-rows");
    });
  }

  let waiting = 0;
  function soon() {
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(fit);
  }
  for (const name of ["resize", "hashchange"]) window.addEventListener(name, soon);
  for (const name of ["pd:set", "toggle"]) document.addEventListener(name, soon, true);
  document.fonts?.ready.then(soon);
  soon();
})();
