// One port: its properties and programs, and, with a token, changes of these.

import { ask, change, now, rate, token, drops } from "./daemon.js";
import { el, short } from "./element.js";
import { lines, profileOf, summary, watch } from "./programs.js";

// Id of the program whose lines are being sampled.
let watched = null;
// Result of the last change, for the user.
const told = { port: null, trouble: null, done: null };

export async function portView(port, lane, draw) {
  const links = now.status.links.filter((it) => it.port === port.name);
  const may = Boolean(token.get());
  const note = told.port === port.name ? told : {};
  return [
    el("p", { class: "tools" }, el("a", { href: "#ports" }, "All ports"),
      may && upOrDown(port, draw)),
    lane,
    el("article", { "data-key": `facts ${port.name}` },
      el("p", { class: "facts" }, facts(port).filter(Boolean).join(" · ")),
      port.failure && el("p", { class: "bad" }, port.failure),
      port.tx_error && el("p", { class: "bad" }, `Sending failed last: ${port.tx_error}`),
      note.trouble && el("pre", { class: "bad" }, note.trouble),
      note.done && el("p", { class: "good" }, note.done),
      links.map((link) => hooked(port, link, may, draw)),
      links.length === 0 && el("p", { class: "empty" }, "No program is attached."),
      may ? attach(port, draw) : el("p", { class: "faint" },
        "Programs can be attached here by who has the daemon's token ([api] token_file)."),
      losses(port),
      await watching(links)),
  ];
}

function facts(port) {
  const workers = now.status.worker_loads.filter((worker) =>
    worker.queues.some((it) => it.port === port.name)).map((it) => it.worker);
  return [
    `ifindex ${port.index}`, port.mac, `MTU ${port.mtu_now}`,
    `${port.queues} queue${port.queues === 1 ? "" : "s"}`,
    workers.length > 0 && `polled by worker ${workers.join(", ")}`,
    port.upper && `passes to ${port.upper}`, port.master && `member of ${port.master}`,
    ...Object.entries(port.details).map(([name, value]) => `${name} ${value}`),
  ];
}

function losses(port) {
  const all = drops(port.name).filter((it) => it.count > 0);
  return all.length > 0 && el("p", { class: "facts" }, "Dropped so far: ",
    all.map((it) => `${it.reason}${it.way === "tx" ? " leaving" : ""} ${short(it.count)}`)
      .join(" · "));
}

// Runs a requested change, and shows its progress and result.
async function attempt(port, draw, work) {
  Object.assign(told, { port: port.name, trouble: null, done: "…" });
  draw();
  try {
    Object.assign(told, { done: await work() });
  } catch (error) {
    Object.assign(told, { done: null, trouble: error.message });
  }
  draw();
}

function upOrDown(port, draw) {
  const onclick = () => attempt(port, draw, async () => {
    await change(`/v1/ports/${encodeURIComponent(port.name)}`, { up: !port.up }, "PATCH");
    return `${port.name} was set ${port.up ? "down" : "up"}.`;
  });
  return el("button", { onclick }, port.up ? "Set down" : "Set up");
}

function hooked(port, link, may, draw) {
  const onclick = () => attempt(port, draw, async () => {
    await ask(`/v1/links/${link.id}`, { method: "DELETE" });
    return `${link.name} was detached.`;
  });
  const replace = (event) => {
    const [file] = event.target.files;
    if (!file) return;
    attempt(port, draw, async () => {
      const object = await upload(file);
      const send = (program) => change("/v1/links", { port: port.name, hook: link.hook,
        programs: [{ ...object, program }], mode: "replace", expected: link.id });
      const name = now.programs.find((it) => it.id === link.prog_id)?.function;
      // Tries the program of the same name first, then the only program of the file.
      await send(name ?? null).catch(() => send(null));
      return `${link.name} was replaced by ${file.name}.`;
    });
    event.target.value = "";
  };
  return el("div", { class: "hooked", "data-key": link.id },
    el("span", {}, el("a", { href: `#programs/${link.prog_id}` }, link.name),
      el("span", { class: "kind" }, `${link.hook}, priority ${link.prio}, ${link.exec}`)),
    el("b", {}, `${short(rate(`link ${link.id}`))}/s`),
    el("button", { onclick: () => turn(port, link, draw) },
      watched === link.prog_id ? "Stop watching" : "Watch its lines"),
    may && el("label", { class: "button" }, "Replace …",
      el("input", { type: "file", accept: ".o", onchange: replace })),
    may && el("button", { onclick }, "Detach"));
}

// Starts or stops sampling the lines of a program.
function turn(port, link, draw) {
  if (watched === link.prog_id) {
    watched = null;
    return draw();
  }
  watched = link.prog_id;
  draw();
  const here = location.hash;
  const isWanted = () => watched === link.prog_id && location.hash === here;
  watch({ id: link.prog_id }, isWanted, draw);
}

async function watching(links) {
  const link = links.find((it) => it.prog_id === watched);
  if (!link) return null;
  const program = { id: link.prog_id };
  const profile = profileOf(program);
  return el("section", { "data-key": `lines ${program.id}` },
    el("h3", {}, `Lines of ${link.name}, by the time they take`),
    el("p", { class: "facts" }, summary(profile)), await lines(program, profile));
}

// Uploads an object file; returns the keys by which requests refer to it.
async function upload(file) {
  const { sha256 } = await ask(`/v1/objects?name=${encodeURIComponent(file.name)}`,
    { method: "PUT", body: file });
  return { sha256, object: file.name };
}

function attach(port, draw) {
  const onsubmit = (event) => {
    event.preventDefault();
    const { file, program, prio, hook } = event.target.elements;
    const [object] = file.files;
    if (!object) return;
    attempt(port, draw, async () => {
      const wanted = { ...await upload(object), program: program.value.trim() || null,
        prio: prio.value ? Number(prio.value) : null };
      const { links } = await change("/v1/links",
        { port: port.name, hook: hook.value, programs: [wanted] });
      event.target.reset();
      return `${links.map((it) => it.name).join(", ")} was attached.`;
    });
  };
  const hooks = ["rx", "tx", "dequeue"].map((hook) => el("option", { value: hook }, hook));
  return el("details", { class: "attach", "data-key": "attach" },
    el("summary", {}, "Attach a program"),
    el("form", { class: "edit", onsubmit },
      el("input", { type: "file", name: "file", accept: ".o", "aria-label": "Object file" }),
      el("input", { name: "program", placeholder: "C function, if it has several",
        "aria-label": "C function", autocomplete: "off" }),
      el("input", { name: "prio", type: "number", min: 0, placeholder: "priority",
        "aria-label": "Priority" }),
      el("select", { name: "hook", "aria-label": "Hook" }, hooks),
      el("button", {}, "Attach")));
}
