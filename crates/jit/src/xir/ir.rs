//! The elements of XIR: values, instructions, and terminators of blocks.

use towpath_bpf::insn::STACK_BYTES;

use super::runtime::RuntimeFunction;

/// An SSA value, defined once: by an instruction or as a block parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A basic block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block(pub u32);

/// An instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inst(pub u32);

/// Width of a value. Pointers are `I64`; comparisons give an `I32` of 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Type {
    /// 32 bits.
    I32,
    /// 64 bits.
    I64,
}

impl Type {
    /// Number of bits of a value of this type.
    pub const fn bits(self) -> u32 {
        match self {
            Type::I32 => 32,
            Type::I64 => 64,
        }
    }

    /// Mask of the bits in a value of this type.
    pub const fn mask(self) -> u64 {
        match self {
            Type::I32 => u32::MAX as u64,
            Type::I64 => u64::MAX,
        }
    }
}

/// Width of a memory access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Width {
    /// 1 byte.
    W8,
    /// 2 bytes.
    W16,
    /// 4 bytes.
    W32,
    /// 8 bytes.
    W64,
}

impl Width {
    /// Number of accessed bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Width::W8 => 1,
            Width::W16 => 2,
            Width::W32 => 4,
            Width::W64 => 8,
        }
    }

    /// The width of `bytes` bytes, if there is one.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            1 => Some(Width::W8),
            2 => Some(Width::W16),
            4 => Some(Width::W32),
            8 => Some(Width::W64),
            _ => None,
        }
    }

    /// The type that a load of this width gives: narrow loads are zero-extended to 32 bits.
    pub const fn value_type(self) -> Type {
        match self {
            Width::W64 => Type::I64,
            _ => Type::I32,
        }
    }
}

/// Memory that an access may touch. Accesses of different classes never overlap (except for
/// `Other`); two of one class may, unless base and offset exclude it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Alias {
    /// The frame's linear bytes and its metadata.
    Packet,
    /// The context and the worker's own area.
    Ctx,
    /// The BPF stack, as far as it stays in memory.
    Stack,
    /// Values of one map (index into the program's maps).
    Map(u32),
    /// The bookkeeping of one map: buckets, elements' headers, slots.
    MapMeta(u32),
    /// Any other memory: ring-buffer records, dynptr slices, allocated and kernel-typed objects.
    /// May overlap with every class but `Ctx` and `MapMeta`.
    Other,
}

/// Two-operand arithmetic, with BPF's results in corner cases: division by zero gives 0, remainder
/// by zero the dividend, `MIN / -1` wraps, shift counts are taken modulo the width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the operations")]
pub enum BinaryOp {
    Add,
    Sub,
    Mul,
    UDiv,
    SDiv,
    URem,
    SRem,
    And,
    Or,
    Xor,
    Shl,
    LShr,
    AShr,
    /// Rotates to the left; the count is taken modulo the width, as for shifts.
    Rotl,
}

impl BinaryOp {
    /// Whether operands may be swapped.
    pub const fn is_commutative(self) -> bool {
        use BinaryOp::{Add, And, Mul, Or, Xor};
        matches!(self, Add | Mul | And | Or | Xor)
    }
}

/// One-operand arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UnaryOp {
    /// Reverse the low 2 bytes, clear the rest.
    Bswap16,
    /// Reverse the low 4 bytes, clear the rest.
    Bswap32,
    /// Reverse all 8 bytes.
    Bswap64,
    /// Sign-extend the low 8 bits to the operand's width.
    Sext8,
    /// Sign-extend the low 16 bits to the operand's width.
    Sext16,
    /// `I32` to `I64`, sign-extended.
    Sext,
    /// `I32` to `I64`, zero-extended.
    Zext,
    /// `I64` to `I32`.
    Trunc,
}

/// Comparisons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the comparisons")]
pub enum Cond {
    Eq,
    Ne,
    Ult,
    Ule,
    Ugt,
    Uge,
    Slt,
    Sle,
    Sgt,
    Sge,
}

impl Cond {
    /// The comparison that holds exactly if `self` does not.
    pub const fn negated(self) -> Self {
        use Cond::{Eq, Ne, Sge, Sgt, Sle, Slt, Uge, Ugt, Ule, Ult};
        match self {
            Eq => Ne,
            Ne => Eq,
            Ult => Uge,
            Ule => Ugt,
            Ugt => Ule,
            Uge => Ult,
            Slt => Sge,
            Sle => Sgt,
            Sgt => Sle,
            Sge => Slt,
        }
    }
}

/// Read-modify-write operations on memory, which give the old value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the operations")]
pub enum AtomicOp {
    Add,
    And,
    Or,
    Xor,
    Exchange,
    /// An exchange for 0 without ordering of other accesses: if the old value is 0, nothing needs
    /// to be ordered.
    Take,
}

