// @ts-check
// The reader's colours, on the body as soon as it has begun, before anything of it is painted.
(function () {
  "use strict";
  const chosen = window.__md_get("__palette")?.color;
  if (!chosen) return;

  function media() {
    if (chosen.media !== "(prefers-color-scheme)") return chosen.media;
    const light = matchMedia("(prefers-color-scheme: light)").matches;
    return `(prefers-color-scheme: ${light ? "light" : "dark"})`;
  }

  const wanted = media();
  const options = [...document.querySelectorAll("[data-md-color-media]")];
  const option = options.find((each) => each.getAttribute("data-md-color-media") === wanted);
  for (const part of ["media", "scheme", "primary", "accent"]) {
    const value = option?.getAttribute(`data-md-color-${part}`);
    if (value) document.body.setAttribute(`data-md-color-${part}`, value);
  }
})();
