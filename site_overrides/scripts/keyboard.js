// @ts-check
// Single keys, the dialog that lists them, and the setting that turns them off (WCAG 2.1.4).
(function () {
  "use strict";
  const { around, one, handbook, get, set, element, say, words, keys, key } = window.pd;

  /** @param {KeyboardEvent} event */
  function isSingleKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return false;
    if (around(event.target, "input, textarea, select, [contenteditable]")) return false;
    return event.key.length === 1;
  }

  /** @param {KeyboardEvent} event */
  function press(event) {
    if (!isSingleKey(event)) return;
    if (get("keys") === "off") {
      event.stopImmediatePropagation();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    if (keys.some(({ names, act }) => names.includes(event.key) && act(event) !== false)) {
      event.preventDefault();
      event.stopImmediatePropagation();
    }
  }
  // On the way down, so that the theme's own single keys are turned off as well.
  window.addEventListener("keydown", press, true);

  /** @type {HTMLDialogElement | undefined} */
  let dialog;
  function help() {
    dialog ||= make();
    one("tbody", dialog).replaceChildren(...keys.map(row));
    dialog.setAttribute("aria-label", words("common.keyboard"));
    dialog.showModal();
  }

  /** @param {SingleKey} key */
  function row({ names, does }) {
    const caps = names.map((name) => element("kbd", {}, name === " " ? "␣" : name));
    return element("tr", {}, element("td", {}, caps), element("td", {}, say(does)));
  }

  function make() {
    const choice = element("input", { type: "checkbox", id: "pd-single-keys" });
    choice.checked = get("keys") === "on";
    choice.addEventListener("change", () => set("keys", choice.checked ? "on" : "off"));
    const label = element("label", { for: "pd-single-keys" }, choice, say("single_keys.on"));
    const close = element("button", { class: "pd-button" }, say("common.close"));
    const sheet = element(
      "div",
      { class: "pd-help-sheet" },
      element("h2", {}, say("common.keyboard")),
      element("table", {}, element("tbody")),
      label,
      element("form", { method: "dialog" }, close),
    );
    const made = element("dialog", { class: "pd-dialog pd-help" }, sheet);
    made.addEventListener("click", (event) => event.target === made && made.close());
    document.body.append(made);
    return made;
  }

  key("?", "single_keys.help", help);
  if (!handbook) {
    key("n", "single_keys.next_page", () => window.pd.way.follow("next")); // else the theme's own
    key("p", "single_keys.previous_page", () => window.pd.way.follow("prev"));
  }
  document.addEventListener("click", (event) => around(event.target, '[data-pd-open="help"]') && help());
})();
