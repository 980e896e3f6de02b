//! A linked program: the output of the object loader, for the verifier and the interpreter.

use std::sync::Arc;

use crate::btf::{Btf, Linkage, TypeId};
use crate::insn::Insn;

pub use crate::map::MapType;

/// One program with all references resolved; the next step is the verifier.
///
/// Instructions are the kernel's, with these references: a map load (`PSEUDO_MAP_FD`,
/// `PSEUDO_MAP_VALUE`) has an index into [`Linked::maps`] as immediate, a kfunc call an index into
/// [`Linked::kfuncs`], a call or function reference the distance to the callee in slots, a
/// `PSEUDO_BTF_ID` load a type id in [`Linked::kernel_btf`].
#[derive(Debug, Clone)]
pub struct Linked {
    /// Name of the C function.
    pub name: String,
    /// ELF section of the program, e.g. `xdp.frags`.
    pub section: String,
    /// Hook that it may be attached to.
    pub attach: AttachType,
    /// Whether it declares to handle frames of several buffers (`BPF_F_XDP_HAS_FRAGS`).
    pub has_frags: bool,
    /// Text of the licence section; empty if there is none.
    pub license: String,
    /// The entry function first, then every function it reaches.
    pub insns: Vec<Insn>,
    /// Functions, by start; the first is the entry.
    pub functions: Vec<Function>,
    /// Source positions, by instruction.
    pub lines: Vec<Line>,
    /// All maps of the object (shared by its programs).
    pub maps: Arc<[MapDef]>,
    /// Kfuncs the program calls.
    pub kfuncs: Vec<KfuncRef>,
    /// CO-RE relocations without an answer; the instruction of each must not be reached.
    pub unresolved: Vec<Unresolved>,
    /// Types of the object file.
    pub btf: Option<Arc<Btf>>,
    /// Types of the kernel that CO-RE relocations and typed pointers refer to.
    pub kernel_btf: Arc<Btf>,
}

/// A CO-RE relocation without an answer in the kernel's types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// Slot of the instruction, which was replaced by a call that is refused if it is reached.
    pub insn: u32,
    /// The relocation, with its type and member, e.g.
    /// `FieldByteOffset of struct net_device___old.gone (access 0:1)`.
    pub what: String,
}

impl Linked {
    /// A program of instructions without an object file, in section `xdp`: it takes frames of
    /// several buffers, has the GPL as licence and one function, without types or kfuncs of its
    /// own.
    pub fn of_insns(
        name: &str,
        insns: Vec<Insn>,
        maps: Vec<MapDef>,
        kernel_btf: &Arc<Btf>,
    ) -> Linked {
        Linked {
            name: name.to_owned(),
            section: "xdp".to_owned(),
            attach: AttachType::Xdp,
            has_frags: true,
            license: "GPL".to_owned(),
            insns,
            functions: Vec::new(),
            lines: Vec::new(),
            maps: maps.into(),
            unresolved: Vec::new(),
            kfuncs: Vec::new(),
            btf: None,
            kernel_btf: Arc::clone(kernel_btf),
        }
    }
}

/// Hook that a program may be attached to (`expected_attach_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttachType {
    /// A port's receive hook (`BPF_XDP`).
    Xdp,
    /// An entry of a devmap (`BPF_XDP_DEVMAP`): it may read `egress_ifindex`.
    Devmap,
    /// An entry of a cpumap (`BPF_XDP_CPUMAP`).
    Cpumap,
    /// A port's dequeue hook. Its programs have a type of their own: they get no frame, and take
    /// one out of a queue (`BPF_PROG_TYPE_DEQUEUE` of the proposal that `docs/queueing.md` names).
    Dequeue,
    /// No hook. Its programs have a type of their own (`BPF_PROG_TYPE_SYSCALL`): they get no frame,
    /// run when a user calls them, on the user's bytes, and may sleep.
    Syscall,
}

/// A function inside a linked program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// First instruction slot.
    pub start: u32,
    /// Name; empty if the object carries none.
    pub name: String,
    /// `Global` functions are verified once, on their own.
    pub linkage: Linkage,
    /// The `Func` type in [`Linked::btf`].
    pub type_id: Option<TypeId>,
}

/// Place of an instruction in the C source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// First instruction slot this line covers (up to the next `Line`).
    pub insn: u32,
    /// Name of the file as the compiler wrote it.
    pub file: Arc<str>,
    /// The text of the line, without indentation.
    pub text: Arc<str>,
    /// 1-based line number.
    pub line: u32,
    /// 1-based column.
    pub column: u32,
}

