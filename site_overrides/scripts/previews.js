// @ts-check
// A card beside a link to it: how hard it is, its question, and its answer in one sentence. The site fetches the page once,
// and shows nothing where that fails; the handbook has the card inside.
(function () {
  "use strict";
  const { all, around, base, beside, copies, element, handbook, target } = window.pd;

  /** @param {HTMLAnchorElement} link */
  function inHandbook(link) {
    const card = link.getAttribute("href")?.startsWith("#") ? around(target(link), ".pd-card[data-card]") : null;
    return card && !card.contains(link) ? card : null;
  }
  const CARDS = new URL("cards/", base).href;
  /** The address of another card's page; of one on a disk nothing can be read. @param {HTMLAnchorElement} link */
  function address(link) {
    const page = link.href.replace(/[?#].*$/, "");
    const other = page.startsWith(CARDS) && page.length > CARDS.length;
    return other && base.protocol !== "file:" && link.pathname !== location.pathname ? page : "";
  }

  // Its words alone: what is a link there is none here.
  /** @param {Element} part */
  function words(part) {
    const copy = element("div", {}, copies(part));
    for (const link of all("a", copy)) link.replaceWith(...link.childNodes);
    return [...copy.childNodes];
  }
  /** @param {ParentNode | null} card */
  function face(card) {
    const parts = card ? all(".pd-head .pd-difficulty, .pd-head .pd-ask-first", card) : [];
    const shown = parts.map((part) => {
      const { difficulty } = part.dataset;
      return element("p", { class: part.className, "data-difficulty": difficulty }, words(part));
    });
    for (const half of card ? all('[data-section="answer"] > .pd-half', card) : []) {
      const { lang, dataset } = half;
      for (const said of all(":scope > p", half)) {
        shown.push(element("p", { lang, "data-lang": dataset.lang }, words(said)));
      }
    }
    return shown;
  }

  /** @type {Record<string, Promise<HTMLElement[]>>} */
  const fetched = {};
  /** @param {string} page */
  async function read(page) {
    const answer = await fetch(page);
    const read = new DOMParser().parseFromString(answer.ok ? await answer.text() : "", "text/html");
    return face(read.querySelector(".pd-card"));
  }
  /** @param {HTMLAnchorElement} link */
  function faceOf(link) {
    if (handbook) return face(inHandbook(link));
    const page = address(link);
    return (fetched[page] ||= read(page).catch(() => []));
  }

  beside({
    of: (link) => Boolean(link.closest("main") && (handbook ? inHandbook(link) : address(link))),
    touch: false,
    async show(link) {
      const said = await faceOf(link);
      return said.length ? { said } : undefined;
    },
  });
})();
