// @ts-check
// The knowledge graph: zoom and pan by pointer, wheel and keys; filters; what a card needs and unlocks lit up.
(function () {
  "use strict";
  const { all, around, one } = window.pd;
  const [page] = all("[data-pd-graph]");
  if (!page) return;
  const canvas = one(".pd-graph-canvas", page, SVGSVGElement);
  const view = one(".pd-graph-view", canvas, SVGGElement);
  const form = one(".pd-graph-controls", page, HTMLFormElement);
  const nodes = all(".pd-node", view, SVGElement);
  const edges = all(".pd-edge", view, SVGElement);
  const LEAST = 0.8; // how far one may zoom out and in, beside the whole
  const MOST = 40;
  const NARROW = 700; // pixels
  const READABLE = 0.68; // pixels a unit
  const DRAG = 6; // pixels from which on a press is a drag

  /** In units of the viewBox. @typedef {[x: number, y: number]} Point */

  // --- zoom and pan: the view is moved within a fixed viewBox -----------------------------------------

  let scale = 1;
  let x = 0;
  let y = 0;
  const box = canvas.viewBox.baseVal;
  /** @type {Point} */
  const middle = [box.x + box.width / 2, box.y + box.height / 2];

  // Pixels a unit, unzoomed.
  function unit() {
    const frame = canvas.getBoundingClientRect();
    return Math.min(frame.width / box.width, frame.height / box.height);
  }
  /** How near one is, for styles. @param {number} seen pixels a unit */
  function nearness(seen) {
    if (seen < 0.3) return "far";
    return seen < 0.62 ? "middle" : "near";
  }
  function draw() {
    const seen = scale * unit();
    view.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
    page.dataset.zoom = nearness(seen);
    page.style.setProperty("--pd-seen", String(seen));
  }
  /** @param {MouseEvent} event @returns {Point} */
  function point(event) {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(canvas.getScreenCTM()?.inverse());
    return [at.x, at.y];
  }
  /**
   * @param {number} factor
   * @param {Point} about what stays where it is
   */
  function zoom(factor, [px, py] = middle) {
    const next = Math.min(Math.max(scale * factor, LEAST), MOST);
    x = px - ((px - x) * next) / scale;
    y = py - ((py - y) * next) / scale;
    scale = next;
    draw();
  }
  /**
   * @param {number} dx
   * @param {number} dy
   */
  function pan(dx, dy) {
    x += dx;
    y += dy;
    draw();
  }
  function fit() {
    scale = 1;
    x = 0;
    y = 0;
    draw();
  }
  /** The middle of a card. @param {SVGElement} node @returns {Point} */
  function centre(node) {
    const at = /** @type {SVGGraphicsElement} */ (node).transform.baseVal.consolidate()?.matrix;
    const { width, height } = one("rect", node, SVGRectElement);
    return [(at?.e || 0) + width.baseVal.value / 2, (at?.f || 0) + height.baseVal.value / 2];
  }
  /**
   * The card with the most others in a window around it.
   * @param {number} width
   * @param {number} height
   */
  function densest(width, height) {
    const places = nodes.map(centre);
    /** @param {Point} of */
    const near = ([cx, cy]) =>
      places.filter(([px, py]) => Math.abs(px - cx) < width / 2 && Math.abs(py - cy) < height / 2).length;
    const counts = places.map(near);
    return nodes[counts.indexOf(Math.max(...counts))];
  }
  // At first the whole; on a phone, where its words would be too small to read, what is around the card that was
  // read last, or the most cards that fit.
  function begin() {
    fit();
    const { clientWidth: width, clientHeight: height } = canvas;
    if (width > NARROW || unit() >= READABLE || !nodes.length) return;
    scale = Math.min(MOST, READABLE / unit());
    const { card } = window.pd.way.read();
    const last = nodes.find((node) => node.dataset.card === card);
    const [px, py] = centre(last || densest(width / READABLE, height / READABLE));
    x = middle[0] - px * scale;
    y = middle[1] - py * scale;
    draw();
  }

  // --- wheel, pointers, keys, buttons ------------------------------------------------------------------

  // The wheel scrolls the page until the graph has the focus, or with Ctrl, as two fingers on a pad send it.
  /** @param {WheelEvent} event */
  function turn(event) {
    if (!event.ctrlKey && !canvas.contains(document.activeElement)) return;
    event.preventDefault();
    const pace = event.deltaMode ? 0.05 : 0.0018; // lines or pixels
    zoom(Math.exp(-event.deltaY * pace), point(event));
  }
  canvas.addEventListener("wheel", turn, { passive: false });

  /** @type {Map<number, Point>} */
  const pointers = new Map();
  let moved = 0;
  /**
   * Two fingers: what is under the other one stays there.
   * @param {PointerEvent} event
   * @param {Point} before
   * @param {Point} now
   */
  function pinch(event, before, now) {
    const other = [...pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (!other) return;
    /** @param {Point} at */
    const apart = (at) => Math.hypot(at[0] - other[0], at[1] - other[1]) || 1;
    zoom(apart(now) / apart(before), other);
  }
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, point(event));
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return;
    const now = point(event);
    if (pointers.size === 1) pan(now[0] - before[0], now[1] - before[1]);
    else pinch(event, before, now);
    moved += Math.hypot(now[0] - before[0], now[1] - before[1]) * unit();
    if (moved > DRAG && !canvas.hasPointerCapture(event.pointerId)) canvas.setPointerCapture(event.pointerId);
    pointers.set(event.pointerId, now);
  });
  canvas.addEventListener("pointerup", (event) => pointers.delete(event.pointerId));
  canvas.addEventListener("pointercancel", (event) => pointers.delete(event.pointerId));
  canvas.addEventListener("click", (event) => moved > DRAG && event.preventDefault(), true); // a drag opens nothing
  canvas.addEventListener("dragstart", (event) => event.preventDefault());

  const step = () => 60 / unit();
  /** @type {Record<string, () => void>} */
  const KEYS = {
    ArrowLeft: () => pan(step(), 0),
    ArrowRight: () => pan(-step(), 0),
    ArrowUp: () => pan(0, step()),
    ArrowDown: () => pan(0, -step()),
    "+": () => zoom(1.25),
    "=": () => zoom(1.25),
    "-": () => zoom(0.8),
    0: fit,
  };
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  page.addEventListener("click", (event) => {
    const act = around(event.target, "[data-zoom]")?.dataset.zoom;
    if (act === "in") zoom(1.4);
    else if (act === "out") zoom(1 / 1.4);
    else if (act === "fit") fit();
  });

  // --- what belongs to a card ------------------------------------------------------------------------

  /** @param {string} [card] */
  function light(card) {
    const near = new Set([card]);
    for (const edge of edges) {
      const { from, to } = edge.dataset;
      const touches = Boolean(card) && (from === card || to === card);
      edge.classList.toggle("pd-lit", touches);
      if (touches) near.add(from).add(to);
    }
    for (const node of nodes) {
      node.classList.toggle("pd-lit", Boolean(card) && near.has(node.dataset.card));
    }
    page.classList.toggle("pd-lighting", Boolean(card));
  }
  /** @param {Event} event */
  const nodeAt = (event) => around(event.target, ".pd-node", SVGElement);

  // Move what is beyond an edge of the canvas into its middle.
  /** @param {SVGElement} node */
  function bringIn(node) {
    const at = node.getBoundingClientRect();
    const frame = canvas.getBoundingClientRect();
    const across = at.left >= frame.left && at.right <= frame.right;
    const along = at.top >= frame.top && at.bottom <= frame.bottom;
    if (across && along) return;
    const dx = frame.left + frame.width / 2 - at.left - at.width / 2;
    const dy = frame.top + frame.height / 2 - at.top - at.height / 2;
    pan(dx / unit(), dy / unit());
  }

  canvas.addEventListener("pointerover", (event) => !pointers.size && light(nodeAt(event)?.dataset.card));
  canvas.addEventListener("pointerleave", () => light());
  canvas.addEventListener("focusin", (event) => {
    const node = nodeAt(event);
    if (!node?.matches(":focus-visible")) return;
    light(node.dataset.card);
    bringIn(node);
  });
  canvas.addEventListener("focusout", () => light());

  // --- filters and paths -----------------------------------------------------------------------------

  function filter() {
    const chosen = Object.fromEntries(new FormData(form));
    for (const each of all(".pd-path, .pd-stops", view, SVGElement)) {
      each.classList.toggle("pd-drawn", each.dataset.path === chosen.path);
    }
    /** @param {DOMStringMap} of a node's */
    function fits({ module, difficulty, tags = "" }) {
      if (chosen.module && module !== chosen.module) return false;
      if (chosen.difficulty && difficulty !== chosen.difficulty) return false;
      return !chosen.tag || tags.split(" ").includes(String(chosen.tag));
    }
    const out = new Set();
    for (const node of nodes) {
      const fitting = fits(node.dataset);
      node.classList.toggle("pd-out", !fitting);
      if (!fitting) out.add(node.dataset.card);
    }
    for (const edge of edges) {
      edge.classList.toggle("pd-out", out.has(edge.dataset.from) || out.has(edge.dataset.to));
    }
  }
  form.addEventListener("change", filter);
  form.addEventListener("submit", (event) => event.preventDefault());

  const asked = new URLSearchParams(location.search).get("path");
  if (asked) one('[name="path"]', form, HTMLSelectElement).value = asked;
  filter();
  let begun = false; // in the handbook the graph has no size until it is shown
  const resized = new ResizeObserver(() => {
    if (!canvas.clientWidth) return;
    if (!begun) begin();
    else draw();
    begun = true;
  });
  resized.observe(canvas);
})();
