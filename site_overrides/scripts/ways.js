// @ts-check
// The reader's way: the path that they are on, and the card where they were. What stands before and behind a card,
// at its end and on the keys n and p, follows that path, or reading order where the card is not on it.
(function () {
  "use strict";
  const { store, handbook, all, around, element, say, target } = window.pd;

  // --- what is kept ----------------------------------------------------------------------------------

  /** @param {unknown} value */
  const words = (value) => (typeof value === "string" ? value.slice(0, 300) : "");
  /** @param {unknown} value @returns {Way} */
  function sound(value) {
    const { path, card, title } = store.isObject(value) ? value : {};
    const { zh, en } = store.isObject(title) ? title : {};
    return { path: words(path), card: words(card), title: { zh: words(zh), en: words(en) } };
  }
  /** What storage would not take holds for this page. @type {Partial<Way>} */
  let unkept = {};
  const read = () => ({ ...store.read("way", sound), ...unkept });
  /** @param {Partial<Way>} change */
  function note(change) {
    const kept = store.write("way", { ...read(), ...change });
    unkept = kept ? {} : { ...unkept, ...change };
  }

  // --- the pair that is shown ------------------------------------------------------------------------

  const leave = element("button", { type: "button", class: "pd-copy" }, say("ways.leave"));
  leave.addEventListener("click", () => {
    note({ path: "" });
    mark();
  });
  function mark() {
    const { path } = read();
    for (const nav of all(".pd-ways")) {
      const ways = all(".pd-way", nav);
      const current = ways.find((way) => way.dataset.way === path) || ways[0];
      for (const way of ways) way.classList.toggle("pd-current", way === current);
    }
    show();
  }

  // The card on screen: the page's, or that of the handbook's address.
  const card = () =>
    handbook ? around(target(), ".pd-card[data-card]") : document.querySelector("article.pd-card[data-card]");
  function show() {
    const shown = card();
    if (!(shown instanceof HTMLElement)) return;
    const way = shown.querySelector(".pd-way.pd-current:not([data-way=''])");
    if (way) way.firstElementChild?.append(" ", leave);
    else leave.remove();
    /** @param {Lang} lang */
    const title = (lang) => shown.querySelector(`.pd-title .pd-${lang}`)?.textContent || "";
    note({ card: shown.dataset.card, title: { zh: title("zh"), en: title("en") } });
  }

  /** @param {Event} event */
  function choose(event) {
    const path = around(around(event.target, "a[data-card], [data-card] a"), "[data-pd-path]")?.dataset.pdPath;
    if (!path) return;
    note({ path });
    if (handbook) mark();
  }
  for (const name of ["click", "auxclick"]) document.addEventListener(name, choose);
  window.addEventListener("hashchange", () => handbook && show());
  store.follow("way", () => {
    unkept = {};
    mark();
  });
  window.pd.way = {
    read,
    follow(rel) {
      const link = card()?.querySelector(`.pd-way.pd-current a[rel="${rel}"]`);
      if (link instanceof HTMLElement) link.click();
      return link instanceof HTMLElement;
    },
  };
  mark();
})();
