// Traffic between ports: receiving ports on the left, sending ports on the right, bridges between
// them, and lines whose width is proportional to the rate.

import { ask, drops, now, rate } from "./daemon.js";
import { el, natural, short, svg } from "./element.js";

// Frames received by AF_XDP sockets, at the last reading.
let sockets = { time: 0, counts: new Map() };

export async function pictureView() {
  const [flows, xsk] = await Promise.all([ask("/v1/flows"), ask("/v1/xsk")]);
  const ways = [...flows.map(forwarded), ...lost(), ...received(xsk.sockets)]
    .filter((way) => way.rate > 0);
  if (ways.length === 0) return el("p", { class: "empty" }, "No frames move.");
  const width = Math.max(320, Math.min(1200, document.getElementById("view").clientWidth - 36));
  return [
    el("p", { class: "facts" }, "Left: where frames arrive. Right: where they leave, or end. ",
      "A line is as thick as its frames a second."),
    draw(fewer(ways), width),
  ];
}

const portOf = (name) => now.status.ports.find((port) => port.name === name);

// The upper of a port, or of the bond around it.
function upperOf(name) {
  const port = portOf(name);
  return port?.upper ?? portOf(port?.master)?.upper;
}

function forwarded({ from, to, frames_per_second }) {
  const bridges = now.status.bridges.map((it) => it.name);
  const upper = upperOf(from);
  const bridge = bridges.includes(upper) && upperOf(to) === upper && upper;
  return { from: from ?? MADE, to, rate: frames_per_second, by: from !== to && bridge,
    kind: from === to ? "tx" : "rx" };
}

// Rates of received frames that were dropped.
function lost() {
  return now.status.ports.map(({ name }) => {
    const speed = drops(name).filter((it) => it.way === "rx" && it.reason !== "missed")
      .reduce((sum, it) => sum + rate(`drop ${name} rx ${it.reason}`), 0);
    return { from: name, to: DROPPED, rate: speed, kind: "bad" };
  });
}

// Rates of frames received by AF_XDP sockets, from the ports that they are bound to.
function received(all) {
  const before = sockets;
  sockets = { time: now.stats.time,
    counts: new Map(all.map((it) => [it.id, it.statistics.rx_packets])) };
  const seconds = sockets.time - before.time;
  return all.filter((it) => it.port && before.counts.has(it.id)).map((it) => ({
    from: it.port, to: `socket ${it.id}`, kind: "rx",
    rate: (it.statistics.rx_packets - before.counts.get(it.id)) / seconds }));
}

// Limits the number of ports on each side; the smallest are combined into one.
function fewer(ways) {
  for (const end of ["from", "to"]) {
    const sums = new Map();
    for (const way of ways) sums.set(way[end], (sums.get(way[end]) ?? 0) + way.rate);
    const shown = new Set([...sums].sort((a, b) => b[1] - a[1]).slice(0, ENDS).map(([it]) => it));
    for (const way of ways) if (!shown.has(way[end])) way[end] = `${sums.size - ENDS} others`;
  }
  return ways;
}

