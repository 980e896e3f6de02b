// Values and records with bytes that nobody set.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct entry { __u64 packets; __u32 mark; };
struct locked { struct bpf_spin_lock lock; __u32 count; __u64 bytes; };
struct event { __u8 kind; __u64 time; __u16 port; __u8 head[32]; };

#define MAP(map, kind, v)                                                                          \
    struct {                                                                                       \
        __uint(type, kind);                                                                        \
        __uint(max_entries, 16);                                                                   \
        __type(key, __u32);                                                                        \
        __type(value, v);                                                                          \
    } map SEC(".maps")

MAP(entries, BPF_MAP_TYPE_HASH, struct entry);
MAP(lockeds, BPF_MAP_TYPE_HASH, struct locked);
MAP(slots, BPF_MAP_TYPE_PERCPU_ARRAY, struct entry);
struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, 16);
    __type(value, struct entry);
} queue SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} ring SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
    __type(key, __u32);
    __type(value, __u32);
} perf SEC(".maps");

#define ESCAPES(it) asm volatile("" : : "r"(&(it)) : "memory")

SEC("xdp") int padding_of_a_value(struct xdp_md *ctx)
{
    struct entry value;
    __u32 key = 1;

    value.packets = 1;
    value.mark = 2;
    // finds undefined-value: the value for map entries (argument 3 of bpf_map_update_elem,
    bpf_map_update_elem(&entries, &key, &value, BPF_ANY);
    return XDP_PASS;
}

SEC("xdp") int member_of_a_value(struct xdp_md *ctx)
{
    struct entry value;
    __u32 key = 1;

    value.packets = 1;
    ESCAPES(value);
    // finds undefined-value: `mark` and the padding behind `mark`
    bpf_map_update_elem(&slots, &key, &value, BPF_ANY);
    return XDP_PASS;
}

SEC("xdp") int pushed(struct xdp_md *ctx)
{
    struct entry value;

    value.packets = 1;
    value.mark = 2;
    // finds undefined-value: map queue
    bpf_map_push_elem(&queue, &value, BPF_ANY);
    return XDP_PASS;
}

SEC("xdp") int ring_output(struct xdp_md *ctx)
{
    struct event event;

    __builtin_memset(event.head, 0, sizeof(event.head));
    event.kind = 1;
    event.port = 53;
    event.time = bpf_ktime_get_ns();
    // finds undefined-record: bytes 1 to 7 and 50 to 55 were never set
    bpf_ringbuf_output(&ring, &event, sizeof(event), 0);
    return XDP_PASS;
}

SEC("xdp") int perf_output(struct xdp_md *ctx)
{
    struct event event;

    __builtin_memset(&event, 0, 16);
    event.kind = 1;
    ESCAPES(event);
    // finds undefined-record: argument 4 of bpf_perf_event_output, `&event`
    bpf_perf_event_output(ctx, &perf, BPF_F_CURRENT_CPU, &event,
                          sizeof(event));
    return XDP_PASS;
}

SEC("xdp") int member_of_a_reserved_record(struct xdp_md *ctx)
{
    struct event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);

    if (!event)
        return XDP_DROP;
    __builtin_memset(event, 0, sizeof(event->kind));
    event->port = 53;
    __builtin_memset(event->head, 0, sizeof(event->head));
    // finds undefined-record: the record (argument 1 of bpf_ringbuf_submit, `event`): bytes 1 to
    bpf_ringbuf_submit(event, 0);
    return XDP_PASS;
}

// Nothing is wrong from here on.

SEC("xdp") int all_set(struct xdp_md *ctx)
{
    struct event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);
    struct entry value;
    __u32 key = 1;

    if (!event)
        return XDP_DROP;
    __builtin_memset(event, 0, sizeof(*event));
    event->port = 53;
    bpf_ringbuf_submit(event, 0);
    __builtin_memset(&value, 0, sizeof(value));
    value.mark = 1;
    bpf_map_update_elem(&entries, &key, &value, BPF_ANY);
    return XDP_PASS;
}

SEC("xdp") int rest_of_a_buffer(struct xdp_md *ctx)
{
    struct event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);

    if (!event)
        return XDP_DROP;
    __builtin_memset(event, 0, 16);
    event->port = 20;
    bpf_xdp_load_bytes(ctx, 0, event->head, 20);
    bpf_ringbuf_submit(event, 0);
    return XDP_PASS;
}

SEC("xdp") int given_up(struct xdp_md *ctx)
{
    struct event *event = bpf_ringbuf_reserve(&ring, sizeof(*event), 0);

    if (event)
        bpf_ringbuf_discard(event, 0);
    return XDP_PASS;
}

// The lock of a value is not copied.
SEC("xdp") int lock_of_a_value(struct xdp_md *ctx)
{
    struct locked value;
    __u32 key = 1;

    value.count = 1;
    value.bytes = 2;
    ESCAPES(value);
    bpf_map_update_elem(&lockeds, &key, &value, BPF_ANY);
    return XDP_PASS;
}

SEC("xdp") int popped(struct xdp_md *ctx)
{
    struct entry value;

    // What nothing was put into gives zeros.
    bpf_map_pop_elem(&queue, &value);
    return value.mark ? XDP_DROP : XDP_PASS;
}

char _license[] SEC("license") = "GPL";
