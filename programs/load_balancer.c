// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// load_balancer: a layer-4 load balancer for IPv4 and IPv6, direct server return.
//
// A frame for a virtual service (address, port, protocol) is wrapped in an outer IP header
// (IPIP or IP6IP6, RFC 2003 and RFC 2473) towards one backend and sent back out of the port it came
// in by. The backend is chosen by Maglev consistent hashing: the service's ring holds a backend
// number in each slot, so that a backend that leaves disturbs few flows. Flows that are known keep
// their backend from the connection table, whatever happens to the ring. A TCP SYN always starts
// over.
//
// Maps
//   services     HASH          service -> {number, flags}; who is balanced
//   rings        ARRAY         service number -> RING_SLOTS backend numbers
//   backends     ARRAY         backend number -> {address, MAC, family}; family 0 is "empty"
//   connections  LRU_HASH      flow -> {backend number}
//   service_stats PERCPU_ARRAY service number -> packets, bytes in
//   events       PERCPU_ARRAY  0: what happened how often
//
// Configure  local_v4, local_v6 (outer source), local_mac, hash_seed are globals in .rodata.
// Verdicts   XDP_TX balanced; XDP_PASS not ours; XDP_DROP ours but malformed, or no backend.
//
// `UNROLLED` makes the parsers and hashes long straight code: see load_balancer_unrolled.c.
#include "checksum.h"
#include "hash.h"
#include "parse.h"
#include "rendezvous.h"
#include "steering.h"

#define SERVICES_MAX 64
#define BACKENDS_MAX 256
#define RING_SLOTS 1021 // prime, and far above the number of backends a service has
#define CONNECTIONS_MAX 65536

#define SERVICE_IGNORE_SOURCE_PORT 1 // all flows of a client go to one backend
#define SERVICE_NO_CONNECTIONS 2     // stateless: the ring alone decides

struct events {
    __u64 new_flow;
    __u64 known_flow;
    __u64 stale_flow; // its backend has left; chosen anew
    __u64 no_backend;
    __u64 fragment;
    __u64 no_headroom; // bpf_xdp_adjust_head refused
};

struct service_key {
    struct in6_addr address;
    __be16 port;
    __u8 protocol;
    __u8 family;
};

struct service {
    __u32 number;
    __u32 flags;
};

struct ring {
    __u32 backend[RING_SLOTS];
};

struct connection {
    __u32 backend;
};

struct backend {
    struct in6_addr address;
    __u8 mac[ETH_ALEN];
    __u16 family;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, SERVICES_MAX);
    __type(key, struct service_key);
    __type(value, struct service);
} services SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SERVICES_MAX);
    __type(key, __u32);
    __type(value, struct ring);
} rings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, BACKENDS_MAX);
    __type(key, __u32);
    __type(value, struct backend);
} backends SEC(".maps");

#ifdef UNROLLED
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SERVICES_MAX);
    __type(key, __u32);
    __type(value, struct candidates);
} candidates SEC(".maps");
#endif

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, CONNECTIONS_MAX);
    __type(key, struct flow);
    __type(value, struct connection);
} connections SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, SERVICES_MAX);
    __type(key, __u32);
    __type(value, struct counter);
} service_stats SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct events);
} events SEC(".maps");

const volatile __be32 local_v4 = bpf_htonl(0xc0000201);                  // 192.0.2.1
const volatile __be32 local_v6[4] = {bpf_htonl(0x20010db8), 0, 0, bpf_htonl(1)}; // 2001:db8::1
const volatile __u8 local_mac[ETH_ALEN] = {0x02, 0, 0, 0, 0, 0x01};
const volatile __u32 hash_seed = 0x746f7770;

