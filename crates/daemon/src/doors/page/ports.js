// Ports, bonds and bridges, and the way of frames through them: received frames pass the programs
// of the rx hook in order, then go to the upper; frames to be sent pass those of the tx hook.

import { drops, history, now, rate } from "./daemon.js";
import { chart, el, natural, percent, short } from "./element.js";
import { portView } from "./port.js";

let wanted = "";
// Whether each port is a single line; unless chosen, this depends on the number of ports.
let isDense = null;

export function portsView([name], draw) {
  const { ports } = now.status;
  const chosen = ports.find((port) => port.name === name);
  if (chosen) return portView(chosen, lane(chosen), draw);
  if (ports.length === 0) {
    return el("p", { class: "empty" }, "No ports yet. ", el("code", {}, "towpath port add"),
      " makes one, or ", el("code", {}, "[[port]]"), " in the configuration.");
  }
  const fits = (port) => `${port.name} ${port.kind} ${programsOf(port)}`.includes(wanted)
    || membersOf(port).some((it) => it.name.includes(wanted));
  // Members are shown inside their bond.
  const alone = ports.filter((port) => !port.master && fits(port))
    .sort((a, b) => natural(a.name, b.name));
  const lines = isDense ?? ports.length > MANY;
  return [
    ports.length > 3 && tools(ports.length, lines, draw),
    now.status.bridges.map(bridge),
    lines ? table(alone) : alone.map((port) => (port.kind === "bond" ? bond(port) : lane(port))),
    alone.length === 0 && el("p", { class: "empty" }, `No port is like "${wanted}".`),
  ];
}

function tools(count, lines, draw) {
  const oninput = (event) => {
    wanted = event.target.value;
    draw();
  };
  const onclick = () => {
    isDense = !lines;
    draw();
  };
  return el("p", { class: "tools" }, el("input", { type: "search", oninput,
    placeholder: `Search ${count} ports`, "aria-label": "Search ports" }),
  el("button", { onclick }, lines ? "Show their programs' order" : "A line a port"),
  el("span", { class: "faint" }, "Charts: the last ten minutes"));
}

const membersOf = (bond) => now.status.ports.filter((port) => port.master === bond.name);
const linksOf = (port, hook) =>
  now.status.links.filter((it) => it.port === port.name && (!hook || it.hook === hook));
const programsOf = (port) => linksOf(port).map((link) => link.name).join(" ");
const place = (port) => `#ports/${encodeURIComponent(port.name)}`;

function bridge({ name }) {
  const ports = now.status.ports.filter((port) => port.upper === name).map((port) => port.name);
  return el("section", { class: "bridge", "data-key": `bridge ${name}` },
    el("h2", {}, name, el("span", { class: "kind" }, "bridge")),
    el("p", {}, ports.length ? `joins ${ports.join(", ")}` : "joins nothing yet"));
}

function bond(port) {
  const view = now.bonds.find((bond) => bond.name === port.name);
  const role = (member) => {
    const it = view?.members.find((other) => other.name === member.name);
    if (!it) return null;
    return it.name === view.active ? "active" : `link ${it.mii_status}`;
  };
  return el("section", { class: "bond", "data-key": port.name },
    lane(port, view && `${view.mode}, ${view.members.length} members`),
    membersOf(port).map((member) => lane(member, role(member))));
}

// A port, from left to right.
function lane(port, note) {
  const ways = ["rx", "tx", "dequeue"].map((hook) => way(port, hook));
  return el("section", { class: "lane", "data-key": port.name },
    el("div", { class: "port" },
      el("h2", {}, el("a", { href: place(port) }, port.name),
        el("span", { class: "kind" }, port.kind)),
      el("p", {}, state(port), note && ` · ${note}`)),
    el("div", { class: "ways" }, ways),
    el("div", { class: "rates" }, traffic(port, "rx"), traffic(port, "tx"), lost(port)));
}

