// The last minutes as curves, one below the other over the same time, with the events that the verdict rests on.

import { h, line, show } from "./dom.js";
import uPlot from "./vendor/uPlot.js";
import { bytes, clock, clockExactly, duration } from "./words.js";

const HEIGHT = 120;
const GIB = 2 ** 30;
const STEPS_OF_BYTES = Array.from({ length: 32 }, (_, power) => 2 ** (power + 14));
const SPANS = { "1 min": 60, "5 min": 300, "30 min": 1800, "all": Infinity };

/** The curves of one crash. `draw` makes them anew, in the colours of now; `destroy` ends them. */
export function charts(crash, timeline) {
  const panels = gather(timeline.events);
  const place = h("div", { class: "plots" });
  const death = Date.parse(crash.died_at) / 1000;
  const first = Math.min(...panels.flatMap((panel) => panel.series.flatMap((series) => series.points[0]?.[0] ?? [])));
  const fitting = Object.entries(SPANS).filter(([, seconds]) => seconds === Infinity || death - first > seconds * 0.5);
  const shows = (seconds) => panels.some((panel) => panel.series.some((series) => series.points.some(([at]) => at >= death - seconds)));
  let span = fitting.find(([, seconds]) => seconds >= 300 && shows(seconds))?.[1] ?? Infinity;
  let plots = [];

  const spans = fitting.length < 2 ? null : h("fieldset", { class: "spans" }, h("legend", { class: "unseen" }, "How long before the end"),
    fitting.map(([words, seconds]) => h("label", {}, h("input", { type: "radio", name: "minutes", checked: seconds === span, onchange: () => { span = seconds; draw(); } }), h("span", {}, words))));
  const element = panels.length
    ? h("section", { class: "card" }, h("div", { class: "heading" }, h("h2", {}, "The last minutes"), spans), place)
    : null;

  function draw() {
    destroy();
    const from = span === Infinity ? first : Math.max(first, death - span);
    const until = death + Math.max(1, (death - from) * 0.03);
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    show(place, panels.map((panel) => figure(panel, from, until)));
    function figure(panel, begin, end) {
      const box = h("div", { class: "plot", role: "img", "aria-label": inWords(panel, begin, death) });
      const readout = h("span", { class: "readout" });
      const made = h("figure", {}, h("figcaption", {}, h("strong", {}, panel.name), panel.series.map((series) => h("span", { class: "series" }, h("i", { class: `dash c${series.colour}${series.limit ? " limit" : ""}` }), line(series.name))), readout), box);
      queueMicrotask(() => plots.push(plot(panel, box, readout, begin, end, colour)));
      return made;
    }
  }

  function plot(panel, box, readout, begin, end, colour) {
    const data = aligned(panel.series.map((series) => series.points.filter(([at]) => at >= begin - 60 && at <= end)));
    const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const made = new uPlot({
      width: Math.max(200, box.clientWidth),
      height: HEIGHT,
      padding: [8, 8, 0, 0],
      cursor: { sync: { key: "crash" }, y: false, points: { size: 6 }, drag: { x: false, y: false } },
      legend: { show: false },
      scales: { x: { time: true, range: () => [begin, end] }, y: { range: (self, low, high) => [0, (high || 1) * 1.12] } },
      axes: [
        { ...axis, size: 22, space: 70, values: (self, splits) => splits.map((split) => clock(split * 1000)) },
        { ...axis, size: 58, space: 22, incrs: panel.words === gib ? STEPS_OF_BYTES : undefined, values: (self, splits) => splits.map((split) => panel.words(split)) },
      ],
      series: [{}, ...panel.series.map((series) => ({
        stroke: colour(`--c${series.colour}`), width: series.limit ? 1.25 : 1.75, dash: series.limit ? [5, 4] : undefined,
        fill: series.limit || panel.series.length > 2 ? undefined : `${colour(`--c${series.colour}`)}22`, spanGaps: true, points: { show: series.points.length < 3 },
      }))],
      hooks: {
        draw: [(self) => events(self, colour)],
        setCursor: [(self) => {
          const at = self.cursor.idx;
          readout.textContent = at === null || at === undefined ? "" : `${clock(self.data[0][at] * 1000)}  ${self.data.slice(1).map((values) => (values[at] === null || values[at] === undefined ? "–" : panel.words(values[at]))).join(" · ")}`;
        }],
      },
    }, data, box);
    const observer = new ResizeObserver(() => made.setSize({ width: Math.max(200, box.clientWidth), height: HEIGHT }));
    observer.observe(box);
    return { destroy() { observer.disconnect(); made.destroy(); } };
  }

  /** Vertical lines where the evidence stands, and the end. */
  function events(self, colour) {
    const { ctx, bbox } = self;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const stroke = (moment, style, width, dash) => {
      const x = Math.round(self.valToPos(moment, "x", true)) + 0.5;
      ctx.strokeStyle = style;
      ctx.lineWidth = width * devicePixelRatio;
      ctx.setLineDash(dash);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    };
    for (const piece of crash.evidence) stroke(Date.parse(piece.at) / 1000, colour(`--${piece.role}`) || colour("--quiet"), 1.25, piece.role === "initiating" ? [] : [3, 3]);
    stroke(death, colour("--text"), 1.5, []);
    ctx.restore();
  }

  function destroy() {
    plots.forEach((each) => each.destroy());
    plots = [];
  }

  return { element, draw: panels.length ? draw : () => {}, destroy };
}

