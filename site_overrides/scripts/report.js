// @ts-check
// The report of an error, written as the form is filled in; the address may name the card.
(function () {
  "use strict";
  const { all, one } = window.pd;
  const [form] = all("[data-pd-report]", document, HTMLFormElement);
  if (!form) return;
  const card = one('[name="card"]', form, HTMLSelectElement);
  const says = one('[name="says"]', form, HTMLTextAreaElement);
  const truth = one('[name="truth"]', form, HTMLTextAreaElement);
  const text = one(".pd-report-text code");
  const copy = one("[data-pd-copy]", text.closest(".pd-page") || document);
  const [link] = all("[data-pd-report-to]", document, HTMLAnchorElement);

  function write() {
    const { form: lines = "", path = "" } = card.selectedOptions[0].dataset;
    const filled = ["", says.value, truth.value];
    const report = lines
      .split("\n")
      .map((line, i) => `${line}${filled[i].trim()}`)
      .join("\n");
    text.textContent = report;
    copy.dataset.pdCopy = report;
    if (link) {
      const to = link.dataset.pdReportTo || "";
      link.href = to.replaceAll("{card}", card.value).replaceAll("{path}", path);
    }
  }
  const asked = new URLSearchParams(location.search).get("card");
  if (asked && [...card.options].some((each) => each.value === asked)) card.value = asked;
  form.addEventListener("input", write);
  form.addEventListener("submit", (event) => event.preventDefault());
  write();
})();
