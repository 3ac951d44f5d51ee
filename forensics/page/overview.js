// All servers and all crashes.

import { get } from "./api.js";
import { h, line, show } from "./dom.js";
import { lanes } from "./lives.js";
import { legend, mark } from "./marks.js";
import { FAMILIES, ago, count, dayAndClock, ordinal, utc } from "./words.js";

const SPANS = { "6 h": 6, "24 h": 24, "7 days": 168, "30 days": 720 };
const PAGE = 30;
const KEEP = "inquest-span";
/** News with a crash in it; the others are of living runs. */
const OF_CRASHES = new Set(["crash", "amended", "start-limit", "run-ended"]);

export function overview() {
  const picture = h("div", {});
  const key = h("div", {});
  const list = h("ol", { class: "crashes" });
  const more = h("button", { type: "button", class: "more", hidden: true, onclick: () => page() }, "Show earlier ones");
  const total = h("span", { class: "quiet-text" });
  const server = h("select", { "aria-label": "Server", onchange: () => anew() }, h("option", { value: "" }, "every server"));
  const family = h("select", { "aria-label": "Kind of death", onchange: () => anew() },
    h("option", { value: "" }, "every kind"),
    Object.entries(FAMILIES).filter(([name]) => name !== "stop").map(([name, words]) => h("option", { value: name }, words)));
  const alike = h("input", { type: "checkbox", id: "alike", onchange: () => anew() });
  let span = remembered();
  let before = null;
  let timer = 0;
  /** What was asked last: the answer to an earlier question, which may come later, is of no interest any more. */
  let listed = 0;
  let drawn = 0;
  const crashes = new Map();

  const element = h("div", { class: "overview" },
    h("h1", { class: "unseen", tabindex: "-1" }, "Servers and their crashes"),
    h("section", { class: "card", "aria-labelledby": "lives" },
      h("div", { class: "heading" }, h("h2", { id: "lives" }, "Lives"), spans()),
      picture, key),
    h("section", { "aria-labelledby": "list" },
      h("div", { class: "heading" }, h("h2", { id: "list" }, "Crashes ", total),
        h("div", { class: "filters" }, server, family, h("label", { class: "check", for: "alike" }, alike, "alike together"))),
      list, more));

  function spans() {
    return h("fieldset", { class: "spans" }, h("legend", { class: "unseen" }, "How far back"),
      Object.entries(SPANS).map(([words, hours]) => h("label", {},
        h("input", { type: "radio", name: "span", value: hours, checked: hours === span, onchange: () => { span = hours; keep(span); drawLives(); } }),
        h("span", {}, words))));
  }

  async function drawLives() {
    const until = new Date();
    const since = new Date(until - span * 3_600_000);
    const mine = ++drawn;
    try {
      const [of, seen] = await Promise.all([get("servers"), get("lives", { since: since.toISOString() })]);
      if (mine !== drawn) return;
      const families = [...new Set(seen.lives.filter((life) => life.is_crash).map((life) => life.family))].sort();
      if (!of.servers.length) {
        show(picture, h("p", { class: "empty" }, "No server has run yet. As soon as one of the watched units starts, its life begins here."));
        return;
      }
      show(picture, lanes(of.servers, seen.lives, since.getTime(), until.getTime()));
      show(key, h("div", { class: "key" }, h("ul", { class: "legend" }, [["starting", "starting"], ["up", "up"], ["stopping", "stopping"]].map(([word, text]) => h("li", {}, h("span", { class: `swatch ${word}` }), text))), legend(families)));
      const names = of.servers.map((each) => each.server);
      if (server.options.length !== names.length + 1) {
        const chosen = server.value;
        show(server, h("option", { value: "" }, "every server"), names.map((name) => h("option", { value: name }, line(name))));
        server.value = names.includes(chosen) ? chosen : "";
      }
      server.hidden = names.length < 2;
    } catch (problem) {
      if (mine === drawn) show(picture, failed(problem));
    }
  }

  function anew() {
    listed += 1;
    before = null;
    crashes.clear();
    list.replaceChildren();
    return alike.checked ? groups() : page();
  }

  async function page() {
    const mine = listed;
    try {
      const found = await get("crashes", { server: server.value, family: family.value, limit: PAGE, before });
      if (mine !== listed) return;
      before = found.next;
      more.hidden = before === null;
      for (const crash of found.crashes) {
        if (crashes.has(crash.id)) continue;
        crashes.set(crash.id, crash);
        list.append(item(crash));
      }
      if (!crashes.size) show(list, h("li", { class: "empty" }, server.value || family.value ? "No crash of this kind." : "No crash. Every run that ended did so as asked."));
      total.textContent = crashes.size ? `${crashes.size}${before ? "+" : ""}` : "";
    } catch (problem) {
      if (mine === listed) show(list, h("li", {}, failed(problem)));
    }
  }

  async function groups() {
    const mine = listed;
    try {
      const found = await get("crashes/groups", { server: server.value, family: family.value });
      if (mine !== listed) return;
      more.hidden = true;
      total.textContent = count(found.total, "kind");
      show(list, found.groups.map((group) => h("li", { class: `crash f-${group.family}` }, h("a", { href: `#/crashes/${group.last_id}` },
        h("span", { class: "when" }, h("strong", {}, `${group.count}×`), h("span", { class: "quiet-text" }, `last ${ago(group.last_at)}`)),
        h("span", { class: "what" }, h("span", { class: "sentence" }, line(group.summary)),
          h("span", { class: "tags" }, cause(group), group.servers.map((name) => h("span", { class: "tag" }, line(name))), h("span", { class: "quiet-text" }, `since ${dayAndClock(group.first_at)}`)))))));
    } catch (problem) {
      if (mine === listed) show(list, h("li", {}, failed(problem)));
    }
  }

  function item(crash, fresh = false) {
    const times = crash.history?.occurrence ?? 1;
    return h("li", { class: `crash f-${crash.family}${fresh ? " fresh" : ""}`, "data-id": crash.id }, h("a", { href: `#/crashes/${crash.id}` },
      h("span", { class: "when" }, h("time", { datetime: crash.died_at, title: utc(crash.died_at) }, dayAndClock(crash.died_at)), h("span", { class: "quiet-text" }, ago(crash.died_at))),
      h("span", { class: "what" },
        h("span", { class: "sentence" }, line(crash.summary)),
        h("span", { class: "tags" }, cause(crash), h("span", { class: "tag" }, line(crash.server)),
          times > 1 && h("span", { class: "tag again" }, `the ${ordinal(times)} of its kind`),
          !crash.settled && h("span", { class: "tag" }, "may still change"),
          crash.revision > 1 && h("span", { class: "tag" }, "corrected")))));
  }

  function fits(crash) {
    return crash.is_crash && (!server.value || crash.server === server.value) && (!family.value || crash.family === family.value);
  }

  const ready = Promise.all([drawLives(), anew()]);
  return {
    element,
    ready,
    title: () => "Inquest",
    refresh: drawLives,
    leave: () => clearTimeout(timer),
    happened(kind, data) {
      clearTimeout(timer);
      timer = setTimeout(drawLives, 300);
      if (kind === "reset" || (alike.checked && OF_CRASHES.has(kind))) return anew();
      if (!OF_CRASHES.has(kind)) return undefined;
      const old = list.querySelector(`[data-id="${data.id}"]`);
      if (old && !fits(data)) old.remove();
      else if (old) old.replaceWith(item(data, true));
      else if (fits(data)) {
        list.querySelector(".empty")?.remove();
        const after = [...list.children].find((each) => crashes.get(each.dataset.id)?.died_at < data.died_at);
        list.insertBefore(item(data, true), after ?? null);
      }
      if (fits(data)) crashes.set(data.id, data);
      else crashes.delete(data.id);
      total.textContent = crashes.size ? `${crashes.size}${before ? "+" : ""}` : "";
      return undefined;
    },
    key(event) {
      const step = { j: 1, k: -1 }[event.key];
      if (!step) return;
      const links = [...list.querySelectorAll("a")];
      const at = links.indexOf(document.activeElement);
      links[Math.max(0, Math.min(links.length - 1, at + step))]?.focus();
    },
  };
}

export function cause(crash) {
  return h("span", { class: "tag cause" }, mark(crash.family), crash.cause, crash.strength ? h("span", { class: "strength" }, crash.strength) : null);
}

export function failed(problem) {
  return h("p", { class: "empty failed", role: "alert" }, problem.message, problem.hint ? ` ${problem.hint}` : "");
}

function remembered() {
  try {
    const hours = Number(localStorage.getItem(KEEP));
    return Object.values(SPANS).includes(hours) ? hours : 24;
  } catch {
    return 24;
  }
}

function keep(hours) {
  try {
    localStorage.setItem(KEEP, String(hours));
  } catch {
    // It holds until the page is left.
  }
}
