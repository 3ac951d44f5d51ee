// One server: which value of which argument served best, and each of its runs.

import { get } from "./api.js";
import { h, line, show } from "./dom.js";
import { failed } from "./overview.js";
import { picture } from "./tuning.js";
import { count, dayAndClock, duration, utc } from "./words.js";

const CONCURRENCY = ["1", "2-4", "5-16", "17+"];

export function server(name) {
  const tuning = h("section", { class: "card", "aria-labelledby": "tuning" });
  const runs = h("section", { class: "card", "aria-labelledby": "runs" });
  const element = h("article", { class: "server" },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "← All servers")), h("h1", { tabindex: "-1" }, line(name)), tuning, runs);

  const varied = new Set();

  async function drawTuning(by = "") {
    try {
      const table = await get(`servers/${encodeURIComponent(name)}/tuning`, { by });
      const others = [...new Set([table.by, ...table.also_varied, ...varied])].sort();
      const choice = h("select", { "aria-label": "By which argument", onchange: () => drawTuning(choice.value) }, others.map((each) => h("option", { value: each, selected: each === table.by }, line(each))));
      const seen = CONCURRENCY.filter((group) => table.rows.some((row) => row.best[group] !== undefined));
      const most = Object.fromEntries(seen.map((group) => [group, Math.max(...table.rows.map((row) => row.best[group] ?? 0))]));
      show(tuning, h("div", { class: "heading" }, h("h2", { id: "tuning" }, "What served best"), others.length > 1 ? choice : null),
        table.also_varied.length ? h("p", { class: "quiet-text" }, `Between these runs ${table.also_varied.map(line).join(", ")} differed too: what that does is in the figures.`) : null,
        picture(table, seen),
        h("p", { class: "quiet-text", id: "tuned" }, "Tokens/s by the number of running requests: the best, and under it the median."),
        h("div", { class: "wide", tabindex: "0", role: "group", "aria-labelledby": "tuned" }, h("table", { class: "tuning", "aria-describedby": "tuned" },
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, line(table.by)), seen.map((group) => h("th", { scope: "col" }, `${group} running`)), ["accept length", "runs", "ends"].map((text) => h("th", { scope: "col" }, text)))),
          h("tbody", {}, table.rows.map((row) => h("tr", {}, h("th", { scope: "row" }, h("code", {}, row.value === null ? "not set" : line(row.value))),
            seen.map((group) => speed(row, group, most[group])),
            h("td", {}, row.accept_length === null ? "–" : row.accept_length.toFixed(2)), h("td", {}, row.ready === row.runs.length ? String(row.ready) : `${row.runs.length}, ${row.ready} ready`),
            h("td", { class: "ends" }, Object.entries(row.ends).map(([cause, times]) => `${times}× ${line(cause)}`).join(", "))))))));
    } catch (problem) {
      show(tuning, h("div", { class: "heading" }, h("h2", { id: "tuning" }, "What served best")), failed(problem));
    }
  }

  async function drawRuns() {
    try {
      const found = await get("runs", { server: name, limit: 50 });
      found.runs.flatMap((run) => run.changes).forEach((one) => varied.add(one.name));
      show(runs, h("h2", { id: "runs" }, "Runs"), h("ol", { class: "runs" }, found.runs.map((run) => h("li", {},
        h("time", { datetime: run.started_at, title: utc(run.started_at) }, dayAndClock(run.started_at)),
        h("div", {}, ended(run), run.changes.length ? h("p", { class: "quiet-text" }, `${count(run.changes.length, "change")}: `, run.changes.map((one) => `${line(one.name)} ${one.before === null ? "not set" : line(one.before)} → ${one.after === null ? "not set" : line(one.after)}`).join("; ")) : null,
          run.remark ? h("p", { class: "remark" }, line(run.remark)) : null)))));
    } catch (problem) {
      show(runs, h("h2", { id: "runs" }, "Runs"), failed(problem));
    }
  }

  return {
    element,
    ready: drawRuns().then(() => drawTuning()),
    title: () => `${line(name)} · Inquest`,
    happened(kind, data) {
      if (data.server === name || kind === "reset") drawRuns();
    },
  };
}

function speed(row, group, most) {
  const best = row.best[group];
  if (best === undefined) return h("td", { class: "quiet-text" }, "–");
  const median = row.median[group];
  return h("td", { class: best === most ? "winner" : "" }, best.toFixed(1), h("meter", { min: 0, max: most, value: best, "aria-hidden": "true" }), median === undefined ? null : h("span", { class: "quiet-text" }, median.toFixed(1)));
}

function ended(run) {
  const ready = run.ready_after_seconds === null ? "never ready" : `ready after ${duration(run.ready_after_seconds)}`;
  if (run.end === null) return h("p", {}, h("b", {}, "running"), `, ${ready}`);
  const lived = duration((Date.parse(run.end.ended_at) - Date.parse(run.started_at)) / 1000);
  const how = run.end.is_crash ? h("a", { href: `#/crashes/${run.id}` }, run.end.cause) : run.end.cause;
  return h("p", {}, how, ` after ${lived}, ${run.end.became_ready && run.ready_after_seconds === null ? "had been ready" : ready}`);
}
