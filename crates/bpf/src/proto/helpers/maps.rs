//! Helpers that work on maps.

use super::*;

pub(super) const TABLE: &[HelperProto] = &[
    helper(id::MAP_LOOKUP_ELEM, &[MAP, KEY], "Finds the value of a key in a map.")
        .keeps_packet()
        .pkt()
        .ret(VALUE_OR_NULL),
    helper(id::MAP_UPDATE_ELEM, &[MAP, KEY, VALUE, ANY], "Sets the value of a key in a map.")
        .keeps_packet()
        .pkt(),
    helper(id::MAP_DELETE_ELEM, &[MAP, KEY], "Removes a key from a map.").keeps_packet().pkt(),
    helper(
        id::MAP_LOOKUP_PERCPU_ELEM,
        &[MAP, KEY, ANY],
        "Finds the value of a key in a map for a CPU.",
    )
    .keeps_packet()
    .pkt()
    .ret(VALUE_OR_NULL),
    helper(
        id::MAP_PUSH_ELEM,
        &[MAP, VALUE, ANY],
        "Adds a value to a queue, stack or bloom filter.",
    )
    .keeps_packet()
    .pkt(),
    helper(id::MAP_POP_ELEM, &[MAP, VALUE_UNINIT], "Takes a value from a queue or stack.")
        .keeps_packet(),
    helper(
        id::MAP_PEEK_ELEM,
        &[MAP, VALUE_UNINIT],
        "Reads the next value of a queue or stack; tests a bloom filter.",
    )
    .keeps_packet(),
    helper(
        id::FOR_EACH_MAP_ELEM,
        &[MAP, FUNC, STACK_OR_NULL, ANY],
        "Calls a function for each element of a map.",
    )
    .ties(Ties::CALLBACK)
    .cap_bpf(),
    helper(
        id::RINGBUF_OUTPUT,
        &[MAP, MEM_READ, SIZE_OR_ZERO, ANY],
        "Copies a record into a ring buffer.",
    )
    .keeps_packet(),
    helper(
        id::RINGBUF_RESERVE,
        &[MAP, Arg::new(ArgKind::ConstAllocSizeOrZero), ANY],
        "Reserves room for a record in a ring buffer.",
    )
    .keeps_packet()
    .ties(Ties::OWN)
    .ret(Ret::new(RetKind::Mem).with(Flags::RINGBUF).with(Flags::NULL)),
    helper(id::RINGBUF_SUBMIT, &[RECORD, ANY], "Publishes a reserved record of a ring buffer.")
        .keeps_packet()
        .ret(VOID),
    helper(id::RINGBUF_DISCARD, &[RECORD, ANY], "Discards a reserved record of a ring buffer.")
        .keeps_packet()
        .ret(VOID),
    helper(id::RINGBUF_QUERY, &[MAP, ANY], "Reads positions and size of a ring buffer.")
        .keeps_packet(),
    helper(
        id::RINGBUF_RESERVE_DYNPTR,
        &[MAP, ANY, ANY, RING_DYNPTR.with(Flags::UNINIT).with(Flags::WRITE)],
        "Reserves room in a ring buffer for a record of a size known at run time.",
    )
    .ties(Ties::OWN)
    .cap_bpf(),
    helper(
        id::RINGBUF_SUBMIT_DYNPTR,
        RING_RELEASE,
        "Publishes a reserved record of a ring buffer.",
    )
    .cap_bpf()
    .ret(VOID),
    helper(
        id::RINGBUF_DISCARD_DYNPTR,
        RING_RELEASE,
        "Discards a reserved record of a ring buffer.",
    )
    .cap_bpf()
    .ret(VOID),
    helper(
        id::USER_RINGBUF_DRAIN,
        &[MAP, FUNC, STACK_OR_NULL, ANY],
        "Calls a function for each record that user space wrote into a user ring buffer.",
    )
    .ties(Ties::CALLBACK)
    .cap_bpf(),
    helper(
        id::TASK_STORAGE_GET,
        &[MAP, Arg::btf("task_struct").with(Flags::NULL), VALUE.with(Flags::NULL), ANY],
        "Finds or makes the value of a task in a map.",
    )
    .cap_bpf()
    .ret(VALUE_OR_NULL)
    .backed(Backing::NothingFound("a null pointer")),
    helper(
        id::TASK_STORAGE_DELETE,
        &[MAP, Arg::btf("task_struct").with(Flags::NULL)],
        "Removes the value of a task from a map.",
    )
    .cap_bpf()
    .backed(Backing::NothingFound("-ENOENT")),
    helper(
        id::CGRP_STORAGE_GET,
        &[MAP, Arg::btf("cgroup").with(Flags::NULL), VALUE.with(Flags::NULL), ANY],
        "Finds or makes the value of a cgroup in a map.",
    )
    .cap_bpf()
    .ret(VALUE_OR_NULL)
    .backed(Backing::NothingFound("a null pointer")),
    helper(
        id::CGRP_STORAGE_DELETE,
        &[MAP, Arg::btf("cgroup").with(Flags::NULL)],
        "Removes the value of a cgroup from a map.",
    )
    .cap_bpf()
    .backed(Backing::NothingFound("-ENOENT")),
];

const VALUE_UNINIT: Arg = VALUE.with(Flags::UNINIT).with(Flags::WRITE);
const RECORD: Arg = Arg::new(ArgKind::RingbufMem).with(Flags::RELEASE);
const RING_DYNPTR: Arg = DYNPTR.with(Flags::DYNPTR_RINGBUF);
const RING_RELEASE: &[Arg] = &[RING_DYNPTR.with(Flags::RELEASE), ANY];
