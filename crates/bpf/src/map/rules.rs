//! Rules of `BPF_MAP_CREATE` for definitions, as data: each kind lists its rules in the kernel's
//! order, so that a definition that is wrong in two ways gets the kernel's answer.

use crate::errno::Errno;
use crate::map::flags::{
    BPF_F_RDONLY, BPF_F_RDONLY_PROG, BPF_F_STACK_BUILD_ID, BPF_F_WRONLY, BPF_F_WRONLY_PROG,
};
use crate::map::{KindSpec, MapType};
use crate::program::MapDef;

/// A broken rule: the kernel's error number, and the rule in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// Error number of `BPF_MAP_CREATE`.
    pub errno: Errno,
    /// The rule in words.
    pub rule: &'static str,
}

impl Broken {
    /// Whether only the size is missing, which an object's loader may supply.
    pub fn is_unsized(self) -> bool {
        self.rule == NO_SIZE
    }
}

/// A rule for definitions of a kind. The text, if there is one, is the message when it is broken.
#[derive(Debug)]
pub enum Rule {
    /// `map_flags` has no other flag than these.
    Flags(u32),
    /// `map_flags` has this flag.
    With(u32, &'static str),
    /// `map_flags` has none of these.
    Without(u32, Errno, &'static str),
    /// `max_entries` is not 0.
    Entries,
    /// `max_entries` is 0.
    NoEntries,
    /// `max_entries` is at most this.
    EntriesMax(u32, &'static str),
    /// `key_size` is one of these.
    Key(Sizes, &'static str),
    /// `key_size` is at most this.
    KeyMax(u32, &'static str),
    /// `value_size` is one of these.
    Value(Sizes, &'static str),
    /// `value_size` is at most this.
    ValueMax(u32, &'static str),
    /// Key and value together are smaller than this.
    ElementBelow(u64, &'static str),
    /// A value fits the per-CPU allocator's limit.
    PercpuValue,
    /// Key and value have types.
    Types,
    /// The inner maps are described, and their kind may be an inner map.
    Inner,
    /// `max_entries` is the size of a ring in bytes.
    RingBytes,
    /// `value_size` is a multiple of a stack frame's size, within limits.
    StackFrames,
    /// `map_extra` is a number of hashes.
    Hashes,
    /// `map_extra` is a number of ranks.
    Ranks,
    /// `max_entries` and `map_extra` are the pages and the address of an arena.
    ArenaPages,
    /// No map of this kind can be made outside of a kernel.
    Nowhere(&'static str),
}

/// Allowed sizes.
#[derive(Debug)]
pub enum Sizes {
    /// One of these.
    In(&'static [u32]),
    /// From the first to the second, inclusive.
    Range(u32, u32),
}

impl MapDef {
    /// Checks the definition as `BPF_MAP_CREATE` does.
    ///
    /// # Errors
    ///
    /// Fails with the first rule that is broken.
    pub fn check(&self) -> Result<(), Broken> {
        let spec = self.kind.spec();
        check_common(self, spec)?;
        spec.create.iter().try_for_each(|rule| rule.check(self))
    }

    /// Whether each of two maps may replace the other in a map of maps (`bpf_map_meta_equal`).
    pub fn has_shape_of(&self, template: &MapDef) -> bool {
        template.kind == self.kind
            && template.key_size == self.key_size
            && template.value_size == self.value_size
            && template.flags == self.flags
            && (!template.kind.is_array()
                || template.flags & super::flags::BPF_F_INNER_MAP != 0
                || template.max_entries == self.max_entries)
    }
}

fn check_common(def: &MapDef, spec: &KindSpec) -> Result<(), Broken> {
    invalid(def.map_extra != 0 && !spec.extra, "map_extra must be 0")?;
    let both = BPF_F_RDONLY | BPF_F_WRONLY;
    invalid(def.flags & both == both, "BPF_F_RDONLY and BPF_F_WRONLY exclude each other")?;
    let both = BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG;
    invalid(def.flags & both == both, "BPF_F_RDONLY_PROG and BPF_F_WRONLY_PROG exclude each other")
}

impl Rule {
    fn check(&self, def: &MapDef) -> Result<(), Broken> {
        let element = u64::from(def.key_size) + u64::from(def.value_size);
        let is_typed = def.key_type != 0 && def.value_type != 0;
        match *self {
            Rule::Flags(known) => invalid(def.flags & !known != 0, UNKNOWN_FLAG),
            Rule::With(flag, text) => invalid(def.flags & flag == 0, text),
            Rule::Without(flags, errno, text) if def.flags & flags != 0 => broken(errno, text),
            Rule::Without(..) => Ok(()),
            Rule::Entries => invalid(def.max_entries == 0, NO_SIZE),
            Rule::NoEntries => invalid(def.max_entries != 0, "max_entries must be 0"),
            Rule::EntriesMax(most, text) => too_big(def.max_entries > most, text),
            Rule::Key(ref sizes, text) => invalid(!sizes.have(def.key_size), text),
            Rule::KeyMax(most, text) => too_big(def.key_size > most, text),
            Rule::Value(ref sizes, text) => invalid(!sizes.have(def.value_size), text),
            Rule::ValueMax(most, text) => too_big(def.value_size > most, text),
            Rule::ElementBelow(limit, text) => too_big(element >= limit, text),
            Rule::PercpuValue => too_big(exceeds_percpu(def), "a per-CPU value exceeds 32 KiB"),
            Rule::Types => invalid(!is_typed, "key and value need BTF types"),
            Rule::Inner => inner(def),
            Rule::RingBytes => ring_bytes(def.max_entries),
            Rule::StackFrames => stack_frames(def),
            Rule::Hashes => {
                invalid(def.map_extra > 15, "map_extra is the number of hashes, at most 15")
            }
            Rule::Ranks => ranks(def),
            Rule::ArenaPages => arena_pages(def),
            Rule::Nowhere(text) => broken(Errno::ENOTSUPP, text),
        }
    }
}

impl Sizes {
    fn have(&self, size: u32) -> bool {
        match *self {
            Sizes::In(sizes) => sizes.contains(&size),
            Sizes::Range(least, most) => (least..=most).contains(&size),
        }
    }
}

fn exceeds_percpu(def: &MapDef) -> bool {
    def.value_size.checked_next_multiple_of(8).is_none_or(|size| size > PCPU_MIN_UNIT_SIZE)
}

/// Checks the template of inner maps (`bpf_map_meta_alloc`).
fn inner(def: &MapDef) -> Result<(), Broken> {
    match &def.inner {
        None => broken(Errno::EBADF, "the inner map is not described"),
        Some(inner) => inner.kind.spec().as_inner.map_err(|(errno, rule)| Broken { errno, rule }),
    }
}

fn ring_bytes(bytes: u32) -> Result<(), Broken> {
    invalid(
        !bytes.is_power_of_two() || !u64::from(bytes).is_multiple_of(PAGE_BYTES),
        "max_entries is the size in bytes: a power of two and a multiple of the page size",
    )
}

/// Checks `value_size` of a stack trace map (`stack_map_alloc`).
fn stack_frames(def: &MapDef) -> Result<(), Broken> {
    let frame = if def.flags & BPF_F_STACK_BUILD_ID != 0 { 32 } else { 8 };
    let frames = def.value_size / frame;
    invalid(
        frames == 0 || !def.value_size.is_multiple_of(frame) || frames > STACK_FRAMES_MAX,
        "value_size must be 1 to 127 stack frames",
    )
}

/// Checks the sizes of a ranked queue: `pifo_map_init_queue` of the proposal, and a limit of
/// Towpath's own, as each rank takes memory.
fn ranks(def: &MapDef) -> Result<(), Broken> {
    let is_range = u32::try_from(def.map_extra).is_ok_and(u32::is_power_of_two);
    invalid(!is_range, "map_extra is the number of ranks in the window: a power of two")?;
    too_big(def.map_extra > RANKS_MAX, "a window has at most 1048576 ranks")?;
    too_big(def.max_entries > RANKED_MAX, "max_entries exceeds 16777216")
}

/// Checks the sizes of an arena (`arena_map_alloc`).
fn arena_pages(def: &MapDef) -> Result<(), Broken> {
    let extra = def.map_extra;
    invalid(!extra.is_multiple_of(PAGE_BYTES), "map_extra must be the address of a page")?;
    let bytes = u64::from(def.max_entries) * PAGE_BYTES;
    too_big(bytes > 1 << 32, "an arena has at most 4 GiB")?;
    let last = extra.wrapping_add(bytes - 1);
    if extra != 0 && extra >> 32 != last >> 32 {
        return broken(Errno::ERANGE, "the arena may not cross a 4 GiB boundary");
    }
    Ok(())
}

fn broken(errno: Errno, rule: &'static str) -> Result<(), Broken> {
    Err(Broken { errno, rule })
}

fn invalid(is_broken: bool, rule: &'static str) -> Result<(), Broken> {
    if is_broken { broken(Errno::EINVAL, rule) } else { Ok(()) }
}

fn too_big(is_broken: bool, rule: &'static str) -> Result<(), Broken> {
    if is_broken { broken(Errno::E2BIG, rule) } else { Ok(()) }
}

impl MapType {
    /// Number of elements: a perf event array whose object gives no size has a slot for each CPU,
    /// as in libbpf.
    pub fn entries_of(self, max_entries: u32, cpus: usize) -> u32 {
        let for_cpus = self.values() == super::Values::Events && max_entries == 0;
        if for_cpus { cpus as u32 } else { max_entries }
    }
}

/// The rule that objects often break, because they leave the size of a map to their loader.
const NO_SIZE: &str = "max_entries must not be 0";
const UNKNOWN_FLAG: &str = "map_flags has a flag that this kind doesn't know";
/// Unit of the sizes of rings and arenas, in bytes.
const PAGE_BYTES: u64 = 4096;
/// Most bytes of one per-CPU value (`PCPU_MIN_UNIT_SIZE`).
const PCPU_MIN_UNIT_SIZE: u32 = 32 << 10;
/// Most ranks in the window of a ranked queue.
const RANKS_MAX: u64 = 1 << 20;
/// Most elements of a ranked queue.
const RANKED_MAX: u32 = 1 << 24;
/// Most stack frames a stack trace holds (`sysctl_perf_event_max_stack`).
const STACK_FRAMES_MAX: u32 = 127;
