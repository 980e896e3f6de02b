// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// command_ring: a block list that user space changes by sending commands, not by updating a map.
//
// Commands come through a ring that user space writes and the program drains as frames arrive, a
// few at a time; what was done is reported through a ring in the other direction. Rules are
// applied in the order they were sent, in one place, without a lock.
//
// Maps
//   commands   USER_RINGBUF  struct command
//   reports    RINGBUF       struct report, one for each command
//   blocked    HASH          source address -> time of the block
//   budget     PERCPU_ARRAY  0: how many commands this frame may still wait for
//   totals     ARRAY         0: frames passed, 1: frames dropped, 2: commands that were malformed
//
// Configure  nothing.
// Verdicts   XDP_DROP blocked source; XDP_PASS.
#include "parse.h"

#define COMMANDS_PER_FRAME 8

enum verb {
    VERB_BLOCK = 1,
    VERB_UNBLOCK = 2,
    VERB_CLEAR_TOTALS = 3,
};

struct command {
    __u32 verb;
    __u32 sequence;
    struct in6_addr address;
};

struct report {
    __u32 sequence;
    __s32 result; // 0 or a negative errno
    __u64 time_ns;
};

struct {
    __uint(type, BPF_MAP_TYPE_USER_RINGBUF);
    __uint(max_entries, 65536);
} commands SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 65536);
} reports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct in6_addr);
    __type(value, __u64);
} blocked SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} budget SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 3);
    __type(key, __u32);
    __type(value, __u64);
} totals SEC(".maps");

static __always_inline void add(__u32 total)
{
    __u64 *value = bpf_map_lookup_elem(&totals, &total);

    if (value)
        __sync_fetch_and_add(value, 1);
}

static __always_inline void clear_totals(void)
{
#pragma unroll
    for (__u32 i = 0; i < 3; i++) {
        __u32 total = i;
        __u64 *value = bpf_map_lookup_elem(&totals, &total);

        if (value)
            *value = 0;
    }
}

static __always_inline long obey(const struct command *command)
{
    __u64 now_ns = bpf_ktime_get_ns();

    switch (command->verb) {
    case VERB_BLOCK:
        return bpf_map_update_elem(&blocked, &command->address, &now_ns, BPF_ANY);
    case VERB_UNBLOCK:
        return bpf_map_delete_elem(&blocked, &command->address);
    case VERB_CLEAR_TOTALS:
        clear_totals();
        return 0;
    default:
        return -22; // EINVAL
    }
}

static long drain_command(struct bpf_dynptr *sample, void *context)
{
    struct report report = {};
    struct command command;
    struct bpf_dynptr slot;
    __u32 zero = 0, *left;

    (void)context;
    if (bpf_dynptr_read(&command, sizeof(command), sample, 0, 0)) {
        add(2);
        return 0;
    }
    report.sequence = command.sequence;
    report.result = obey(&command);
    report.time_ns = bpf_ktime_get_ns();
    // A dynptr has to be given back whether or not the ring had room.
    if (bpf_ringbuf_reserve_dynptr(&reports, sizeof(report), 0, &slot)) {
        bpf_ringbuf_discard_dynptr(&slot, 0);
    } else {
        bpf_dynptr_write(&slot, 0, &report, sizeof(report), 0);
        bpf_ringbuf_submit_dynptr(&slot, 0);
    }
    // In a map and not on the caller's stack: the verifier would follow a number there round by
    // round. 1 stops the drain, as a frame should not wait for a long queue.
    left = bpf_map_lookup_elem(&budget, &zero);
    if (!left || *left <= 1)
        return 1;
    *left -= 1;
    return 0;
}

SEC("xdp")
int command_ring(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct network network = {};
    struct flow flow = {};
    __u32 zero = 0, *left;

    left = bpf_map_lookup_elem(&budget, &zero);
    if (left) {
        *left = COMMANDS_PER_FRAME;
        bpf_user_ringbuf_drain(&commands, drain_command, NULL, BPF_RB_NO_WAKEUP);
    }
    if (parse_frame(&cursor, &network, &flow))
        return XDP_PASS;
    if (bpf_map_lookup_elem(&blocked, &flow.source)) {
        add(1);
        return XDP_DROP;
    }
    add(0);
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
