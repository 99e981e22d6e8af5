// The proof beside a number, on hover and on focus: taken from the row of the evidence to which the number links.
// It can be pointed at, stays until the reader leaves, and Esc closes it (WCAG 1.4.13).
(function () {
  "use strict";
  const { element, say, target } = window.pd;

  const VERDICTS = {
    proven: ["✓ 已证明：每次验证都重算，与记录相等", "✓ Proven: recomputed at every verification, and equal"],
    bounded: ["≤ 已证明：误差不超过界", "≤ Proven: stays within its bound"],
    sampled: ["± 抽样：按种子重算，与记录相等，附标准误差", "± Sampled: recomputed from its seed, with its standard error"],
    measured: ["◷ 实测：回放记录，不随 CPU 运行重算", "◷ Measured: read from the record, not recomputed"],
    computed: ["ƒ 计算所得：每次验证都重算，与记录相等，但不是实测", "ƒ Computed: recomputed at every verification, and equal, but not measured"],
    refuted: ["✗ 已证伪：运行结果并非如此", "✗ Refuted: the run says otherwise"],
    stale: ["? 过期：代码已改，证据待重录", "? Stale: the code has changed since the record"],
  };

  let tip, shown, timer;

  const copied = (node) => [...(node?.childNodes || [])].map((child) => child.cloneNode(true));

  function fill(claim) {
    const line = target(claim);
    if (!line) return false;
    const demo = line.closest(".pd-demo");
    const [number, label, how] = line.cells;
    const command = demo?.querySelector("[data-pd-copy]")?.dataset.pdCopy;
    const facts = [...(demo?.querySelectorAll(".pd-run dd") || [])].map((fact) => {
      const name = fact.previousElementSibling; // the same in both languages where it has no halves: PyTorch, Python
      return `${name.children.length ? "" : name.textContent} ${fact.textContent}`.trim();
    });
    tip.dataset.verdict = claim.dataset.verdict;
    tip.replaceChildren(
      element(
        "div",
        { id: "pd-tip-text", role: "tooltip" },
        element("span", { class: "pd-tip-verdict" }, say(...VERDICTS[claim.dataset.verdict])),
        element("span", { class: "pd-tip-value" }, copied(number)),
        element("p", {}, copied(label)),
        element("p", { class: "pd-tip-how" }, copied(how)),
        facts.length > 0 && element("p", { class: "pd-tip-where" }, facts.join(" · ")),
      ),
    );
    if (command) {
      tip.append(
        element(
          "div",
          { class: "pd-command" },
          element("code", {}, command),
          element("button", { type: "button", class: "pd-copy", "data-pd-copy": command }, say("复制", "Copy")),
        ),
      );
    }
    return true;
  }

  function place(claim) {
    const at = claim.getClientRects()[0];
    const size = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, at.left + at.width / 2 - size.width / 2), innerWidth - size.width - 8);
    const above = at.top - size.height - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above >= 8 ? above : at.bottom + 8}px`;
  }

  function show(claim) {
    clearTimeout(timer);
    if (shown === claim) return;
    hide();
    tip ||= element("div", { class: "pd-tip", popover: "manual" });
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
    shown = undefined;
    tip.hidePopover();
    tip.remove();
  }

  const soon = (act, after) => {
    clearTimeout(timer);
    timer = setTimeout(act, after);
  };
  const claimAt = (event) => event.target.closest?.("a.pd-claim");
  const inside = (node) => node && (shown?.contains(node) || tip?.contains(node));

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    if (claimAt(event)) soon(() => show(claimAt(event)), 120);
    else if (shown && inside(event.target)) clearTimeout(timer);
    else if (shown && !inside(document.activeElement)) soon(hide, 250);
    else if (!shown) clearTimeout(timer);
  });
  document.addEventListener("focusin", (event) => {
    if (claimAt(event)?.matches(":focus-visible")) show(claimAt(event));
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
    if (touched && shown !== claim && target(claim)) {
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
