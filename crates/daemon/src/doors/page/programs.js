// Programs, and the C source of one of them with the share of time of each line.

import { ask, now, rate } from "./daemon.js";
import { el, filled, natural, percent, short } from "./element.js";

const SECONDS = 2;
// For a watched program: seconds per sample, and the weight of older samples.
const GLANCE = 0.5;
const FADE = 0.8;
// Sources and profiles by program id; neither changes by itself.
const sources = new Map();
const profiles = new Map();

// Samples a program repeatedly, for as long as `isWanted` returns true.
export async function watch(program, isWanted, draw) {
  while (isWanted()) {
    const found = await ask(`/v1/programs/${program.id}/profile?seconds=${GLANCE}`)
      .catch((error) => error);
    profiles.set(program.id, merged(profiles.get(program.id), found));
    await draw();
    // The pause gives other clients a turn at sampling.
    await new Promise((done) => setTimeout(done, 1000 * GLANCE));
  }
}

// Adds new samples to older ones, whose weight fades.
function merged(old, found) {
  if (!old?.lines || !found.lines || old.lines.length !== found.lines.length) return found;
  const add = (a, b) => Math.round(a * FADE + b);
  const lines = found.lines.map((it, index) => ({ ...it,
    samples: add(old.lines[index].samples, it.samples),
    called: add(old.lines[index].called, it.called) }));
  return { ...found, lines, inside: add(old.inside, found.inside),
    samples: add(old.samples, found.samples) };
}

export async function programsView([id, what], draw) {
  const { programs } = now;
  if (programs.length === 0) {
    return el("p", { class: "empty" }, "No programs yet. ", el("code", {}, "towpath load"),
      " attaches one.");
  }
  const order = (a, b) => runs(b) - runs(a) || natural(a.name, b.name);
  const chosen = programs.find((program) => String(program.id) === id)
    ?? [...programs].sort(order)[0];
  const most = Math.max(1, ...programs.map(runs));
  if (what === "sample" && !profiles.has(chosen.id)) sample(chosen, draw);
  return el("div", { class: "browse" },
    el("nav", { "aria-label": "Programs" }, el("ul", {}, programs.map((program) =>
      el("li", { "data-key": program.id },
        el("a", { href: `#programs/${program.id}`,
          "aria-current": program === chosen ? "true" : null }, program.name, owners(program)),
        filled(runs(program), most, `${short(runs(program))}/s`))))),
    el("article", { "data-key": `program ${chosen.id}` }, await source(chosen, draw)));
}

// The ports or id of a program that shares its name with others.
function owners(program) {
  if (now.programs.filter((it) => it.name === program.name).length === 1) return null;
  const ports = [...new Set(linksOf(program).map((link) => link.port))];
  return el("small", {}, ` ${ports.join(", ") || `id ${program.id}`}`);
}

const linksOf = (program) => now.status.links.filter((link) => link.prog_id === program.id);
const runs = (program) =>
  linksOf(program).reduce((sum, link) => sum + rate(`link ${link.id}`), 0);

async function source(program, draw) {
  const places = linksOf(program).map((link) => `${link.port} ${link.hook} (${link.prio})`);
  const maps = now.maps.filter((map) => program.map_ids.includes(map.id));
  const workers = now.status.worker_loads.flatMap((worker) =>
    worker.programs.filter((it) => it.id === program.id)
      .map((it) => `${percent(it.share, 1)}% of worker ${worker.worker}`));
  const profile = profiles.get(program.id);
  return [
    el("h2", {}, program.function || program.name, el("span", { class: "kind" }, program.exec)),
    el("p", { class: "facts" }, [
      `id ${program.id}`, `tag ${program.tag}`, `${program.insns} instructions`,
      program.jited && `${short(program.bytes_jited)} bytes of machine code`,
      places.length ? places.join(", ") : "not attached", ...workers, program.object,
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

export function summary(profile) {
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

export const profileOf = (program) => profiles.get(program.id);

export async function lines(program, profile) {
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
      isNew && el("tr", { class: "file" }, el("th", { colspan: 3 }, it.file.split("/").at(-1))),
      el("tr", { class: heat(it.samples, most), "data-key": `${it.file}:${it.line}` },
        el("td", { class: "chart", title: it.called ? `${it.called} in helpers` : null },
          it.samples ? filled(it.samples, most, `${percent(it.samples, profile.inside)}%`, "hot")
            : null),
        el("td", { class: "number faint" }, it.line || ""),
        el("td", {}, el("code", {}, it.text))),
    ];
  })));
}

// The class of a line: the more of the program's time it takes, the hotter.
const heat = (samples, most) =>
  (samples ? `heat-${Math.max(1, Math.ceil((samples / most) * 5))}` : null);

// The source lines that became instructions, by file and number.
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