// What the outer header has to say about the packet it carries.
struct inner {
    __u32 tag_bytes; // VLAN tags in front of it, which do not travel along
    __u32 hash;
    __u16 bytes;
    __u8 protocol;
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

static __always_inline struct service *find_service(const struct flow *flow)
{
    struct service_key key = {
        .address = flow->dest,
        .port = flow->dest_port,
        .protocol = flow->protocol,
        .family = flow->family,
    };

    return bpf_map_lookup_elem(&services, &key);
}

static __always_inline struct backend *backend_at(__u32 number)
{
    struct backend *backend = bpf_map_lookup_elem(&backends, &number);

    return backend && backend->family ? backend : NULL;
}

// The ring's choice. Slots hold numbers that the control plane wrote; they are checked on lookup.
static __always_inline struct backend *backend_by_ring(const struct flow *flow,
                                                       const struct service *service,
                                                       __u32 *number)
{
    struct flow hashed = *flow;
    __u32 index = service->number;
    struct ring *ring = bpf_map_lookup_elem(&rings, &index);

    if (!ring)
        return NULL;
    if (service->flags & SERVICE_IGNORE_SOURCE_PORT)
        hashed.source_port = 0;
    *number = ring->backend[hash_scale(hash_flow(&hashed, hash_seed), RING_SLOTS)];
    return backend_at(*number);
}

// For a ring whose choice has left, before the control plane has written a new one.
static __always_inline struct backend *backend_by_rendezvous(const struct flow *flow,
                                                             const struct service *service,
                                                             __u32 *number)
{
#ifdef UNROLLED
    __u32 index = service->number;
    struct candidates *known = bpf_map_lookup_elem(&candidates, &index);

    if (known) {
        *number = rendezvous(known, hash_flow(flow, hash_seed));
        return backend_at(*number);
    }
#endif
    return NULL;
}

static __always_inline struct backend *choose_backend(const struct flow *flow,
                                                      const struct service *service,
                                                      bool is_first_segment)
{
    bool is_tracked = !(service->flags & SERVICE_NO_CONNECTIONS);
    struct connection connection;
    struct backend *backend;

    if (is_tracked && !is_first_segment) {
        struct connection *known = bpf_map_lookup_elem(&connections, flow);

        if (known) {
            backend = backend_at(known->backend);
            if (backend) {
                NOTE(known_flow);
                return backend;
            }
            NOTE(stale_flow);
        }
    }
    backend = backend_by_ring(flow, service, &connection.backend);
    if (!backend)
        backend = backend_by_rendezvous(flow, service, &connection.backend);
    if (!backend) {
        NOTE(no_backend);
        return NULL;
    }
    NOTE(new_flow);
    if (is_tracked)
        bpf_map_update_elem(&connections, flow, &connection, BPF_ANY);
    return backend;
}

static __always_inline void write_ethernet(struct ethhdr *ethernet, const struct backend *backend,
                                           __u16 ethertype)
{
    __builtin_memcpy(ethernet->h_dest, backend->mac, ETH_ALEN);
#pragma unroll
    for (int i = 0; i < ETH_ALEN; i++)
        ethernet->h_source[i] = local_mac[i];
    ethernet->h_proto = bpf_htons(ethertype);
}

// Spreads the outer flow over the network's and the backend's receive queues by varying the
// source address: the inner five-tuple is out of sight of their hashes.
static __always_inline __be32 outer_source_low(__be32 base, __u32 hash)
{
    return base ^ bpf_htonl(hash & 0xff00);
}

static __always_inline int encapsulate_ipv4(struct xdp_md *ctx, const struct backend *backend,
                                            const struct inner *inner)
{
    struct cursor cursor;
    struct ethhdr *ethernet;
    struct iphdr *ip;

    if (bpf_xdp_adjust_head(ctx, (int)inner->tag_bytes - (int)sizeof(*ip))) {
        NOTE(no_headroom);
        return XDP_DROP;
    }
    cursor = cursor_at_start(ctx);
    ethernet = TAKE(&cursor, struct ethhdr);
    ip = TAKE(&cursor, struct iphdr);
    if (!ethernet || !ip)
        return XDP_DROP;
    write_ethernet(ethernet, backend, ETH_P_IP);
    __builtin_memset(ip, 0, sizeof(*ip));
    ip->version = 4;
    ip->ihl = 5;
    ip->tot_len = bpf_htons(inner->bytes + sizeof(*ip));
    ip->ttl = 64;
    ip->protocol = inner->protocol;
    ip->saddr = outer_source_low(local_v4, inner->hash);
    ip->daddr = ipv4_of(&backend->address);
    ip->check = ipv4_checksum(ip);
    return XDP_TX;
}

static __always_inline int encapsulate_ipv6(struct xdp_md *ctx, const struct backend *backend,
                                            const struct inner *inner)
{
    struct cursor cursor;
    struct ethhdr *ethernet;
    struct ipv6hdr *ip;

    if (bpf_xdp_adjust_head(ctx, (int)inner->tag_bytes - (int)sizeof(*ip))) {
        NOTE(no_headroom);
        return XDP_DROP;
    }
    cursor = cursor_at_start(ctx);
    ethernet = TAKE(&cursor, struct ethhdr);
    ip = TAKE(&cursor, struct ipv6hdr);
    if (!ethernet || !ip)
        return XDP_DROP;
    write_ethernet(ethernet, backend, ETH_P_IPV6);
    __builtin_memset(ip, 0, sizeof(*ip));
    ip->version = 6;
    ip->payload_len = bpf_htons(inner->bytes);
    ip->nexthdr = inner->protocol;
    ip->hop_limit = 64;
#pragma unroll
    for (int i = 0; i < 4; i++)
        ip->saddr.in6_u.u6_addr32[i] = local_v6[i];
    ip->saddr.in6_u.u6_addr32[2] = outer_source_low(local_v6[2], inner->hash);
    __builtin_memcpy(&ip->daddr, &backend->address, sizeof(ip->daddr));
    return XDP_TX;
}

// Balances one frame of a known service.
static __always_inline int balance(struct xdp_md *ctx, const struct flow *flow,
                                   const struct service *service, struct cursor *cursor,
                                   struct inner *inner)
{
    __u32 number = service->number;
    struct counter *stats = bpf_map_lookup_elem(&service_stats, &number);
    struct backend *backend = NULL;

