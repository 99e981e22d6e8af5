// @ts-check
// The theme puts a mark into code for each note on it, a link without a name: who listens hears its number.
(function () {
  "use strict";
  const { all, label } = window.pd;

  function name() {
    for (const mark of all(".md-annotation__index:not([aria-label])")) {
      const number = mark.querySelector("[data-md-annotation-id]")?.getAttribute("data-md-annotation-id");
      mark.setAttribute("aria-label", `${label("common.note")} ${number}`);
    }
  }
  const sheet = document.querySelector(".pd-document");
  if (sheet) new MutationObserver(name).observe(sheet, { childList: true, subtree: true });
  name();
})();
