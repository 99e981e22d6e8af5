// Reading state, in this browser only: what was opened, and what the reader marked as known.
(function () {
  "use strict";
  const { store, element, say, words, announce } = window.pd;

  const day = (value) => (/^\d{4}-\d\d-\d\d$/.test(value) ? value : undefined);
  const state = (value) => (store.isObject(value) ? { opened: day(value.opened), known: value.known === true } : undefined);
  let unkept = {}; // what storage would not take holds for this page
  const read = () => Object.assign(store.read("reading", (value) => store.dictionary(value, state)), unkept);
  function note(card, change) {
    const all = read();
    all[card] = { ...all[card], ...change };
    const kept = store.write("reading", all);
    unkept = kept ? {} : { ...unkept, [card]: all[card] };
    mark();
    return kept;
  }

  // A card that was called otherwise keeps what was noted under its former ids.
  for (const card of document.querySelectorAll("article.pd-card[data-formerly]")) {
    const all = read();
    const former = card.dataset.formerly.split(" ").find((id) => all[id]);
    if (former && !all[card.dataset.card]) note(card.dataset.card, all[former]);
  }

  // Every link or row that names a card says how far the reader is with it.
  function mark() {
    const all = read();
    for (const place of document.querySelectorAll("a[data-card], tr[data-card], li[data-card]")) {
      const state = all[place.dataset.card];
      let sign = place.querySelector(":scope .pd-state");
      if (!state) {
        sign?.remove();
        continue;
      }
      if (!sign) {
        sign = element("span", { class: "pd-state", role: "img" });
        (place.querySelector(".pd-state-here") || place.querySelector("td, th") || place).append(sign);
      }
      sign.textContent = state.known ? "✓" : "◐";
      sign.setAttribute("aria-label", state.known ? words("已掌握", "known") : words("读过", "opened"));
    }
  }

  for (const card of document.querySelectorAll("article.pd-card[data-card]")) {
    const id = card.dataset.card;
    const button = element("button", { type: "button", class: "pd-button pd-mark" });
    const label = () => {
      const known = Boolean(read()[id]?.known);
      button.setAttribute("aria-pressed", String(known));
      button.replaceChildren(known ? "✓ " : "○ ", ...say("已掌握", "I know this"));
    };
    const unkeptHere = element("span", { class: "pd-sheet-about", hidden: true },
      say("没有存下：浏览器的存储已满，或不允许保存。", "Not kept: this browser's storage is full or blocked."));
    button.addEventListener("click", () => {
      unkeptHere.hidden = note(id, { known: !read()[id]?.known });
      if (!unkeptHere.hidden) announce(unkeptHere.textContent);
      label();
    });
    store.follow("reading", label);
    label();
    const end = [...card.querySelectorAll(":scope > .pd-section, :scope > .pd-more")].at(-1);
    end?.after(element("p", { class: "pd-mark-line" }, button, " ", unkeptHere));

    // Opened is a card of which the insights, or what stands for them, came into view.
    const seen = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      seen.disconnect();
      if (!read()[id]) note(id, { opened: new Date().toISOString().slice(0, 10) });
    });
    const section = card.querySelector('[data-section="insights"]') || card;
    seen.observe(section);
  }
  store.follow("reading", mark);
  mark();
})();
