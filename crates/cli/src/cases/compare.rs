//! Comparing expected with actual results.

use std::collections::BTreeMap;

use serde_json::{Map as Object, Value as Json};
use towpath_bpf::MapDef;
use towpath_bpf::map::Keys;
use towpath_bpf::suggest;
use towpath_daemon::globals::hex;
use towpath_maps::mapfile::parse_element;
use towpath_xdp::Action;

use super::fields;
use super::file::{Case, Expect};
use super::hex::{Pattern, pattern_text};

/// The results of a run; `None` where they are unknown.
pub(super) struct Seen {
    pub(super) returned: u32,
    pub(super) target: Option<Option<String>>,
    pub(super) metadata: Vec<u8>,
    pub(super) packet: Vec<u8>,
    /// Contents of maps in the format of map files, if the case expects any.
    pub(super) maps: Option<Json>,
    pub(super) printed: Option<Vec<String>>,
    /// For a dequeue program: whether it sent a packet, and the number of packets it dropped.
    pub(super) dequeued: Option<(bool, u64)>,
    /// For a called program: its result, and the context that it left.
    pub(super) called: Option<(u32, Vec<u8>)>,
    /// Records of ring buffers and perf events.
    pub(super) sent: Option<BTreeMap<String, Vec<Vec<u8>>>>,
}

/// Differences as lines for people; empty if the results are as expected.
pub(super) fn differences(
    expect: &Expect,
    seen: &Seen,
    defs: &[MapDef],
    cpus: usize,
) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(wanted) = expect.returned.filter(|&wanted| wanted != seen.returned) {
        let (wanted, returned) = (verdict(wanted), verdict(seen.returned));
        found.push(format!("verdict: expected {wanted}, got {returned}"));
    }
    if let (Some(wanted), Some(target)) = (&expect.target, &seen.target)
        && target.as_deref().is_none_or(|target| !target.contains(wanted.as_str()))
    {
        let target = target.as_deref().unwrap_or("none");
        found.push(format!("target: expected {wanted}, got {target}"));
    }
    if let Some(wanted) = &expect.metadata
        && !(wanted.len() == seen.metadata.len() && begins(wanted, &seen.metadata))
    {
        let (wanted, got) = (pattern_text(wanted), hex(&seen.metadata));
        found.push(format!("metadata: expected {wanted:?}, got {got:?}"));
    }
    if let Some(wanted) = &expect.packet {
        found.extend(fields::difference(&wanted.bytes(&seen.packet), &seen.packet));
    }
    found.extend(fields::differing(&expect.fields, &seen.packet));
    if let Some(sent) = &seen.sent {
        found.extend(expect.sent.iter().flat_map(|(name, wanted)| match sent.get(name) {
            Some(records) => sent_differences(name, wanted, records),
            None => vec![format!("expect.sent: no ring buffer or perf events {name:?}")],
        }));
    }
    if let Some((sends, drops)) = seen.dequeued {
        if let Some(wanted) = expect.sends.filter(|&wanted| wanted != sends) {
            found.push(format!("sends: expected {wanted}, got {sends}"));
        }
        if let Some(wanted) = expect.drops.filter(|&wanted| wanted != drops) {
            found.push(format!("drops: expected {wanted}, got {drops}"));
        }
    }
    if let Some((returned, context)) = &seen.called {
        if let Some(wanted) = expect.returns.filter(|wanted| wanted != returned) {
            found.push(format!("returns: expected {wanted}, got {returned}"));
        }
        if let Some(wanted) = &expect.context
            && !(wanted.len() == context.len() && begins(wanted, context))
        {
            let (wanted, got) = (pattern_text(wanted), hex(context));
            found.push(format!("context: expected {wanted:?}, got {got:?}"));
        }
    }
    if let (Some(wanted), Some(printed)) = (&expect.printed, &seen.printed) {
        found.extend(printed_differences(wanted, printed));
    }
    if let Some(maps) = &seen.maps {
        let compare = Compare { defs, cpus };
        for (name, wanted) in &expect.maps {
            match compare.map(name, wanted, &maps[name.as_str()]) {
                Ok(differences) => found.extend(differences),
                Err(message) => found.push(format!("expect.maps: {message}")),
            }
        }
    }
    found
}

