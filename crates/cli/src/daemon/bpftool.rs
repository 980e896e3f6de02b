//! JSON in bpftool's form, for scripts that were written for it. Properties that only Towpath has
//! are in one more object, `towpath`.

use serde_json::{Value as Json, json};
use towpath_daemon::api::types::{BytesView, EntryView, LinkView, MapView, ProgramView};
use towpath_daemon::code::{InsnView, InsnsView};

/// An object if one was asked for, a list for all or several.
pub(super) fn shown(mut all: Vec<Json>, asks_for_one: bool) -> Json {
    match all.len() {
        1 if asks_for_one => all.remove(0),
        _ => Json::Array(all),
    }
}

/// As `bpftool -j prog show`.
pub(super) fn program(program: &ProgramView) -> Json {
    let it = program;
    let mut json = json!({
        "id": it.id, "type": it.r#type, "name": it.name, "tag": it.tag,
        "gpl_compatible": it.gpl_compatible, "loaded_at": it.loaded_at, "uid": it.uid,
        "bytes_xlated": it.bytes_xlated, "jited": it.jited,
    });
    if it.jited {
        json["bytes_jited"] = json!(it.bytes_jited);
    }
    json["bytes_memlock"] = json!(it.bytes_memlock);
    if !it.map_ids.is_empty() {
        json["map_ids"] = json!(it.map_ids);
    }
    common(&mut json, it.btf_id, &it.pinned);
    json["towpath"] = json!({
        "function": it.function, "key": it.key, "object": it.object, "sha256": it.sha256,
        "bound_to": it.bound_to, "frags": it.frags, "insns": it.insns, "exec": it.exec,
        "fallback": it.fallback, "measured": it.measured,
    });
    json
}

/// As `bpftool -j map show`.
pub(super) fn map(map: &MapView) -> Json {
    let it = map;
    let mut json = json!({
        "id": it.id, "type": it.r#type, "name": it.name, "flags": it.flags,
        "bytes_key": it.bytes_key, "bytes_value": it.bytes_value, "max_entries": it.max_entries,
        "bytes_memlock": it.bytes_memlock,
    });
    if let Some(is_jited) = it.owner_jited {
        json["owner_prog_type"] = json!("xdp");
        json["owner_jited"] = json!(is_jited);
    }
    json["frozen"] = json!(u8::from(it.frozen));
    common(&mut json, it.btf_id, &it.pinned);
    let mut ours = json!({ "entries": it.entries, "prog_ids": it.prog_ids });
    if let Some(ring) = it.ring {
        ours["ring"] = json!(ring);
    }
    json["towpath"] = ours;
    json
}

/// As `bpftool -j link show`.
pub(super) fn link(link: &LinkView) -> Json {
    let it = link;
    let mut json = json!({ "id": it.id, "type": it.r#type, "prog_id": it.prog_id });
    if it.ifindex != 0 {
        json["devname"] = json!(it.port);
    }
    json["ifindex"] = json!(it.ifindex);
    common(&mut json, 0, &it.pinned);
    json["towpath"] = json!({
        "hook": it.hook, "name": it.name, "tag": it.tag, "prio": it.prio, "actions": it.actions,
        "exec": it.exec, "fallback": it.fallback, "measured": it.measured, "runs": it.runs,
        "verdicts": it.verdicts, "faults": it.faults,
    });
    json
}

/// As `bpftool -j net show`: programs that run on frames that arrive at ports.
pub(super) fn net<'a>(links: impl Iterator<Item = &'a LinkView>) -> Json {
    let attached = links.map(|link| {
        json!({
            "devname": link.port, "ifindex": link.ifindex, "mode": "driver", "id": link.prog_id,
        })
    });
    let attached: Vec<Json> = attached.collect();
    json!([{ "xdp": attached, "tc": [], "flow_dissector": [] }])
}

/// An element as `bpftool -j map dump` and `lookup` show it.
pub(super) fn element(entry: &EntryView) -> Json {
    let Some(BytesView { key, value, values, formatted }) = &entry.bytes else {
        return json!(entry);
    };
    let mut json = json!({ "key": bytes(key) });
    if let Some(value) = value {
        json["value"] = bytes(value);
    }
    if let Some(values) = values {
        let each = values.iter().enumerate();
        let each = each.map(|(cpu, value)| json!({ "cpu": cpu, "value": bytes(value) }));
        json["values"] = each.collect();
    }
    if let Some(formatted) = formatted {
        json["formatted"] = formatted.clone();
    }
    json
}

/// Bytes in bpftool's form: `0x0a`, `0x0b`.
pub(super) fn bytes(hex: &str) -> Json {
    let pairs = (0..hex.len() / 2).filter_map(|at| hex.get(2 * at..2 * at + 2));
    pairs.map(|pair| format!("0x{pair}")).collect()
}

/// Instructions as `bpftool -j prog dump xlated` shows them; with `linum` also their C lines.
pub(crate) fn insns(view: &InsnsView, linum: bool) -> Json {
    view.insns.iter().map(|insn| self::insn(insn, linum)).collect()
}

fn insn(insn: &InsnView, linum: bool) -> Json {
    let mut json = json!({});
    if let Some(function) = &insn.function {
        json["proto"] = json!(function);
    }
    if let Some(source) = &insn.source {
        json["src"] = json!(source.text);
        if linum {
            json["file"] = json!(source.file);
            json["line_num"] = json!(source.line);
            json["line_col"] = json!(source.column);
        }
    }
    json["disasm"] = json!(insn.text);
    json
}

fn common(json: &mut Json, btf_id: u32, pinned: &[String]) {
    if btf_id != 0 {
        json["btf_id"] = json!(btf_id);
    }
    if !pinned.is_empty() {
        json["pinned"] = json!(pinned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_as_bpftool_shows_them() {
        assert_eq!(bytes("0a00ff"), json!(["0x0a", "0x00", "0xff"]));
        assert_eq!(bytes(""), json!([]));
    }

    #[test]
    fn one_that_was_asked_for_is_no_list() {
        assert_eq!(shown(vec![json!(1)], true), json!(1));
        assert_eq!(shown(vec![json!(1)], false), json!([1]));
        assert_eq!(shown(vec![json!(1), json!(2)], true), json!([1, 2]));
    }
}
