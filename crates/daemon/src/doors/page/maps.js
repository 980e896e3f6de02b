// Maps by type, and the elements of one of them. With a token, elements can be changed.

import { ask, change, now, rate, token } from "./daemon.js";
import { bar, el, filled, natural, percent, short } from "./element.js";

const SHOWN_MAX = 500;
// Larger arrays show only elements that are not 0, unless the user asks for all.
const ZEROES = 16;
const allShown = new Set();
// The element that is being changed, and the error of the last attempt.
const editing = { key: null, trouble: null };
// The map to which an element is being added, and the error of the last attempt.
const adding = { map: null, trouble: null };

export async function mapsView([id], draw) {
  const { maps } = now;
  if (maps.length === 0) {
    return el("p", { class: "empty" }, "No maps: programs bring them along.");
  }
  const chosen = maps.find((map) => String(map.id) === id) ?? liveliest(maps);
  return el("div", { class: "browse" },
    el("nav", { "aria-label": "Maps" }, byType(maps).map(([type, some]) => [
      el("h3", {}, type), el("ul", {}, some.map((map) => entry(map, map === chosen))),
    ])),
    el("article", { "data-key": `map ${chosen.id}` }, await contents(chosen, draw)));
}

// The map with the most activity: maps whose elements change, then maps that have elements to list,
// then maps of the busiest programs.
function liveliest(maps) {
  const runs = (map) => now.status.links.filter((link) => map.prog_ids.includes(link.prog_id))
    .reduce((sum, link) => sum + rate(`link ${link.id}`), 0);
  const rank = (map) => [rate(`map ${map.id}`), map.entries > 0 && !UNLISTED.test(map.type),
    runs(map), /stat|count/.test(map.name)].map(Number);
  const order = (a, b) => {
    const at = a.rank.findIndex((it, index) => it !== b.rank[index]);
    return at < 0 ? 0 : b.rank[at] - a.rank[at];
  };
  return maps.map((map) => ({ map, rank: rank(map) })).sort(order)[0].map;
}

// The owner of a map that shares its name with others: its program, with ports and id as needed.
function owners(map) {
  const users = (it) => now.programs.filter((program) => it.prog_ids.includes(program.id))
    .map((program) => program.name).join(", ");
  const ports = (it) => [...new Set(now.status.links
    .filter((link) => it.prog_ids.includes(link.prog_id)).map((link) => link.port))].join(", ");
  const ways = [users, (it) => [users(it), ports(it)].filter(Boolean).join(" on "),
    (it) => `${users(it) || "no program"}, id ${it.id}`];
  const same = now.maps.filter((it) => it.name === map.name);
  if (same.length === 1) return null;
  const isTold = (way) => new Set(same.map(way)).size === same.length;
  return (ways.find(isTold) ?? ways[2])(map);
}

function byType(maps) {
  const types = new Map();
  for (const map of maps) {
    const type = map.name.startsWith(".") ? DATA : map.type;
    types.set(type, [...(types.get(type) ?? []), map]);
  }
  for (const some of types.values()) some.sort((a, b) => natural(a.name, b.name) || a.id - b.id);
  // Global variables of programs come last.
  return [...types].sort(([a], [b]) => (a === DATA) - (b === DATA) || natural(a, b));
}

function entry(map, isChosen) {
  return el("li", { "data-key": map.id },
    el("a", { href: `#maps/${map.id}`, "aria-current": isChosen ? "true" : null },
      map.name || `id ${map.id}`, owners(map) && el("small", {}, ` ${owners(map)}`)),
    map.entries != null && !isArray(map)
      && filled(map.entries, map.max_entries, `${short(map.entries)}/${short(map.max_entries)}`));
}

async function contents(map, draw) {
  const entries = await ask(`/v1/maps/${map.id}/entries?limit=${SHOWN_MAX}`)
    .catch((error) => error);
  const users = now.programs.filter((program) => map.prog_ids.includes(program.id));
  const filled = map.entries == null ? `${map.max_entries} entries`
    : `${map.entries} of ${map.max_entries} entries (${percent(map.entries, map.max_entries)}%)`;
  return [
    el("h2", {}, map.name || `id ${map.id}`, el("span", { class: "kind" }, map.type)),
    el("p", { class: "facts" }, [
      `id ${map.id}`, filled, `key ${map.bytes_key} B, value ${map.bytes_value} B`,
      map.frozen && "frozen", ...map.pinned,
    ].filter(Boolean).join(" · ")),
    el("p", { class: "facts" }, "Used by ", users.length ? users.map((it, index) => [
      index ? ", " : "", el("a", { href: `#programs/${it.id}` }, it.name)]) : "no program"),
    entries instanceof Error ? el("p", { class: "bad" }, entries.message)
      : table(map, entries, draw),
    token.get() && !map.frozen && !UNLISTED.test(map.type) && !isArray(map)
      && add(map, entries, draw),
  ];
}

