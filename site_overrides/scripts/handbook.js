// The handbook shows one thing at a time: the contents, the graph, study, or one card; the address says which.
(function () {
  "use strict";
  const { root, handbook, element, say, key, target } = window.pd;
  if (!handbook) return;
  const cards = [...document.querySelectorAll(".pd-handbook-main > .pd-card")];

  // Each card ends with the way to its neighbours.
  const title = (card) => [...card.querySelectorAll(".pd-title > *")].map((part) => part.cloneNode(true));
  cards.forEach((card, i) => {
    const link = (other, rel, sign) =>
      other && element("a", { rel, href: `#${other.id}` }, element("small", {}, sign), element("span", {}, title(other)));
    card.append(
      element("nav", { class: "pd-neighbours", "aria-label": "上一张与下一张 Previous and next" },
        link(cards[i - 1], "prev", say("← 上一张", "← Previous")), link(cards[i + 1], "next", say("下一张 →", "Next →"))),
    );
  });

  // The sections of the card on screen; styles leave out those that the depth hides.
  const sections = element("nav", { class: "pd-sections", "aria-label": "本卡目录 Sections of this card" });
  document.querySelector(".pd-handbook-main").prepend(sections);
  const heading = (section) => [...section.querySelectorAll(":scope > .pd-half > :is(h3, h4), :scope > h3 > span")];
  function list(card) {
    sections.replaceChildren(...[...card.querySelectorAll(":scope > .pd-section")].map((section) =>
      element("a", { href: `#${section.id}`, "data-section": section.dataset.section },
        say(...["zh-Hans", "en"].map((lang) => heading(section).find((each) => each.closest("[lang]").lang === lang)?.textContent || "")))));
  }

  let shown;
  function show() {
    const found = target();
    const card = found?.closest(".pd-card:not(.pd-sheet)");
    for (const each of cards) each.classList.toggle("pd-view", each === card);
    if (card && card !== shown) list(card);
    shown = card;
    const part = found?.closest("#graph, #study");
    root.dataset.pdView = card ? "card" : part ? part.id : "contents";
    for (const link of document.querySelectorAll(".pd-nav a")) {
      if (link.hash === `#${root.dataset.pdView}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    for (const link of sections.children) {
      if (link.hash === location.hash) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    if (found && found !== card && !part) found.scrollIntoView();
    else window.scrollTo(0, 0);
  }
  window.addEventListener("hashchange", show);
  show();

  function step(by) {
    const here = cards.findIndex((card) => card.classList.contains("pd-view"));
    const next = cards[here + by];
    if (next) location.hash = next.id;
    return Boolean(next);
  }
  key("n", "下一张卡", "next card", () => step(1));
  key("p", "上一张卡", "previous card", () => step(-1));
})();
