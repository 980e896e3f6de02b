// Programs, and the C source of one of them with where its time goes.

import { ask, now, rate } from "./daemon.js";
import { bar, el, percent, short } from "./element.js";

const SECONDS = 2;
// What was found out of a program, by id: it does not change by itself.
const sources = new Map();
const profiles = new Map();

export async function programsView([id, what], draw) {
  const { programs } = now;
  if (programs.length === 0) {
    return el("p", { class: "empty" }, "No programs yet. ", el("code", {}, "towpath load"),
      " attaches one.");
  }
  const chosen = programs.find((program) => String(program.id) === id);
  if (chosen && what === "sample" && !profiles.has(chosen.id)) sample(chosen, draw);
  return el("div", { class: "browse" },
    el("nav", { "aria-label": "Programs" }, el("ul", {}, programs.map((program) =>
      el("li", { "data-key": program.id },
        el("a", { href: `#programs/${program.id}`,
          "aria-current": program === chosen ? "true" : null }, program.name),
        el("small", {}, `${short(runs(program))}/s`))))),
    el("article", {}, chosen ? await source(chosen, draw)
      : el("p", { class: "empty" }, "Choose a program.")));
}

const linksOf = (program) => now.status.links.filter((link) => link.prog_id === program.id);
const runs = (program) =>
  linksOf(program).reduce((sum, link) => sum + rate(`link ${link.id}`), 0);

async function source(program, draw) {
  const places = linksOf(program).map((link) => `${link.port} ${link.hook} (${link.prio})`);
  const maps = now.maps.filter((map) => program.map_ids.includes(map.id));
  const profile = profiles.get(program.id);
  return [
    el("h2", {}, program.function || program.name, el("span", { class: "kind" }, program.exec)),
    el("p", { class: "facts" }, [
      `id ${program.id}`, `tag ${program.tag}`, `${program.insns} instructions`,
      program.jited && `${short(program.bytes_jited)} bytes of machine code`,
      places.length ? places.join(", ") : "not attached", program.object,
    ].filter(Boolean).join(" · ")),
    program.fallback && el("p", { class: "bad" }, program.fallback),
    maps.length > 0 && el("p", { class: "facts" }, "Maps ", maps.map((map, index) => [
      index ? ", " : "", el("a", { href: `#maps/${map.id}` }, map.name)])),
    el("p", { class: "tools" }, button(program, profile, draw), summary(profile)),
    await lines(program, profile),
  ];
}

function button(program, profile, draw) {
  const isBusy = profile === "busy";
  return el("button", { disabled: isBusy, onclick: () => sample(program, draw) },
    isBusy ? `Sampling for ${SECONDS} s …` : `Sample for ${SECONDS} s`);
}

function summary(profile) {
  if (profile instanceof Error) return el("span", { class: "bad" }, profile.message);
  if (!profile?.lines) return el("span", { class: "faint" }, "shows where its time goes");
  const { inside, samples } = profile;
  const share = percent(inside, samples);
  return el("span", {}, `${inside} of ${samples} samples in it: ${share}% of the workers' time`);
}

async function sample(program, draw) {
  profiles.set(program.id, "busy");
  draw();
  const found = ask(`/v1/programs/${program.id}/profile?seconds=${SECONDS}`);
  profiles.set(program.id, await found.catch((error) => error));
  draw();
}

async function lines(program, profile) {
  const all = profile?.lines ?? await sourceOf(program);
  if (all instanceof Error) return el("p", { class: "bad" }, all.message);
  if (all.length === 0) {
    return el("p", { class: "empty" }, "It does not say which lines it is made of: compile it ",
      "with ", el("code", {}, "-g"), ".");
  }
  const most = Math.max(1, ...all.map((it) => it.samples ?? 0));
  let file = null;
  return el("table", { class: "source" }, el("tbody", {}, all.map((it) => {
    const isNew = it.file !== file;
    file = it.file;
    return [
      isNew && el("tr", { class: "file" }, el("th", { colspan: 4 }, it.file.split("/").at(-1))),
      el("tr", { class: it.samples ? "hot" : null, "data-key": `${it.file}:${it.line}` },
        el("td", { class: "number" }, it.samples || ""),
        el("td", { class: "chart", title: it.called ? `${it.called} in helpers` : null },
          it.samples ? bar(it.samples, most, "hot") : null),
        el("td", { class: "number faint" }, it.line || ""),
        el("td", {}, el("code", {}, it.text))),
    ];
  })));
}

// Lines that became instructions, by file and number.
async function sourceOf(program) {
  if (!sources.has(program.id)) {
    const code = await ask(`/v1/programs/${program.id}/code?form=source`).catch((error) => error);
    const found = new Map();
    for (const { source } of code.insns ?? []) {
      if (source) found.set(`${source.file}:${source.line}`, source);
    }
    const order = (a, b) => (a.file < b.file ? -1 : a.file > b.file ? 1 : a.line - b.line);
    sources.set(program.id, code instanceof Error ? code : [...found.values()].sort(order));
  }
  return sources.get(program.id);
}
