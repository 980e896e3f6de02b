// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// service_pipeline: virtual services on a cluster's node, as a pipeline of tail-called programs.
//
// A frame for a service goes on to one of its backends as if this node were the client (both
// addresses are translated), so that the answer comes back here and is translated back. Each stage
// is a program: it finds the frame's state in a per-CPU element, since a stack does not survive a
// tail call, and names the next stage by its number.
//
//   service_pipeline -> service_ipv4 | service_ipv6 -> source_nat -> send
//                                      ^ no service?  -> reply    -> send      anything -> drop
//
// Maps
//   calls        PROG_ARRAY    stage -> program; filled from this object
//   scratch      PERCPU_ARRAY  0: the frame's state
//   denied       LPM_TRIE      source prefix -> 1; never served
//   ranges       LPM_TRIE      {service, source prefix} -> 1; who may use a SERVICE_RANGES service
//   services     HASH          {address, port, protocol} -> number, flags
//   rings        HASH_OF_MAPS  service number -> ARRAY 0: RING_SLOTS backend numbers
//   backends     HASH          number -> address, port
//   addresses    HASH          service number -> its address and port, to translate back
//   affinity     LRU_HASH      {client, service} -> backend, when
//   connections  LRU_HASH      {flow, direction} -> backend, packets, bytes, what TCP has seen
//   translations LRU_HASH      {flow, direction} -> what the source becomes, or was
//   neighbours   LRU_HASH      address -> MAC, learned from frames
//   metrics      PERCPU_HASH   {reason, direction} -> packets, bytes
//   notices      PERF_EVENT_ARRAY  a notice for each connection's begin and end, and each drop
//
// Configure  node_v4, node_v6, port_first, port_count, affinity_ns
// Verdicts   XDP_TX translated; XDP_PASS not ours; XDP_DROP denied, or no backend, or no port.
#include "hash.h"
#include "nat.h"
#include "rewrite.h"

#define SERVICES_MAX 1024
#define BACKENDS_MAX 4096
#define CONNECTIONS_MAX 65536
#define RING_SLOTS 251 // prime
#define PORT_TRIES 16
#define NOTICE_FRAME_BYTES 64

#define SERVICE_RANGES 1   // for some sources only
#define SERVICE_AFFINITY 2 // a client stays with its backend

#define SEEN_SYN 1
#define SEEN_FIN 2
#define SEEN_RST 4
#define SEEN_REPLY 8

enum call {
    CALL_SERVICE_IPV4,
    CALL_SERVICE_IPV6,
    CALL_SOURCE_NAT,
    CALL_REPLY,
    CALL_SEND,
    CALL_DROP,
    CALL_COUNT,
};

enum reason {
    REASON_FORWARDED,
    REASON_DENIED,
    REASON_NOT_IN_RANGE,
    REASON_NO_BACKEND,
    REASON_NO_PORT,
    REASON_MALFORMED,
    REASON_NO_CALL,
};

enum direction {
    TO_BACKEND,
    TO_CLIENT,
};

// What the stages hand on.
struct state {
    struct flow flow;  // of the frame as it is
    struct flow after; // and as it is to be
    __u32 service;     // number
    __u32 backend;     // number
    __u32 reason;
    __u32 direction;
    __u32 bytes;
    __u8 tcp_flags; // SEEN_*
    __u8 is_new;
    __u16 zero;
};

struct prefix {
    __u32 prefixlen;
    struct in6_addr address;
};

struct range {
    __u32 prefixlen; // the 32 bits of the service included
    __u32 service;
    struct in6_addr address;
};

struct service_key {
    struct in6_addr address;
    __be16 port;
    __u16 protocol;
};

struct service {
    __u32 number;
    __u32 flags;
};

typedef __u32 ring[RING_SLOTS]; // backend numbers

struct endpoint {
    struct in6_addr address;
    __be16 port;
    __u16 zero;
};

struct client {
    struct in6_addr address;
    __u32 service;
};

struct affinity {
    __u32 backend;
    __u32 zero;
    __u64 seen_ns;
};

struct direction_key {
    struct flow flow;
    __u32 direction;
};

struct connection {
    __u32 backend;
    __u32 seen; // SEEN_*
    __u64 packets;
    __u64 bytes;
    __u64 last_ns;
};

struct translation {
    struct endpoint endpoint;
    __u32 service;
};

struct neighbour {
    __u8 mac[ETH_ALEN];
    __u16 zero;
};

struct metric_key {
    __u32 reason;
    __u32 direction;
};

