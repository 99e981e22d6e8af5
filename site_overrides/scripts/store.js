// What this browser keeps for the reader. Whatever stands there (another program's, half a write, a file put in by hand),
// a value is read through a check that makes something sound of it; a write says whether it was kept.
// Inlined in <head> before early.js, which is the first to read.
(function () {
  "use strict";
  const PREFIX = "proofdeck.";
  const SETTINGS = {
    mode: ["zh", "en", "both"],
    depth: ["answer", "brief", "deep"],
    keys: ["on", "off"],
    scheme: ["auto", "light", "dark"],
  };

  // A browser that forbids storage throws where it is named, which would stop the theme's scripts as well.
  try {
    void window.localStorage;
  } catch {
    const nothing = { getItem: () => null, setItem: () => { throw new DOMException("no storage"); }, removeItem: () => {} };
    Reflect.defineProperty(window, "localStorage", { value: nothing });
  }

  // Storage may be missing, forbidden or full: none of that stops a page.
  function text(name) {
    try {
      return localStorage.getItem(PREFIX + name);
    } catch {
      return null;
    }
  }
  function write(name, value) {
    try {
      localStorage.setItem(PREFIX + name, JSON.stringify(value));
      return true;
    } catch {
      return false;
    }
  }
  function remove(name) {
    try {
      localStorage.removeItem(PREFIX + name);
    } catch {
      // Then there was nothing.
    }
  }
  function works() {
    const kept = write("probe", "0".repeat(100));
    remove("probe");
    return kept;
  }

  function parsed(json) {
    try {
      return JSON.parse(json);
    } catch {
      return null;
    }
  }
  const read = (name, check) => check(parsed(text(name)));

  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  // Names to values that pass the check; free of the names that every object inherits, such as "constructor".
  function dictionary(value, check) {
    const made = Object.create(null);
    for (const [name, each] of isObject(value) ? Object.entries(value) : []) {
      const sound = check(each, name);
      if (sound !== undefined) made[name] = sound;
    }
    return made;
  }

  function settings() {
    const kept = read("settings", (value) => (isObject(value) ? value : {}));
    return Object.fromEntries(Object.entries(SETTINGS).filter(([name, all]) => all.includes(kept[name])).map(([name]) => [name, kept[name]]));
  }

  // What another tab writes, or clears.
  function follow(name, act) {
    window.addEventListener("storage", (event) => (event.key === null || event.key === PREFIX + name) && act());
  }

  window.pd = { store: { SETTINGS, text, parsed, read, write, remove, works, settings, dictionary, isObject, follow } };
})();
