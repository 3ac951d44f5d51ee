// A family's mark: a colour and a shape, since colours alone do not tell everybody apart.

import { h, s } from "./dom.js";
import { FAMILIES } from "./words.js";

const SHAPES = {
  circle: "M0-5A5 5 0 1 1 0 5A5 5 0 1 1 0-5Z",
  diamond: "M0-6.2L6.2 0L0 6.2L-6.2 0Z",
  triangle: "M0-6L6 5H-6Z",
  square: "M-4.8-4.8H4.8V4.8H-4.8Z",
  cross: "M-5-2.2L-2.2-5L0-2.8L2.2-5L5-2.2L2.8 0L5 2.2L2.2 5L0 2.8L-2.2 5L-5 2.2L-2.8 0Z",
};
const SHAPE_OF = {
  "kernel-oom": "triangle",
  "cuda": "diamond",
  "traceback": "circle",
  "native": "square",
  "signal": "cross",
  "stop-timeout": "square",
  "hang": "diamond",
  "start": "triangle",
  "host": "cross",
  "stop": "circle",
  "unknown": "circle",
};

export function path(family) {
  return s("path", { d: SHAPES[SHAPE_OF[family] ?? "circle"], class: `mark f-${family}` });
}

/** The mark by itself, in a line of text. */
export function mark(family) {
  return s("svg", { viewBox: "-7 -7 14 14", class: "glyph", "aria-hidden": "true" }, path(family));
}

export function legend(families) {
  return h("ul", { class: "legend" }, families.map((family) => h("li", {}, mark(family), FAMILIES[family] ?? family)));
}
