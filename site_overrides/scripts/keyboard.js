// Single keys, the dialog that lists them, and the setting that turns them off (WCAG 2.1.4).
(function () {
  "use strict";
  const { handbook, get, set, element, say, words, keys, key } = window.pd;

  const writing = (target) => target.closest?.("input, textarea, select, [contenteditable]");

  // On the way down, so that the theme's own single keys are turned off as well.
  window.addEventListener(
    "keydown",
    (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || writing(event.target)) return;
      if (event.key.length !== 1) return;
      if (get("keys") === "off") {
        event.stopImmediatePropagation();
        return;
      }
      if (document.querySelector("dialog[open]")) return;
      if (keys.some(({ names, act }) => names.includes(event.key) && act(event) !== false)) {
        event.preventDefault();
        event.stopImmediatePropagation();
      }
    },
    true,
  );

  let dialog;
  function help() {
    dialog ||= make();
    const shown = { " ": "␣" };
    dialog.querySelector("tbody").replaceChildren(
      ...keys.map(({ names, zh, en }) =>
        element(
          "tr",
          {},
          element("td", {}, names.map((name) => element("kbd", {}, shown[name] || name))),
          element("td", {}, say(zh, en)),
        ),
      ),
    );
    dialog.setAttribute("aria-label", words("键盘", "Keyboard"));
    dialog.showModal();
  }

  function make() {
    const choice = element("input", { type: "checkbox", id: "pd-single-keys" });
    choice.checked = get("keys") === "on";
    choice.addEventListener("change", () => set("keys", choice.checked ? "on" : "off"));
    const made = element(
      "dialog",
      { class: "pd-dialog pd-help", onclick: (event) => event.target === made && made.close() },
      element(
        "div",
        { class: "pd-help-sheet" },
        element("h2", {}, say("键盘", "Keyboard")),
        element("table", {}, element("tbody")),
        element("label", { for: "pd-single-keys" }, choice, say("启用单键快捷键", "Single-key shortcuts are on")),
        element("form", { method: "dialog" }, element("button", { class: "pd-button" }, say("关闭", "Close"))),
      ),
    );
    document.body.append(made);
    return made;
  }

  key("?", "这份说明", "this list", help);
  if (!handbook) {
    key("n", "下一页", "next page", () => false); // the theme's own
    key("p", "上一页", "previous page", () => false);
  }
  document.addEventListener("click", (event) => event.target.closest('[data-pd-open="help"]') && help());
})();
