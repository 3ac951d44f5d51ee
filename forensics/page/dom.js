// Elements from data. Text becomes text nodes, never markup: a log line can hold anything.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; null and false children are left out, strings are text. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same in SVG. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Bidirectional controls can make a line read as another one.
const BIDI = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const CONTROL = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;

/** Text from outside with what cannot be seen made visible; line breaks and tabs stay. */
export function visible(text) {
  return String(text)
    .replace(/\r\n/g, "\n")
    .replace(CONTROL, (char) => `\\x${char.charCodeAt(0).toString(16).padStart(2, "0")}`)
    .replace(BIDI, "\ufffd");
}

/** The same on one line. */
export function line(text) {
  return visible(text).replace(/\s+/g, " ").trim();
}

/** Replaces what an element holds. */
export function show(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter(Boolean));
}

const tip = document.getElementById("tip");

/** A tip for pointer and keyboard. What it says must stand elsewhere too, in a label or a text. */
export function withTip(element, lines) {
  const open = () => {
    show(tip, lines.map((each, index) => h(index ? "span" : "strong", {}, each)));
    tip.hidden = false;
    const box = element.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
    const above = box.top - tip.offsetHeight - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 8 ? above : box.bottom + 8}px`;
  };
  const close = () => { tip.hidden = true; };
  element.addEventListener("pointerenter", open);
  element.addEventListener("pointerleave", close);
  element.addEventListener("focus", open);
  element.addEventListener("blur", close);
  element.addEventListener("click", close);
  return element;
}
