// @ts-check
// Lists of choices that the page brings along, shown in the reader's language.
(function () {
  "use strict";
  const { all, words, onSet } = window.pd;
  function translate() {
    for (const option of all("option[data-zh]")) {
      const { zh = "", en = "" } = option.dataset;
      option.textContent = words({ zh, en });
    }
  }
  onSet("mode", translate);
  translate();
})();
