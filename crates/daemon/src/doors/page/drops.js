// Dropped frames, by port and reason.

import { drops, now, rate } from "./daemon.js";
import { el, filled, short } from "./element.js";

export function dropsView() {
  const rows = now.status.ports.flatMap(({ name }) => drops(name)
    .filter((it) => it.count > 0)
    .map((it) => ({ ...it, name, speed: rate(`drop ${name} ${it.way} ${it.reason}`) })));
  if (rows.length === 0) return el("p", { class: "empty" }, "Nothing was dropped.");
  rows.sort((a, b) => b.speed - a.speed || b.count - a.count);
  const most = Math.max(...rows.map((it) => it.count));
  return el("table", { class: "wide" },
    el("thead", {}, el("tr", {}, ["Port", "Way", "Reason"].map((it) => el("th", {}, it)),
      el("th", { class: "number" }, "Now"), el("th", {}, "So far"))),
    el("tbody", {}, rows.map((it) => el("tr", {
      "data-key": `${it.name} ${it.way} ${it.reason}` },
    el("td", {}, el("a", { href: `#ports/${encodeURIComponent(it.name)}` }, it.name)), el("td", {}, it.way === "rx" ? "arrived" : "leaving"),
    el("td", {}, el("code", {}, it.reason)),
    el("td", { class: it.speed ? "number bad" : "number faint" }, `${short(it.speed)}/s`),
    el("td", { class: "chart" }, filled(it.count, most, short(it.count), "bad"))))));
}
