// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// vip_balancer: a layer-4 load balancer in the shape that large sites run.
//
// A frame for a virtual address is sent on to one of the real servers behind it, wrapped in IP
// (IPIP, IP6IP6, or IPv4 in IPv6) or in UDP (GUE, variant 1). Which server: the one that the packet
// itself names (a QUIC connection id, an option of TCP), else the one that this CPU's connection
// table knows, else the one in the flow's slot of the address's ring. Each CPU has a table of its
// own, so that no two CPUs wait for each other. ICMP errors about a connection go where the
// connection went, and what is too large to be wrapped is answered with "too big".
//
// Maps
//   vips         HASH           {address, port, protocol, family} -> number, flags
//   connections  ARRAY_OF_MAPS  CPU -> LRU_HASH flow -> {real, when}; `any_cpu` where there is none
//   rings        ARRAY          VIP number * RING_SLOTS + slot -> real's number
//   reals        ARRAY          number -> address and family; family 0 is "nobody"
//   server_ids   ARRAY          id that a packet names -> real's number
//   gateway      ARRAY          0: the MAC address that everything is sent to
//   vip_totals, real_totals     PERCPU_ARRAY  packets, bytes
//   events       PERCPU_ARRAY   0: what happened how often
//   pace         PERCPU_ARRAY   0: new connections of this second
//
// Configure  source_v4, source_v6 (outer source), idle_ns (of UDP flows), new_per_second,
//            ip_bytes_max (of an inner packet)
// Verdicts   XDP_TX balanced or answered; XDP_PASS not ours; XDP_DROP ours but malformed, or nobody
//            to send it to.
#include "vip_encapsulate.h"
#include "vip_parse.h"
#include "vip_too_big.h"

#define VIPS_MAX 512
#define RING_SLOTS 1021 // prime
#define RINGS_MAX 64
#define REALS_MAX 4096
#define SERVER_IDS_MAX 65536
#define CONNECTIONS_MAX 8192 // of one CPU
#define CPUS_MAX 128
#define SECOND_NS 1000000000ull

#define VIP_IGNORE_SOURCE_PORT 1 // all flows of a client go to one real
#define VIP_NO_CONNECTIONS 2     // the ring alone decides
#define VIP_SERVER_IDS 4         // packets may name their real
#define VIP_DEST_PORT_ONLY 8     // flows are told apart by the destination port
#define VIP_GUE 16               // wrap in UDP

struct vip_key {
    struct in6_addr address;
    __be16 port;
    __u8 protocol;
    __u8 family;
};

struct vip {
    __u32 flags;
    __u32 number;
};

struct connection {
    __u32 real;
    __u32 zero;
    __u64 seen_ns; // UDP has no end: after a while, another flow may have these ports
};

struct events {
    __u64 by_id;
    __u64 id_unknown;
    __u64 known_flow;
    __u64 new_flow;
    __u64 without_syn; // of a connection that this CPU has not seen begin
    __u64 not_kept;    // too many new connections in this second
    __u64 no_table;
    __u64 nobody;
    __u64 icmp_error;
    __u64 too_big;
};

struct pace {
    __u64 since_ns;
    __u64 count;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, VIPS_MAX);
    __type(key, struct vip_key);
    __type(value, struct vip);
} vips SEC(".maps");

struct table {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, CONNECTIONS_MAX);
    __type(key, struct flow);
    __type(value, struct connection);
} any_cpu SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, CPUS_MAX);
    __uint(key_size, sizeof(__u32));
    __array(values, struct table);
} connections SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, RINGS_MAX *RING_SLOTS);
    __type(key, __u32);
    __type(value, __u32);
} rings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, REALS_MAX);
    __type(key, __u32);
    __type(value, struct real);
} reals SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SERVER_IDS_MAX);
    __type(key, __u32);
    __type(value, __u32);
} server_ids SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct gateway);
} gateway SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, VIPS_MAX);
    __type(key, __u32);
    __type(value, struct counter);
} vip_totals SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, REALS_MAX);
    __type(key, __u32);
    __type(value, struct counter);
} real_totals SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct events);
} events SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct pace);
} pace SEC(".maps");

