//! Helpers that every program type has: clocks, randomness, strings, loops.

use super::*;

pub(super) const TABLE: &[HelperProto] = &[
    helper(id::KTIME_GET_NS, &[], "Monotonic clock in nanoseconds.").keeps_packet(),
    helper(id::KTIME_GET_BOOT_NS, &[], "Monotonic clock that counts suspended time.")
        .keeps_packet(),
    helper(id::KTIME_GET_COARSE_NS, &[], "Monotonic clock of the last tick.").keeps_packet(),
    helper(id::KTIME_GET_TAI_NS, &[], "International atomic time in nanoseconds.").keeps_packet(),
    helper(id::JIFFIES64, &[], "Timer ticks since boot.").keeps_packet().cap_bpf(),
    helper(id::GET_PRANDOM_U32, &[], "A pseudo-random number.").keeps_packet(),
    helper(id::GET_NUMA_NODE_ID, &[], "Number of the NUMA node.").keeps_packet(),
    helper(id::GET_CURRENT_PID_TGID, &[], "Thread and process id of the current task.")
        .backed(Backing::Process("thread and process id")),
    helper(id::GET_CURRENT_UID_GID, &[], "User and group id of the current task.")
        .backed(Backing::Process("user and group id")),
    helper(
        id::GET_NS_CURRENT_PID_TGID,
        &[ANY, ANY, MEM_UNINIT, SIZE],
        "Thread and process id in a pid namespace.",
    )
    .backed(Backing::NothingFound("-EINVAL, the memory zeroed")),
    helper(id::GET_CGROUP_CLASSID, &[], "Net class of the current task.")
        .cap_bpf()
        .backed(Backing::NothingFound("0")),
    helper(id::GET_CURRENT_CGROUP_ID, &[], "Id of the current task's cgroup.")
        .cap_bpf()
        .backed(Backing::NothingFound("0")),
    helper(
        id::GET_CURRENT_ANCESTOR_CGROUP_ID,
        &[ANY],
        "Id of an ancestor of the current task's cgroup.",
    )
    .cap_bpf()
    .backed(Backing::NothingFound("0")),
    helper(
        id::CURRENT_TASK_UNDER_CGROUP,
        &[MAP, ANY],
        "Whether the current task is in a cgroup of a map.",
    )
    .cap_bpf()
    .backed(Backing::NothingFound("-EINVAL")),
    helper(id::STRTOL, STRTO, "Parses a signed number."),
    helper(id::STRTOUL, STRTO, "Parses an unsigned number."),
    helper(
        id::STRNCMP,
        &[MEM_READ, SIZE, Arg::new(ArgKind::ConstStr)],
        "Compares bytes with a constant string.",
    ),
    helper(id::LOOP, &[ANY, FUNC, STACK_OR_NULL, ANY], "Calls a function a number of times.")
        .cap_bpf(),
    helper(
        id::SNPRINTF,
        &[
            MEM_WRITE.with(Flags::NULL),
            SIZE_OR_ZERO,
            Arg::new(ArgKind::ConstStr),
            MEM_READ.with(Flags::NULL),
            SIZE_OR_ZERO,
        ],
        "Formats values into memory.",
    )
    .gpl()
    .cap_perfmon(),
];

/// `bpf_strtol` and `bpf_strtoul`: text, its size, flags, and the address for the number.
const STRTO: &[Arg] = &[
    MEM_READ,
    SIZE,
    ANY,
    Arg::fixed(8).with(Flags::UNINIT).with(Flags::WRITE).with(Flags::ALIGNED),
];