/// Adds the number of the packet to the differences if the case has several packets.
pub(super) fn shown(case: &Case, index: usize, differences: Vec<String>) -> Vec<String> {
    if case.steps.len() == 1 {
        return differences;
    }
    let with_number = |difference| format!("packet {}: {difference}", index + 1);
    differences.into_iter().map(with_number).collect()
}

/// Name of the verdict in `enum xdp_action`, or the number.
pub(super) fn verdict(returned: u32) -> String {
    let action = Action::from_returned(returned);
    if action as u32 == returned { action.name().to_owned() } else { returned.to_string() }
}

/// Differences of the records of one ring buffer or perf event array: their number, and how each
/// begins.
fn sent_differences(name: &str, wanted: &[Pattern], records: &[Vec<u8>]) -> Vec<String> {
    if wanted.len() != records.len() {
        return vec![format!("sent: {name}: expected {}, got {}", wanted.len(), records.len())];
    }
    let pairs = wanted.iter().zip(records).enumerate();
    let different = pairs.filter(|(_, (wanted, record))| !begins(wanted, record));
    different
        .map(|(index, (wanted, record))| {
            let (wanted, record) = (pattern_text(wanted), hex(record));
            format!("sent: {name}: record {}: expected {wanted}, got {record}", index + 1)
        })
        .collect()
}

/// Whether the bytes begin with the wanted pattern.
fn begins(wanted: &[Option<u8>], bytes: &[u8]) -> bool {
    wanted.len() <= bytes.len()
        && wanted.iter().zip(bytes).all(|(wanted, byte)| wanted.is_none_or(|it| it == *byte))
}

/// Each wanted text must be in a line of its own, in this order.
fn printed_differences(wanted: &[String], printed: &[String]) -> Vec<String> {
    let mut lines = printed.iter();
    let is_missing = |text: &&String| !lines.any(|line| line.contains(text.as_str()));
    let missing: Vec<&String> = wanted.iter().filter(is_missing).collect();
    let said = match printed {
        [] => "nothing".to_owned(),
        lines => lines.join(" | "),
    };
    missing.iter().map(|text| format!("printed: expected {text:?}, got {said}")).collect()
}

/// Compares contents of maps.
#[derive(Clone, Copy)]
struct Compare<'a> {
    defs: &'a [MapDef],
    cpus: usize,
}

impl Compare<'_> {
    /// Differences between `wanted` and the contents of the map; elements that are not named may
    /// have any value.
    fn map(self, name: &str, wanted: &Json, found: &Json) -> Result<Vec<String>, String> {
        let Some(def) = self.defs.iter().find(|def| def.name == name) else {
            let names = self.defs.iter().map(|def| def.name.as_str());
            return Err(format!("no map {name:?}{}", suggest::among(name, names)));
        };
        let found = found.as_array().map(Vec::as_slice).unwrap_or_default();
        if def.kind.keys() == Keys::None {
            let is_same = wanted.as_array().is_some_and(|wanted| wanted.as_slice() == found);
            let text = || format!("{name}: expected {wanted}, got {}", Json::from(found));
            return Ok(if is_same { Vec::new() } else { vec![text()] });
        }
        let mut differences = Vec::new();
        for (key, wanted) in
            elements(def, wanted).map_err(|message| format!("{name}: {message}"))?
        {
            let bytes = |key: &Json| parse_element(def, key, None, self.cpus).map(|(key, _)| key);
            let place = bytes(&key).map_err(|message| format!("{name}: {message}"))?;
            let is_it = |entry: &&Json| bytes(&entry["key"]).is_ok_and(|key| key == place);
            let entry = found.iter().find(is_it);
            let is_it = |value: &&Json| self.is_as_wanted(def, &key, &wanted, value);
            if !entry.is_some_and(|entry| values(entry).iter().any(is_it)) {
                let got = entry.map_or("nothing".to_owned(), |entry| values(entry)[0].to_string());
                differences.push(format!("{name}[{key}]: expected {wanted}, got {got}"));
            }
        }
        Ok(differences)
    }

    fn is_as_wanted(self, def: &MapDef, key: &Json, wanted: &Json, value: &Json) -> bool {
        let stored = |value: &Json| {
            parse_element(def, key, Some(value), self.cpus).ok().and_then(|(_, stored)| stored)
        };
        // Equal as far as the case spells it out; or else the same bytes in another notation.
        contains(value, wanted) || stored(wanted).is_some_and(|it| stored(value) == Some(it))
    }
}