struct notice {
    __u64 time_ns;
    __u32 reason;
    __u32 service;
    __u32 backend;
    __u32 bytes;
    struct flow flow;
};

int service_ipv4(struct xdp_md *ctx);
int service_ipv6(struct xdp_md *ctx);
int source_nat(struct xdp_md *ctx);
int reply(struct xdp_md *ctx);
int send(struct xdp_md *ctx);
int drop(struct xdp_md *ctx);

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, CALL_COUNT);
    __uint(key_size, sizeof(__u32));
    __array(values, int(void *));
} calls SEC(".maps") = {
    .values = {
        [CALL_SERVICE_IPV4] = (void *)&service_ipv4,
        [CALL_SERVICE_IPV6] = (void *)&service_ipv6,
        [CALL_SOURCE_NAT] = (void *)&source_nat,
        [CALL_REPLY] = (void *)&reply,
        [CALL_SEND] = (void *)&send,
        [CALL_DROP] = (void *)&drop,
    },
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct state);
} scratch SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, 16384);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct prefix);
    __type(value, __u8);
} denied SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, 4096);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct range);
    __type(value, __u8);
} ranges SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, SERVICES_MAX);
    __type(key, struct service_key);
    __type(value, struct service);
} services SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
    __uint(max_entries, SERVICES_MAX);
    __uint(key_size, sizeof(__u32));
    __array(
        values, struct {
            __uint(type, BPF_MAP_TYPE_ARRAY);
            __uint(max_entries, 1);
            __type(key, __u32);
            __type(value, ring);
        });
} rings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, BACKENDS_MAX);
    __type(key, __u32);
    __type(value, struct endpoint);
} backends SEC(".maps"), addresses SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, CONNECTIONS_MAX);
    __type(key, struct client);
    __type(value, struct affinity);
} affinity SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, CONNECTIONS_MAX);
    __type(key, struct direction_key);
    __type(value, struct connection);
} connections SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, CONNECTIONS_MAX);
    __type(key, struct direction_key);
    __type(value, struct translation);
} translations SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 4096);
    __type(key, struct in6_addr);
    __type(value, struct neighbour);
} neighbours SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __uint(max_entries, 64);
    __type(key, struct metric_key);
    __type(value, struct counter);
} metrics SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} notices SEC(".maps");

const volatile __be32 node_v4 = bpf_htonl(0xcb007101);                   // 203.0.113.1
const volatile __be32 node_v6[4] = {bpf_htonl(0x20010db8), bpf_htonl(0x00100000), 0,
                                    bpf_htonl(1)}; // 2001:db8:10::1
const volatile __u16 port_first = 32768;
const volatile __u16 port_count = 28232;
const volatile __u64 affinity_ns = 10800000000000ull;

static __always_inline struct state *state_of_frame(void)
{
    __u32 zero = 0;

    return bpf_map_lookup_elem(&scratch, &zero);
}

static __always_inline void count_metric(const struct state *state)
{
    struct metric_key key = {.reason = state->reason, .direction = state->direction};
    struct counter *known = bpf_map_lookup_elem(&metrics, &key);
    struct counter first = {.packets = 1, .bytes = state->bytes};

    if (known)
        count(known, state->bytes);
    else
        bpf_map_update_elem(&metrics, &key, &first, BPF_ANY);
}

// Goes on to another stage. A stage that is missing is a drop of its own.
static __always_inline int go_on(struct xdp_md *ctx, struct state *state, __u32 stage)
{
    bpf_tail_call(ctx, &calls, stage);
    state->reason = REASON_NO_CALL;
    count_metric(state);
    return XDP_DROP;
}

static __always_inline int give_up(struct xdp_md *ctx, struct state *state, __u32 reason)
{
    state->reason = reason;
    return go_on(ctx, state, CALL_DROP);
}

// Tells whoever listens, with the first bytes of the frame.
static __always_inline void notify(struct xdp_md *ctx, const struct state *state)
{
    struct notice notice = {
        .time_ns = bpf_ktime_get_ns(),
        .reason = state->reason,
        .service = state->service,
        .backend = state->backend,
        .bytes = state->bytes,
        .flow = state->flow,
    };
    __u64 bytes = state->bytes;

    if (bytes > NOTICE_FRAME_BYTES)
        bytes = NOTICE_FRAME_BYTES;
    bpf_perf_event_output(ctx, &notices, BPF_F_CURRENT_CPU | bytes << 32, &notice,
                          sizeof(notice));
}

