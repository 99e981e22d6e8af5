// The knowledge graph: zoom and pan by pointer, wheel and keys; filters; what a card needs and unlocks lit up.
(function () {
  "use strict";
  const page = document.querySelector("[data-pd-graph]");
  if (!page) return;
  const { words, onSet } = window.pd;
  const canvas = page.querySelector(".pd-graph-canvas");
  const view = canvas.querySelector(".pd-graph-view");
  const form = page.querySelector(".pd-graph-controls");
  const nodes = [...view.querySelectorAll(".pd-node")];
  const edges = [...view.querySelectorAll(".pd-edge")];
  const MOST = 40; // how far one may zoom in, beside the whole

  // --- zoom and pan: the view is moved within a fixed viewBox -----------------------------------------

  let scale = 1, x = 0, y = 0;
  const box = canvas.viewBox.baseVal;
  function unit() {
    const frame = canvas.getBoundingClientRect();
    return Math.min(frame.width / box.width, frame.height / box.height); // pixels a unit, unzoomed
  }
  function draw() {
    view.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
    const seen = scale * unit();
    page.dataset.zoom = seen < 0.3 ? "far" : seen < 0.62 ? "middle" : "near";
    page.style.setProperty("--pd-seen", String(seen));
  }
  function point(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(canvas.getScreenCTM().inverse());
    return [at.x, at.y];
  }
  function zoom(factor, [px, py] = [box.x + box.width / 2, box.y + box.height / 2]) {
    const next = Math.min(Math.max(scale * factor, 0.8), MOST);
    x = px - ((px - x) * next) / scale;
    y = py - ((py - y) * next) / scale;
    scale = next;
    draw();
  }
  function pan(dx, dy) {
    x += dx;
    y += dy;
    draw();
  }
  function fit() {
    scale = 1;
    x = y = 0;
    draw();
  }
  // At first the whole, unless its words would be too small to read: then its upper left, as wide as the window.
  function begin() {
    fit();
    const { clientWidth: width, clientHeight: height } = canvas;
    const seen = Math.max(unit(), width > 700 ? Math.min(0.95, width / box.width) : 0.68);
    if (seen === unit()) return;
    scale = Math.min(MOST, seen / unit());
    const first = view.querySelector(".pd-box rect");
    const left = box.x + (box.width - width / unit()) / 2;
    const top = box.y + (box.height - height / unit()) / 2;
    x = left + 12 / unit() - first.x.baseVal.value * scale;
    y = top + 12 / unit() - first.y.baseVal.value * scale;
    draw();
  }

  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)), point(event));
  }, { passive: false });

  const pointers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, point(event));
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const now = point(event);
    if (pointers.size === 1) {
      pan(now[0] - before[0], now[1] - before[1]);
    } else {
      const other = [...pointers].find(([id]) => id !== event.pointerId)[1];
      const apart = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]) || 1;
      zoom(apart(now) / apart(before), other);
    }
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]) * unit();
    if (moved > 6 && !canvas.hasPointerCapture(event.pointerId)) canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, now);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => pointers.delete(event.pointerId));
  }
  canvas.addEventListener("click", (event) => moved > 6 && event.preventDefault(), true); // a drag opens nothing
  canvas.addEventListener("dragstart", (event) => event.preventDefault());

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = 60 / unit();
    const acts = {
      ArrowLeft: () => pan(step, 0), ArrowRight: () => pan(-step, 0), ArrowUp: () => pan(0, step), ArrowDown: () => pan(0, -step),
      "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), 0: fit,
    };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  });
  page.addEventListener("click", (event) => {
    const act = event.target.closest("[data-zoom]")?.dataset.zoom;
    if (act === "in") zoom(1.4);
    else if (act === "out") zoom(1 / 1.4);
    else if (act === "fit") fit();
  });

  // --- what belongs to a card ------------------------------------------------------------------------

  function light(card) {
    const near = new Set([card]);
    for (const edge of edges) {
      const touches = card && (edge.dataset.from === card || edge.dataset.to === card);
      edge.classList.toggle("pd-lit", Boolean(touches));
      if (touches) near.add(edge.dataset.from).add(edge.dataset.to);
    }
    for (const node of nodes) node.classList.toggle("pd-lit", Boolean(card) && near.has(node.dataset.card));
    page.classList.toggle("pd-lighting", Boolean(card));
  }
  const nodeAt = (event) => event.target.closest?.(".pd-node");
  canvas.addEventListener("pointerover", (event) => !pointers.size && light(nodeAt(event)?.dataset.card));
  canvas.addEventListener("pointerleave", () => light());
  canvas.addEventListener("focusin", (event) => {
    const node = nodeAt(event);
    if (!node?.matches(":focus-visible")) return;
    light(node.dataset.card);
    const at = node.getBoundingClientRect();
    const frame = canvas.getBoundingClientRect();
    if (at.left < frame.left || at.right > frame.right || at.top < frame.top || at.bottom > frame.bottom) {
      pan((frame.left + frame.width / 2 - at.left - at.width / 2) / unit(), (frame.top + frame.height / 2 - at.top - at.height / 2) / unit());
    }
  });
  canvas.addEventListener("focusout", () => light());

  // --- filters and paths -----------------------------------------------------------------------------

  function filter() {
    const { module, difficulty, tag, path } = Object.fromEntries(new FormData(form));
    for (const each of view.querySelectorAll(".pd-path, .pd-stops")) each.classList.toggle("pd-drawn", each.dataset.path === path);
    const out = new Set();
    for (const node of nodes) {
      const { dataset } = node;
      const kept = (!module || dataset.module === module) && (!difficulty || dataset.difficulty === difficulty) &&
        (!tag || (dataset.tags || "").split(" ").includes(tag));
      node.classList.toggle("pd-out", !kept);
      if (!kept) out.add(dataset.card);
    }
    for (const edge of edges) edge.classList.toggle("pd-out", out.has(edge.dataset.from) || out.has(edge.dataset.to));
  }
  form.addEventListener("change", filter);
  form.addEventListener("submit", (event) => event.preventDefault());

  function translate() {
    for (const option of form.querySelectorAll("option")) option.textContent = words(option.dataset.zh, option.dataset.en);
  }
  onSet("mode", translate);
  translate();
  const asked = new URLSearchParams(location.search).get("path");
  if (asked) form.elements.path.value = asked;
  filter();
  let begun = false; // in the handbook the graph has no size until it is shown
  new ResizeObserver(() => {
    if (!canvas.clientWidth) return;
    if (!begun) begin();
    else draw();
    begun = true;
  }).observe(canvas);
})();
