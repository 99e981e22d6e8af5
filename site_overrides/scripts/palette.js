// The reader's colours, on the body as soon as it has begun, before anything of it is painted.
(function () {
  "use strict";
  const chosen = window.__md_get("__palette")?.color;
  if (!chosen) return;
  const media = chosen.media === "(prefers-color-scheme)"
    ? `(prefers-color-scheme: ${matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark"})`
    : chosen.media;
  const options = [...document.querySelectorAll("[data-md-color-media]")];
  const option = options.find((each) => each.dataset.mdColorMedia === media);
  for (const part of ["media", "scheme", "primary", "accent"]) {
    const value = option?.getAttribute(`data-md-color-${part}`);
    if (value) document.body.setAttribute(`data-md-color-${part}`, value);
  }
})();
