// @ts-check
// What the theme's own script asks for, and would otherwise find in a script inside the page:
// its storage, named after the path of the site.
(function (root) {
  "use strict";
  const scope = new URL(root.dataset.pdBase || ".", location.href);
  /**
   * @param {string} key
   * @param {URL} at
   */
  const name = (key, at) => at.pathname + "." + key;
  window.__md_scope = scope;
  window.__md_get = (key, storage = localStorage, at = scope) => {
    try {
      return JSON.parse(storage.getItem(name(key, at)) || "null");
    } catch {
      return null; // nothing that the theme wrote
    }
  };
  window.__md_set = (key, value, storage = localStorage, at = scope) => {
    try {
      storage.setItem(name(key, at), JSON.stringify(value));
    } catch {
      // A browser that keeps nothing still shows the page.
    }
  };
})(document.documentElement);
