//! Tests with documents in which one bit is flipped.

use super::*;
use crate::model::authors::Wanted;
use crate::model::saved::{Change, SavedMap};
use crate::model::state::{AttachState, BridgeState, HookState, PortState, ProgramState, State};

/// A document with ports, a bridge, pins and programs, one of which has a map with a changed entry.
fn document(serial: u64) -> Document {
    let mut wanted = State::new();
    for number in 0..3 {
        let (name, key) = (format!("p{number}"), format!("/etc/fw {number}.o:main"));
        let kind = "sink".to_owned();
        wanted.ports.push(PortState { name: name.clone(), kind, up: true, ..PortState::default() });
        wanted.programs.push(ProgramState {
            key: key.clone(),
            object: "/etc/fw.o".to_owned(),
            sha256: "ab".repeat(32),
            generation: serial,
            ..ProgramState::default()
        });
        let attach =
            AttachState { port: name, program: key, prio: Some(7), ..AttachState::default() };
        wanted.attachments.push(attach);
    }
    wanted.bridges.push(BridgeState { name: "br".to_owned(), ageing: 30 });
    let mut file = State::new();
    file.ports.push(wanted.ports[0].clone());
    let owner = wanted.programs[0].key.clone();
    let change = |key: u64| Change { key: key.into(), value: Some(serial.into()), port: None };
    let map = SavedMap {
        id: 3,
        owners: vec![(owner.clone(), "blocked".to_owned())],
        pins: vec!["/sys/fs/bpf/blocked".to_owned()],
        contents: Some("cd".repeat(32)),
        changes: (0..3).map(change).collect(),
    };
    let program_pins = [("/sys/fs/bpf/fw".to_owned(), owner)].into();
    let link_pins = [("/sys/fs/bpf/link".to_owned(), wanted.attachments[1].identity())].into();
    let maps = vec![map];
    Document { serial, file, wanted, maps, program_pins, link_pins, ..Document::default() }
}

/// Number of parts of `one` that differ in `other`.
fn differences(one: &Document, other: &Document) -> usize {
    let parts = |document: &Document| {
        let mut parts = Vec::new();
        split("", &serde_json::to_value(document).expect("it is JSON"), &mut parts);
        parts
    };
    let others = parts(other);
    parts(one).iter().filter(|part| !others.contains(part)).count()
}

fn filters(document: &Document) -> Vec<(String, HookState, String)> {
    let all = document.wanted.attachments.iter();
    all.map(|it| (it.port.clone(), it.hook, it.program.clone())).collect()
}

/// Flips every `step`-th bit of a document in turn.
fn each_flip(text: &str, step: usize, mut look: impl FnMut(usize, &Parts)) {
    for bit in (0..text.len() * 8).step_by(step) {
        let mut bytes = text.as_bytes().to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        look(bit, &Parts::read(&bytes));
    }
}

#[test]
fn one_flipped_bit_costs_the_part_that_it_hits_at_most() {
    let whole = document(2);
    for (before, step) in [(Parts::read(text(&document(1)).as_bytes()), 1), (Parts::default(), 7)] {
        each_flip(&text(&whole), step, |bit, parts| {
            let (read, hurt) = parts.recover(&before).expect("most of it is there");
            assert!(hurt.len() <= 1, "bit {bit}: {hurt:?}");
            // Damage is always reported.
            assert!(parts.is_hurt() || bit / 8 + 1 == text(&whole).len(), "bit {bit}");
            assert!(differences(&whole, &read) <= hurt.len(), "bit {bit}: {read:?}");
            assert_eq!(read.serial, whole.serial, "bit {bit}: its journal is another one");
            // The filters of a port stay known in any case.
            assert_eq!(filters(&read), filters(&whole), "bit {bit}");
            for key in whole.wanted.programs.iter().map(|program| &program.key) {
                assert!(read.wanted.programs.iter().any(|it| it.key == *key), "bit {bit}: {key}");
            }
            assert!(read.wanted.problems().is_empty(), "bit {bit}: {:?}", read.wanted.problems());
        });
    }
}