/// A place in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// Address, `I64`.
    pub base: Value,
    /// Offset that is added to it, in bytes.
    pub offset: i32,
    /// Width of the access.
    pub width: Width,
    /// Class of memory that it may overlap.
    pub alias: Alias,
}

/// A range of bytes of the BPF stack, by offset from the frame pointer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackRange {
    /// Offset of the first byte, `-512..0`.
    pub offset: i16,
    /// Number of bytes; the range ends at or below 0.
    pub len: u16,
}

impl StackRange {
    /// Whether both ranges share a byte.
    pub fn overlaps(self, other: StackRange) -> bool {
        let end = |r: StackRange| i32::from(r.offset) + i32::from(r.len);
        i32::from(self.offset) < end(other) && i32::from(other.offset) < end(self)
    }

    /// Whether the range lies inside the stack.
    pub fn is_valid(self) -> bool {
        let (start, len) = (i32::from(self.offset), i32::from(self.len));
        start >= -(STACK_BYTES as i32) && start < 0 && start + len <= 0
    }
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Arg {
    /// A value in a register.
    Value(Value),
    /// Address of stack bytes that the callee reads; it keeps no pointer to them.
    StackRead(StackRange),
    /// Address of stack bytes that the callee may read and write.
    StackReadWrite(StackRange),
}

/// Fields of the context that a program may load (`struct xdp_md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are struct xdp_md's")]
pub enum CtxField {
    Data,
    DataEnd,
    DataMeta,
    IngressIfindex,
    RxQueueIndex,
    EgressIfindex,
    /// Number of bytes behind the linear part: no field of the structure, but it changes with the
    /// fields.
    FragsLen,
}

impl CtxField {
    /// The field at a byte offset in `struct xdp_md`.
    pub const fn from_offset(offset: u32) -> Option<Self> {
        Some(match offset {
            0 => CtxField::Data,
            4 => CtxField::DataEnd,
            8 => CtxField::DataMeta,
            12 => CtxField::IngressIfindex,
            16 => CtxField::RxQueueIndex,
            20 => CtxField::EgressIfindex,
            _ => return None,
        })
    }

    /// Type of the field: pointers have 64 bits, numbers 32.
    pub const fn value_type(self) -> Type {
        match self {
            CtxField::Data | CtxField::DataEnd | CtxField::DataMeta => Type::I64,
            _ => Type::I32,
        }
    }
}

/// Right that a run-time check requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Atomic change, aligned.
    Atomic,
    /// Time: the check is for a used-up budget.
    Time,
}

/// Parts of a map that code refers to. Their addresses differ between processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MapMeta {
    /// `towpath_maps::HashView` of a hash table.
    HashView,
    /// The handles in an array of maps.
    Handles,
    /// The entries of a map of redirect targets.
    Targets,
    /// The addresses of programs in a program array (`towpath_maps::ProgramSlots`).
    Programs,
    /// The memory of an arena, with the words around it (`towpath_maps::ArenaLayout`).
    ArenaMemory,
    /// The bytes that tell which pages of an arena exist.
    ArenaPages,
    /// The upper half of the addresses that user space has for an arena's bytes.
    ArenaUser,
    /// The keys of a small array in memory, one after the other.
    Keys,
}

