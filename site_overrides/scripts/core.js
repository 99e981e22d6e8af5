// @ts-check
// What the other scripts share: settings, bilingual text, elements, keys, addresses. Their types: globals.d.ts.
(function () {
  "use strict";
  const { store, htmlLang, phrases } = window.pd;
  const root = document.documentElement;
  const handbook = root.hasAttribute("data-pd-handbook");
  const base = new URL((root.dataset.pdBase || ".").replace(/\/+$/, "/"), location.href);

  // --- elements --------------------------------------------------------------------------------------

  /** @type {Core["element"]} */
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === undefined || value === null || value === false) continue;
      if (typeof value === "function") made.addEventListener(name.slice("on".length), value);
      else made.setAttribute(name, value === true ? "" : String(value));
    }
    for (const child of children.flat()) {
      if (child !== undefined && child !== null && child !== false) made.append(child);
    }
    return made;
  }

  const ANY = /** @type {Kind<any>} */ (HTMLElement);
  /** @type {Core["all"]} */
  function all(selector, scope = document, kind = ANY) {
    const found = [];
    for (const each of scope.querySelectorAll(selector)) if (each instanceof kind) found.push(each);
    return found;
  }

  /** @type {Core["one"]} */
  function one(selector, scope = document, kind = ANY) {
    const found = scope.querySelector(selector);
    if (!(found instanceof kind)) throw new Error(`${selector} is missing from the page`);
    return found;
  }

  /** @type {Core["around"]} */
  function around(target, selector, kind = ANY) {
    const found = target instanceof Element ? target.closest(selector) : null;
    return found instanceof kind ? found : null;
  }

  /** @type {Core["copies"]} */
  const copies = (of) => [...(of?.childNodes || [])].map((child) => child.cloneNode(true));

  // --- settings --------------------------------------------------------------------------------------

  // What is at the top of the window stays there while a change makes the text above longer or shorter.
  /** @param {() => void} change */
  function inPlace(change) {
    const parts = window.scrollY > 0 ? all(".pd-section, .pd-chapter, .pd-item, .pd-demo") : [];
    const covered = all(".pd-bar").map((bar) => bar.getBoundingClientRect().bottom);
    const seen = Math.max(80, ...covered); // below what sticks to the window's top
    const part = parts.find((each) => each.getBoundingClientRect().bottom > seen);
    const top = () => part?.getBoundingClientRect().top || 0;
    const before = top();
    change();
    if (part?.checkVisibility()) window.scrollBy({ top: top() - before, behavior: "instant" });
  }

  // A setting is a data attribute on <html>.
  /** @param {SettingName} name */
  const attribute = (name) => "pd" + name[0].toUpperCase() + name.slice(1);
  /** @type {Core["get"]} */
  const get = (name) => root.dataset[attribute(name)];
  /** @type {Core["set"]} */
  function set(name, value, { keep = true } = {}) {
    inPlace(() => {
      root.dataset[attribute(name)] = value;
      document.dispatchEvent(new CustomEvent("pd:set", { detail: { name, value } }));
    });
    if (keep) store.write("settings", { ...store.settings(), [name]: value });
  }
  /** @type {Core["onSet"]} */
  function onSet(name, act) {
    document.addEventListener("pd:set", (event) => event.detail.name === name && act(event.detail.value));
  }

  // --- words -----------------------------------------------------------------------------------------

  const LANGS = /** @type {Lang[]} */ (Object.keys(htmlLang));
  /** @type {Core["inEach"]} */
  const inEach = (of) => /** @type {Bilingual} */ (Object.fromEntries(LANGS.map((lang) => [lang, of(lang)])));
  /** @type {Core["phrase"]} */
  function phrase(key, values = {}) {
    const text = phrases[key];
    if (!text) throw new Error(`no words for ${key}`);
    /** @param {Lang} lang @param {string} name */
    function filled(lang, name) {
      const value = values[name];
      return typeof value === "object" ? value[lang] : String(value);
    }
    return inEach((lang) => text[lang].replace(/\{(\w+)\}/g, (_, name) => filled(lang, name)));
  }
  /** @param {Key | Bilingual} what @param {Values} [values] */
  const textOf = (what, values) => (typeof what === "string" ? phrase(what, values) : what);

  /** @type {Core["say"]} */
  function say(what, values) {
    const text = textOf(what, values);
    return LANGS.map((lang) => element("span", { class: `pd-${lang}`, lang: htmlLang[lang] }, text[lang]));
  }
  /** @type {Core["words"]} */
  function words(what, values) {
    const text = textOf(what, values);
    return languages()
      .map((lang) => text[lang])
      .join(" · ");
  }
  /** @type {Core["label"]} */
  const label = (key) => Object.values(phrase(key)).join(" ");
  /** @type {Core["languages"]} */
  const languages = () => LANGS.filter((lang) => ["both", lang].includes(get("mode") || ""));

  /** @type {Core["announce"]} */
  function announce(text) {
    let region = document.getElementById("pd-said");
    if (!region) {
      region = element("div", { id: "pd-said", class: "pd-visually-hidden", role: "status" });
      document.body.append(region);
    }
    region.textContent = text;
  }

  // --- keys ------------------------------------------------------------------------------------------

  /** @type {SingleKey[]} */
  const keys = [];
  /** @type {Core["key"]} */
  const key = (names, does, act) => void keys.push({ names: [names].flat(), does, act });

  // --- addresses -------------------------------------------------------------------------------------

  /** @type {Core["anchor"]} */
  function anchor(card, id = "") {
    if (!handbook) return id;
    return id ? `${card}--${id}` : `card-${card}`;
  }
  /** @type {Core["address"]} */
  function address(card, id = "", query = {}) {
    if (handbook) return "#" + anchor(card, id);
    const url = new URL("cards/" + card + "/", base);
    for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
    if (id) url.hash = id;
    return url.href;
  }

  /** @type {Core["place"]} */
  function place(link = location) {
    const name = link.hash.slice(1);
    try {
      return decodeURIComponent(name);
    } catch {
      return name; // an escape that is none is taken as it stands
    }
  }
  /** @type {Core["target"]} */
  const target = (link) => document.getElementById(place(link));

  // --- data and libraries: loaded when they are first needed; the handbook carries both inside --------

  /** @param {string} name */
  async function data(name) {
    const inline = document.getElementById("pd-" + name + "-data");
    if (inline) return JSON.parse(inline.textContent || "");
    const answer = await fetch(new URL(name + ".json", base));
    if (!answer.ok) throw new Error(name + ".json: " + answer.status);
    return answer.json();
  }

  /** @type {Record<string, Promise<unknown>>} */
  const loading = {};
  /** @type {Core["script"]} */
  function script(name) {
    loading[name] ||= new Promise((onload, failed) => {
      const onerror = () => failed(new Error(name + ".js did not load"));
      document.head.append(element("script", { src: new URL(name + ".js", base).href, onload, onerror }));
    });
    loading[name].catch(() => delete loading[name]); // once more when it is wanted again
    return loading[name];
  }
  /**
   * @param {string} name
   * @param {"MiniSearch" | "FSRS"} global
   */
  async function library(name, global) {
    if (!window[global]) await script("vendor/" + name);
    return window[global];
  }

  /** @type {Core} */
  const core = {
    root,
    handbook,
    base,
    get,
    set,
    onSet,
    element,
    one,
    all,
    around,
    copies,
    LANGS,
    inEach,
    phrase,
    say,
    words,
    label,
    languages,
    announce,
    keys,
    key,
    anchor,
    address,
    place,
    target,
    data,
    script,
    library: /** @type {Core["library"]} */ (library),
  };
  Object.assign(window.pd, core);

  // --- any button with data-pd-set="name" sets that setting to its value ------------------------------

  /** @param {HTMLButtonElement} button */
  const setting = (button) => /** @type {SettingName} */ (button.dataset.pdSet);
  const SETTERS = "button[data-pd-set]";
  function reflect() {
    for (const button of core.all(SETTERS, document, HTMLButtonElement)) {
      button.setAttribute("aria-pressed", String(get(setting(button)) === button.value));
    }
  }
  document.addEventListener("click", (event) => {
    const button = core.around(event.target, SETTERS, HTMLButtonElement);
    if (button) set(setting(button), button.value);
  });
  document.addEventListener("pd:set", reflect);
  reflect();
})();
