// Before the first paint: the reader's language, depth and keys, from the address, the last visit or the browser.
// In <head>; everything else is loaded with defer. On the site its element says where the root is.
(function (root) {
  "use strict";
  const base = document.currentScript.dataset.base;
  if (base) root.dataset.pdBase = base.replace(/\/+$/, "/");
  const MODES = ["zh", "en", "both"];
  const DEPTHS = ["answer", "brief", "deep"];
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem("proofdeck.settings")) || {};
  } catch {
    // Storage may be missing or forbidden: then each page begins anew.
  }
  const asked = new URLSearchParams(location.search).get("lang");
  const spoken = (navigator.languages || []).map((tag) => tag.slice(0, 2).toLowerCase());
  const first = spoken.find((tag) => MODES.includes(tag)) || "en";

  const mode = [asked, kept.mode].find((each) => MODES.includes(each)) || first;
  root.classList.add("pd-js");
  root.dataset.pdMode = mode;
  root.dataset.pdDepth = DEPTHS.includes(kept.depth) ? kept.depth : "deep";
  root.dataset.pdKeys = kept.keys === "off" ? "off" : "on";
  if (root.hasAttribute("data-pd-handbook")) {
    root.dataset.pdScheme = ["light", "dark"].includes(kept.scheme) ? kept.scheme : "auto";
  }
  root.lang = mode === "en" ? "en" : "zh-Hans";
})(document.documentElement);