static __always_inline void node_address(struct in6_addr *address, __u16 family)
{
    if (family == AF_INET) {
        set_ipv4(address, node_v4);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        address->in6_u.u6_addr32[i] = node_v6[i];
}

static __always_inline bool is_same(const struct in6_addr *one, const struct in6_addr *other)
{
    const __u64 *first = (const __u64 *)one, *second = (const __u64 *)other;

    return first[0] == second[0] && first[1] == second[1];
}

// What TCP says about the connection, as SEEN_*.
static __always_inline __u8 tcp_flags(struct cursor *cursor, const struct flow *flow)
{
    struct tcphdr *tcp = cursor->pos;

    if (flow->protocol != IPPROTO_TCP || (void *)(tcp + 1) > cursor->end)
        return 0;
    return (tcp->syn && !tcp->ack ? SEEN_SYN : 0) | (tcp->fin ? SEEN_FIN : 0) |
           (tcp->rst ? SEEN_RST : 0);
}

// Where answers to this address go: what the Ethernet header says. Written only when it changes.
static __always_inline void learn_neighbour(struct xdp_md *ctx, const struct in6_addr *address)
{
    struct ethhdr *ethernet = (void *)(long)ctx->data;
    struct neighbour *known, learned = {};

    if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
        return;
    __builtin_memcpy(learned.mac, ethernet->h_source, ETH_ALEN);
    known = bpf_map_lookup_elem(&neighbours, address);
    if (known && *(__u64 *)known == *(__u64 *)&learned)
        return;
    bpf_map_update_elem(&neighbours, address, &learned, BPF_ANY);
}

static __always_inline bool may_use(const struct state *state)
{
    struct range range = {
        .prefixlen = 32 + 128,
        .service = state->service,
        .address = state->flow.source,
    };

    return bpf_map_lookup_elem(&ranges, &range) != NULL;
}

static __always_inline __u32 backend_by_affinity(const struct state *state, __u64 now)
{
    struct client client = {.address = state->flow.source, .service = state->service};
    struct affinity *known = bpf_map_lookup_elem(&affinity, &client);

    if (!known || now - known->seen_ns > affinity_ns)
        return 0;
    known->seen_ns = now;
    return known->backend;
}

static __always_inline void keep_affinity(const struct state *state, __u64 now)
{
    struct client client = {.address = state->flow.source, .service = state->service};
    struct affinity kept = {.backend = state->backend, .seen_ns = now};

    bpf_map_update_elem(&affinity, &client, &kept, BPF_ANY);
}

static __always_inline __u32 backend_by_ring(const struct state *state)
{
    __u32 number = state->service, zero = 0;
    void *table = bpf_map_lookup_elem(&rings, &number);
    ring *slots;

    if (!table)
        return 0;
    slots = bpf_map_lookup_elem(table, &zero);
    if (!slots)
        return 0;
    return (*slots)[hash_scale(hash_flow(&state->flow, 0), RING_SLOTS)];
}

// The connection's backend: the one it has, or a new one. 0 when there is none.
static __always_inline struct endpoint *choose_backend(struct state *state, __u32 flags)
{
    struct direction_key key = {.flow = state->flow, .direction = TO_BACKEND};
    struct connection *known = bpf_map_lookup_elem(&connections, &key);
    __u64 now = bpf_ktime_get_ns();
    struct connection fresh = {};
    struct endpoint *backend;

    if (known && !(state->tcp_flags & SEEN_SYN && known->seen & (SEEN_FIN | SEEN_RST))) {
        state->backend = known->backend;
        backend = bpf_map_lookup_elem(&backends, &state->backend);
        if (backend) {
            known->packets += 1;
            known->bytes += state->bytes;
            known->seen |= state->tcp_flags;
            known->last_ns = now;
            return backend;
        }
    }
    state->backend = flags & SERVICE_AFFINITY ? backend_by_affinity(state, now) : 0;
    if (!state->backend)
        state->backend = backend_by_ring(state);
    backend = bpf_map_lookup_elem(&backends, &state->backend);
    if (!backend)
        return NULL;
    state->is_new = 1;
    fresh.backend = state->backend;
    fresh.seen = state->tcp_flags;
    fresh.packets = 1;
    fresh.bytes = state->bytes;
    fresh.last_ns = now;
    bpf_map_update_elem(&connections, &key, &fresh, BPF_ANY);
    if (flags & SERVICE_AFFINITY)
        keep_affinity(state, now);
    return backend;
}

static __always_inline struct service *find_service(const struct flow *flow)
{
    struct service_key key = {
        .address = flow->dest,
        .port = flow->dest_port,
        .protocol = flow->protocol,
    };

    return bpf_map_lookup_elem(&services, &key);
}

// The frame's flow; false for what belongs to nobody here.
static __always_inline bool read_flow(struct xdp_md *ctx, struct state *state, __u16 ethertype)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct network network = {.ethertype = ethertype};

    if (!TAKE(&cursor, struct ethhdr) || parse_flow(&cursor, &network, &state->flow))
        return false;
    state->tcp_flags = tcp_flags(&cursor, &state->flow);
    return !network.is_fragment && network.has_ports;
}

