// Follow-ups as flip cards: closed at first, both languages flip together, j and k go from one to the next.
(function () {
  "use strict";
  const { key, target } = window.pd;

  const known = new WeakMap(); // whether a follow-up is open, as both its languages were told
  const item = target()?.closest(".pd-item");
  for (const card of document.querySelectorAll(".pd-item details.pd-followup")) {
    card.open = card.closest(".pd-item") === item;
    known.set(card.closest(".pd-item"), card.open);
  }
  window.addEventListener("hashchange", () => {
    for (const card of target()?.closest(".pd-item")?.querySelectorAll("details.pd-followup") || []) card.open = true;
  });

  // "toggle" does not bubble, so it is caught on its way down. It comes late: what it tells of a twin that has been
  // followed already, or of the closing at first, is no news.
  document.addEventListener(
    "toggle",
    ({ target: { open }, target: card }) => {
      const item = card.matches?.("details.pd-followup") && card.closest(".pd-item");
      if (!item || known.get(item) === open) return;
      known.set(item, open);
      for (const twin of item.querySelectorAll("details.pd-followup")) if (twin.open !== open) twin.open = open;
    },
    true,
  );

  // Paper shows every answer; afterwards the page is as it was.
  let closed = [];
  window.addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details.pd-followup:not([open])")];
    for (const card of closed) card.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const card of closed) card.open = false;
  });

  function move(step) {
    const faces = [...document.querySelectorAll(".pd-item .pd-followup > summary")].filter((face) => face.checkVisibility());
    // Side by side, the two languages of a follow-up count once.
    const stops = faces.filter((face, i) => !i || face.closest(".pd-item") !== faces[i - 1].closest(".pd-item"));
    if (!stops.length) return false;
    const here = stops.findIndex((face) => face.closest(".pd-item").contains(document.activeElement));
    const next = here < 0 ? (step > 0 ? 0 : stops.length - 1) : Math.min(Math.max(here + step, 0), stops.length - 1);
    stops[next].focus({ preventScroll: true });
    stops[next].scrollIntoView({ block: "center" });
    return true;
  }
  key("j", "下一个追问", "next follow-up", () => move(1));
  key("k", "上一个追问", "previous follow-up", () => move(-1));
  key(" ", "翻开或合上所在的追问", "flip the follow-up in focus", () => false); // the browser's own key for <summary>
})();
