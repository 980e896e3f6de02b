//! Helpers for tracing: printing, reading foreign memory, the current task, perf counters.

use super::*;

pub(super) const TABLE: &[HelperProto] = &[
    helper(id::TRACE_PRINTK, &[MEM_READ, SIZE], "Prints up to three values.")
        .keeps_packet()
        .gpl()
        .cap_perfmon()
        .backed(LOG),
    helper(
        id::TRACE_VPRINTK,
        &[MEM_READ, SIZE, MEM_READ.with(Flags::NULL), SIZE_OR_ZERO],
        "Prints an array of values.",
    )
    .gpl()
    .cap_perfmon()
    .backed(LOG),
    helper(
        id::SNPRINTF_BTF,
        &[MEM_WRITE, SIZE, MEM_READ, SIZE, ANY],
        "Formats a kernel structure by its type.",
    )
    .cap_perfmon()
    .backed(Backing::NothingFound("-EOPNOTSUPP")),
    probe(id::PROBE_READ_USER, "Reads user memory; a fault gives -EFAULT.").backed(NO_USER),
    probe(id::PROBE_READ_USER_STR, "Reads a string in user memory.").backed(NO_USER),
    probe(id::PROBE_READ_KERNEL, "Reads kernel memory; a fault gives -EFAULT."),
    probe(id::PROBE_READ_KERNEL_STR, "Reads a string in kernel memory."),
    helper(id::COPY_FROM_USER, &[MEM_UNINIT, SIZE_OR_ZERO, ANY], "Reads user memory, paging in.")
        .cap_perfmon()
        .sleeps()
        .backed(SLEEPS),
    helper(
        id::COPY_FROM_USER_TASK,
        &[MEM_UNINIT, SIZE_OR_ZERO, ANY, TASK, ANY],
        "Reads the memory of a task, paging in.",
    )
    .gpl()
    .cap_perfmon()
    .sleeps()
    .backed(SLEEPS),
    helper(id::GET_CURRENT_COMM, &[MEM_UNINIT, SIZE], "Name of the current task.")
        .cap_perfmon()
        .backed(Backing::Process("thread name")),
    helper(id::GET_CURRENT_TASK, &[], "Address of the current task.")
        .gpl()
        .cap_perfmon()
        .backed(Backing::NothingFound("0")),
    helper(id::GET_CURRENT_TASK_BTF, &[], "The current task as `struct task_struct`.")
        .gpl()
        .cap_perfmon()
        .ret(Ret::new(RetKind::BtfId("task_struct")).with(Flags::TRUSTED))
        .backed(Backing::NothingFound("a task whose bytes read as 0")),
    helper(id::TASK_PT_REGS, &[TASK], "Saved registers of a task.")
        .gpl()
        .cap_perfmon()
        .ret(Ret::new(RetKind::BtfId("pt_regs")))
        .backed(Backing::NothingFound("registers that read as 0")),
    helper(id::GET_TASK_STACK, &[TASK, MEM_UNINIT, SIZE_OR_ZERO, ANY], "Call stack of a task.")
        .cap_perfmon()
        .backed(Backing::NothingFound("-EOPNOTSUPP")),
    helper(
        id::FIND_VMA,
        &[TASK, ANY, FUNC, STACK_OR_NULL, ANY],
        "Calls a function with the mapping that holds an address.",
    )
    .cap_perfmon()
    .backed(Backing::NothingFound("-ENOENT")),
    helper(id::SEND_SIGNAL, &[ANY], "Sends a signal to the current process.")
        .cap_perfmon()
        .backed(Backing::NothingFound("-EPERM")),
    helper(id::SEND_SIGNAL_THREAD, &[ANY], "Sends a signal to the current thread.")
        .cap_perfmon()
        .backed(Backing::NothingFound("-EPERM")),
    helper(id::PERF_EVENT_READ, &[MAP, ANY], "Reads a perf counter.")
        .gpl()
        .cap_perfmon()
        .backed(Backing::NothingFound("-ENOENT")),
    helper(
        id::PERF_EVENT_READ_VALUE,
        &[MAP, ANY, MEM_UNINIT, SIZE],
        "Reads a perf counter with its times.",
    )
    .gpl()
    .cap_perfmon()
    .backed(Backing::NothingFound("-ENOENT, the memory zeroed")),
    helper(id::GET_BRANCH_SNAPSHOT, &[MEM_UNINIT, SIZE_OR_ZERO], "Last branches of the CPU.")
        .gpl()
        .cap_perfmon()
        .backed(Backing::NothingFound("-ENOENT")),
];

const fn probe(id: u32, summary: &'static str) -> HelperProto {
    helper(id, &[MEM_UNINIT, SIZE_OR_ZERO, ANY], summary).gpl().cap_perfmon().backed(OWN_MEMORY)
}

const TASK: Arg = Arg::btf("task_struct");
const LOG: Backing = Backing::FullExcept("the text goes to the program's log");
const SLEEPS: Backing = Backing::NothingFound(
    "-EFAULT, the memory zeroed; as it may sleep, only work queue callbacks and `syscall` \
     programs may call it",
);
const OWN_MEMORY: Backing =
    Backing::FullExcept("it reads only memory that the program could access itself");
const NO_USER: Backing = Backing::NothingFound("-EFAULT, the memory zeroed");
