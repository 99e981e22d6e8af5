// The report of an error, written as the form is filled in; the address may name the card.
(function () {
  "use strict";
  const form = document.querySelector("[data-pd-report]");
  if (!form) return;
  const { card, says, truth } = form.elements;
  const text = document.querySelector(".pd-report-text code");
  const copy = text.closest(".pd-page").querySelector("[data-pd-copy]");
  const link = document.querySelector("[data-pd-report-to]");

  function write() {
    const { form: lines, path = "" } = card.selectedOptions[0].dataset;
    const filled = ["", says.value, truth.value];
    text.textContent = copy.dataset.pdCopy = lines.split("\n").map((line, i) => `${line}${filled[i].trim()}`).join("\n");
    if (link) link.href = link.dataset.pdReportTo.replaceAll("{card}", card.value).replaceAll("{path}", path);
  }
  const asked = new URLSearchParams(location.search).get("card");
  if ([...card.options].some((each) => each.value === asked)) card.value = asked;
  form.addEventListener("input", write);
  form.addEventListener("submit", (event) => event.preventDefault());
  write();
})();