/// Operation of an instruction. Operands are in the order in which the text form prints them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    /// A constant, of the instruction's type.
    Const(u64),
    /// `op a`.
    Unary(UnaryOp, Value),
    /// `op a, b`, both of the result's type.
    Binary(BinaryOp, Value, Value),
    /// 1 if the comparison holds, else 0.
    Compare(Cond, Value, Value),
    /// The second operand if the first is not 0, else the third.
    Select(Value, Value, Value),
    /// A field of the context.
    CtxLoad(CtxField),
    /// Loads, zero-extended. With `probe`, a bad address gives 0 (`BPF_PROBE_MEM`).
    Load {
        /// Place to load from.
        place: Place,
        /// Whether the address is not proved valid.
        probe: bool,
    },
    /// Stores the low bytes of a value.
    Store {
        /// Place to store to.
        place: Place,
        /// Value to store.
        value: Value,
    },
    /// Loads stack bytes at a constant offset.
    StackLoad(StackRange),
    /// Stores the low bytes of a value at a constant offset.
    StackStore(StackRange, Value),
    /// Address of the byte at this offset from the frame pointer: the stack around it stays in
    /// memory.
    StackAddr(i16),
    /// Reads, changes and writes back; gives the old value.
    AtomicRmw {
        /// Place of the operation.
        place: Place,
        /// Kind of operation.
        op: AtomicOp,
        /// Operand.
        value: Value,
    },
    /// Stores `new` if memory holds `expected`; gives the old value.
    CompareExchange {
        /// Place of the operation.
        place: Place,
        /// Value to compare with.
        expected: Value,
        /// Value to store if equal.
        new: Value,
    },
    /// Load with acquire ordering.
    LoadAcquire(Place),
    /// Store with release ordering.
    StoreRelease {
        /// Place to store to.
        place: Place,
        /// Value to store.
        value: Value,
    },
    /// The address that a program has for a map.
    MapRef(u32),
    /// The address of a byte in a single-entry map's value.
    MapValueAddr {
        /// Map index.
        map: u32,
        /// Byte offset in the value.
        offset: u32,
    },
    /// Address of a part of a map outside of its values.
    MapMetaAddr {
        /// Map index.
        map: u32,
        /// Part of the map.
        what: MapMeta,
    },
    /// `bpf_map_lookup_elem` on a map known at compile time: address of the value or 0.
    MapLookup {
        /// Map index.
        map: u32,
        /// The key.
        key: Arg,
    },
    /// Calls a helper, by number. Unused arguments are absent.
    CallHelper {
        /// Helper id.
        id: u32,
        /// Up to five arguments.
        args: Vec<Arg>,
    },
    /// Calls a kfunc, by index into the program's kfuncs.
    CallKfunc {
        /// Index of the kfunc.
        kfunc: u32,
        /// Up to five arguments.
        args: Vec<Arg>,
    },
    /// Calls a function of the runtime directly. Stack arguments are addresses.
    CallRuntime {
        /// The function.
        function: RuntimeFunction,
        /// Its arguments: at most five if it takes the machine, else six.
        args: Vec<Arg>,
    },
    /// Calls a function of this program.
    Call {
        /// Index into the module's functions.
        function: u32,
        /// Values of r1 to r5, as many as the callee takes.
        args: Vec<Value>,
    },
    /// The address of a function of this program, for callbacks.
    FunctionRef(u32),
    /// The running worker's number.
    WorkerId,
    /// Sets the running frame's target for the result `XDP_REDIRECT`: writes its
    /// [`crate::RedirectCell`].
    SetRedirect {
        /// Meaning of the words ([`crate::RedirectCell::kind`]).
        kind: u32,
        /// Both words, of 64 bits.
        words: [Value; 2],
        /// 0 if there is no target, and the frame goes nowhere.
        found: Option<Value>,
    },
    /// Asks the runtime whether the program may access memory; ends the run if it may not.
    Guard {
        /// Address of the first byte.
        address: Value,
        /// Number of bytes; for [`Need::Time`] the budget.
        bytes: u32,
        /// Required right.
        need: Need,
    },
    /// Stores the number of the helper that is called next, for the charge of the call.
    Callee(u32),
    /// As [`Op::Callee`], for a kfunc, by index into the program's kfuncs.
    CalleeKfunc(u32),
    /// Ends the run if it was asked to end.
    Look,
    /// Keeps a processor from executing later instructions before earlier ones are complete.
    Barrier,
    /// Starts a run with this budget.
    BudgetSet(u32),
    /// Subtracts from the run's budget; gives 1 if nothing is left, else 0.
    BudgetSpend(u32),
}

impl Op {
    /// Whether it can be dropped if the result is unused, and merged with an equal one that
    /// dominates it.
    pub fn is_pure(&self) -> bool {
        use Op::{
            Binary, Compare, Const, FunctionRef, MapMetaAddr, MapRef, MapValueAddr, Select,
            StackAddr, Unary, WorkerId,
        };
        matches!(
            self,
            Const(_)
                | Unary(..)
                | Binary(..)
                | Compare(..)
                | Select(..)
                | StackAddr(_)
                | MapRef(_)
                | MapValueAddr { .. }
                | MapMetaAddr { .. }
                | FunctionRef(_)
                | WorkerId
        )
    }

    /// Whether it reads memory but changes nothing: it can be dropped if the result is unused.
    pub fn is_read_only(&self) -> bool {
        match self {
            Op::Load { .. } | Op::StackLoad(_) | Op::CtxLoad(_) => true,
            Op::CallRuntime { function, args: _ } => function.effects().removable,
            _ => false,
        }
    }

    /// Calls `f` with each operand.
    pub fn for_each_operand(&self, mut f: impl FnMut(Value)) {
        // Operands are visited through the mutable walk on a copy, so that only one list of
        // operands has to be maintained.
        let mut copy = self.clone();
        copy.for_each_operand_mut(|value| f(*value));
    }

