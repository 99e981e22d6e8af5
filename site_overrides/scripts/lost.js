// An address that names a place which is not there says so, with the nearest one; a card's former id leads to the card.
(function () {
  "use strict";
  const { handbook, element, say, place, target } = window.pd;
  const main = document.querySelector(".pd-handbook-main, .md-content__inner");
  const MOST = 200; // letters of an address that are read

  const pairs = (text) => Array.from({ length: Math.max(text.length - 1, 0) }, (_, i) => text.slice(i, i + 2));
  // How alike two names are, from 0 to 1: the pairs of letters that they share (Dice's coefficient).
  function alike(one, other) {
    const left = pairs(other);
    const both = pairs(one).filter((pair) => {
      const at = left.indexOf(pair);
      return at >= 0 && left.splice(at, 1);
    });
    return (2 * both.length) / Math.max(1, one.length + other.length - 2);
  }
  // Of the names the most alike one, or nothing where none is half alike.
  function nearest(name, names) {
    name = name.slice(0, MOST).toLowerCase();
    const [worth, best] = names.map((each) => [alike(name, each), each]).reduce((one, other) => (other[0] > one[0] ? other : one), [0]);
    return worth >= 0.5 ? best : undefined;
  }
  const named = [...document.querySelectorAll(".pd-card[id], .pd-section[id], .pd-item[id], .pd-demo tr[id], .pd-page h3[id], .pd-block[id]")];
  const title = (found) => {
    const parts = (found.querySelector(".pd-title, h2, h3, summary, td:nth-child(2)") || found).textContent.trim().slice(0, 60);
    const halves = ["pd-zh", "pd-en"].map((name) => found.querySelector(`:is(.pd-title, h2, h3) .${name}`)?.textContent.trim());
    return halves[0] ? say(halves[0], halves[1] || halves[0]) : [parts];
  };

  // "card-old" and "old--item", where "old" is what a card was called before.
  function successor(name) {
    for (const card of document.querySelectorAll(".pd-card[data-formerly]")) {
      for (const former of card.dataset.formerly.split(" ")) {
        if (name === `card-${former}`) return `card-${card.dataset.card}`;
        if (name.startsWith(`${former}--`)) return name.replace(former, card.dataset.card);
      }
    }
    return undefined;
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
    const whole = handbook && document.getElementById(`card-${name.split("--")[0]}`);
    const found = whole || document.getElementById(nearest(name, named.map((each) => each.id)) || "");
    notice.replaceChildren(
      ...say(`这里没有“${name.slice(0, MOST)}”。`, `There is no “${name.slice(0, MOST)}” here. `),
      ...(found ? [...say("最接近的是：", "The nearest is: "), element("a", { href: `#${found.id}` }, title(found))] : []));
    main.prepend(notice);
  }
  window.addEventListener("hashchange", look);
  look();

  // The page for what is not there: the card whose name the address almost has.
  const missing = document.querySelector("[data-pd-missing]");
  if (missing) {
    const links = [...missing.querySelectorAll("a[data-card]")];
    const name = location.pathname.split("/").filter(Boolean).at(-1) || "";
    const found = nearest(name, links.map((link) => link.dataset.card));
    const link = links.find((each) => each.dataset.card === found);
    if (link) {
      missing.querySelector(".pd-head").append(
        element("p", { class: "pd-lost" }, say("你要找的可能是：", "Perhaps you mean: "),
          element("a", { href: link.href }, [...link.childNodes].map((node) => node.cloneNode(true)))));
    }
  }
})();
