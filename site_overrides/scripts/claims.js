// @ts-check
// The proof beside a number: as it is printed, then what was found, how, where and when, taken from the row of the
// evidence to which the number links.
(function () {
  "use strict";
  const { all, around, beside, copies, element, say, target } = window.pd;

  // Where and when the run was: "CPU · PyTorch 2.13 · …".
  /** @param {HTMLElement | null} demo */
  function facts(demo) {
    return (demo ? all(".pd-run dd", demo) : []).map((fact) => {
      const name = fact.previousElementSibling; // the same in both languages where it has no halves: PyTorch, Python
      const same = name && !name.children.length;
      return `${same ? name.textContent : ""} ${fact.textContent}`.trim();
    });
  }

  // What a run found, and how.
  /** @param {HTMLTableRowElement} row */
  function finding(row) {
    const [number, label] = row.cells;
    const how = around(row, "tbody")?.querySelector(".pd-how");
    const where = facts(around(row, ".pd-demo"));
    return [
      element("p", { class: "pd-tip-found" }, element("strong", {}, copies(number)), " ", copies(label)),
      element("p", { class: "pd-tip-how" }, copies(how)),
      where.length > 0 && element("p", { class: "pd-tip-where" }, where.join(" · ")),
    ];
  }

  // A calculation with its values, each a link to its proof.
  /**
   * @param {HTMLElement} line
   * @param {HTMLTableRowElement} row
   */
  function arithmetic(line, row) {
    const worth = element("strong", {}, copies(row.cells[0]));
    return element("p", { id: "pd-tip-line", class: "pd-tip-found" }, copies(line), " = ", worth);
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

  /** @param {HTMLAnchorElement} claim */
  function row(claim) {
    const found = claim.matches(".pd-claim") && target(claim);
    return found instanceof HTMLTableRowElement ? found : undefined;
  }

  beside({
    of: (link) => Boolean(row(link)),
    touch: true,
    show(claim) {
      const found = row(claim);
      if (!found) return undefined;
      const verdict = /** @type {Verdict} */ (claim.dataset.verdict);
      const [line] = all(".pd-line", found);
      const command = around(found, ".pd-demo")?.querySelector("[data-pd-copy]")?.getAttribute("data-pd-copy");
      const printed = [
        element("span", { class: "pd-tip-value" }, copies(claim)),
        element("span", { class: "pd-tip-verdict" }, say(`verdicts.${verdict}`)),
      ];
      return {
        verdict,
        said: line ? printed : [...printed, ...finding(found)],
        more: [line && arithmetic(line, found), command && commandLine(command)].filter((part) => !!part),
      };
    },
  });
})();