function inWords(panel, begin, death) {
  const said = panel.series.filter((series) => series.points.length).map((series) => {
    const values = series.points.filter(([at]) => at >= begin).map(([, value]) => value);
    if (!values.length) return `${series.name}: nothing in this time`;
    return `${series.name}: first ${panel.words(values[0])}, last ${panel.words(values.at(-1))}, highest ${panel.words(Math.max(...values))}`;
  });
  return `${panel.name} over the last ${duration(death - begin)}, up to ${clockExactly(new Date(death * 1000).toISOString())}. ${said.join(". ")}`;
}

function whole(value) {
  return value >= 1000 ? `${+(value / 1000).toFixed(1)}k` : String(+value.toFixed(1));
}

function gib(value) {
  if (value >= GIB) return `${+(value / GIB).toFixed(value >= 100 * GIB ? 0 : 1)} GiB`;
  return value ? bytes(value).replace(".0 ", " ") : "0";
}

/** Panels that have something to show, each `{name, words, series: [{name, colour, limit, points: [[seconds, value]]}]}`. */
function gather(events) {
  const at = (fact) => Date.parse(fact.at) / 1000;
  const decodes = events.filter((fact) => fact.kind === "batch" && fact.values.phase === "decode");
  const figure = (name) => decodes.flatMap((fact) => {
    const value = Number(Object.fromEntries(fact.values.values)[name]);
    return Number.isFinite(value) ? [[at(fact), value]] : [];
  });
  const sampled = (kind, value) => events.filter((fact) => fact.kind === kind && value(fact.values) !== null && value(fact.values) !== undefined).map((fact) => [at(fact), value(fact.values)]);
  const panels = [
    { name: "Throughput, tokens/s", words: whole, series: [{ name: "generated", colour: 1, points: figure("gen throughput (token/s)") }] },
    { name: "Requests", words: whole, series: [{ name: "running", colour: 2, points: figure("running-req") }, { name: "queued", colour: 3, points: figure("queue-req") }] },
    { name: "Memory of the unit", words: gib, series: [{ name: "used", colour: 4, points: sampled("cgroup-memory", (values) => values.current_bytes) }, { name: "limit", colour: 5, limit: true, points: sampled("cgroup-memory", (values) => values.max_bytes) }] },
    { name: "Memory of the host", words: gib, series: [{ name: "used", colour: 4, points: sampled("host-memory", (values) => values.total_bytes - values.available_bytes) }, { name: "all there is", colour: 5, limit: true, points: sampled("host-memory", (values) => values.total_bytes) }] },
  ];
  const gpus = [...new Set(events.filter((fact) => fact.kind === "gpu-memory").map((fact) => fact.values.index))].sort((a, b) => a - b);
  if (gpus.length) {
    const of = (index, field) => sampled("gpu-memory", (values) => (values.index === index ? values[field] : null));
    panels.push({ name: gpus.length > 1 ? "Memory of the GPUs" : "Memory of the GPU", words: gib, series: [
      ...gpus.map((index, place) => ({ name: gpus.length > 1 ? `GPU ${index}` : "used", colour: (place % 4) + 1, points: of(index, "used_bytes") })),
      { name: "all there is", colour: 5, limit: true, points: of(gpus[0], "total_bytes") },
    ] });
  }
  return panels
    .map((panel) => ({ ...panel, series: panel.series.filter((series) => series.points.length) }))
    .filter((panel) => panel.series.some((series) => !series.limit));
}

/** Points of several series as uPlot wants them: one row of times, a row of values for each series. */
function aligned(series) {
  const times = [...new Set(series.flatMap((points) => points.map(([at]) => at)))].sort((a, b) => a - b);
  const place = new Map(times.map((moment, index) => [moment, index]));
  return [times, ...series.map((points) => {
    const values = new Array(times.length).fill(null);
    for (const [at, value] of points) values[place.get(at)] = value;
    return values;
  })];
}
