//! Helpers that work on the frame and its verdict.

use super::*;

pub(super) const TABLE: &[HelperProto] = &[
    helper(id::XDP_ADJUST_HEAD, &[CTX, ANY], "Moves the start of the frame by a signed delta.")
        .changes_packet(),
    helper(
        id::XDP_ADJUST_META,
        &[CTX, ANY],
        "Moves the start of the metadata in front of the packet.",
    )
    .changes_packet(),
    helper(id::XDP_ADJUST_TAIL, &[CTX, ANY], "Moves the end of the frame, across frags.")
        .changes_packet(),
    helper(id::XDP_GET_BUFF_LEN, &[CTX], "Total length of the frame, frags included.")
        .keeps_packet(),
    helper(
        id::XDP_LOAD_BYTES,
        &[CTX, ANY, MEM_UNINIT, SIZE],
        "Copies bytes out of the frame, across frags.",
    )
    .keeps_packet(),
    helper(
        id::XDP_STORE_BYTES,
        &[CTX, ANY, MEM_READ, SIZE],
        "Copies bytes into the frame, across frags.",
    ),
    helper(id::REDIRECT, &[ANY, ANY], "Sends the frame to a port by ifindex.").keeps_packet(),
    helper(
        id::REDIRECT_MAP,
        &[MAP, ANY, ANY],
        "Sends the frame to the port, CPU or socket in a map's slot.",
    )
    .keeps_packet(),
    helper(
        id::CSUM_DIFF,
        &[MEM_READ.with(Flags::NULL), SIZE_OR_ZERO, MEM_READ.with(Flags::NULL), SIZE_OR_ZERO, ANY],
        "Checksum difference of two byte ranges, added to a seed.",
    )
    .keeps_packet()
    .pkt(),
    helper(
        id::PERF_EVENT_OUTPUT,
        &[CTX, MAP, ANY, MEM_READ, SIZE_OR_ZERO],
        "Sends data, and as much of the frame as asked for, to a perf buffer.",
    )
    .keeps_packet()
    .gpl(),
    helper(id::GET_SMP_PROCESSOR_ID, &[], "Number of the CPU.")
        .keeps_packet()
        .backed(Backing::FullExcept("it returns the number of the worker")),
    helper(id::TAIL_CALL, &[CTX, MAP, ANY], "Continues in another program, without returning.")
        .ret(VOID)
        .changes_packet(),
];