#[test]
fn what_is_damaged_is_as_it_was_before_or_shuts_its_port() {
    let whole = text(&document(2));
    let before = Parts::read(text(&document(1)).as_bytes());
    let place = |list: &str, name: &str| Place { list: list.to_owned(), name: name.to_owned() };
    let hit = |what: &str| {
        // The line of the part itself; the index names the part before.
        let at = whole.match_indices(what).nth(1).expect("it is there").0;
        let mut bytes = whole.clone().into_bytes();
        bytes[at] ^= 1;
        Parts::read(&bytes)
    };
    let port = hit("\"name\":\"p1\"");
    let (read, hurt) = port.recover(&before).expect("it is there before");
    let same = Hurt { place: place("wanted/ports", "p1"), instead: Instead::Same };
    assert_eq!((read, hurt), (document(2), vec![same]));
    let program = hit("\"name\":\"/etc/fw 1.o:main\"");
    let (read, hurt) = program.recover(&before).expect("it is there before");
    assert_eq!(hurt[0].instead, Instead::Before);
    assert_eq!(read.wanted.programs[1].generation, 1, "a filter, the one before");
    let (read, hurt) = program.recover(&Parts::default()).expect("the rest is there");
    assert_eq!((hurt[0].instead, &*read.wanted.programs[1].sha256), (Instead::Name, UNREAD));
}

#[test]
fn half_a_document_is_half_a_document() {
    let whole = text(&document(2));
    let before = Parts::read(text(&document(1)).as_bytes());
    for len in 0..whole.len() {
        let parts = Parts::read(&whole.as_bytes()[..len]);
        let (read, _) = parts.recover(&before).expect("there is one before");
        assert_eq!(filters(&read), filters(&document(2)), "{len}");
        assert_eq!(read.serial, 2, "{len}");
        if parts.index.is_some() {
            let (read, _) = parts.recover(&Parts::default()).expect("it names all");
            assert_eq!(filters(&read), filters(&document(2)), "{len}");
        }
    }
}

/// Damage of a part that the file wants must not restore a version that no author wants.
#[test]
fn damage_never_brings_back_what_the_configuration_replaced() {
    let of = |mask: u64| {
        let mut document = document(mask);
        document.file = document.wanted.clone();
        for state in [&mut document.file, &mut document.wanted] {
            state.ports.iter_mut().for_each(|port| port.mtu = Some(1000 + mask as u32));
            state.attachments.iter_mut().for_each(|attach| attach.prio = Some(mask as u32));
            state.host = Some(towpath_host::tables::HostState::default());
            state.frames = Some(mask as usize);
        }
        document
    };
    let (old, new) = (of(1), of(2));
    let before = Parts::read(text(&old).as_bytes());
    let is_right = |bytes: &[u8], what: &str| {
        let (read, _) = Parts::read(bytes).recover(&before).expect("most of it is there");
        // The configuration is unchanged, changed, or as it was before.
        for now in [&new.file, &of(3).file, &old.file] {
            let saved = Wanted::restored(read.wanted.clone(), read.file.clone(), &read.authors);
            let (next, _) = saved.reloaded(now.clone());
            assert_eq!(**next.state(), *now, "{what}");
        }
    };
    let whole = text(&new);
    for bit in (0..whole.len() * 8).step_by(7) {
        let mut bytes = whole.clone().into_bytes();
        bytes[bit / 8] ^= 1 << (bit % 8);
        is_right(&bytes, &format!("bit {bit}"));
    }
    // Without an index, the list of parts is unknown.
    let index = "\"parts\":";
    let no_index = whole.replace(index, "\"parts_\":");
    is_right(no_index.as_bytes(), "no index");
    let one = whole.lines().position(|line| line.contains("\"list\":\"wanted/attachments\""));
    let lines =
        whole.lines().enumerate().filter(|(at, line)| Some(*at) != one || line.contains(index));
    let without: Vec<&str> = lines.map(|(_, line)| line).collect();
    let cut = without.join("\n").replace(index, "\"parts_\":");
    is_right(cut.as_bytes(), "no index, and a line is gone");
}
