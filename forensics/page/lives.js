// Every server's lives as lanes over time: starting, up, stopping, down, and how each of them ended.

import { h, line, s, withTip } from "./dom.js";
import { path } from "./marks.js";
import { ago, clock, count, day, dayAndClock, duration, ZONE } from "./words.js";

const LANE = 30;
const BAR = 14;
const NEAR = 13;
const STEPS = [60, 300, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

/** The lanes of all servers. `servers` as of /servers, `lives` as of /lives, the bounds in milliseconds. */
export function lanes(servers, lives, since, until) {
  const box = h("div", { class: "lanes" });
  const draw = () => {
    const width = Math.floor(box.clientWidth);
    if (!width) return;
    const narrow = width < 620;
    const label = narrow ? 0 : 190;
    const scale = (moment) => Math.max(0, Math.min(1, (moment - since) / (until - since))) * (width - label - 12) + 2;
    box.replaceChildren(
      ...servers.map((server) => h("div", { class: narrow ? "lane stacked" : "lane" },
        h("div", { class: "who" }, h("strong", {}, h("a", { href: `#/servers/${encodeURIComponent(server.server)}` }, line(server.server))), h("span", { class: `state ${stateOf(server, lives).word}` }, stateOf(server, lives).text)),
        picture(server, lives.filter((life) => life.unit === server.unit), scale, width - label - 8, until))),
      h("div", { class: narrow ? "lane stacked" : "lane" }, h("div", { class: "who zone" }, ZONE), axis(scale, since, until, width - label - 8)),
    );
  };
  new ResizeObserver(draw).observe(box);
  return box;
}

/** What a server does now, in a word for its colour and in a text. */
export function stateOf(server, lives) {
  const living = lives.find((life) => life.unit === server.unit && life.ended_at === null);
  if (server.running && living?.stopping_at) return { word: "stopping", text: `stopping since ${dayAndClock(living.stopping_at)}` };
  if (server.running && living && !living.became_ready) return { word: "starting", text: `starting for ${since(server.running.since)}` };
  if (server.running?.not_answering_since) return { word: "silent", text: `no answer for ${since(server.running.not_answering_since)}` };
  if (server.running) return { word: "up", text: `up for ${since(living?.ready_at ?? server.running.since)}` };
  if (!server.last_run) return { word: "down", text: "never ran" };
  const how = server.last_run.is_crash ? "crashed" : "stopped";
  return { word: server.last_run.is_crash ? "crashed" : "down", text: `${how} ${ago(server.last_run.died_at)}` };
}

function since(moment) {
  return duration((Date.now() - new Date(moment)) / 1000);
}

function picture(server, lives, scale, width, until) {
  const middle = LANE / 2;
  const parts = [];
  for (const life of lives) {
    const start = Date.parse(life.started_at);
    const end = life.ended_at === null ? Math.min(until, Date.now()) : Date.parse(life.ended_at);
    const stop = life.stopping_at ? Math.min(Date.parse(life.stopping_at), end) : end;
    const ready = life.ready_at ? Math.min(Date.parse(life.ready_at), stop) : life.became_ready ? start : stop;
    for (const [word, from, to] of [["starting", start, ready], ["up", ready, stop], ["stopping", stop, end]]) {
      if (to <= from) continue;
      const left = scale(from);
      parts.push(s("rect", { class: `bar ${word}`, x: left, y: middle - BAR / 2, width: Math.max(1.5, scale(to) - left), height: BAR, rx: 2.5 }));
    }
  }
  const shown = lives.filter((life) => life.is_crash && Date.parse(life.ended_at) <= until).sort((a, b) => (a.ended_at < b.ended_at ? -1 : 1));
  for (const group of together(shown, scale)) parts.push(crashMark(group, scale, middle));
  const crashes = shown.length;
  const label = `${server.server}: ${count(lives.length, "run")}, ${count(crashes, "crash", "crashes")} in this time`;
  return s("svg", { class: "lane-picture", width, height: LANE, role: "group", "aria-label": line(label) }, s("line", { class: "ground", x1: 0, x2: width, y1: middle, y2: middle }), parts);
}

/** Crashes that would stand on top of one another become one mark with a number. */
function together(crashes, scale) {
  const groups = [];
  for (const crash of crashes) {
    const last = groups.at(-1);
    if (last && scale(Date.parse(crash.ended_at)) - scale(Date.parse(last.at(-1).ended_at)) < NEAR) last.push(crash);
    else groups.push([crash]);
  }
  return groups;
}

function crashMark(group, scale, middle) {
  const newest = group.at(-1);
  const x = scale(Date.parse(newest.ended_at));
  const more = group.length - 1;
  const words = [
    `${newest.cause}${newest.strength ? `, ${newest.strength}` : ""}`,
    line(newest.summary),
    `${dayAndClock(newest.ended_at)}${newest.restarted ? ", restarted by systemd" : ""}`,
  ];
  if (more) words.push(`and ${count(more, "crash", "crashes")} just before it (×${group.length})`);
  const link = s("a", { href: `#/crashes/${newest.id}`, transform: `translate(${x} ${middle})`, class: "death", "aria-label": words.map((each) => each.replace(/\.$/, "")).join(". ") },
    s("circle", { r: 11, class: "halo" }), path(newest.family));
  if (more) link.append(s("text", { y: -8, x: 5, class: "times", "aria-hidden": "true" }, `×${group.length}`));
  return withTip(link, words);
}

function axis(scale, since, until, width) {
  const step = STEPS.find((each) => ((until - since) / 1000 / each) * 74 < width) ?? STEPS.at(-1);
  const zone = new Date(since).getTimezoneOffset() * 60000;
  const first = Math.ceil((since - zone) / 1000 / step) * step * 1000 + zone;
  const ticks = [];
  for (let moment = first; moment <= until; moment += step * 1000) {
    const text = new Date(moment).getHours() === 0 && new Date(moment).getMinutes() === 0 ? day(moment) : clock(moment).slice(0, 5);
    const x = scale(moment);
    if (x > width - 18) continue;
    ticks.push(s("line", { class: "tick", x1: x, x2: x, y1: 0, y2: 5 }), s("text", { x, y: 17, class: "hour", "text-anchor": x < 18 ? "start" : "middle" }, text));
  }
  return s("svg", { class: "lane-picture", width, height: 22, "aria-hidden": "true" }, ticks);
}
