// @ts-check
// The proof beside a number, on hover and on focus: taken from the row of the evidence to which the number links.
// The meaning beside a term, likewise: it stands in the title of the link, which without scripts shows it by itself.
// It can be pointed at, stays until the reader leaves, and Esc closes it (WCAG 1.4.13).
(function () {
  "use strict";
  const { all, around, copies, element, say, target } = window.pd;

  const MARGIN = 8; // pixels that the proof keeps from the number and from the window's edge
  const OPEN_AFTER = 120; // milliseconds
  const CLOSE_AFTER = 250;

  const tip = element("div", { class: "pd-tip", popover: "manual" });
  /** @type {HTMLAnchorElement | undefined} */
  let shown;
  /** The title that the shown term had. */
  let term = "";
  /** @type {number | undefined} */
  let timer;

  // --- what it says ----------------------------------------------------------------------------------

  // Where and when the run was: "CPU · PyTorch 2.13 · …".
  /** @param {HTMLElement | null} demo */
  function facts(demo) {
    return (demo ? all(".pd-run dd", demo) : []).map((fact) => {
      const name = fact.previousElementSibling; // the same in both languages where it has no halves: PyTorch, Python
      const same = name && !name.children.length;
      return `${same ? name.textContent : ""} ${fact.textContent}`.trim();
    });
  }

  /**
   * @param {Verdict} verdict
   * @param {HTMLTableRowElement} line
   */
  function proof(verdict, line) {
    const [number, label, how] = line.cells;
    const where = facts(around(line, ".pd-demo"));
    return element(
      "div",
      { id: "pd-tip-text", role: "tooltip" },
      element("span", { class: "pd-tip-verdict" }, say(`verdicts.${verdict}`)),
      element("span", { class: "pd-tip-value" }, copies(number)),
      element("p", {}, copies(label)),
      element("p", { class: "pd-tip-how" }, copies(how)),
      where.length > 0 && element("p", { class: "pd-tip-where" }, where.join(" · ")),
    );
  }

  /** @param {string} command */
  function commandLine(command) {
    const copy = { type: "button", class: "pd-copy", "data-pd-copy": command };
    return element(
      "div",
      { class: "pd-command" },
      element("code", {}, command),
      element("button", copy, say("common.copy_text")),
    );
  }

  /** @param {HTMLAnchorElement} term */
  const isTerm = (term) => term.classList.contains("pd-term");
  /** @param {HTMLAnchorElement} term */
  function meaning(term) {
    const { lang = "" } = around(term, "[lang]") || {};
    return element(
      "div",
      { id: "pd-tip-text", role: "tooltip" },
      element("span", { class: "pd-tip-term" }, term.dataset.term),
      element("p", { class: "pd-tip-means", lang }, term.title),
    );
  }

  /** Fill the tip; whether there is something to say: a term's meaning, or a row of evidence. @param {HTMLAnchorElement} claim */
  function fill(claim) {
    if (isTerm(claim)) {
      delete tip.dataset.verdict;
      tip.replaceChildren(meaning(claim));
      term = claim.title;
      claim.removeAttribute("title"); // or the browser would show it once more
      return true;
    }
    const line = target(claim);
    if (!(line instanceof HTMLTableRowElement)) return false;
    const verdict = /** @type {Verdict} */ (claim.dataset.verdict);
    const button = around(line, ".pd-demo")?.querySelector("[data-pd-copy]");
    const command = button?.getAttribute("data-pd-copy");
    tip.dataset.verdict = verdict;
    tip.replaceChildren(proof(verdict, line));
    if (command) tip.append(commandLine(command));
    return true;
  }

  // --- where it stands, and when ----------------------------------------------------------------------

  /** @param {HTMLAnchorElement} claim */
  function place(claim) {
    const at = claim.getClientRects()[0];
    const size = tip.getBoundingClientRect();
    const centred = at.left + at.width / 2 - size.width / 2;
    const left = Math.min(Math.max(MARGIN, centred), innerWidth - size.width - MARGIN);
    const above = at.top - size.height - MARGIN;
    tip.style.left = `${left}px`;
    tip.style.top = `${above >= MARGIN ? above : at.bottom + MARGIN}px`;
  }

  /** @param {HTMLAnchorElement} claim */
  function show(claim) {
    clearTimeout(timer);
    if (shown === claim) return;
    hide();
    if (!fill(claim)) return;
    claim.after(tip); // so that Tab goes from the number to the button that copies its command
    tip.showPopover();
    place(claim);
    claim.classList.add("pd-shown");
    claim.setAttribute("aria-describedby", "pd-tip-text");
    shown = claim;
  }

  function hide() {
    clearTimeout(timer);
    if (!shown) return;
    shown.classList.remove("pd-shown");
    shown.removeAttribute("aria-describedby");
    if (isTerm(shown)) shown.title = term;
    shown = undefined;
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
  const claimAt = (event) => around(event.target, "a.pd-claim, a.pd-term", HTMLAnchorElement);
  /** Whether something is part of the number whose proof is shown, or of the proof. @param {EventTarget | null} part */
  const inside = (part) => part instanceof Node && Boolean(shown?.contains(part) || tip.contains(part));

  // --- pointer, finger, keys --------------------------------------------------------------------------

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const claim = claimAt(event);
    if (claim) soon(() => show(claim), OPEN_AFTER);
    else if (!shown || inside(event.target)) clearTimeout(timer);
    else if (!inside(document.activeElement)) soon(hide, CLOSE_AFTER);
  });
  document.addEventListener("focusin", (event) => {
    const claim = claimAt(event);
    if (claim?.matches(":focus-visible")) show(claim);
    else if (!inside(event.target)) hide();
  });
  document.addEventListener("focusout", (event) => {
    if (shown && !inside(event.relatedTarget) && inside(event.target)) soon(hide, 100);
  });
  // A finger cannot hover: the first touch shows the proof, the second follows the link.
  let touched = false;
  document.addEventListener("pointerdown", (event) => {
    touched = event.pointerType === "touch";
    if (shown && !inside(event.target)) hide();
  });
  document.addEventListener("click", (event) => {
    const claim = claimAt(event);
    if (!claim) return;
    if (touched && shown !== claim && (isTerm(claim) || target(claim))) {
      event.preventDefault();
      show(claim);
    } else {
      hide();
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !shown) return;
    if (tip.contains(document.activeElement)) shown.focus();
    event.stopPropagation();
    hide();
  });
  document.addEventListener("pd:set", hide);
  window.addEventListener("scroll", () => shown && place(shown), { passive: true });
})();