function table(map, entries, draw) {
  if (entries.length === 0) {
    return el("p", { class: "empty" }, UNLISTED.test(map.type) ? `A ${map.type} has no elements to list.`
      : "It is empty.");
  }
  const all = entries.map((it) => ({ it, key: flat(it.key), value: flat(valueOf(it)) }));
  const isEmpty = ({ value }) => Object.values(value).every((it) => it === 0);
  const hasMany = isArray(map) && all.length > ZEROES && !allShown.has(map.id);
  const rows = hasMany ? all.filter((row) => !isEmpty(row)) : all;
  const hidden = all.length - rows.length;
  const onclick = () => {
    allShown.add(map.id);
    draw();
  };
  const keys = names(all.map((row) => row.key));
  const values = names(all.map((row) => row.value));
  const most = isArray(map) && values.length === 1
    ? Math.max(0, ...rows.map((row) => Number(row.value[values[0]]) || 0)) : 0;
  const title = (name, kind) => {
    const isNumber = rows.every((row) => typeof (row[kind][name] ?? 0) === "number");
    return el("th", { class: isNumber ? "number" : null }, name || kind);
  };
  return [
    el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, keys.map((name) => title(name, "key")),
        values.map((name) => title(name, "value")), most > 0 && el("th", {}))),
      el("tbody", {}, rows.map(({ it, key, value }) => el("tr", {
        "data-key": JSON.stringify(it.key) },
      keys.map((name) => cell(key[name], "key")),
      values.map((name) => cell(value[name], "value", map)),
      most > 0 && el("td", { class: "chart" }, bar(Number(value[values[0]]) || 0, most)),
      token.get() && !map.frozen && el("td", {}, edit(map, it, draw))))))),
    hidden > 0 && el("p", { class: "tools" }, el("span", { class: "faint" },
      `${hidden} more ${hidden === 1 ? "is" : "are"} 0.`), el("button", { onclick }, "Show")),
    entries.length === SHOWN_MAX && el("p", { class: "faint" },
      `The first ${SHOWN_MAX} elements.`),
  ];
}

// The value of an element; for per-CPU maps the sum, where it can be computed.
function valueOf({ value, values }) {
  if (!values) return value;
  const add = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a + b;
    if (a && b && typeof a === "object" && !Array.isArray(a)) {
      return Object.fromEntries(Object.keys(a).map((name) => [name, add(a[name], b[name])]));
    }
    return a;
  };
  return values.reduce(add);
}

// The members of a value by path, recursively; a value without members has an empty path.
function flat(value, path = "", found = {}) {
  if (value && typeof value === "object" && !Array.isArray(value)) {
    for (const [name, member] of Object.entries(value)) {
      flat(member, path ? `${path}.${name}` : name, found);
    }
  } else {
    found[path] = value;
  }
  return found;
}

function names(objects) {
  return [...new Set(objects.flatMap((it) => Object.keys(it)))].slice(0, 16);
}

function cell(value, kind, map) {
  const text = value == null ? "" : typeof value === "object" ? JSON.stringify(value)
    : String(value);
  const shape = typeof value !== "number" ? "" : value || kind === "key" ? "number" : "number faint";
  return el("td", { class: `${kind} ${shape}` }, reference(map, value) ?? text);
}

// The program or port that a number in a map refers to.
function reference(map, value) {
  if (map?.type === "prog_array") {
    const program = now.programs.find((it) => it.id === value);
    return program && el("a", { href: `#programs/${program.id}` }, program.name);
  }
  if (map?.type.startsWith("devmap")) {
    return now.status.ports.find((port) => port.index === value)?.name;
  }
  return null;
}

// A form for a new element, with an existing one as an example.
function add(map, entries, draw) {
  const onsubmit = async (event) => {
    event.preventDefault();
    const { key, value } = event.target.elements;
    try {
      await change(`/v1/maps/${map.id}/update`, { flags: "noexist",
        key: JSON.parse(key.value), value: JSON.parse(value.value) });
      event.target.reset();
      Object.assign(adding, { map: map.id, trouble: null });
    } catch (error) {
      Object.assign(adding, { map: map.id, trouble: error.message });
    }
    draw();
  };
  const first = Array.isArray(entries) ? entries[0] : null;
  const like = (value, what) => (first ? JSON.stringify(value) : `${what}, as JSON`);
  const field = (name, text) => el("input", { name, placeholder: text, "aria-label": name,
    autocomplete: "off" });
  return el("details", { class: "attach", "data-key": `add ${map.id}` },
    el("summary", {}, "Add an element"),
    el("form", { class: "add", onsubmit }, field("key", like(first?.key, "key")),
      field("value", like(first?.value ?? first?.values?.[0], "value")), el("button", {}, "Add"),
      adding.map === map.id && adding.trouble && el("p", { class: "bad" }, adding.trouble)));
}

function edit(map, it, draw) {
  const name = `${map.id} ${JSON.stringify(it.key)}`;
  const turn = (key, trouble = null) => {
    Object.assign(editing, { key, trouble });
    draw();
  };
  const send = async (what, body) => {
    try {
      await change(`/v1/maps/${map.id}/${what}`, { key: it.key, ...body });
      turn(null);
    } catch (error) {
      turn(name, error.message);
    }
  };
  if (editing.key !== name) return el("button", { onclick: () => turn(name) }, "Change");
  const current = JSON.stringify(it.value ?? it.values?.[0]);
  const onsubmit = (event) => {
    event.preventDefault();
    try {
      send("update", { value: JSON.parse(event.target.elements.value.value) });
    } catch (error) {
      turn(name, error.message);
    }
  };
  return el("form", { class: "edit", onsubmit },
    el("input", { name: "value", value: current, "aria-label": "New value", autocomplete: "off" }),
    el("button", {}, "Store"),
    el("button", { type: "button", onclick: () => send("delete", {}) }, "Delete"),
    el("button", { type: "button", onclick: () => turn(null) }, "Leave"),
    editing.trouble && el("p", { class: "bad" }, editing.trouble));
}

const DATA = "global variables";
const isArray = (map) => /^(percpu_)?array$/.test(map.type);
// Types of maps without elements to list.
const UNLISTED = /queue|stack|ringbuf|bloom|perf|arena|pifo/;
