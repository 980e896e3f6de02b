// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// udp_steer: sends UDP datagrams for bound addresses and ports to AF_XDP sockets, everything else
// to the host.
//
// A binding belongs to one receive queue, because a socket takes frames of its own queue only. The
// exact address is looked up before the family's wildcard, whose address is zero. Only whole
// datagrams are steered: fragments, lengths that do not fit, VLAN tags and IPv6 extension headers
// are the host's to judge, and so is every frame for a group of stations (broadcast and multicast).
//
// Maps
//   bindings     HASH    family, address, port, receive queue -> the sockets that share it
//   udp_sockets  XSKMAP  slot -> AF_XDP socket
//
// Configure  bindings, and udp_sockets for the slots that they name.
// Verdicts   XDP_REDIRECT to a socket; XDP_PASS without one, and for everything else.
#include "hash.h"
#include "parse.h"

#define BINDINGS_MAX 4096
#define SOCKETS_MAX 1024
#define MEMBERS_MAX 64

// The wildcard is for the host's own addresses: what the host forwards is not for the socket.
#define BINDING_OWN_ONLY 1
// Sockets of the binding have server IDs.
#define BINDING_QUIC 2

#define SERVERS_MAX 4096
// Length of connection IDs with a server ID, in bytes: QUIC-LB's first octet, the server ID, and a
// nonce of five.
#define CONNECTION_ID_BYTES 8

struct binding_key {
    struct in6_addr address; // IPv4 addresses are mapped; the wildcards of both families are zero
    __be16 port;
    __u16 family;
    __u32 queue;
};
_Static_assert(sizeof(struct binding_key) == 24, "a map key has no padding");

// Sockets that share a binding: each flow has one of them. Sockets that take no new connections are
// not among them; the count may be zero.
struct binding {
    __u16 count;
    __u16 flags;
    __u16 slots[MEMBERS_MAX];
};

struct server_key {
    struct binding_key binding;
    __u8 prefix[3]; // the first octet and the server ID of connection IDs
    __u8 zero;
};
_Static_assert(sizeof(struct server_key) == 28, "a map key has no padding");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, BINDINGS_MAX);
    __type(key, struct binding_key);
    __type(value, struct binding);
} bindings SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, SERVERS_MAX);
    __type(key, struct server_key);
    __type(value, __u32);
} servers SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, SOCKETS_MAX);
    __type(key, __u32);
    __type(value, __u32);
} udp_sockets SEC(".maps");

// Whether the UDP header's length is that of a datagram within the IP packet, and the packet within
// the frame. `ip` is where the network header starts, `udp` the transport header.
static __always_inline bool is_whole(struct xdp_md *ctx, const struct network *network, void *start,
                                     void *ip, struct udphdr *udp)
{
    __u64 before = ip - start;
    __u64 headers = (void *)udp - ip;
    __u64 bytes = bpf_ntohs(udp->len);

    // Or clang moves constants into the subtractions, and a packet pointer is no number.
    barrier_var(before);
    barrier_var(headers);
    return bytes >= sizeof(*udp) && headers + bytes <= network->bytes &&
           before + network->bytes <= bpf_xdp_get_buff_len(ctx);
}

// Whether IPv6 extension headers are in front of the UDP header.
static __always_inline bool has_extensions(const struct flow *flow, void *ip, struct udphdr *udp)
{
    __u64 headers = (void *)udp - ip;

    barrier_var(headers);
    return flow->family == AF_INET6 && headers != sizeof(struct ipv6hdr);
}

