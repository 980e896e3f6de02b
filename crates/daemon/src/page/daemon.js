// The daemon, by its API: what it says now, and what it did in each of the last seconds.

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

// What the daemon said last.
export const now = { status: null, stats: null, programs: [], maps: [], bonds: [] };
// Rates by port, and of links and maps by id: lists with the newest at the end.
const past = new Map();
let before = null;

export async function refresh() {
  const [status, stats, programs, maps, bonds] = await Promise.all(
    ["status", "stats", "programs", "maps", "bonds"].map((name) => ask(`/v1/${name}`)));
  Object.assign(now, { status, stats, programs, maps, bonds });
  const seen = counters();
  if (before && before.pid === status.pid && seen.time > before.time) {
    note(seen, seen.time - before.time);
  } else {
    past.clear();
  }
  before = seen;
}

// All that only grows, by name.
function counters() {
  const counts = new Map();
  for (const [name, port] of Object.entries(now.stats.ports)) {
    counts.set(`rx ${name}`, port.rx_packets);
    counts.set(`rx bytes ${name}`, port.rx_bytes);
    counts.set(`tx ${name}`, port.tx_packets);
    counts.set(`tx bytes ${name}`, port.tx_bytes);
    for (const { way, reason, count } of drops(name)) {
      counts.set(`drop ${name} ${way} ${reason}`, count);
    }
  }
  for (const link of now.status.links) counts.set(`link ${link.id}`, link.runs);
  return { counts, time: now.stats.time, pid: now.status.pid };
}

// What a port dropped, by reason.
export function drops(name) {
  const port = now.stats.ports[name];
  if (!port) return [];
  const all = (counts, way) =>
    Object.entries(counts).map(([reason, count]) => ({ way, reason, count }));
  const missed = { way: "rx", reason: "missed", count: port.rx_missed };
  return [missed, ...all(port.drops, "rx"), ...all(port.tx_drops, "tx")];
}

function note(seen, seconds) {
  for (const [name, count] of seen.counts) {
    const old = before.counts.get(name);
    if (old === undefined) continue;
    const list = past.get(name) ?? [];
    list.push(Math.max(0, count - old) / seconds);
    if (list.length > PAST) list.shift();
    past.set(name, list);
  }
  for (const name of past.keys()) if (!seen.counts.has(name)) past.delete(name);
}

export const history = (name) => past.get(name) ?? [];
export const rate = (name) => history(name).at(-1) ?? 0;
