// A tuning table as a picture: throughput by the values of one argument, a line for each number of running requests, and
// the accept length below. Values stand at equal distances, so that 1, 2 and 10 steps are read one by one.

import { h, line, s } from "./dom.js";

const HEIGHT = 150;
const TOP = 10;
const BOTTOM = 22;
const LEFT = 58;
const RIGHT = 16;

/** The picture, or null where there is nothing to compare. `groups` are the numbers of running requests. */
export function picture(table, groups) {
  const panels = [
    { name: "Best throughput, tokens/s", series: groups.map((group, index) => ({ name: `${group} running`, colour: index + 1, of: (row) => row.best[group] })) },
    { name: "Accept length, tokens a step", series: [{ name: "mean", colour: 0, of: (row) => row.accept_length }] },
  ].map((panel) => ({ ...panel, series: panel.series.map((series) => ({ ...series, values: table.rows.map((row) => series.of(row) ?? null) })).filter((series) => series.values.some((value) => value !== null)) }))
    .filter((panel) => panel.series.length);
  if (table.rows.length < 2 || !panels.length) return null;
  const names = table.rows.map((row) => (row.value === null ? "not set" : line(row.value)));
  return h("div", { class: "plots" }, panels.map((panel) => figure(panel, names)));
}

function figure(panel, names) {
  const box = h("div", { class: "plot", role: "img", "aria-label": inWords(panel, names) });
  const draw = () => {
    const width = Math.floor(box.clientWidth);
    if (width) box.replaceChildren(drawn(panel, names, width));
  };
  new ResizeObserver(draw).observe(box);
  return h("figure", {}, h("figcaption", {}, h("strong", {}, panel.name), panel.series.map((series) => h("span", { class: "series" }, h("i", { class: `dash c${series.colour}` }), series.name))), box);
}

function drawn(panel, names, width) {
  const most = ceiling(Math.max(...panel.series.flatMap((series) => series.values.filter((value) => value !== null))));
  const x = (index) => LEFT + ((width - LEFT - RIGHT) * (index + 0.5)) / names.length;
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * value) / most;
  const every = Math.ceil((names.length * 64) / (width - LEFT - RIGHT));
  const ground = [0, 0.25, 0.5, 0.75, 1].map((part) => [
    s("line", { class: "rule", x1: LEFT, x2: width - RIGHT, y1: y(part * most), y2: y(part * most) }),
    s("text", { class: "hour", x: LEFT - 8, y: y(part * most) + 4, "text-anchor": "end" }, short(part * most)),
  ]);
  const labels = names.map((name, index) => (index % every ? null : s("text", { class: "hour", x: x(index), y: HEIGHT - 6, "text-anchor": "middle" }, name.length > 14 ? `${name.slice(0, 13)}…` : name)));
  const curves = panel.series.map((series) => {
    const points = series.values.map((value, index) => (value === null ? null : [x(index), y(value)])).filter(Boolean);
    return s("g", { class: `c${series.colour}` }, s("polyline", { class: "curve", points: points.map((point) => point.join(",")).join(" ") }), points.map(([left, top]) => s("circle", { class: "dot", cx: left, cy: top, r: 3 })));
  });
  return s("svg", { class: "lane-picture", width, height: HEIGHT, "aria-hidden": "true" }, ground, labels, curves);
}

/** A round number at or above it, with a little room. */
function ceiling(value) {
  const scale = 10 ** Math.floor(Math.log10(Math.max(value, 1e-6)));
  return [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10, 12].map((step) => step * scale).find((step) => step >= 1.04 * value);
}

function short(value) {
  return value >= 1000 ? `${+(value / 1000).toFixed(2)}k` : String(+value.toPrecision(3));
}

function inWords(panel, names) {
  const said = panel.series.map((series) => `${series.name}: ${series.values.map((value, index) => `${names[index]} ${value === null ? "not known" : short(value)}`).join(", ")}`);
  return `${panel.name}. ${said.join(". ")}`;
}
