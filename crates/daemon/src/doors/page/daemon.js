// Access to the daemon's API: its current state, and its recent history.

import { PAST } from "./element.js";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem("token"),
  set: (text) => sessionStorage.setItem("token", text),
};

export async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  const limit = AbortSignal.timeout(30000);
  const response = await fetch(path, { ...options, headers, signal: limit });
  const body = await response.json().catch(() => ({}));
  if (response.ok) return body;
  throw new Refused(response.status, body.error ?? `status ${response.status}`);
}

export function change(path, body, method = "POST") {
  const headers = { "content-type": "application/json" };
  return ask(path, { method, headers, body: JSON.stringify(body) });
}

// The latest answers of the daemon.
export const now = { status: null, stats: null, programs: [], maps: [], bonds: [] };
// Rates of the last second, and lists of rates of the last minutes with the newest at the end, by
// name. Names are such as "rx p0", "link 7", "busy 0".
const rates = new Map();
const past = new Map();
let before = null;
let pointsUntil = 0;

export async function refresh() {
  const [status, stats, programs, maps, bonds] = await Promise.all(
    ["status", "stats?zeros=false", "programs", "maps", "bonds"].map((it) => ask(`/v1/${it}`)));
  Object.assign(now, { status, stats, programs, maps, bonds });
  const seen = counters();
  if (before && before.pid !== status.pid) {
    before = null;
    pointsUntil = 0;
    past.clear();
  }
  if (stats.time - pointsUntil > 5.5) await remember();
  if (before && seen.time > before.time) compare(seen, seen.time - before.time);
  // Without an earlier reading, the daemon's history supplies the rates.
  else if (!before) for (const [name, list] of past) rates.set(name, list.at(-1) ?? 0);
  before = seen;
}

// All counters, by name.
function counters() {
  const counts = new Map();
  const traffic = (name, it) => {
    counts.set(`rx ${name}`, it.rx_packets);
    counts.set(`rx bits ${name}`, it.rx_bytes * 8);
    counts.set(`tx ${name}`, it.tx_packets);
    counts.set(`tx bits ${name}`, it.tx_bytes * 8);
  };
  for (const [name, port] of Object.entries(now.stats.ports)) {
    traffic(name, port);
    let sum = 0;
    for (const { way, reason, count } of drops(name)) {
      counts.set(`drop ${name} ${way} ${reason}`, count);
      sum += count;
    }
    counts.set(`drops ${name}`, sum);
  }
  // Names with a space cannot collide with those of ports.
  traffic(" all", now.stats.total);
  counts.set("drops  all", now.stats.total.drops);
  for (const link of now.status.links) counts.set(`link ${link.id}`, link.runs);
  for (const map of now.maps) counts.set(`map ${map.id}`, map.entries ?? 0);
  for (const worker of now.status.worker_loads) {
    counts.set(`busy ${worker.worker}`, worker.busy_seconds);
    counts.set(`frames ${worker.worker}`, worker.frames);
  }
  return { counts, time: now.stats.time, pid: now.status.pid };
}

// Frames that a port dropped, by reason.
export function drops(name) {
  const port = now.stats.ports[name];
  if (!port) return [];
  const all = (counts, way) =>
    Object.entries(counts).map(([reason, count]) => ({ way, reason, count }));
  const missed = { way: "rx", reason: "missed", count: port.rx_missed };
  return [missed, ...all(port.drops, "rx"), ...all(port.tx_drops, "tx")];
}

function compare(seen, seconds) {
  rates.clear();
  for (const [name, count] of seen.counts) {
    // Reasons that have not occurred are missing, and count as 0.
    const old = before.counts.get(name) ?? (name.startsWith("drop ") ? 0 : undefined);
    if (old === undefined) continue;
    // The number of elements in a map may also decrease.
    const change = name.startsWith("map ") ? Math.abs(count - old) : Math.max(0, count - old);
    rates.set(name, change / seconds);
  }
}

// Fetches the history since the last request.
async function remember() {
  const { time, points, ports, links, workers, total } =
    await ask(`/v1/history?since=${pointsUntil}`);
  pointsUntil = time;
  if (points === 0) return;
  const news = new Map();
  for (const [name, it] of [...Object.entries(ports), [" all", total]]) {
    const kinds = { rx: it.rx, "rx bits": it.rx_bits, tx: it.tx, "tx bits": it.tx_bits,
      drops: it.drops };
    for (const [kind, list] of Object.entries(kinds)) news.set(`${kind} ${name}`, list ?? []);
  }
  for (const [id, list] of Object.entries(links)) news.set(`link ${id}`, list);
  workers.forEach((it, number) => {
    news.set(`busy ${number}`, it.busy ?? []);
    news.set(`frames ${number}`, it.frames ?? []);
  });
  for (const name of past.keys()) if (!news.has(name)) past.delete(name);
  for (const [name, list] of news) {
    // Points that are left out are 0.
    const nothing = new Array(points - list.length).fill(0);
    past.set(name, [...(past.get(name) ?? []), ...nothing, ...list].slice(-PAST));
  }
}

export const history = (name) => past.get(name) ?? [];
export const rate = (name) => rates.get(name) ?? 0;
// Limited to 1, since busy time and wall time are read at slightly different moments.
export const busyOf = (worker) => Math.min(1, rate(`busy ${worker.worker}`));
