// @ts-check
// An address that names a place which is not there says so, with the nearest one; a card's former id leads to the card.
(function () {
  "use strict";
  const { handbook, all, copies, element, say, one, place, target } = window.pd;
  const main = document.querySelector(".pd-handbook-main, .md-content__inner");
  const MOST = 200; // letters of an address that are read
  const PLACES = ".pd-card[id], .pd-section[id], .pd-item[id], .pd-demo tr[id], .pd-page h3[id], .pd-block[id]";

  // --- names that are alike --------------------------------------------------------------------------

  /** @param {string} text */
  const pairs = (text) => Array.from({ length: Math.max(text.length - 1, 0) }, (_, i) => text.slice(i, i + 2));

  /**
   * How alike two names are, from 0 to 1: the pairs of letters that they share (Dice's coefficient).
   * @param {string} one
   * @param {string} other
   */
  function alike(one, other) {
    const left = pairs(other);
    let shared = 0;
    for (const pair of pairs(one)) {
      const at = left.indexOf(pair);
      if (at < 0) continue;
      left.splice(at, 1);
      shared += 1;
    }
    return (2 * shared) / Math.max(1, one.length + other.length - 2);
  }

  /**
   * Of the names the most alike one, or nothing where none is half alike.
   * @param {string} name
   * @param {string[]} names
   */
  function nearest(name, names) {
    const sought = name.slice(0, MOST).toLowerCase();
    let [best, most] = ["", 0];
    for (const each of names) {
      const worth = alike(sought, each);
      if (worth > most) [best, most] = [each, worth];
    }
    return most >= 0.5 ? best : undefined;
  }

  // --- a place on this page --------------------------------------------------------------------------

  const named = all(PLACES);

  /** What a place is called, for a link to it. @param {HTMLElement} found */
  function title(found) {
    const half = (/** @type {Lang} */ lang) => found.querySelector(`:is(.pd-title, h2, h3) .pd-${lang}`);
    const [zh, en] = [half("zh"), half("en")].map((each) => each?.textContent.trim());
    if (zh) return say({ zh, en: en || zh });
    const heading = found.querySelector(".pd-title, h2, h3, summary, td:nth-child(2)") || found;
    return [heading.textContent.trim().slice(0, 60)];
  }

  /** "card-old" and "old--item", where "old" is what a card was called before. @param {string} name */
  function successor(name) {
    for (const { dataset } of all(".pd-card[data-formerly]")) {
      const { card = "", formerly = "" } = dataset;
      for (const former of formerly.split(" ")) {
        if (name === `card-${former}`) return `card-${card}`;
        if (name.startsWith(`${former}--`)) return name.replace(former, card);
      }
    }
    return undefined;
  }

  /** @param {string} name */
  function nearestPlace(name) {
    const whole = handbook && document.getElementById(`card-${name.split("--")[0]}`);
    if (whole) return whole;
    const ids = named.map((each) => each.id);
    return document.getElementById(nearest(name, ids) || "");
  }

  const notice = element("p", { class: "pd-lost", role: "status" });
  function look() {
    const name = place();
    notice.remove();
    if (!name || !main || target() || name.startsWith("__") || name.startsWith(":~:")) return;
    const now = handbook && successor(name);
    if (now) {
      location.replace(`#${now}`);
      return;
    }
    const found = nearestPlace(name);
    const shown = name.slice(0, MOST);
    notice.replaceChildren(...say("lost.missing", { name: shown }));
    if (found) {
      notice.append(...say("lost.nearest"));
      notice.append(element("a", { href: `#${found.id}` }, title(found)));
    }
    main.prepend(notice);
  }
  window.addEventListener("hashchange", look);
  look();

  // --- the page for what is not there: the card whose name the address almost has ---------------------

  /** Have the address's last words in the search. @param {HTMLElement} missing @param {string} name */
  function prepare(missing, name) {
    const words = name.replace(/\.html?$/, "").split(/[^\p{L}\p{N}]+/u).filter(Boolean).join(" ").slice(0, MOST);
    if (!words) return;
    const button = one('[data-pd-open="search"]', missing);
    button.dataset.pdQuery = words;
    one("span", button).replaceChildren(...say("lost.search", { words }));
  }
  /** @param {HTMLElement} missing */
  function suggest(missing) {
    const links = all("a[data-card]", missing, HTMLAnchorElement);
    const name = place({ hash: `#${location.pathname.split("/").filter(Boolean).at(-1) || ""}` });
    prepare(missing, name);
    const found = nearest(
      name,
      links.map((link) => link.dataset.card || ""),
    );
    const link = links.find((each) => each.dataset.card === found);
    if (!link) return;
    const copy = element("a", { href: link.href }, copies(link));
    one(".pd-head", missing).append(element("p", { class: "pd-lost" }, say("lost.perhaps"), copy));
  }
  all("[data-pd-missing]").forEach(suggest);
})();
