// @ts-check
// The meaning beside a term: it stands in the title of the link, which without scripts shows it by itself.
(function () {
  "use strict";
  const { around, beside, element } = window.pd;

  beside({
    of: (link) => link.matches(".pd-term"),
    touch: true,
    show(term) {
      const { lang = "" } = around(term, "[lang]") || {};
      const { title } = term;
      term.removeAttribute("title"); // or the browser would show it once more
      return {
        said: [
          element("span", { class: "pd-tip-term" }, term.dataset.term),
          element("p", { class: "pd-tip-means", lang }, title),
        ],
        left: () => (term.title = title),
      };
    },
  });
})();
