// @ts-check
// Search opens by a key or a button, and on arrival from a result; what searches is loaded when it is first wanted.
// The handbook, which may load nothing, carries it inside.
(function () {
  "use strict";
  const { around, element, key, place, script, words, announce } = window.pd;

  async function search() {
    if (!window.pd.search) await script("search");
    return window.pd.search;
  }
  /** Who types on while it is loaded writes into a field; what is returned takes it away and tells what was typed. */
  function hold() {
    const before = document.activeElement;
    const field = element("input", { class: "pd-visually-hidden", "aria-label": words("common.search") });
    document.body.append(field);
    field.focus({ preventScroll: true });
    return () => {
      field.remove();
      if (before instanceof HTMLElement) before.focus({ preventScroll: true });
      return field.value;
    };
  }

  /** @param {string} [query] what to look for at once */
  async function open(query) {
    if (window.pd.search) return window.pd.search.open(query);
    const typed = hold();
    const found = await search().catch(() => undefined);
    const already = typed();
    if (found) found.open(query, already);
    else announce(words("search.failed"));
  }

  key(["/", "s", "f"], "single_keys.search", () => void open());
  document.addEventListener("click", (event) => {
    const button = around(event.target, '[data-pd-open="search"]');
    if (button) open(button.dataset.pdQuery);
  });

  const arrived = new URLSearchParams(location.search);
  const sought = arrived.get("q");
  if (sought && document.querySelector(".pd-card")) {
    search().then(
      ({ light }) => light(sought, place(), arrived.get("in")),
      () => {}, // then the words are not lit
    );
    const clean = new URL(location.href);
    clean.searchParams.delete("q");
    clean.searchParams.delete("in");
    history.replaceState(null, "", clean);
  }
})();