function draw(ways, width) {
  const label = Math.min(170, width * 0.27);
  const most = Math.max(...ways.map((way) => way.rate));
  const thick = (speed) => Math.max(1, (speed * THICK) / most);
  const columns = [new Map(), new Map(), new Map()];
  const node = (column, name) => {
    const nodes = columns[column];
    if (!nodes.has(name)) nodes.set(name, { name, rate: 0, ins: 0, outs: 0 });
    return nodes.get(name);
  };
  // A way through a bridge consists of two lines, each shared with other ways.
  const lines = new Map();
  const line = (from, to, way, title) => {
    const key = `${way.kind} ${title}`;
    if (!lines.has(key)) lines.set(key, { from, to, kind: way.kind, title, rate: 0 });
    lines.get(key).rate += way.rate;
  };
  for (const way of ways) {
    const [from, to] = [node(0, way.from), node(2, way.to)];
    from.rate += way.rate;
    to.rate += way.rate;
    if (way.by) {
      const bridge = node(1, way.by);
      bridge.rate += way.rate;
      line(from, bridge, way, `${way.from} → ${way.by}`);
      line(bridge, to, way, `${way.by} → ${way.to}`);
    } else line(from, to, way, `${way.from} → ${way.to}`);
  }
  for (const it of lines.values()) {
    it.width = thick(it.rate);
    it.from.outs += it.width;
    it.to.ins += it.width;
  }
  const places = [label, width / 2 - BAR / 2, width - label - BAR];
  const heights = columns.map((nodes, column) => place([...nodes.values()], places[column]));
  const height = Math.max(...heights) + 10;
  for (const [column, nodes] of columns.entries()) {
    const shift = (height - heights[column]) / 2;
    for (const it of nodes.values()) it.y += shift;
  }
  const drawn = [...lines.values()].sort((a, b) => a.from.y - b.from.y || a.to.y - b.to.y);
  return svg("svg", { class: "picture", viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": "Which way frames go" },
  drawn.map(curve),
  columns.flatMap((nodes, column) => [...nodes.values()].map((it) => box(it, column))));
}

// Places the nodes of a column below each other; returns the height of the column.
function place(nodes, x) {
  const rank = (it) => (it.name === DROPPED ? 2 : it.name === MADE ? 1 : 0);
  const around = (it) => portOf(it.name)?.master ?? "";
  nodes.sort((a, b) => rank(a) - rank(b) || natural(around(a) || a.name, around(b) || b.name)
    || natural(a.name, b.name));
  let y = 10;
  for (const it of nodes) {
    const height = Math.max(30, it.ins, it.outs);
    Object.assign(it, { x, y, height, used: { ins: 0, outs: 0 } });
    y += height + 12;
  }
  return y;
}

function curve(it) {
  const at = (node, side) => {
    const y = node.y + (node.height - node[side]) / 2 + node.used[side] + it.width / 2;
    node.used[side] += it.width;
    return y;
  };
  const [x1, y1] = [it.from.x + BAR, at(it.from, "outs")];
  const [x2, y2] = [it.to.x, at(it.to, "ins")];
  const middle = (x1 + x2) / 2;
  return svg("path", { class: it.kind, "data-key": it.title, "stroke-width": it.width.toFixed(1),
    d: `M${x1} ${y1.toFixed(1)}C${middle} ${y1.toFixed(1)} ${middle} ${y2.toFixed(1)} ${x2} ${y2.toFixed(1)}` },
  svg("title", {}, `${it.title}: ${short(it.rate)}/s`));
}

function box(it, column) {
  const port = portOf(it.name);
  const x = column === 0 ? it.x - 8 : column === 2 ? it.x + BAR + 8 : it.x + BAR / 2;
  const anchor = ["end", "middle", "start"][column];
  const middle = it.y + it.height / 2;
  // The name of a bridge is above its node.
  const y = column === 1 ? it.y - 4 : middle - 2;
  const name = port?.master ? `${port.master}: ${it.name}` : it.name;
  const text = svg("text", { x, y, "text-anchor": anchor, class: "name" }, name);
  return [
    svg("rect", { x: it.x, y: it.y, width: BAR, height: it.height, rx: 2,
      class: it.name === DROPPED ? "bad" : null }),
    port ? svg("a", { href: `#ports/${encodeURIComponent(it.name)}` }, text) : text,
    column !== 1 && svg("text", { x, y: middle + 12, "text-anchor": anchor, class: "speed" },
      `${short(it.rate)}/s`),
  ];
}

const DROPPED = "dropped";
const MADE = "sockets";
// Largest number of names per side, width of the thickest line, width of a node.
const ENDS = 30;
const THICK = 22;
const BAR = 7;