const volatile __be32 source_v4 = bpf_htonl(0x0a000001);                     // 10.0.0.1
const volatile __be32 source_v6[4] = {bpf_htonl(0xfc000000), 0, 0, bpf_htonl(1)}; // fc00::1
const volatile __u64 idle_ns = 30 * SECOND_NS;
const volatile __u64 new_per_second = 125000;
const volatile __u32 ip_bytes_max = 1500;

// What a server is chosen by.
struct choice {
    struct packet packet;
    struct vip vip;
    __u32 real; // its number
};

// Counts an event; `event` is a member of struct events.
#define NOTE(event)                                                                                \
    do {                                                                                           \
        __u32 zero = 0;                                                                            \
        struct events *all = bpf_map_lookup_elem(&events, &zero);                                  \
                                                                                                   \
        if (all)                                                                                   \
            all->event += 1;                                                                       \
    } while (0)

static __always_inline struct vip *find_vip(const struct packet *packet)
{
    struct vip_key key = {
        .address = packet->flow.dest,
        .port = packet->flow.dest_port,
        .protocol = packet->flow.protocol,
        .family = packet->flow.family,
    };
    struct vip *vip = bpf_map_lookup_elem(&vips, &key);

    if (vip)
        return vip;
    key.port = 0; // every port of this address
    return bpf_map_lookup_elem(&vips, &key);
}

static __always_inline struct real *real_at(__u32 number)
{
    struct real *real = bpf_map_lookup_elem(&reals, &number);

    return real && real->family ? real : NULL;
}

// The real that the packet names by its id; 0 is nobody.
static __always_inline struct real *real_by_id(struct cursor *cursor, struct choice *choice)
{
    struct real *real = NULL;
    __u32 id = 0, *number;

    if (choice->packet.flow.protocol == IPPROTO_UDP)
        id = quic_server_id(cursor);
    else if (!(choice->packet.notes & PACKET_SYN))
        id = tcp_server_id(cursor);
    if (!id)
        return NULL;
    number = bpf_map_lookup_elem(&server_ids, &id);
    if (number && *number) {
        choice->real = *number;
        real = real_at(*number);
    }
    if (real)
        NOTE(by_id);
    else
        NOTE(id_unknown);
    return real;
}

static __always_inline void *table_of_this_cpu(void)
{
    __u32 cpu = bpf_get_smp_processor_id();
    void *table = bpf_map_lookup_elem(&connections, &cpu);

    if (table)
        return table;
    NOTE(no_table);
    return &any_cpu;
}

static __always_inline struct real *real_by_connection(void *table, struct choice *choice)
{
    struct connection *known = bpf_map_lookup_elem(table, &choice->packet.flow);
    struct real *real;

    if (!known)
        return NULL;
    if (choice->packet.flow.protocol == IPPROTO_UDP) {
        __u64 now = bpf_ktime_get_ns();

        if (now - known->seen_ns > idle_ns)
            return NULL;
        known->seen_ns = now;
    }
    choice->real = known->real;
    real = real_at(known->real);
    if (real)
        NOTE(known_flow);
    return real;
}

// Whether this second has had so many new connections that keeping more would only push out those
// that are in use.
static __always_inline bool is_flood(void)
{
    struct pace *current;
    __u64 now = bpf_ktime_get_ns();
    __u32 zero = 0;

    current = bpf_map_lookup_elem(&pace, &zero);
    if (!current)
        return true;
    if (now - current->since_ns > SECOND_NS) {
        current->since_ns = now;
        current->count = 1;
        return false;
    }
    current->count += 1;
    return current->count > new_per_second;
}

static __always_inline __u32 hash_for_ring(const struct choice *choice)
{
    struct flow hashed = choice->packet.flow;

    if (choice->vip.flags & VIP_DEST_PORT_ONLY) {
        __builtin_memset(&hashed.source, 0, sizeof(hashed.source));
        hashed.source_port = 0;
    }
    if (choice->vip.flags & VIP_IGNORE_SOURCE_PORT)
        hashed.source_port = 0;
    return hash_flow(&hashed, choice->vip.number);
}

