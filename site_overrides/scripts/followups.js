// @ts-check
// Follow-ups as flip cards: closed at first, both languages flip together, j and k go from one to the next.
(function () {
  "use strict";
  const { all, around, key, set, target } = window.pd;

  /** @param {string} selector @param {ParentNode} [scope] */
  const cards = (selector, scope) => all(selector, scope, HTMLDetailsElement);
  /** @param {Element} part */
  const itemOf = (part) => around(part, ".pd-item");

  /** Whether a follow-up is open, as both its languages were told. @type {WeakMap<HTMLElement, boolean>} */
  const known = new WeakMap();
  const asked = around(target(), ".pd-item");
  for (const card of cards(".pd-item details.pd-followup")) {
    const item = itemOf(card);
    card.open = item === asked;
    if (item) known.set(item, card.open);
  }
  window.addEventListener("hashchange", () => {
    const item = around(target(), ".pd-item");
    for (const card of item ? cards("details.pd-followup", item) : []) card.open = true;
  });

  // "toggle" does not bubble, so it is caught on its way down. It comes late: what it tells of a twin that has been
  // followed already, or of the closing at first, is no news.
  /** @param {Event} event */
  function follow({ target: card }) {
    if (!(card instanceof HTMLDetailsElement) || !card.matches(".pd-followup")) return;
    const item = itemOf(card);
    if (!item || known.get(item) === card.open) return;
    known.set(item, card.open);
    for (const twin of cards("details.pd-followup", item)) {
      if (twin.open !== card.open) twin.open = card.open;
    }
  }
  document.addEventListener("toggle", follow, true);

  // Where j and k stop. Side by side, the two languages of a follow-up count once.
  function stops() {
    const faces = all(".pd-item .pd-followup > summary").filter((face) => face.checkVisibility());
    return faces.filter((face, i) => !i || itemOf(face) !== itemOf(faces[i - 1]));
  }
  /** @param {1 | -1} step */
  function move(step) {
    const card = all(".pd-card:has(.pd-followup)").find((each) => each.checkVisibility());
    if (card && !stops().length) set("depth", "deep", { keep: false }); // as a link to one would
    const faces = stops();
    if (!faces.length) return false;
    const last = faces.length - 1;
    const here = faces.findIndex((face) => itemOf(face)?.contains(document.activeElement));
    const first = step > 0 ? 0 : last;
    const next = faces[here < 0 ? first : Math.min(Math.max(here + step, 0), last)];
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "center" });
    return true;
  }
  key("j", "single_keys.next_followup", () => move(1));
  key("k", "single_keys.previous_followup", () => move(-1));
  key(" ", "single_keys.flip", () => false); // the browser's own key for <summary>
})();
