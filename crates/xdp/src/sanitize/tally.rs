//! Findings about many runs together: notes, which may be intended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_bpf::Linked;
use towpath_bpf::insn::{BPF_ALU, BPF_ALU64, BPF_LD, BPF_MOV, BPF_ST, BPF_STX};
use towpath_bpf::insn::{BPF_CALL, BPF_EXIT, BPF_JA, BPF_JMP, BPF_JMP32, BPF_LDX, Insn};
use towpath_bpf::proto::id;

use super::Sanitizer;
use super::finding::{Finding, Kind};
use super::habits::{Habits, LookUps, Updates};
use super::shadow::Place;

/// Behaviour of an object's programs over many runs on many workers, for findings that one run
/// can't show.
#[derive(Debug, Default)]
pub struct Tally {
    look_ups: BTreeMap<Site, LookUps>,
    updates: BTreeMap<Site, Updates>,
    counters: BTreeMap<Site, Count>,
    /// Ways to drop a packet: whether something counts them.
    ways: BTreeMap<(Site, u8), bool>,
    /// Maps from which elements are deleted, and whether some deletion is from an unknown map.
    deleted: BTreeSet<String>,
    deletes_anywhere: bool,
    /// Programs whose instructions were examined.
    looked_at: BTreeSet<String>,
}

/// An instruction; the same each time that the object is loaded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    program: String,
    insn: usize,
    line: Option<(Arc<str>, u32)>,
    text: Arc<str>,
    /// Whether the program looks at the result of the call there.
    looks: bool,
}

#[derive(Debug)]
struct Count {
    what: String,
    bits: u32,
    /// Whether there is a counter that no program reads, and one that a program reads.
    plain: bool,
    used: bool,
}

impl Tally {
    /// Adds the observations of a sanitizer since the last call.
    pub fn add(&mut self, sanitizer: &mut Sanitizer) {
        let Habits { look_ups, updates, deleted, counters, used, ways, .. } =
            std::mem::take(&mut sanitizer.habits);
        let programs = &sanitizer.programs;
        programs.iter().for_each(|linked| self.look_at(linked));
        self.deleted.extend(deleted);
        for (site, seen) in sites(programs, look_ups) {
            let Some(known) = self.look_ups.get_mut(&site) else {
                self.look_ups.insert(site, seen);
                continue;
            };
            known.found |= seen.found;
            known.varies |= seen.varies || known.key != seen.key;
            known.missed = known.missed.saturating_add(seen.missed);
            known.adds |= seen.adds;
            known.swapped = known.swapped.take().or(seen.swapped);
        }
        for (site, seen) in sites(programs, updates) {
            let known = self.updates.entry(site).or_insert_with(|| seen.clone());
            known.keys.extend(seen.keys);
            known.keys.sort_unstable();
            known.keys.dedup();
            known.keys.truncate(2);
        }
        for (addr, counter) in counters {
            let Some(site) = site(programs, counter.place) else { continue };
            let what = match counter.member.is_empty() {
                true => format!("a counter of map {}", counter.map),
                false => format!("`{}` of map {}", counter.member, counter.map),
            };
            let count = Count { what, bits: counter.bits, plain: false, used: false };
            let known = self.counters.entry(site).or_insert(count);
            let is_used = used.contains(&addr);
            (known.plain, known.used) = (known.plain || !is_used, known.used || is_used);
        }
        for (([last, before], action), counts) in ways {
            let has_line = |place: &Place| has_line(programs, *place);
            let place = [last, before].into_iter().find(has_line).unwrap_or(last);
            if let Some(site) = site(programs, place) {
                *self.ways.entry((site, action)).or_default() |= counts;
            }
        }
    }

    /// Notes the maps from which a program deletes elements, even if it never runs.
    pub fn look_at(&mut self, linked: &Linked) {
        if !self.looked_at.insert(linked.name.clone()) {
            return;
        }
        for (at, insn) in linked.insns.iter().enumerate() {
            if insn.is_helper_call() && insn.imm.cast_unsigned() == id::MAP_DELETE_ELEM {
                match map_argument(linked, at) {
                    Some(name) => drop(self.deleted.insert(name)),
                    None => self.deletes_anywhere = true,
                }
            }
        }
    }

