// One crash: the verdict, what to do, what was going on, what it rests on, what it was not.

import { asText, get } from "./api.js";
import { charts } from "./charts.js";
import { h, line, show, visible } from "./dom.js";
import { cause, failed } from "./overview.js";
import { PHASES, ROLES, STRENGTHS, bytes, clock, clockExactly, count, dayAndClock, duration, utc } from "./words.js";

export function story(id) {
  const element = h("article", { class: "story" }, h("p", { class: "empty" }, "Reading …"));
  let crash = null;
  let drawn = null;

  async function load() {
    try {
      const [found, timeline] = await Promise.all([get(`crashes/${id}`), get(`crashes/${id}/timeline`)]);
      crash = found;
      drawn?.destroy();
      drawn = charts(crash, timeline);
      show(element, head(crash), h("div", { class: "columns" }, h("div", { class: "first" }, drawn.element, evidence(crash, timeline), everything(timeline, crash)), aside(crash)));
      drawn.draw();
    } catch (problem) {
      show(element, h("p", {}, h("a", { href: "#/" }, "← All crashes")), failed(problem));
    }
  }

  return {
    element,
    ready: load(),
    title: () => (crash ? `${crash.server}: ${line(crash.summary)} · Inquest` : "Inquest"),
    leave: () => drawn?.destroy(),
    recoloured: () => drawn?.draw(),
    happened(kind, data) {
      if (kind === "amended" && data.id === crash?.id) load();
    },
  };
}

function head(crash) {
  const said = h("span", { role: "status", class: "quiet-text" });
  return h("header", { class: `verdict f-${crash.family}` },
    h("p", { class: "crumbs" }, h("a", { href: "#/" }, "← All crashes"), h("strong", {}, line(crash.server)), h("time", { datetime: crash.died_at, title: utc(crash.died_at) }, dayAndClock(crash.died_at))),
    h("h1", { tabindex: "-1" }, line(crash.summary)),
    h("p", { class: "tags" }, cause(crash), crash.subclass && h("span", { class: "tag" }, line(crash.subclass)),
      !crash.is_crash && h("span", { class: "tag" }, "no crash"), !crash.settled && h("span", { class: "tag" }, "may still change"),
      crash.revision > 1 && h("span", { class: "tag" }, `verdict no. ${crash.revision}`)),
    h("p", { class: "quiet-text strength-words" }, STRENGTHS[crash.strength] ?? "No record decides what it was. What could not be seen stands below."),
    crash.advice.length ? h("div", { class: "advice" }, h("h2", {}, "What to do"), crash.advice.length > 1 ? h("ol", {}, crash.advice.map((step) => h("li", {}, line(step)))) : h("p", {}, line(crash.advice[0]))) : null,
    h("p", { class: "actions" },
      h("button", { type: "button", onclick: () => copy(crash.id, said) }, "Copy as text"),
      h("a", { class: "button", href: `crashes/${crash.id}/evidence.tar.zst`, download: "" }, "Download the evidence"),
      h("a", { class: "button", href: `crashes/${crash.id}`, target: "_blank", rel: "noopener", "data-json": "" }, "JSON"),
      said));
}

async function copy(id, said) {
  try {
    const text = await asText(id);
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else byHand(text);
    said.textContent = "Copied.";
  } catch {
    said.textContent = "It could not be copied; the terminal has it: inquest show " + id;
  }
}

// Without TLS, other addresses than localhost have no clipboard of the newer kind.
function byHand(text) {
  const area = h("textarea", { class: "unseen" });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("refused");
}

function aside(crash) {
  return h("aside", { "aria-label": "About this death" }, facts(crash), seenBefore(crash), memory(crash),
    named("Ruled out", crash.ruled_out.map((other) => [other.cause, other.why])),
    crash.also.length ? section("Also seen", h("p", {}, crash.also.join(", "))) : null,
    named("Could not be seen", crash.gaps.map((gap) => [gap.source, gap.reason])),
    named("Rejected evidence", crash.rejected.map((found) => [found.claims, rejected(found)])),
    crash.ground?.length ? section("The ground after it", h("ul", {}, crash.ground.map((said) => h("li", {}, line(said))))) : null,
    crash.notes.length ? section("Notes", h("ul", {}, crash.notes.map((note) => h("li", {}, line(note))))) : null,
    section("Find it again", h("dl", { class: "facts" },
      pair("fingerprint", h("code", {}, crash.fingerprint)), pair("made of", line(crash.signature)),
      pair("journal", h("code", {}, `journalctl _SYSTEMD_INVOCATION_ID=${crash.invocation_id}`)), pair("terminal", h("code", {}, `inquest show ${crash.id}`)))));
}

function facts(crash) {
  const run = crash.run;
  const lived = (Date.parse(crash.died_at) - Date.parse(crash.started_at)) / 1000;
  const ended = run.signal ? `${run.exit_code} by ${run.signal}` : run.exit_status !== null ? `${run.exit_code} with status ${run.exit_status}` : "systemd did not say";
  const figures = Object.entries(crash.doing.figures);
  return section("The run", h("dl", { class: "facts" },
    pair("died", `${PHASES[crash.phase] ?? crash.phase}, ${crash.became_ready ? "had been ready" : "was never ready"}`),
    pair("lived", `${duration(lived)}, since ${dayAndClock(crash.started_at)}`),
    pair("main process", ended),
    pair("systemd says", systemd(crash)),
    crash.supervision.next ? pair("and then", line(crash.supervision.next)) : null,
    run.n_restarts ? pair("restarts before", String(run.n_restarts)) : null,
    figures.length ? pair("last seen", h("span", {}, figures.map(([name, value]) => h("span", { class: "figure" }, h("b", {}, line(value)), ` ${line(name)}`)),
      crash.doing.seconds_before_death === null ? null : h("span", { class: "quiet-text" }, `${duration(crash.doing.seconds_before_death)} before the end`))) : null,
    pair("unit", line(crash.unit))));
}