static __always_inline struct real *real_by_ring(void *table, struct choice *choice)
{
    __u32 hash = hash_for_ring(choice);
    __u32 slot = choice->vip.number * RING_SLOTS + hash_scale(hash, RING_SLOTS);
    struct connection connection = {};
    struct real *real;
    __u32 *number;

    number = bpf_map_lookup_elem(&rings, &slot);
    if (!number)
        return NULL;
    choice->real = *number;
    real = real_at(*number);
    if (!real || !table || choice->packet.notes & PACKET_QUOTED)
        return real;
    if (is_flood()) {
        NOTE(not_kept);
        return real;
    }
    NOTE(new_flow);
    connection.real = *number;
    if (choice->packet.flow.protocol == IPPROTO_UDP)
        connection.seen_ns = bpf_ktime_get_ns();
    bpf_map_update_elem(table, &choice->packet.flow, &connection, BPF_ANY);
    return real;
}

static __always_inline struct real *choose_real(struct cursor *cursor, struct choice *choice)
{
    struct real *real = NULL;
    void *table = NULL;

    if (choice->vip.flags & VIP_SERVER_IDS && !(choice->packet.notes & PACKET_QUOTED))
        real = real_by_id(cursor, choice);
    if (real)
        return real;
    if (!(choice->vip.flags & VIP_NO_CONNECTIONS)) {
        table = table_of_this_cpu();
        if (!(choice->packet.notes & PACKET_SYN))
            real = real_by_connection(table, choice);
        if (real)
            return real;
        if (choice->packet.flow.protocol == IPPROTO_TCP && !(choice->packet.notes & PACKET_SYN))
            NOTE(without_syn);
    }
    return real_by_ring(table, choice);
}

static __always_inline void count_choice(const struct choice *choice)
{
    __u32 number = choice->vip.number;
    struct counter *total = bpf_map_lookup_elem(&vip_totals, &number);

    if (total)
        count(total, choice->packet.bytes);
    number = choice->real;
    total = bpf_map_lookup_elem(&real_totals, &number);
    if (total)
        count(total, choice->packet.bytes);
}

static __always_inline int send_to(struct xdp_md *ctx, const struct choice *choice,
                                   const struct real *real)
{
    struct outer outer = {
        .hash = hash_flow(&choice->packet.flow, 0),
        .bytes = choice->packet.bytes,
        .tos = choice->packet.tos,
        .is_ipv4_inside = choice->packet.flow.family == AF_INET,
        .is_gue = choice->vip.flags & VIP_GUE,
    };
    __u32 zero = 0;

    outer.gateway = bpf_map_lookup_elem(&gateway, &zero);
    if (!outer.gateway)
        return XDP_DROP;
    if (real->family == AF_INET6) {
#pragma unroll
        for (int i = 0; i < 4; i++)
            outer.source.in6_u.u6_addr32[i] = source_v6[i];
        return encapsulate_ipv6(ctx, real, &outer);
    }
    if (!outer.is_ipv4_inside)
        return XDP_DROP; // an IPv6 packet does not travel in IPv4 here
    outer.source.in6_u.u6_addr32[3] = source_v4;
    return encapsulate_ipv4(ctx, real, &outer);
}

SEC("xdp")
int vip_balancer(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct choice choice = {};
    struct real *real;
    struct vip *vip;
    int verdict;

    verdict = read_packet(ctx, &cursor, &choice.packet);
    if (verdict != GO_ON)
        return verdict;
    if (choice.packet.notes & PACKET_QUOTED)
        NOTE(icmp_error);
    vip = find_vip(&choice.packet);
    if (!vip)
        return XDP_PASS;
    if (choice.packet.bytes > ip_bytes_max) {
        NOTE(too_big);
        return answer_too_big(ctx, choice.packet.flow.family, ip_bytes_max);
    }
    choice.vip = *vip;
    real = choose_real(&cursor, &choice);
    if (!real) {
        NOTE(nobody);
        return XDP_DROP;
    }
    count_choice(&choice);
    return send_to(ctx, &choice, real);
}

char _license[] SEC("license") = "Dual MIT/GPL";