static __always_inline int serve(struct xdp_md *ctx, __u16 ethertype)
{
    struct state *state = state_of_frame();
    struct endpoint *backend;
    struct service *service;
    struct in6_addr node;

    if (!state || !read_flow(ctx, state, ethertype))
        return XDP_PASS;
    service = find_service(&state->flow);
    if (!service) {
        node_address(&node, state->flow.family);
        if (is_same(&node, &state->flow.dest))
            return go_on(ctx, state, CALL_REPLY);
        return XDP_PASS;
    }
    state->service = service->number;
    if (service->flags & SERVICE_RANGES && !may_use(state))
        return give_up(ctx, state, REASON_NOT_IN_RANGE);
    learn_neighbour(ctx, &state->flow.source);
    backend = choose_backend(state, service->flags);
    if (!backend)
        return give_up(ctx, state, REASON_NO_BACKEND);
    state->after = state->flow;
    state->after.dest = backend->address;
    state->after.dest_port = backend->port;
    return go_on(ctx, state, CALL_SOURCE_NAT);
}

SEC("xdp")
int service_ipv4(struct xdp_md *ctx)
{
    return serve(ctx, ETH_P_IP);
}

SEC("xdp")
int service_ipv6(struct xdp_md *ctx)
{
    return serve(ctx, ETH_P_IPV6);
}

// Finds a port of this node that no other flow to this backend uses, and keeps both directions.
// `key.flow` is the flow to the backend, with the client still in it.
static __always_inline bool allocate_port(struct state *state, const struct direction_key *key,
                                          struct translation *to)
{
    struct direction_key back = {.direction = TO_CLIENT};
    struct translation from = {.service = state->service};
    __u32 hash = hash_flow(&key->flow, state->service);

    from.endpoint.address = key->flow.source;
    from.endpoint.port = key->flow.source_port;
    back.flow = key->flow;
    back.flow.source = key->flow.dest;
    back.flow.source_port = key->flow.dest_port;
    back.flow.dest = to->endpoint.address;
    for (int i = 0; i < PORT_TRIES; i++) {
        back.flow.dest_port = bpf_htons(port_first + hash_scale(hash, port_count));
        if (bpf_map_update_elem(&translations, &back, &from, BPF_NOEXIST) == 0) {
            to->endpoint.port = back.flow.dest_port;
            bpf_map_update_elem(&translations, key, to, BPF_ANY);
            return true;
        }
        hash = hash_word(hash, i);
    }
    return false;
}

SEC("xdp")
int source_nat(struct xdp_md *ctx)
{
    struct state *state = state_of_frame();
    struct translation *known, fresh = {};
    struct cursor cursor = cursor_at_start(ctx);
    struct direction_key key = {};

    if (!state)
        return XDP_DROP;
    key.flow = state->after;
    key.direction = TO_BACKEND;
    known = bpf_map_lookup_elem(&translations, &key);
    if (known) {
        fresh = *known;
    } else {
        node_address(&fresh.endpoint.address, state->flow.family);
        fresh.service = state->service;
        if (!allocate_port(state, &key, &fresh))
            return give_up(ctx, state, REASON_NO_PORT);
    }
    if (state->is_new || state->tcp_flags)
        notify(ctx, state);
    state->after.source = fresh.endpoint.address;
    state->after.source_port = fresh.endpoint.port;
    if (!TAKE(&cursor, struct ethhdr) || !rewrite_flow(&cursor, &state->flow, &state->after))
        return give_up(ctx, state, REASON_MALFORMED);
    return go_on(ctx, state, CALL_SEND);
}

// Counts the answer with its connection: the flow as the client knows it, turned round.
static __always_inline void count_reply(const struct state *state)
{
    struct direction_key key = {.direction = TO_BACKEND};
    struct connection *known;

    key.flow = state->after;
    key.flow.source = state->after.dest;
    key.flow.dest = state->after.source;
    key.flow.source_port = state->after.dest_port;
    key.flow.dest_port = state->after.source_port;
    known = bpf_map_lookup_elem(&connections, &key);
    if (!known)
        return;
    known->packets += 1;
    known->bytes += state->bytes;
    known->seen |= state->tcp_flags | SEEN_REPLY;
}