    /// Calls `f` with each operand, to replace it.
    pub fn for_each_operand_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        match self {
            Op::Const(_)
            | Op::CtxLoad(_)
            | Op::StackLoad(_)
            | Op::StackAddr(_)
            | Op::MapRef(_)
            | Op::MapValueAddr { .. }
            | Op::MapMetaAddr { .. }
            | Op::FunctionRef(_)
            | Op::WorkerId
            | Op::Callee(_)
            | Op::CalleeKfunc(_)
            | Op::Look
            | Op::Barrier
            | Op::BudgetSet(_)
            | Op::BudgetSpend(_) => {}
            Op::Guard { address, .. } => f(address),
            Op::SetRedirect { kind: _, words, found } => words.iter_mut().chain(found).for_each(f),
            Op::Unary(_, a) | Op::StackStore(_, a) => f(a),
            Op::Binary(_, a, b) | Op::Compare(_, a, b) => {
                f(a);
                f(b);
            }
            Op::Select(a, b, c) => {
                f(a);
                f(b);
                f(c);
            }
            Op::Load { place, probe: _ } | Op::LoadAcquire(place) => f(&mut place.base),
            Op::Store { place, value }
            | Op::StoreRelease { place, value }
            | Op::AtomicRmw { place, op: _, value } => {
                f(&mut place.base);
                f(value);
            }
            Op::CompareExchange { place, expected, new } => {
                f(&mut place.base);
                f(expected);
                f(new);
            }
            Op::MapLookup { map: _, key } => arg_operand(key, &mut f),
            Op::CallHelper { id: _, args }
            | Op::CallKfunc { kfunc: _, args }
            | Op::CallRuntime { function: _, args } => {
                args.iter_mut().for_each(|arg| arg_operand(arg, &mut f));
            }
            Op::Call { function: _, args } => args.iter_mut().for_each(f),
        }
    }
}

fn arg_operand(arg: &mut Arg, f: &mut impl FnMut(&mut Value)) {
    if let Arg::Value(value) = arg {
        f(value);
    }
}

/// An instruction with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstData {
    /// Operation of the instruction.
    pub op: Op,
    /// The value it defines, if any.
    pub result: Option<Value>,
    /// BPF instruction that it came from, for messages and line tables.
    pub origin: u32,
}

/// A control-flow edge, with the arguments for the target's parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jump {
    /// Target block.
    pub target: Block,
    /// Arguments, one for each parameter of the block.
    pub args: Vec<Value>,
}

/// The end of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Terminator {
    /// Continues in another block.
    Jump(Jump),
    /// Goes to the first target if the value is not 0, else to the second.
    Branch(Value, Jump, Jump),
    /// Returns from the function with this value as r0.
    Return(Value),
    /// `bpf_tail_call`: context, map, index; continues in the block if there is no target.
    TailCall {
        /// Address of the map.
        map: Value,
        /// Index of the slot.
        index: Value,
        /// Taken if the slot is empty or the limit is reached.
        otherwise: Jump,
    },
    /// Never reached, as the verifier proved.
    Unreachable,
}

impl Terminator {
    /// The jumps it may take.
    pub fn jumps(&self) -> impl Iterator<Item = &Jump> {
        let (first, second) = match self {
            Terminator::Jump(jump) => (Some(jump), None),
            Terminator::Branch(_, yes, no) => (Some(yes), Some(no)),
            Terminator::TailCall { otherwise, .. } => (Some(otherwise), None),
            Terminator::Return(_) | Terminator::Unreachable => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// The jumps it may take, mutable.
    pub fn jumps_mut(&mut self) -> impl Iterator<Item = &mut Jump> {
        let (first, second) = match self {
            Terminator::Jump(jump) => (Some(jump), None),
            Terminator::Branch(_, yes, no) => (Some(yes), Some(no)),
            Terminator::TailCall { otherwise, .. } => (Some(otherwise), None),
            Terminator::Return(_) | Terminator::Unreachable => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// Calls `f` with each operand, jump arguments included, to replace it.
    pub fn for_each_operand_mut(&mut self, mut f: impl FnMut(&mut Value)) {
        match self {
            Terminator::Branch(value, _, _) | Terminator::Return(value) => f(value),
            Terminator::TailCall { map, index, .. } => {
                f(map);
                f(index);
            }
            Terminator::Jump(_) | Terminator::Unreachable => {}
        }
        for jump in self.jumps_mut() {
            jump.args.iter_mut().for_each(&mut f);
        }
    }

    /// Calls `f` with each operand except arguments of jumps.
    pub fn for_each_own_operand(&self, mut f: impl FnMut(Value)) {
        match self {
            Terminator::Branch(value, _, _) | Terminator::Return(value) => f(*value),
            Terminator::TailCall { map, index, .. } => {
                f(*map);
                f(*index);
            }
            Terminator::Jump(_) | Terminator::Unreachable => {}
        }
    }

    /// Calls `f` with each operand, jump arguments included.
    pub fn for_each_operand(&self, mut f: impl FnMut(Value)) {
        self.for_each_own_operand(&mut f);
        for jump in self.jumps() {
            jump.args.iter().copied().for_each(&mut f);
        }
    }
}
