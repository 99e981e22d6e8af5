// What the other scripts share: settings, bilingual text, elements, keys, addresses.
(function () {
  "use strict";
  const { store } = window.pd;
  const root = document.documentElement;
  const handbook = root.hasAttribute("data-pd-handbook");
  const base = new URL((root.dataset.pdBase || ".").replace(/\/+$/, "/"), location.href);

  // What is at the top of the window stays there while a change makes the text above longer or shorter.
  function inPlace(change) {
    const parts = window.scrollY > 0 ? [...document.querySelectorAll(".pd-section, .pd-item, .pd-demo")] : [];
    const part = parts.find((each) => each.getBoundingClientRect().bottom > 80);
    const before = part?.getBoundingClientRect().top;
    change();
    if (part?.checkVisibility()) {
      window.scrollBy({ top: part.getBoundingClientRect().top - before, behavior: "instant" });
    }
  }

  // A setting is a data attribute on <html>, and kept unless it is shown for this page only.
  const get = (name) => root.dataset["pd" + name[0].toUpperCase() + name.slice(1)];
  function set(name, value, { keep = true } = {}) {
    inPlace(() => {
      root.dataset["pd" + name[0].toUpperCase() + name.slice(1)] = value;
      document.dispatchEvent(new CustomEvent("pd:set", { detail: { name, value } }));
    });
    if (keep) store.write("settings", { ...store.settings(), [name]: value });
  }
  function onSet(name, act) {
    document.addEventListener("pd:set", (event) => event.detail.name === name && act(event.detail.value));
  }

  // element("p", { class: "x", onclick: f }, "text", child, …)
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat().filter((child) => child !== undefined && child !== null && child !== false));
    return made;
  }

  // The same words in both languages; styles show those of the mode.
  const say = (zh, en) => [
    element("span", { class: "pd-zh", lang: "zh-Hans" }, zh),
    element("span", { class: "pd-en", lang: "en" }, en),
  ];
  // Where only plain text will do (labels, placeholders): the words of the mode.
  const words = (zh, en) => ({ zh, en, both: zh + " · " + en })[get("mode")];
  const languages = () => (get("mode") === "both" ? ["zh", "en"] : [get("mode")]);

  // Single keys, each with what it does; the help dialog lists them. An entry may decline by returning false.
  const keys = [];
  const key = (names, zh, en, act) => keys.push({ names: [].concat(names), zh, en, act });

  // A card's address, and a place in it: the handbook has all cards in one document. What is empty is left out.
  const anchor = (card, id) => (handbook ? (id ? card + "--" + id : "card-" + card) : id);
  function address(card, id, query = {}) {
    if (handbook) return "#" + anchor(card, id);
    const url = new URL("cards/" + card + "/", base);
    for (const [name, value] of Object.entries(query)) if (value) url.searchParams.set(name, value);
    if (id) url.hash = id;
    return url.href;
  }

  // The place that an address names behind "#", and its element; an escape that is none is taken as it stands.
  function place(link = location) {
    const name = link.hash.slice(1);
    try {
      return decodeURIComponent(name);
    } catch {
      return name;
    }
  }
  const target = (link) => document.getElementById(place(link));

  // Data and libraries are loaded when they are first needed; the handbook carries both inside.
  async function data(name) {
    const inline = document.getElementById("pd-" + name + "-data");
    if (inline) return JSON.parse(inline.textContent);
    const answer = await fetch(new URL(name + ".json", base));
    if (!answer.ok) throw new Error(name + ".json: " + answer.status);
    return answer.json();
  }
  const loading = {};
  function library(file, global) {
    if (window[global]) return Promise.resolve(window[global]);
    loading[file] ||= new Promise((done, failed) => {
      document.head.append(
        element("script", {
          src: new URL("vendor/" + file, base).href,
          onload: () => done(window[global]),
          onerror: () => failed(new Error(file + " did not load")),
        }),
      );
    });
    return loading[file];
  }

  // Said to screen readers, once.
  function announce(text) {
    let region = document.getElementById("pd-said");
    if (!region) {
      region = element("div", { id: "pd-said", class: "pd-visually-hidden", role: "status" });
      document.body.append(region);
    }
    region.textContent = text;
  }

  Object.assign(window.pd, {
    root, handbook, base, get, set, onSet, element, say, words, languages,
    keys, key, anchor, address, place, target, data, library, announce,
  });

  // Any button with data-pd-set="name" sets that setting to its value.
  function reflect() {
    for (const button of document.querySelectorAll("button[data-pd-set]")) {
      button.setAttribute("aria-pressed", String(get(button.dataset.pdSet) === button.value));
    }
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-pd-set]");
    if (button) set(button.dataset.pdSet, button.value);
  });
  document.addEventListener("pd:set", reflect);
  reflect();
})();
