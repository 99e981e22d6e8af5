// @ts-check
// 中文, English, or side by side: the document's language and its title follow.
(function () {
  "use strict";
  const { root, handbook, store, get, set, onSet, key } = window.pd;
  const MODES = store.SETTINGS.mode;
  const titleOfBoth = document.title;

  function follow() {
    const mode = get("mode");
    root.lang = mode === "en" ? "en" : "zh-Hans";
    const title = !handbook && document.querySelector(`.pd-title .pd-${mode}`);
    document.title = title ? `${title.textContent.trim()} · Proofdeck` : titleOfBoth;
  }
  onSet("mode", follow);

  function next() {
    const here = MODES.indexOf(get("mode") || "");
    set("mode", MODES[(here + 1) % MODES.length]);
  }
  key("l", "single_keys.language", next);

  // What the address asks for is kept, as a choice made by hand is.
  const asked = new URLSearchParams(location.search).get("lang");
  if (asked && MODES.includes(asked)) set("mode", asked);
  follow();
})();