/// Keys and values of what a case expects in a map with keys.
fn elements(def: &MapDef, wanted: &Json) -> Result<Vec<(Json, Json)>, String> {
    let wrong = || "expected a list of { key, value }, or of values by index".to_owned();
    if def.section.is_some() {
        return Ok(vec![(Json::from(0), wanted.clone())]);
    }
    let list = wanted.as_array().ok_or_else(wrong)?;
    let element = |(index, element): (usize, &Json)| match element.as_object() {
        Some(entry) if entry.contains_key("key") => {
            let value = entry.get("value").or_else(|| entry.get("values")).ok_or_else(wrong)?;
            let key = entry.get("key").cloned().unwrap_or_default();
            Ok((key, value.clone()))
        }
        _ if def.kind.keys() == Keys::Index => Ok((Json::from(index), element.clone())),
        _ => Err(wrong()),
    };
    list.iter().enumerate().map(element).collect()
}

/// Values to compare with the wanted one: an element's value; for a per-CPU element the values of
/// every CPU, as a case runs on one of them, or all of them together.
fn values(entry: &Json) -> Vec<&Json> {
    match entry["values"].as_array().map(Vec::as_slice) {
        Some([only]) => vec![&only["value"]],
        Some(all) => {
            let of_cpus = all.iter().map(|of_cpu| &of_cpu["value"]);
            std::iter::once(&entry["values"]).chain(of_cpus).collect()
        }
        None => vec![&entry["value"]],
    }
}

/// Whether `found` contains everything in `wanted`; members of structures that are not named may
/// have any value.
fn contains(found: &Json, wanted: &Json) -> bool {
    let all = |found: &Object<String, Json>, wanted: &Object<String, Json>| {
        wanted
            .iter()
            .all(|(name, wanted)| found.get(name).is_some_and(|found| contains(found, wanted)))
    };
    match (found, wanted) {
        (Json::Object(found), Json::Object(wanted)) => all(found, wanted),
        (Json::Array(found), Json::Array(wanted)) => {
            found.len() == wanted.len()
                && found.iter().zip(wanted).all(|(found, wanted)| contains(found, wanted))
        }
        (found, wanted) => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_named_may_be_anything() {
        assert!(contains(&json!({"a": 1, "b": {"c": [1, 2]}}), &json!({"b": {"c": [1, 2]}})));
        assert!(!contains(&json!({"a": 1}), &json!({"a": 2})));
        assert!(!contains(&json!({"a": 1}), &json!({"b": 1})));
        assert!(!contains(&json!([1, 2]), &json!([1])));
    }

    #[test]
    fn printed_lines_come_in_order() {
        let lines = ["one 1".to_owned(), "two 2".to_owned()];
        let texts = |all: &[&str]| all.iter().map(|&it| it.to_owned()).collect::<Vec<_>>();
        assert!(printed_differences(&texts(&["one", "two"]), &lines).is_empty());
        assert_eq!(printed_differences(&texts(&["two", "one"]), &lines).len(), 1);
    }
}
