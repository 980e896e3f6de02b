//! Helpers around typed fields of map values and dynptrs: locks, timers, kptrs, views of memory.

use super::*;

pub(super) const TABLE: &[HelperProto] = &[
    helper(id::SPIN_LOCK, LOCK, "Takes the lock in a map value or object.")
        .keeps_packet()
        .cap_bpf()
        .ret(VOID),
    helper(id::SPIN_UNLOCK, LOCK, "Releases the lock in a map value or object.")
        .keeps_packet()
        .cap_bpf()
        .ret(VOID),
    helper(id::TIMER_INIT, &[TIMER, MAP, ANY], "Prepares the timer in a map value.")
        .gpl()
        .cap_bpf(),
    helper(id::TIMER_SET_CALLBACK, &[TIMER, FUNC], "Sets the callback of a timer.").gpl().cap_bpf(),
    helper(id::TIMER_START, &[TIMER, ANY, ANY], "Arms a timer.").gpl().cap_bpf().backed(
        Backing::FullExcept("the callback runs on the first worker that is between bursts"),
    ),
    helper(id::TIMER_CANCEL, &[TIMER], "Disarms a timer and waits for its callback.")
        .gpl()
        .cap_bpf(),
    helper(
        id::KPTR_XCHG,
        &[
            Arg::new(ArgKind::KptrXchgDest),
            Arg::new(ArgKind::BtfId).with(Flags::NULL).with(Flags::RELEASE),
        ],
        "Puts an object into a kptr field and takes the old one out.",
    )
    .ties(Ties::OWN)
    .cap_bpf()
    .ret(Ret::new(RetKind::BtfId("")).with(Flags::NULL)),
    helper(id::PER_CPU_PTR, &[PERCPU, ANY], "A per-CPU variable of the given CPU.")
        .ties(Ties::RCU)
        .cap_bpf()
        .ret(Ret::new(RetKind::MemOrBtfId).with(Flags::NULL).with(Flags::RDONLY)),
    helper(id::THIS_CPU_PTR, &[PERCPU], "A per-CPU variable of this CPU.")
        .ties(Ties::RCU)
        .cap_bpf()
        .ret(Ret::new(RetKind::MemOrBtfId).with(Flags::RDONLY)),
    helper(
        id::DYNPTR_FROM_MEM,
        &[
            MEM_UNINIT,
            SIZE_OR_ZERO,
            ANY,
            DYNPTR.with(Flags::DYNPTR_LOCAL).with(Flags::UNINIT).with(Flags::WRITE),
        ],
        "Makes a dynptr over memory.",
    )
    .cap_bpf(),
    helper(
        id::DYNPTR_READ,
        &[MEM_UNINIT, SIZE_OR_ZERO, DYNPTR.with(Flags::RDONLY), ANY, ANY],
        "Copies bytes out of a dynptr.",
    )
    .cap_bpf(),
    helper(
        id::DYNPTR_WRITE,
        &[DYNPTR.with(Flags::RDONLY), ANY, MEM_READ, SIZE_OR_ZERO, ANY],
        "Copies bytes into a dynptr.",
    )
    .cap_bpf(),
    helper(
        id::DYNPTR_DATA,
        &[DYNPTR.with(Flags::RDONLY), ANY, Arg::new(ArgKind::ConstAllocSizeOrZero)],
        "A pointer to bytes of a dynptr.",
    )
    .ties(Ties::DYNPTR)
    .cap_bpf()
    .ret(Ret::new(RetKind::Mem).with(Flags::NULL)),
];

const LOCK: &[Arg] = &[Arg::new(ArgKind::SpinLock)];
const TIMER: Arg = Arg::new(ArgKind::Timer);
const PERCPU: Arg = Arg::new(ArgKind::PercpuBtfId);