    if (stats)
        count(stats, linear_bytes(ctx));
    if (steering_number(cursor, flow, &number))
        backend = backend_at(number);
    if (!backend)
        backend = choose_backend(flow, service, is_first_segment(cursor, flow));
    if (!backend)
        return XDP_DROP;
    inner->hash = hash_flow(flow, hash_seed);
    inner->protocol = flow->family == AF_INET ? IPPROTO_IPIP : IPPROTO_IPV6;
    if (backend->family == AF_INET6)
        return encapsulate_ipv6(ctx, backend, inner);
    return encapsulate_ipv4(ctx, backend, inner);
}

SEC("xdp")
int load_balancer(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct network network = {};
    struct inner inner = {};
    struct flow flow = {};
    struct service *service;
    void *start = cursor.pos;
    void *packet;

    if (!parse_ethernet(&cursor, &network.ethertype))
        return XDP_PASS;
    packet = cursor.pos;
    if (parse_flow(&cursor, &network, &flow))
        return XDP_PASS;
    if (network.is_fragment) {
        // Later fragments carry no ports: a service that balances them needs reassembly first.
        NOTE(fragment);
        return XDP_PASS;
    }
    service = find_service(&flow);
    if (!service)
        return XDP_PASS;
    if (network.bytes > cursor.end - packet)
        return XDP_DROP;
    inner.bytes = network.bytes;
    inner.tag_bytes = packet - start - sizeof(struct ethhdr);
    return balance(ctx, &flow, service, &cursor, &inner);
}

char _license[] SEC("license") = "Dual MIT/GPL";
