// @ts-check
// What stands beside a link when it is pointed at or has the focus. Other scripts say what: a proof, a meaning, a card.
// It can be pointed at, stays until the reader leaves, and Esc closes it (WCAG 1.4.13).
(function () {
  "use strict";
  const { root, all, around, element } = window.pd;

  const GAP = 8; // pixels between it and the link, and the window's edge
  const ASIDE = 24; // between it and the text, in the margin
  const NARROWEST = 240; // the margin that it stands in
  const OPEN_AFTER = 120; // milliseconds
  const CLOSE_AFTER = 250;

  const tip = element("div", { class: "pd-tip", popover: "manual" });
  /** @type {Beside[]} */
  const sources = [];
  /** @type {Proofdeck["beside"]} */
  window.pd.beside = (source) => void sources.push(source);

  /** The link that is shown, or whose words are fetched. @type {HTMLAnchorElement | undefined} */
  let wanted;
  /** The link beside which it stands, and what is done when it goes. @type {{ link: HTMLAnchorElement, left?(): void } | undefined} */
  let shown;
  /** @type {number | undefined} */
  let timer;

  // --- where it stands --------------------------------------------------------------------------------

  // In the margin beside the text where there is room, else below the line, or above it.
  /** @param {HTMLAnchorElement} link */
  function place(link) {
    const [at] = link.getClientRects();
    if (!at || at.bottom < 0 || at.top > innerHeight) return hide();
    const text = around(link, ".pd-card, .pd-page")?.getBoundingClientRect();
    const room = text ? root.clientWidth - text.right - ASIDE - GAP : 0;
    const aside = text && room >= NARROWEST;
    tip.style.maxWidth = aside ? `${room}px` : "";
    tip.toggleAttribute("data-aside", Boolean(aside));
    const { width, height } = tip.getBoundingClientRect();
    const centred = at.left + at.width / 2 - width / 2;
    const below = at.bottom + GAP;
    const above = at.top - height - GAP;
    const under = below + height <= innerHeight - GAP || above < GAP ? below : above;
    const left = aside ? text.right + ASIDE : Math.min(centred, root.clientWidth - width - GAP);
    const top = aside ? Math.min(at.top - ASIDE, innerHeight - height - GAP) : under;
    tip.style.left = `${Math.max(GAP, left)}px`;
    tip.style.top = `${aside ? Math.max(GAP, top) : top}px`;
  }

  // Whether the pointer is on its way from the link to the margin.
  /** @param {PointerEvent} event */
  function between({ clientX, clientY }) {
    if (!shown || !tip.hasAttribute("data-aside")) return false;
    const { top, bottom } = tip.getBoundingClientRect();
    const { left } = shown.link.getBoundingClientRect();
    return clientX >= left && clientY >= top - GAP && clientY <= bottom + GAP;
  }

  // --- when -------------------------------------------------------------------------------------------

  /** @param {HTMLAnchorElement} link */
  const sourceOf = (link) => sources.find((source) => source.of(link));

  /** @param {HTMLAnchorElement} link */
  async function show(link) {
    clearTimeout(timer);
    if (wanted === link) return;
    hide();
    wanted = link;
    const found = await sourceOf(link)?.show(link);
    if (!found || wanted !== link) return;
    const said = element("div", { id: "pd-tip-text", role: "tooltip" }, found.said);
    if (found.verdict) tip.dataset.verdict = found.verdict;
    else delete tip.dataset.verdict;
    tip.replaceChildren(said, ...(found.more || []));
    link.after(tip); // so that Tab goes from the link to what is in it
    tip.showPopover();
    link.classList.add("pd-shown");
    const described = all("[id]", tip).map((part) => part.id);
    link.setAttribute("aria-describedby", described.join(" "));
    shown = { link, left: found.left };
    place(link);
  }

  function hide() {
    clearTimeout(timer);
    wanted = undefined;
    if (!shown) return;
    const { link, left } = shown;
    shown = undefined;
    link.classList.remove("pd-shown");
    link.removeAttribute("aria-describedby");
    left?.();
    tip.hidePopover();
    tip.remove();
  }

  /**
   * @param {() => void} act
   * @param {number} after milliseconds
   */
  function soon(act, after) {
    clearTimeout(timer);
    timer = setTimeout(act, after);
  }
  /** @param {Event} event */
  function linkAt(event) {
    const link = around(event.target, "a[href]", HTMLAnchorElement);
    return link && sourceOf(link) ? link : null;
  }
  /** Whether something is part of the link beside which it stands, or of it. @param {EventTarget | null} part */
  const inside = (part) =>
    part instanceof Node && Boolean(shown?.link.contains(part) || tip.contains(part));

  // --- pointer, finger, keys --------------------------------------------------------------------------

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const link = linkAt(event);
    if (link) soon(() => show(link), OPEN_AFTER);
    else if (!wanted || inside(event.target) || between(event)) clearTimeout(timer);
    else if (!inside(document.activeElement)) soon(hide, CLOSE_AFTER);
  });
  document.addEventListener("focusin", (event) => {
    const link = linkAt(event);
    if (link?.matches(":focus-visible")) show(link);
    else if (!inside(event.target)) hide();
  });
  document.addEventListener("focusout", (event) => {
    if (shown && !inside(event.relatedTarget) && inside(event.target)) soon(hide, 100);
  });
  // A finger cannot hover: of a proof and a meaning the first touch shows them, the second follows the link.
  let touched = false;
  document.addEventListener("pointerdown", (event) => {
    touched = event.pointerType === "touch";
    if (shown && !inside(event.target)) hide();
  });
  document.addEventListener("click", (event) => {
    const link = linkAt(event);
    if (!link) return;
    if (touched && shown?.link !== link && sourceOf(link)?.touch) {
      event.preventDefault();
      show(link);
    } else {
      hide();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !shown) return;
    if (tip.contains(document.activeElement)) shown.link.focus();
    event.stopPropagation();
    hide();
  });
  document.addEventListener("pd:set", hide);
  window.addEventListener("hashchange", hide);
  window.addEventListener("scroll", () => shown && place(shown.link), { passive: true });
})();