// Whether the host takes the packet in itself, rather than forwarding it.
static __always_inline bool is_for_host(struct xdp_md *ctx, const struct flow *flow)
{
    struct bpf_fib_lookup fib = {
        .family = flow->family,
        .l4_protocol = IPPROTO_UDP,
        .sport = flow->source_port,
        .dport = flow->dest_port,
        .ifindex = ctx->ingress_ifindex,
    };
    long result;

    if (flow->family == AF_INET) {
        fib.ipv4_src = ipv4_of(&flow->source);
        fib.ipv4_dst = ipv4_of(&flow->dest);
    } else {
        __builtin_memcpy(fib.ipv6_src, &flow->source, sizeof(fib.ipv6_src));
        __builtin_memcpy(fib.ipv6_dst, &flow->dest, sizeof(fib.ipv6_dst));
    }
    result = bpf_fib_lookup(ctx, &fib, sizeof(fib), BPF_FIB_LOOKUP_SKIP_NEIGH);
    return result < 0 || result == BPF_FIB_LKUP_RET_NOT_FWDED ||
           result == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

// The binding for a flow, and its key.
static __always_inline struct binding *find_binding(struct xdp_md *ctx, const struct flow *flow,
                                                    struct binding_key *key)
{
    struct binding *binding;

    key->address = flow->dest;
    key->port = flow->dest_port;
    key->family = flow->family;
    key->queue = ctx->rx_queue_index;
    binding = bpf_map_lookup_elem(&bindings, key);
    if (binding)
        return binding;
    __builtin_memset(&key->address, 0, sizeof(key->address));
    binding = bpf_map_lookup_elem(&bindings, key);
    if (binding && binding->flags & BINDING_OWN_ONLY && !is_for_host(ctx, flow))
        return NULL;
    return binding;
}

// A QUIC packet's destination connection ID, as far as delivery depends on it.
struct connection_id {
    __u8 bytes[CONNECTION_ID_BYTES]; // its first bytes
    bool is_chosen;                  // a client may have chosen it: it does in long headers
    bool may_name;                   // it may have a server ID
};

// Whether a datagram begins with a connection ID of at least CONNECTION_ID_BYTES bytes. Those of
// clients' first packets do (RFC 9000, section 7.2).
static __always_inline bool take_connection_id(struct cursor *cursor, struct connection_id *id)
{
    struct long_header {
        __be32 version;
        __u8 id_bytes;
    } __attribute__((packed)) *header;
    __u8 *first = TAKE(cursor, __u8);
    struct bytes {
        __u8 of[CONNECTION_ID_BYTES];
    } *bytes;

    if (!first)
        return false;
    id->is_chosen = *first & 0x80;
    id->may_name = true;
    if (id->is_chosen) {
        header = TAKE(cursor, struct long_header);
        if (!header || header->id_bytes < CONNECTION_ID_BYTES)
            return false;
        id->may_name = header->id_bytes == CONNECTION_ID_BYTES;
    }
    bytes = TAKE(cursor, struct bytes);
    if (!bytes)
        return false;
    __builtin_memcpy(id->bytes, bytes->of, sizeof(id->bytes));
    return true;
}

// The slot of the server that a connection ID names.
static __always_inline __u32 *find_server(const struct binding_key *binding,
                                          const struct connection_id *id)
{
    struct server_key key = {
        .binding = *binding,
        .prefix = {id->bytes[0], id->bytes[1], id->bytes[2]},
    };

    return bpf_map_lookup_elem(&servers, &key);
}

static __always_inline __u32 hash_connection_id(const struct connection_id *id)
{
    __u32 words[CONNECTION_ID_BYTES / 4];

    __builtin_memcpy(words, id->bytes, sizeof(words));
    return hash_finish(hash_word(hash_word(0, words[0]), words[1]));
}

// Delivers a datagram to a socket of its binding.
static __always_inline int deliver(struct cursor *cursor, const struct flow *flow,
                                   const struct binding_key *key, const struct binding *binding)
{
    struct connection_id id = {};
    __u64 member = 0;
    __u32 hash;

    if (binding->flags & BINDING_QUIC && take_connection_id(cursor, &id)) {
        __u32 *slot = id.may_name ? find_server(key, &id) : NULL;

        if (slot)
            return bpf_redirect_map(&udp_sockets, *slot, XDP_PASS);
    } else {
        id.is_chosen = false;
    }
    if (binding->count == 0)
        return XDP_PASS;
    if (binding->count > 1) {
        hash = id.is_chosen ? hash_connection_id(&id) : hash_flow(flow, 0);
        member = hash_scale(hash, binding->count);
    }
    return bpf_redirect_map(&udp_sockets, binding->slots[member & (MEMBERS_MAX - 1)], XDP_PASS);
}

SEC("xdp.frags")
int udp_steer(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    void *start = cursor.pos;
    struct binding_key key = {};
    struct network network = {};
    struct flow flow = {};
    struct ethhdr *ethernet;
    struct binding *binding;
    struct udphdr *udp;
    void *ip;

    ethernet = parse_ethernet(&cursor, &network.ethertype);
    if (!ethernet || ethernet->h_dest[0] & 1)
        return XDP_PASS;
    ip = cursor.pos;
    if (ip - start != sizeof(*ethernet))
        return XDP_PASS;
    if (parse_flow(&cursor, &network, &flow) || !network.has_ports || network.is_fragment)
        return XDP_PASS;
    if (flow.protocol != IPPROTO_UDP)
        return XDP_PASS;
    udp = TAKE(&cursor, struct udphdr);
    if (!udp || has_extensions(&flow, ip, udp) || !is_whole(ctx, &network, start, ip, udp))
        return XDP_PASS;
    binding = find_binding(ctx, &flow, &key);
    if (!binding)
        return XDP_PASS;
    return deliver(&cursor, &flow, &key, binding);
}

char _license[] SEC("license") = "Dual MIT/GPL";