    /// Whether a program was examined.
    pub fn has_seen(&self, program: &str) -> bool {
        self.looked_at.contains(program)
    }

    /// The findings, by program and line.
    pub fn findings(&self) -> Vec<Finding> {
        let mut all: Vec<Finding> = self.never_found().collect();
        all.extend(self.never_deleted());
        all.extend(self.wraps());
        all.extend(self.uncounted());
        all.sort_by(|a, b| (&a.program, a.insn).cmp(&(&b.program, b.insn)));
        all
    }

    fn never_found(&self) -> impl Iterator<Item = Finding> {
        let is_told = |seen: &LookUps| seen.swapped.is_some() || seen.missed > 1 && !seen.varies;
        let never = move |seen: &&LookUps| is_told(seen) && !seen.found && !seen.adds;
        self.look_ups.iter().filter(move |(_, seen)| never(seen)).map(|(site, seen)| {
            let map = &seen.map;
            let (more, advice) = match &seen.swapped {
                Some(number) => (
                    format!("; with {number} in the other byte order it would"),
                    "numbers in packets have network byte order: convert one side with bpf_htons, \
                     bpf_ntohs, bpf_htonl or bpf_ntohl",
                ),
                None => (
                    String::new(),
                    "print the key, and compare it with the map's keys (expect.maps): sizes, byte \
                     order and order of members; or add a case whose key exists",
                ),
            };
            let message =
                format!("no look-up at this call finds an element of map {map}, which has some");
            site.finding(Kind::NeverFound, message + &more, advice)
        })
    }

    fn never_deleted(&self) -> impl Iterator<Item = Finding> {
        let grows = |(site, seen): &(&Site, &Updates)| {
            let is_deleted = self.deletes_anywhere || self.deleted.contains(&seen.map);
            seen.keys.len() > 1 && !site.looks && !is_deleted
        };
        self.updates.iter().filter(grows).map(|(site, seen)| {
            let Updates { map, max_entries, .. } = seen;
            let message = format!(
                "elements are added to map {map}, no program deletes any, and the result of the \
                 update is ignored: beyond {max_entries} they are lost"
            );
            let advice = "use BPF_MAP_TYPE_LRU_HASH, or delete elements when a flow ends, with \
                          bpf_map_delete_elem or a timer; if user space deletes them, check the \
                          result of bpf_map_update_elem";
            site.finding(Kind::NeverDeleted, message, advice)
        })
    }

    fn wraps(&self) -> impl Iterator<Item = Finding> {
        let wraps = |count: &&Count| count.plain && !count.used;
        self.counters.iter().filter(move |(_, count)| wraps(count)).map(|(site, count)| {
            let Count { what, bits, .. } = count;
            let last = (1u64 << bits) - 1;
            let message = format!("{what} has {bits} bits: it wraps to 0 after {last}");
            let advice = "use __u64; at 10 Gbit/s, 32 bits count packets for 5 minutes, and bytes \
                          for 4 seconds";
            site.finding(Kind::WrappingCounter, message, advice)
        })
    }

    fn uncounted(&self) -> impl Iterator<Item = Finding> {
        let counting: BTreeSet<&str> =
            self.ways.iter().filter(|it| *it.1).map(|((site, _), _)| &*site.program).collect();
        let is_odd = move |site: &Site, counts: bool| !counts && counting.contains(&*site.program);
        let odd = self.ways.iter().filter(move |((site, _), counts)| is_odd(site, **counts));
        odd.map(|((site, action), _)| {
            let action = if *action == 0 { "XDP_ABORTED" } else { "XDP_DROP" };
            let message = format!(
                "packets on this path are dropped ({action}) without being counted; the program \
                 counts its other drops"
            );
            site.finding(Kind::Uncounted, message, "count these drops, too, by reason")
        })
    }
}

impl Site {
    fn finding(&self, kind: Kind, message: String, advice: &str) -> Finding {
        Finding {
            kind,
            program: self.program.clone(),
            insn: self.insn,
            line: self.line.clone(),
            text: Arc::clone(&self.text),
            message,
            related: Vec::new(),
            advice: advice.to_owned(),
        }
    }
}

