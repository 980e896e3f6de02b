// The page: the chosen view and the daemon's status, updated every second.

import { busyOf, now, rate, refresh, token } from "./daemon.js";
import { dropsView } from "./drops.js";
import { el, morph, percent, short } from "./element.js";
import { mapsView } from "./maps.js";
import { pictureView } from "./picture.js";
import { portsView } from "./ports.js";
import { programsView } from "./programs.js";
import { workersView } from "./workers.js";

const VIEWS = {
  ports: ["Ports", portsView],
  picture: ["Picture", pictureView],
  programs: ["Programs", programsView],
  maps: ["Maps", mapsView],
  drops: ["Drops", dropsView],
  workers: ["Workers", workersView],
};
const PERIOD_MS = 1000;

// Parses the location: `#maps/7` is the view "maps" with ["7"].
function place() {
  const [name, ...rest] = location.hash.slice(1).split("/").map(decodeURIComponent);
  return Object.hasOwn(VIEWS, name) ? [name, rest] : ["ports", []];
}

function show(id, ...children) {
  morph(document.getElementById(id), el("div", {}, ...children));
}

async function draw() {
  const [name, rest] = place();
  show("views", Object.entries(VIEWS).map(([key, [title]]) =>
    el("a", { href: `#${key}`, "aria-current": key === name ? "page" : null }, title)));
  if (!now.status) return;
  show("daemon", daemon());
  const children = await VIEWS[name][1](rest, draw);
  // The user may have chosen another view meanwhile.
  if (String(place()) === String([name, rest])) show("view", children);
}

function daemon() {
  const { status, stats } = now;
  const missing = stats.frames.missing;
  const dropped = rate("drops  all");
  const busiest = Math.max(0, ...status.worker_loads.map((it) => busyOf(it)));
  const workers = status.workers === 1 ? "the worker" : `the busiest of ${status.workers} workers`;
  return [
    el("span", {}, el("b", {}, `${short(rate("rx  all"))}/s`), " in"),
    el("span", {}, el("b", {}, `${short(rate("tx  all"))}/s`), " out"),
    el("span", { class: dropped ? "bad" : "faint" }, `${short(dropped)}/s dropped`),
    el("a", { href: "#workers", class: busiest > 0.9 ? "bad" : "faint" },
      `${workers} ${percent(busiest, 1)}%`),
    missing !== 0 && el("span", { class: "bad" }, `${missing} missing`),
    el("span", { class: "faint" }, `${status.version}, pid ${status.pid}`),
  ];
}

function when(seconds) {
  return new Date(seconds * 1000).toLocaleString();
}

function alarms(trouble) {
  const { failures = [], warnings = [], restart = [], not_saved: lost } = now.status ?? {};
  const line = (kind, text) => el("p", { class: kind }, text);
  show("alarms",
    trouble && line("bad", trouble),
    failures.map((it) => line("bad", `${it.subject}: ${it.why} (since ${when(it.since)}; ${it.remedy})`)),
    warnings.map((text) => line("warning", text)),
    restart.map((text) => line("warning", `Needs a restart: ${text}`)),
    lost && line("warning", `Not saved: ${lost}`));
}

function askForToken() {
  const field = el("input", { type: "password", autocomplete: "off", "aria-label": "Token" });
  const onsubmit = (event) => {
    event.preventDefault();
    token.set(field.value.trim());
    tick();
  };
  const wrong = token.get() && el("p", { class: "bad" }, "That is not the daemon's token.");
  document.getElementById("view").replaceChildren(el("form", { class: "token", onsubmit },
    el("p", {}, "This daemon wants its token ([api] token_file)."), field,
    el("button", {}, "Go on"), wrong));
  field.focus();
}

async function tick() {
  try {
    await refresh();
    document.title = `Towpath, ${now.status.ports.length} ports`;
    alarms(null);
    await draw();
  } catch (error) {
    if (error.status === 401) return askForToken();
    // The last state stays visible, since the daemon may be restarting.
    alarms(`The daemon does not answer: ${error.message}`);
  }
  setTimeout(tick, PERIOD_MS);
}

addEventListener("hashchange", draw);
tick();