// From a backend to this node: back to the client, from the service.
SEC("xdp")
int reply(struct xdp_md *ctx)
{
    struct state *state = state_of_frame();
    struct cursor cursor = cursor_at_start(ctx);
    struct translation *translation;
    struct direction_key key = {};
    struct endpoint *address;

    if (!state)
        return XDP_PASS;
    key.flow = state->flow;
    key.direction = TO_CLIENT;
    translation = bpf_map_lookup_elem(&translations, &key);
    if (!translation)
        return XDP_PASS;
    state->direction = TO_CLIENT;
    state->service = translation->service;
    address = bpf_map_lookup_elem(&addresses, &state->service);
    if (!address)
        return give_up(ctx, state, REASON_NO_BACKEND);
    learn_neighbour(ctx, &state->flow.source);
    state->after = state->flow;
    state->after.source = address->address;
    state->after.source_port = address->port;
    state->after.dest = translation->endpoint.address;
    state->after.dest_port = translation->endpoint.port;
    count_reply(state);
    if (state->tcp_flags)
        notify(ctx, state);
    if (!TAKE(&cursor, struct ethhdr) || !rewrite_flow(&cursor, &state->flow, &state->after))
        return give_up(ctx, state, REASON_MALFORMED);
    return go_on(ctx, state, CALL_SEND);
}

// Out of the port it came in by: to the neighbour if it is known, else back to who sent it.
SEC("xdp")
int send(struct xdp_md *ctx)
{
    struct state *state = state_of_frame();
    struct cursor cursor = cursor_at_start(ctx);
    struct neighbour *neighbour;
    struct ethhdr *ethernet;
    struct ipv6hdr *ipv6;
    struct iphdr *ipv4;

    ethernet = TAKE(&cursor, struct ethhdr);
    if (!state || !ethernet)
        return XDP_DROP;
    neighbour = bpf_map_lookup_elem(&neighbours, &state->after.dest);
    swap_mac(ethernet);
    if (neighbour)
        __builtin_memcpy(ethernet->h_dest, neighbour->mac, ETH_ALEN);
    if (state->flow.family == AF_INET) {
        ipv4 = TAKE(&cursor, struct iphdr);
        if (!ipv4 || ipv4->ttl <= 1)
            return give_up(ctx, state, REASON_MALFORMED);
        ipv4_decrease_ttl(ipv4);
    } else {
        ipv6 = TAKE(&cursor, struct ipv6hdr);
        if (!ipv6 || ipv6->hop_limit <= 1)
            return give_up(ctx, state, REASON_MALFORMED);
        ipv6->hop_limit -= 1;
    }
    state->reason = REASON_FORWARDED;
    count_metric(state);
    return XDP_TX;
}

SEC("xdp")
int drop(struct xdp_md *ctx)
{
    struct state *state = state_of_frame();

    if (!state)
        return XDP_DROP;
    notify(ctx, state);
    count_metric(state);
    return XDP_DROP;
}

// The source's prefix, for the trie of those who are denied; 0 for what is neither IPv4 nor IPv6.
static __always_inline __u16 read_source(struct xdp_md *ctx, struct prefix *source)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);
    struct ipv6hdr *ipv6;
    struct iphdr *ipv4;

    if (!ethernet)
        return 0;
    source->prefixlen = 128;
    if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
        ipv4 = TAKE(&cursor, struct iphdr);
        if (!ipv4)
            return 0;
        set_ipv4(&source->address, ipv4->saddr);
        return ETH_P_IP;
    }
    if (ethernet->h_proto != bpf_htons(ETH_P_IPV6))
        return 0;
    ipv6 = TAKE(&cursor, struct ipv6hdr);
    if (!ipv6)
        return 0;
    source->address = ipv6->saddr;
    return ETH_P_IPV6;
}

SEC("xdp")
int service_pipeline(struct xdp_md *ctx)
{
    struct state *state = state_of_frame();
    struct prefix source = {};
    __u16 ethertype;

    if (!state)
        return XDP_PASS;
    ethertype = read_source(ctx, &source);
    if (!ethertype)
        return XDP_PASS;
    __builtin_memset(state, 0, sizeof(*state));
    state->bytes = linear_bytes(ctx);
    if (bpf_map_lookup_elem(&denied, &source))
        return give_up(ctx, state, REASON_DENIED);
    return go_on(ctx, state, ethertype == ETH_P_IP ? CALL_SERVICE_IPV4 : CALL_SERVICE_IPV6);
}

char _license[] SEC("license") = "Dual MIT/GPL";
