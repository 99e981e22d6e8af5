// @ts-check
// Before the first paint: the reader's language, depth and keys, from the address, the last visit or the browser.
// In <head>, behind store.js; everything else is loaded with defer. On the site its element says where the root is.
(function (root) {
  "use strict";
  const base = document.currentScript?.dataset.base;
  if (base) root.dataset.pdBase = base.replace(/\/+$/, "/");
  const { SETTINGS, settings, parsed, isObject } = window.pd.store;
  const kept = settings();

  function firstMode() {
    const asked = new URLSearchParams(location.search).get("lang");
    if (asked && SETTINGS.mode.includes(asked)) return asked;
    if (kept.mode) return kept.mode;
    const spoken = (navigator.languages || []).map((tag) => tag.slice(0, 2).toLowerCase());
    return spoken.find((tag) => SETTINGS.mode.includes(tag)) || "en";
  }

  const mode = firstMode();
  root.classList.add("pd-js");
  root.dataset.pdMode = mode;
  root.dataset.pdDepth = kept.depth || "brief";
  root.dataset.pdKeys = kept.keys || "on";
  if (root.hasAttribute("data-pd-handbook")) root.dataset.pdScheme = kept.scheme || "auto";
  root.lang = mode === "en" ? "en" : "zh-Hans";

  // The theme keeps its colours itself and takes on trust what it finds there.
  /** @param {unknown} value */
  function isPalette(value) {
    if (!isObject(value) || !Number.isInteger(value.index) || !isObject(value.color)) return false;
    return Object.values(value.color).every((each) => typeof each === "string");
  }
  try {
    const palette = `${new URL(root.dataset.pdBase || ".", location.href).pathname}.__palette`;
    if (!isPalette(parsed(localStorage.getItem(palette)))) localStorage.removeItem(palette);
  } catch {
    // No storage, no colours kept.
  }
})(document.documentElement);
