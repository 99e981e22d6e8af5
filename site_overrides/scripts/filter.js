// @ts-check
// The cards of a module by difficulty and frequency; the address keeps what is chosen.
(function () {
  "use strict";
  const { all, one, say } = window.pd;
  const [form] = all("form[data-pd-filter]", document, HTMLFormElement);
  if (!form) return;
  const fields = all("select", form, HTMLSelectElement);
  const cards = all(".pd-questions > li");
  const shown = one(".pd-shown", form);

  /** Whether a card is what every field asks for. @param {HTMLElement} card */
  const fits = ({ dataset }) => fields.every(({ name, value }) => !value || dataset[name] === value);
  function filter() {
    for (const card of cards) card.hidden = !fits(card);
    for (const list of all(".pd-questions")) {
      const block = list.closest("section");
      if (block) block.hidden = all("li:not([hidden])", list).length === 0;
    }
    const number = cards.filter((card) => !card.hidden).length;
    const count = cards.length;
    shown.replaceChildren(...(number ? say("filters.shown", { number, count }) : say("filters.none")));
  }
  function keep() {
    const url = new URL(location.href);
    for (const { name, value } of fields) {
      if (value) url.searchParams.set(name, value);
      else url.searchParams.delete(name);
    }
    history.replaceState(history.state, "", url);
  }

  const asked = new URLSearchParams(location.search);
  for (const field of fields) {
    const value = asked.get(field.name);
    if (value && [...field.options].some((option) => option.value === value)) field.value = value;
  }
  form.addEventListener("change", () => {
    filter();
    keep();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
})();