// A table with one line per port.
function table(alone) {
  const ports = alone.flatMap((port) => [port, ...membersOf(port)]);
  const head = (text, kind) => el("th", { class: kind }, text);
  return el("table", { class: "wide lines" },
    el("thead", {}, el("tr", {}, head("Port"), head("Programs", "more"), head("Passes to", "more"),
      head("In/s", "number"), head("", "more"), head("Out/s", "number"), head("", "more"),
      head("Dropped/s", "number"))),
    el("tbody", {}, ports.map((port) => {
      const [rx, tx, lost] = ["rx", "tx", "drops"].map((what) => rate(`${what} ${port.name}`));
      const links = linksOf(port);
      const cell = (value, kind = "") =>
        el("td", { class: value ? `number ${kind}` : "number faint" }, short(value));
      const past = (way) =>
        el("td", { class: "chart more" }, chart(history(`${way} ${port.name}`), way, ""));
      return el("tr", { "data-key": port.name, class: port.master ? "member" : null },
        el("td", {}, state(port, true), el("a", { href: place(port) }, port.name),
          el("span", { class: "kind" }, port.kind)),
        el("td", { class: "more" }, links.map((link, index) => [index ? ", " : "",
          el("a", { href: `#programs/${link.prog_id}` }, link.name)])),
        el("td", { class: "more faint" }, port.upper ?? port.master ?? ""),
        cell(rx), past("rx"), cell(tx), past("tx"), cell(lost, "bad"));
    })));
}

export function state(port, isShort = false) {
  const is = (text, kind) =>
    el("span", { class: `state ${kind}`, title: port.failure ?? text }, isShort ? "" : text);
  if (port.failure) return is("failed", "bad");
  if (port.finished) return is("finished", "faint");
  if (!port.up) return is("down", "faint");
  return port.link ? is("up", "good") : is("no link", "bad");
}

// The programs of a hook, in order.
function way(port, hook) {
  const links = linksOf(port, hook);
  const lent = hook === "rx" && port.delegated_by;
  if (hook !== "rx" && links.length === 0) return null;
  const ends = {
    rx: [step("from", "in"), step("to", port.upper ?? (port.master || "stops here"))],
    tx: [step("from", "leaves"), step("to", "out")],
    dequeue: [step("from", "queued"), step("to", "out")],
  }[hook];
  return el("ol", { class: "way" }, ends[0], links.map(program),
    lent && step("lent", `programs of ${lent}`), ends[1]);
}

const step = (kind, text) => el("li", { class: kind }, text);

function program(link) {
  const all = Object.values(link.verdicts).reduce((sum, count) => sum + count, 0);
  const [most, count] = Object.entries(link.verdicts).sort((a, b) => b[1] - a[1])[0] ?? ["", 0];
  const said = all ? ` · ${most.replace("XDP_", "")} ${percent(count, all)}%` : "";
  const title = `priority ${link.prio}, goes on after ${link.actions.join(", ")}`
    + (link.fallback ? `; ${link.fallback}` : "");
  return el("li", { class: "program", title },
    el("a", { href: `#programs/${link.prog_id}` }, link.name),
    el("small", { class: link.fallback ? "bad" : null },
      `${link.exec} · ${short(rate(`link ${link.id}`))}/s${said}`));
}

function traffic(port, way) {
  const frames = rate(`${way} ${port.name}`);
  const bits = rate(`${way} bits ${port.name}`);
  return el("div", { class: "rate" },
    chart(history(`${way} ${port.name}`), way, `${way} of ${port.name}: ${short(frames)}/s`),
    el("p", {}, el("span", { class: "faint" }, way), el("b", {}, `${short(frames)}/s`),
      el("span", { class: "faint" }, `${short(bits)}bit/s`)));
}

// The most frequent drop reason now, else so far.
function lost(port) {
  const all = drops(port.name).filter((it) => it.count > 0);
  const speed = (it) => rate(`drop ${port.name} ${it.way} ${it.reason}`);
  const most = all.sort((a, b) => speed(b) - speed(a) || b.count - a.count)[0];
  const sum = rate(`drops ${port.name}`);
  return el("p", { class: sum ? "lost bad" : "lost faint" },
    most ? el("a", { href: "#drops" }, `${short(sum)}/s dropped`) : "none dropped",
    most && el("small", {}, most.reason));
}

// Largest number of ports that are not shown as single lines by default.
const MANY = 20;