/** Its word for the end, and the settings that it went by. */
function systemd(crash) {
  const told = { OOMPolicy: crash.supervision.oom_policy, Restart: crash.supervision.restart };
  const settings = Object.entries(told).filter(([, value]) => value).map(([name, value]) => `${name}=${value}`);
  return line([`Result=${crash.run.result ?? "(not known)"}`, ...settings].join(", "));
}

/** A record that speaks as somebody who did not write it. */
function rejected(found) {
  const times = found.count > 1 ? `${found.count} times, first ` : "";
  return `“${found.message.slice(0, 160)}” (${times}by ${found.written_by}): ${found.why}`;
}

function seenBefore(crash) {
  const past = crash.history;
  if (!past || !crash.is_crash) return null;
  return section("Seen before", h("p", {}, line(past.sentence)),
    changes("Changed since the last of them", past.since_previous), changes("Changed since it last served", past.since_good),
    past.previous_id ? h("p", {}, h("a", { href: `#/crashes/${past.previous_id}` }, "The one before")) : null);
}

function changes(caption, list) {
  if (!list.length) return null;
  return h("table", { class: "changes" }, h("caption", {}, caption), h("tbody", {}, list.map((one) => h("tr", {}, h("th", { scope: "row" }, line(one.name)),
    h("td", {}, h("del", {}, one.before === null ? "not set" : line(one.before)), h("span", { class: "arrow" }, " → "), h("ins", {}, one.after === null ? "not set" : line(one.after)))))));
}

function memory(crash) {
  if (!crash.memory) return null;
  const most = Math.max(1, ...crash.memory.figures.map((figure) => figure.size_bytes));
  return section("Memory", h("p", {}, line(crash.memory.sentence)),
    h("table", { class: "memory" }, h("thead", { class: "unseen" }, h("tr", {}, ["what, and who says so", "size"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, crash.memory.figures.map((figure) => h("tr", {}, h("th", { scope: "row" }, line(figure.what), h("span", {}, line(figure.source))),
        h("td", {}, bytes(figure.size_bytes), h("meter", { min: 0, max: most, value: figure.size_bytes, "aria-hidden": "true" })))))));
}

function evidence(crash, timeline) {
  if (!crash.evidence.length) return section("Evidence", h("p", {}, "None that decides."));
  return section("Evidence", h("ol", { class: "evidence" }, crash.evidence.map((piece) => h("li", { class: `piece ${piece.role}` },
    h("p", { class: "piece-head" }, h("time", { datetime: piece.at, title: utc(piece.at) }, clockExactly(piece.at)),
      h("span", { class: "role" }, piece.role), h("span", { class: "quiet-text" }, ROLES[piece.role] ?? ""), h("span", { class: "tag source" }, piece.source)),
    piece.why ? h("p", { class: "why" }, line(piece.why)) : null,
    frames(piece, timeline),
    message(piece.message || `(${piece.kind})`)))));
}

/** Where an exception came from, innermost last, when its own text does not say it. */
function frames(piece, timeline) {
  if (piece.message.trim().includes("\n")) return null;
  const fact = timeline.events.find((each) => each.kind === piece.kind && each.ref === piece.ref);
  const list = fact?.values.frames ?? [];
  return list.length ? h("ol", { class: "frames", "aria-label": "Where it happened, innermost last" }, list.map((frame) => h("li", {}, h("code", {}, line(frame))))) : null;
}

const LONG_LINES = 14;

/** A record as it was written; of a long one the end first, since there it says what was wrong. */
function message(text) {
  const lines = visible(text).replace(/\n+$/, "").split("\n");
  if (lines.length <= LONG_LINES) return h("pre", { tabindex: "0", dir: "ltr" }, lines.join("\n"));
  const rest = lines.length - LONG_LINES;
  return h("div", {}, h("details", {}, h("summary", {}, `${count(rest, "line")} before`), h("pre", { tabindex: "0", dir: "ltr" }, lines.slice(0, rest).join("\n"))), h("pre", { tabindex: "0", dir: "ltr" }, lines.slice(rest).join("\n")));
}

const SAMPLED = new Set(["cgroup-memory", "host-memory", "gpu-memory", "process-tree", "unit-state", "batch"]);

/** Every fact, made only when it is asked for: there can be a thousand. */
function everything(timeline, crash) {
  const body = h("div", {});
  const details = h("details", { class: "everything", ontoggle: () => {
    if (!details.open || body.firstChild) return;
    const facts = timeline.events.filter((fact) => !SAMPLED.has(fact.kind));
    const hidden = timeline.events.length - facts.length;
    show(body, hidden ? h("p", { class: "quiet-text" }, `Without ${count(hidden, "sample")}, which the curves show.`) : null,
      h("ol", { class: "timeline" }, facts.map((fact) => h("li", { class: fact.role ?? "" }, h("time", { datetime: fact.at }, clockExactly(fact.at)), h("span", { class: "tag source" }, fact.source), h("code", {}, line(fact.message || fact.kind).slice(0, 400))))));
  } }, h("summary", {}, `Every fact, from ${clock(timeline.events[0]?.at ?? crash.started_at)} on`), body);
  return timeline.events.length ? details : null;
}

function section(head, ...content) {
  return h("section", { class: "card" }, h("h2", {}, head), content);
}

function named(head, pairs) {
  return pairs.length ? section(head, h("dl", { class: "named" }, pairs.map(([name, why]) => [h("dt", {}, line(name)), h("dd", {}, line(why))]))) : null;
}

function pair(name, value) {
  return [h("dt", {}, name), h("dd", {}, value)];
}
