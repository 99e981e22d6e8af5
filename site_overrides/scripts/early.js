// Before the first paint: the reader's language, depth and keys, from the address, the last visit or the browser.
// In <head>, behind store.js; everything else is loaded with defer. On the site its element says where the root is.
(function (root) {
  "use strict";
  const base = document.currentScript.dataset.base;
  if (base) root.dataset.pdBase = base.replace(/\/+$/, "/");
  const { SETTINGS, settings, parsed, isObject } = window.pd.store;
  const kept = settings();
  const asked = new URLSearchParams(location.search).get("lang");
  const spoken = (navigator.languages || []).map((tag) => tag.slice(0, 2).toLowerCase());
  const first = spoken.find((tag) => SETTINGS.mode.includes(tag)) || "en";

  const mode = SETTINGS.mode.includes(asked) ? asked : kept.mode || first;
  root.classList.add("pd-js");
  root.dataset.pdMode = mode;
  root.dataset.pdDepth = kept.depth || "deep";
  root.dataset.pdKeys = kept.keys || "on";
  if (root.hasAttribute("data-pd-handbook")) root.dataset.pdScheme = kept.scheme || "auto";
  root.lang = mode === "en" ? "en" : "zh-Hans";

  // The theme keeps its colours itself and takes on trust what it finds there.
  try {
    const palette = `${new URL(root.dataset.pdBase || ".", location.href).pathname}.__palette`;
    const { index, color } = parsed(localStorage.getItem(palette)) || {};
    const sound = Number.isInteger(index) && isObject(color) && Object.values(color).every((each) => typeof each === "string");
    if (!sound) localStorage.removeItem(palette);
  } catch {
    // No storage, no colours kept.
  }
})(document.documentElement);
