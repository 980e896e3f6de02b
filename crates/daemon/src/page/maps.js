// Maps by type, and what is in one of them. With a token, elements can be changed.

import { ask, change, now, token } from "./daemon.js";
import { bar, el, percent, short } from "./element.js";

const SHOWN_MAX = 500;
// Which element is being changed, and what went wrong with that.
const editing = { key: null, trouble: null };

export async function mapsView([id], draw) {
  const { maps } = now;
  if (maps.length === 0) {
    return el("p", { class: "empty" }, "No maps: programs bring them along.");
  }
  const chosen = maps.find((map) => String(map.id) === id);
  return el("div", { class: "browse" },
    el("nav", { "aria-label": "Maps" }, byType(maps).map(([type, some]) => [
      el("h3", {}, type), el("ul", {}, some.map((map) => entry(map, map === chosen))),
    ])),
    el("article", {}, chosen ? await contents(chosen, draw)
      : el("p", { class: "empty" }, "Choose a map.")));
}

function byType(maps) {
  const types = new Map();
  for (const map of maps) types.set(map.type, [...(types.get(map.type) ?? []), map]);
  return [...types].sort(([a], [b]) => (a < b ? -1 : 1));
}

function entry(map, isChosen) {
  return el("li", { "data-key": map.id },
    el("a", { href: `#maps/${map.id}`, "aria-current": isChosen ? "true" : null },
      map.name || `id ${map.id}`),
    map.entries != null && bar(map.entries, map.max_entries));
}

async function contents(map, draw) {
  const entries = await ask(`/v1/maps/${map.id}/entries?limit=${SHOWN_MAX}`)
    .catch((error) => error);
  const users = now.programs.filter((program) => map.prog_ids.includes(program.id));
  const filled = map.entries == null ? `${map.max_entries} entries`
    : `${map.entries} of ${map.max_entries} entries (${percent(map.entries, map.max_entries)}%)`;
  return [
    el("h2", {}, map.name, el("span", { class: "kind" }, map.type)),
    el("p", { class: "facts" }, [
      `id ${map.id}`, filled, `key ${map.bytes_key} B, value ${map.bytes_value} B`,
      map.frozen && "frozen", ...map.pinned,
    ].filter(Boolean).join(" · ")),
    el("p", { class: "facts" }, "Used by ", users.length ? users.map((it, index) => [
      index ? ", " : "", el("a", { href: `#programs/${it.id}` }, it.name)]) : "no program"),
    entries instanceof Error ? el("p", { class: "bad" }, entries.message)
      : table(map, entries, draw),
  ];
}

function table(map, entries, draw) {
  if (entries.length === 0) {
    const unlisted = /queue|stack|ringbuf|bloom|perf|arena/.test(map.type);
    return el("p", { class: "empty" }, unlisted ? `A ${map.type} has no elements to list.`
      : "It is empty.");
  }
  const isArray = /^(percpu_)?array$/.test(map.type);
  const rows = entries.map((it) => ({ it, key: flat(it.key), value: flat(valueOf(it)) }));
  const keys = names(rows.map((row) => row.key));
  const values = names(rows.map((row) => row.value));
  const most = isArray && values.length === 1
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
    entries.length === SHOWN_MAX && el("p", { class: "faint" },
      `The first ${SHOWN_MAX} elements.`),
  ];
}

// Of per-CPU maps the sum, where there is one.
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

// Members and their members, by path; what has none is one value without a name.
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

// What a number stands for, in maps of programs and of ports.
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