fn sites<T>(
    programs: &[Arc<Linked>],
    seen: impl IntoIterator<Item = (Place, T)>,
) -> impl Iterator<Item = (Site, T)> {
    seen.into_iter().filter_map(|(place, seen)| Some((site(programs, place)?, seen)))
}

fn site(programs: &[Arc<Linked>], place: Place) -> Option<Site> {
    let (program, insn) = place.get()?;
    let linked = programs.get(program)?;
    let line = linked.nearest_line_of(insn);
    Some(Site {
        program: linked.name.clone(),
        insn,
        line: line.map(|line| (Arc::clone(&line.file), line.line)),
        text: line.map_or_else(|| Arc::from(""), |line| Arc::clone(&line.text)),
        looks: is_looked_at(&linked.insns, insn + 1),
    })
}

/// Whether the object's line information covers an instruction: not where the compiler merged
/// several lines, and the code before in the program leads elsewhere.
fn has_line(programs: &[Arc<Linked>], place: Place) -> bool {
    let Some((program, insn)) = place.get() else { return false };
    let Some(linked) = programs.get(program) else { return false };
    let Some(line) = linked.nearest_line_of(insn) else { return false };
    let between = linked.insns.get(line.insn as usize..insn).unwrap_or_default();
    between.iter().all(|insn| !matches!((insn.class(), insn.op()), (BPF_JMP, BPF_JA | BPF_EXIT)))
}

/// The map that a call takes, if its register was loaded with it just before.
fn map_argument(linked: &Linked, call: usize) -> Option<String> {
    let before = linked.insns[..call].iter().rev().take(ARGUMENT_INSNS);
    for insn in before {
        if insn.is_map_ref() && insn.dst == 1 {
            let map = linked.maps.get(usize::try_from(insn.imm).ok()?)?;
            return Some(map.name.clone());
        }
        if matches!(insn.class(), BPF_JMP | BPF_JMP32) || insn.dst == 1 && insn.code != 0 {
            return None;
        }
    }
    None
}

/// Whether r0 may be read from this slot on, before something else is put into it.
fn is_looked_at(insns: &[Insn], start: usize) -> bool {
    let (mut open, mut seen) = (vec![start], BTreeSet::new());
    while let Some(at) = open.pop() {
        let Some(&insn) = insns.get(at).filter(|_| seen.insert(at)) else { continue };
        if reads_r0(insn) {
            return true;
        }
        if seen.len() > LOOKED_AT_INSNS {
            return true;
        }
        let next = at + 1 + usize::from(insn.is_ld_imm64());
        let target = (at as i64 + 1 + i64::from(insn.off)) as usize;
        match (insn.class(), insn.op()) {
            // A program that looks the element up sees whether it exists.
            (BPF_JMP, BPF_CALL) if insn.imm.cast_unsigned() == id::MAP_LOOKUP_ELEM => return true,
            (BPF_JMP | BPF_JMP32, BPF_CALL) => {}
            (BPF_JMP, BPF_JA) => open.push(target),
            (BPF_JMP32, BPF_JA) => open.push((at as i64 + 1 + i64::from(insn.imm)) as usize),
            (BPF_JMP | BPF_JMP32, _) => open.extend([next, target]),
            (BPF_ST | BPF_STX, _) => open.push(next),
            _ if insn.dst == 0 => {}
            _ => open.push(next),
        }
    }
    false
}

fn reads_r0(insn: Insn) -> bool {
    match (insn.class(), insn.op()) {
        (BPF_LD, _) | (BPF_JMP | BPF_JMP32, BPF_CALL | BPF_JA) => false,
        (BPF_JMP, BPF_EXIT) => true,
        (BPF_LDX, _) => insn.src == 0,
        (BPF_ALU | BPF_ALU64, BPF_MOV) => insn.is_reg_operand() && insn.src == 0,
        (BPF_ST, _) => insn.dst == 0,
        (BPF_STX, _) => insn.dst == 0 || insn.src == 0,
        _ => insn.dst == 0 || insn.is_reg_operand() && insn.src == 0,
    }
}

const ARGUMENT_INSNS: usize = 12;
const LOOKED_AT_INSNS: usize = 200;
