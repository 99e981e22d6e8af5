// @ts-check
// The cards of the module beside the card, where the window has room: fetched once a module, for a list in each page
// would make the site grow with the square of its cards. In the handbook the contents list them.
(function () {
  "use strict";
  const { handbook, all, address, data, element, label, say } = window.pd;
  const [card] = all("article.pd-card[data-module]");
  const main = document.querySelector(".md-main__inner");
  if (handbook || !card || !main) return;
  const { card: here = "", module = "" } = card.dataset;

  /** @param {ModuleContents["topics"][number]["cards"][number]} each */
  function link({ id, title }) {
    const current = id === here && "page";
    return element("li", {}, element("a", { href: address(id), "aria-current": current }, say(title)));
  }
  /** @param {ModuleContents} contents */
  function list({ title, topics }) {
    const parts = topics.map((topic) => [
      element("h3", {}, say(topic.title)),
      element("ul", {}, topic.cards.map(link)),
    ]);
    const to = { href: new URL(`${module}/`, window.pd.base).href };
    const head = element("h2", {}, element("a", to, say(title)));
    return element("nav", { class: "pd-beside", "aria-label": label("ways.cards") }, head, parts.flat());
  }

  const wide = matchMedia("(min-width: 90em)");
  async function begin() {
    if (!wide.matches || !main) return;
    wide.removeEventListener("change", begin);
    const contents = await data(`${module}/cards`).catch(() => undefined);
    if (!contents) return;
    const made = list(contents);
    main.prepend(made);
    const current = made.querySelector("[aria-current]");
    if (current instanceof HTMLElement) made.scrollTop = current.offsetTop - made.clientHeight / 2;
  }
  wide.addEventListener("change", begin);
  begin();
})();
