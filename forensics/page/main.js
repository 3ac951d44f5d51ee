// Which view is shown, what happens meanwhile, and the few things that stand in every view.

import { follow, get } from "./api.js";
import { h, line, show } from "./dom.js";
import { overview } from "./overview.js";
import { server } from "./server.js";
import { story } from "./story.js";
import { count } from "./words.js";

const main = document.getElementById("main");
const news = document.getElementById("news");
const live = document.getElementById("live");
const health = document.getElementById("health");
const theme = document.getElementById("theme");
const REFRESH_MILLISECONDS = 15_000;

let view = null;
let shown = "";

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

async function route({ focus = true } = {}) {
  const where = location.hash.slice(1) || "/";
  if (where === "main") return;
  shown = where;
  view?.leave?.();
  const id = /^\/crashes\/([0-9a-f]+)$/.exec(where)?.[1];
  const name = /^\/servers\/([^/]+)$/.exec(where)?.[1];
  const made = id ? story(id) : name ? server(decoded(name)) : overview();
  view = made;
  show(main, made.element);
  await made.ready;
  if (view !== made) return;
  document.title = made.title();
  if (focus) {
    scrollTo(0, 0);
    main.querySelector("h1")?.focus({ preventScroll: true });
  }
}

follow(
  (kind, data) => {
    view?.happened?.(kind, data);
    if (kind === "crash") news.textContent = `New crash of ${line(data.server)}: ${line(data.summary)}`;
    if (kind === "amended") news.textContent = `The verdict on ${line(data.server)} has changed: ${line(data.summary)}`;
  },
  (state) => {
    live.className = `live ${state}`;
    live.textContent = state === "live" ? "live" : "reconnecting";
  },
);

async function look() {
  try {
    const [now, alerts] = await Promise.all([get("healthz"), get("alerts")]);
    const blind = now.sources.filter((source) => source.state === "blind");
    const stuck = alerts.waiting.filter((alert) => alert.attempts > 0);
    health.className = `health ${blind.length || stuck.length ? "partly" : ""}`;
    health.title = [...blind.map((source) => `${source.name}: ${source.detail}`), ...stuck.map((alert) => `${alert.channel}: ${alert.why}`)].join("\n");
    show(health, `${count(now.open_runs, "run")} watched`,
      blind.length ? h("span", {}, ` · cannot see ${blind.map((source) => source.name).join(", ")}`) : " · every source is read",
      stuck.length ? h("span", {}, ` · ${count(stuck.length, "alert waits", "alerts wait")} for ${[...new Set(stuck.map((alert) => line(alert.channel)))].join(", ")}`) : null);
  } catch {
    health.className = "health down";
    show(health, "the daemon does not answer");
  }
}

function dark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function label() {
  theme.textContent = dark() ? "☀" : "☾";
  theme.setAttribute("aria-label", dark() ? "Light colours" : "Dark colours");
  theme.title = dark() ? "Light colours" : "Dark colours";
}

theme.addEventListener("click", () => {
  const chosen = dark() ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem("inquest-theme", chosen);
  } catch {
    // It holds until the page is left.
  }
  label();
  view?.recoloured?.();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  label();
  view?.recoloured?.();
});
addEventListener("hashchange", () => {
  if ((location.hash.slice(1) || "/") !== shown) route();
});
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && shown !== "/") location.hash = "#/";
  else view?.key?.(event);
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) refresh();
});

function refresh() {
  look();
  view?.refresh?.();
}

label();
look();
route({ focus: false });
setInterval(() => {
  if (!document.hidden) refresh();
}, REFRESH_MILLISECONDS);
