// The handbook shows one thing at a time: the contents, the graph, study, or one card; the address says which.
(function () {
  "use strict";
  const { root, handbook, element, say, key } = window.pd;
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

  function show() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const card = target?.closest(".pd-card:not(.pd-sheet)");
    for (const each of cards) each.classList.toggle("pd-view", each === card);
    const part = target?.closest("#graph, #study");
    root.dataset.pdView = card ? "card" : part ? part.id : "contents";
    for (const link of document.querySelectorAll(".pd-nav a")) {
      if (link.hash === `#${root.dataset.pdView}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (target && target !== card && !part) target.scrollIntoView();
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
