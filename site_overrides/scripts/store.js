// @ts-check
// What this browser keeps for the reader. Whatever stands there (another program's, half a write, a file put in by hand),
// a value is read through a check that makes something sound of it; a write says whether it was kept.
// Inlined in <head> before early.js, which is the first to read.
(function () {
  "use strict";
  const PREFIX = "proofdeck.";
  /** @type {Store["SETTINGS"]} */
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
    const nothing = {
      getItem: () => null,
      setItem: () => {
        throw new DOMException("no storage");
      },
      removeItem: () => {},
    };
    Reflect.defineProperty(window, "localStorage", { value: nothing });
  }

  // Storage may be missing, forbidden or full: none of that stops a page.
  /** @type {Store["text"]} */
  function text(name) {
    try {
      return localStorage.getItem(PREFIX + name);
    } catch {
      return null;
    }
  }
  /** @type {Store["write"]} */
  function write(name, value) {
    try {
      localStorage.setItem(PREFIX + name, JSON.stringify(value));
      return true;
    } catch {
      return false;
    }
  }
  /** @type {Store["remove"]} */
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

  /** @type {Store["parsed"]} */
  function parsed(json) {
    try {
      return JSON.parse(json || "");
    } catch {
      return null;
    }
  }
  /** @type {Store["read"]} */
  const read = (name, check) => check(parsed(text(name)));

  /**
   * @param {unknown} value
   * @returns {value is Record<string, unknown>}
   */
  const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
  /** @type {Store["dictionary"]} */
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
    /** @type {ReturnType<Store["settings"]>} */
    const sound = {};
    for (const name of /** @type {SettingName[]} */ (Object.keys(SETTINGS))) {
      const value = SETTINGS[name].find((each) => each === kept[name]);
      if (value) sound[name] = value;
    }
    return sound;
  }

  /** @type {Store["follow"]} */
  function follow(name, act) {
    window.addEventListener("storage", (event) => {
      if (event.key === null || event.key === PREFIX + name) act();
    });
  }

  /** @type {Store} */
  const store = {
    SETTINGS,
    text,
    parsed,
    read,
    write,
    remove,
    works,
    settings,
    dictionary,
    isObject,
    follow,
  };
  window.pd = /** @type {Proofdeck} */ ({ store }); // the rest follows, in core.js and where it is needed
})();
