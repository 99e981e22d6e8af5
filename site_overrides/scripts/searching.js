// @ts-check
// Search opens by a key or a button, and on arrival from a result; what searches is loaded when it is first wanted.
// The handbook, which may load nothing, carries it inside.
(function () {
  "use strict";
  const { around, key, place, script, words, announce } = window.pd;

  async function search() {
    if (!window.pd.search) await script("search");
    return window.pd.search;
  }
  /** @param {string} [query] what to look for at once */
  async function open(query) {
    try {
      (await search()).open(query);
    } catch {
      announce(words("search.failed"));
    }
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