/// A kfunc that a program calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KfuncRef {
    /// Name of the kfunc, e.g. `bpf_xdp_pull_data`.
    pub name: String,
    /// Its `Func` type in the object's BTF.
    pub type_id: Option<TypeId>,
    /// Whether it is declared weak: if it is unknown, calls are refused only where they can be
    /// reached.
    pub weak: bool,
}

/// Definition of one map in an object file.
#[derive(Debug, Clone)]
pub struct MapDef {
    /// Name in the object file.
    pub name: String,
    /// Kind.
    pub kind: MapType,
    /// Size of a key, in bytes.
    pub key_size: u32,
    /// Size of a value, in bytes.
    pub value_size: u32,
    /// Capacity; for ring buffers, bytes.
    pub max_entries: u32,
    /// `BPF_F_*` creation flags.
    pub flags: u32,
    /// Additional parameter of some kinds (bloom filter hashes, arena address).
    pub map_extra: u64,
    /// Whether objects share the map by name (`LIBBPF_PIN_BY_NAME`).
    pub pin_by_name: bool,
    /// Type of the key in `btf`; 0 if unknown.
    pub key_type: TypeId,
    /// Type of the value in `btf`; 0 if unknown.
    pub value_type: TypeId,
    /// Types that `key_type` and `value_type` refer to.
    pub btf: Option<Arc<Btf>>,
    /// Template of the inner maps of a map of maps.
    pub inner: Option<Box<MapDef>>,
    /// Slots filled by the object file (`.values`).
    pub slots: Vec<(u32, SlotInit)>,
    /// Contents of a data section (`.data`, `.rodata`, `.bss`): the value of key 0. For an arena,
    /// its first bytes.
    pub initial: Option<Vec<u8>>,
    /// Kind of data section that this map holds, if any.
    pub section: Option<DataSection>,
}

impl MapDef {
    /// Whether both have the same kind, sizes of keys and values, and flags.
    pub fn is_like(&self, other: &MapDef) -> bool {
        let shape = |def: &MapDef| (def.kind, def.key_size, def.value_size, def.flags);
        shape(self) == shape(other)
    }

    /// A map of this kind and these sizes, with no flags, types, slots or contents.
    pub fn new(
        name: impl Into<String>,
        kind: MapType,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
    ) -> MapDef {
        MapDef {
            name: name.into(),
            kind,
            key_size,
            value_size,
            max_entries,
            flags: 0,
            map_extra: 0,
            pin_by_name: false,
            key_type: 0,
            value_type: 0,
            btf: None,
            inner: None,
            slots: Vec::new(),
            initial: None,
            section: None,
        }
    }

    /// Whether the contents are fixed before a program runs.
    pub fn is_constant(&self) -> bool {
        self.kind.is_array() && self.section.is_some_and(DataSection::is_constant)
    }
}

/// Initial content of a slot of a map of maps or program array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SlotInit {
    /// Index into the object's maps.
    Map(usize),
    /// Name of a program in the same object.
    Program(String),
}

/// The kinds of data section that become maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataSection {
    /// `.data*`.
    Data,
    /// `.rodata*`: frozen and read-only for programs.
    Rodata,
    /// `.bss*`.
    Bss,
    /// `.kconfig`: frozen and read-only for programs.
    Kconfig,
}

impl DataSection {
    /// Whether programs and users can't write to it, so that the verifier may rely on its contents.
    pub fn is_constant(self) -> bool {
        matches!(self, DataSection::Rodata | DataSection::Kconfig)
    }

    /// Name of the section, without a suffix.
    pub fn name(self) -> &'static str {
        match self {
            DataSection::Data => ".data",
            DataSection::Rodata => ".rodata",
            DataSection::Bss => ".bss",
            DataSection::Kconfig => ".kconfig",
        }
    }
}

impl Linked {
    /// Whether the licence allows GPL-only helpers (`license_is_gpl_compatible`).
    pub fn is_gpl_compatible(&self) -> bool {
        matches!(
            self.license.as_str(),
            "GPL"
                | "GPL v2"
                | "GPL and additional rights"
                | "Dual BSD/GPL"
                | "Dual MIT/GPL"
                | "Dual MPL/GPL"
        )
    }

    /// The source line of an instruction, if the object carries line information.
    pub fn line_of(&self, insn: usize) -> Option<&Line> {
        let after = self.lines.partition_point(|line| line.insn as usize <= insn);
        self.lines.get(after.checked_sub(1)?)
    }

    /// As [`Linked::line_of`]; if the compiler merged code of several lines, and so has none (line
    /// 0), the line before.
    pub fn nearest_line_of(&self, insn: usize) -> Option<&Line> {
        let after = self.lines.partition_point(|line| line.insn as usize <= insn);
        self.lines[..after].iter().rev().find(|line| line.line != 0)
    }
}
