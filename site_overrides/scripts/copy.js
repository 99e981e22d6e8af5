// @ts-check
// Buttons that copy what they carry: <button data-pd-copy="text">.
(function () {
  "use strict";
  const { around, element, say, words, announce } = window.pd;

  /** @param {string} text */
  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // No permission, or no secure context: the old way.
      const holder = element("textarea", { class: "pd-visually-hidden" });
      holder.value = text;
      document.body.append(holder);
      holder.select();
      document.execCommand("copy");
      holder.remove();
    }
  }

  document.addEventListener("click", async (event) => {
    const button = around(event.target, "button[data-pd-copy]");
    if (!button || button.dataset.pdCopied) return;
    await copy(button.dataset.pdCopy || "");
    const label = [...button.childNodes];
    button.dataset.pdCopied = "yes";
    button.replaceChildren(...say("common.copied"));
    announce(words("common.copied"));
    setTimeout(() => {
      button.replaceChildren(...label);
      delete button.dataset.pdCopied;
    }, 1500);
  });
})();
