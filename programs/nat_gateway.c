// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// nat_gateway: many inside hosts behind one IPv4 address, with connections tracked both ways.
//
// What leaves gets the gateway's address and a port that no other flow to that destination has;
// what comes back is found by that port. TCP is followed through its states, since how long a
// silent session is kept depends on them. Fragments follow their first one, ICMP errors the packet
// that they quote. A listener hears of every session that begins and ends.
//
// Maps
//   outward    LRU_HASH   flow from inside -> what its source becomes; state, times and counts
//   inward     LRU_HASH   flow from outside -> whose it is
//   fragments  LRU_HASH   {addresses, id, protocol} -> ports of the first fragment
//   direct     LPM_TRIE   destination prefix -> 1; reached without translation
//   hops       ARRAY      0: towards outside, 1: towards inside -> MACs and port (0: the same)
//   sessions   PERF_EVENT_ARRAY  an event for each begin and end
//   events     PERCPU_ARRAY  0: what happened how often
//
// Configure  nat_address, inside, inside_mask, port_first, port_count
// Verdicts   XDP_TX or XDP_REDIRECT translated; XDP_PASS not ours; XDP_DROP no session or port.
#include "hash.h"
#include "nat.h"

#define SESSIONS_MAX 65536
#define FRAGMENTS_MAX 8192
#define PORT_TRIES 24
#define SECOND_NS 1000000000ull

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

enum way {
    OUTWARD,
    INWARD,
};

enum state {
    STATE_OPENING,
    STATE_ANSWERED, // UDP and ICMP: seen both ways; TCP: SYN and ACK
    STATE_OPEN,
    STATE_CLOSING,
    STATE_CLOSED,
};

enum event {
    EVENT_BEGIN,
    EVENT_END,
};

struct tuple {
    __be32 source;
    __be32 dest;
    __be16 source_port;
    __be16 dest_port;
    __u16 protocol;
    __u16 zero;
};

struct session {
    __be32 address;
    __be16 port;
    __u8 state;
    __u8 closed_by; // bits by enum way
    __u64 last_ns;
    __u64 packets[2];
    __u64 bytes[2];
};

struct owner {
    __be32 address;
    __be16 port;
    __u16 zero;
};

struct fragment_key {
    __be32 source;
    __be32 dest;
    __be16 id;
    __u16 protocol;
};

struct prefix_v4 {
    __u32 prefixlen;
    __be32 address;
};

struct hop {
    __u8 dest[ETH_ALEN];
    __u8 source[ETH_ALEN];
    __u32 ifindex;
};

struct session_event {
    __u64 time_ns;
    __u64 packets[2];
    __u64 bytes[2];
    struct tuple tuple;
    __be32 address;
    __be16 port;
    __u8 event;
    __u8 state;
};

struct events {
    __u64 outward;
    __u64 inward;
    __u64 begun;
    __u64 ended;
    __u64 expired;
    __u64 no_port;
    __u64 no_session;
    __u64 fragment_alone;
    __u64 quoted;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, SESSIONS_MAX);
    __type(key, struct tuple);
    __type(value, struct session);
} outward SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, SESSIONS_MAX);
    __type(key, struct tuple);
    __type(value, struct owner);
} inward SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, FRAGMENTS_MAX);
    __type(key, struct fragment_key);
    __type(value, struct ports);
} fragments SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, 1024);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct prefix_v4);
    __type(value, __u8);
} direct SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, struct hop);
} hops SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} sessions SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct events);
} events SEC(".maps");

const volatile __be32 nat_address = bpf_htonl(0xcb007102); // 203.0.113.2
const volatile __be32 inside = bpf_htonl(0x0a010000);      // 10.1.0.0
const volatile __be32 inside_mask = bpf_htonl(0xffff0000); // /16
const volatile __u16 port_first = 32768;
const volatile __u16 port_count = 32768;

// What was read of a packet.
struct packet {
    struct tuple tuple;
    __u32 bytes;
    __u8 tcp_flags;
    __u8 is_later_fragment; // it has no transport header
    __u8 is_first_fragment;
    __u8 is_quoting; // an ICMP error: the tuple is that of the quoted packet, turned round
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

static __always_inline bool is_inside(__be32 address)
{
    return (address & inside_mask) == inside;
}

static __always_inline bool is_direct(__be32 address)
{
    struct prefix_v4 key = {.prefixlen = 32, .address = address};

    return bpf_map_lookup_elem(&direct, &key) != NULL;
}

static __always_inline __u8 flags_of(struct tcphdr *tcp)
{
    return ((__u8 *)tcp)[13];
}

// The packet inside an ICMP error: one that went the other way.
static __always_inline bool read_quoted(struct cursor *cursor, struct packet *packet)
{
    struct iphdr *ip = TAKE(cursor, struct iphdr);
    struct ports *ports;

    if (!ip || ip->ihl != 5)
        return false;
    ports = TAKE(cursor, struct ports);
    if (!ports || (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP))
        return false;
    packet->is_quoting = 1;
    packet->tuple.source = ip->daddr;
    packet->tuple.dest = ip->saddr;
    packet->tuple.source_port = ports->dest;
    packet->tuple.dest_port = ports->source;
    packet->tuple.protocol = ip->protocol;
    return true;
}

// Ports, or what stands for them. False for what is not translated.
static __always_inline bool read_transport(struct cursor *cursor, struct packet *packet)
{
    struct icmp_header *icmp;
    struct ports *ports;
    struct tcphdr *tcp;

    switch (packet->tuple.protocol) {
    case IPPROTO_TCP:
        tcp = TAKE(cursor, struct tcphdr);
        if (!tcp)
            return false;
        packet->tcp_flags = flags_of(tcp);
        packet->tuple.source_port = tcp->source;
        packet->tuple.dest_port = tcp->dest;
        return true;
    case IPPROTO_UDP:
        ports = TAKE(cursor, struct ports);
        if (!ports)
            return false;
        packet->tuple.source_port = ports->source;
        packet->tuple.dest_port = ports->dest;
        return true;
    case IPPROTO_ICMP:
        icmp = TAKE(cursor, struct icmp_header);
        if (!icmp)
            return false;
        if (icmp->type == ICMP_ECHO_REQUEST)
            packet->tuple.source_port = icmp->id;
        else if (icmp->type == ICMP_ECHO_REPLY)
            packet->tuple.dest_port = icmp->id;
        else if (icmp->type == ICMP_UNREACHABLE || icmp->type == ICMP_TIME_EXCEEDED)
            return read_quoted(cursor, packet);
        else
            return false;
        return true;
    default:
        return false;
    }
}

// Gives later fragments the ports of the first.
static __always_inline bool join_fragments(struct iphdr *ip, struct packet *packet)
{
    struct fragment_key key = {
        .source = ip->saddr,
        .dest = ip->daddr,
        .id = ip->id,
        .protocol = ip->protocol,
    };
    struct ports *known, first = {
        .source = packet->tuple.source_port,
        .dest = packet->tuple.dest_port,
    };

    if (packet->is_first_fragment)
        return bpf_map_update_elem(&fragments, &key, &first, BPF_ANY) == 0;
    known = bpf_map_lookup_elem(&fragments, &key);
    if (!known)
        return false;
    packet->tuple.source_port = known->source;
    packet->tuple.dest_port = known->dest;
    return true;
}

static __always_inline bool read_packet(struct cursor *cursor, struct packet *packet)
{
    struct iphdr *ip = parse_ipv4(cursor);
    __u16 offset;

    if (!ip)
        return false;
    packet->tuple.source = ip->saddr;
    packet->tuple.dest = ip->daddr;
    packet->tuple.protocol = ip->protocol;
    packet->bytes = bpf_ntohs(ip->tot_len);
    offset = bpf_ntohs(ip->frag_off);
    packet->is_later_fragment = (offset & IPV4_OFFSET_MASK) != 0;
    packet->is_first_fragment = !packet->is_later_fragment && offset & IPV4_MORE_FRAGMENTS;
    if (!packet->is_later_fragment && !read_transport(cursor, packet))
        return false;
    if ((packet->is_later_fragment || packet->is_first_fragment) && !join_fragments(ip, packet)) {
        NOTE(fragment_alone);
        return false;
    }
    return true;
}

static __always_inline void tell(struct xdp_md *ctx, const struct tuple *tuple,
                                 const struct session *session, __u8 event)
{
    struct session_event message = {
        .time_ns = session->last_ns,
        .packets = {session->packets[0], session->packets[1]},
        .bytes = {session->bytes[0], session->bytes[1]},
        .tuple = *tuple,
        .address = session->address,
        .port = session->port,
        .event = event,
        .state = session->state,
    };

    bpf_perf_event_output(ctx, &sessions, BPF_F_CURRENT_CPU, &message, sizeof(message));
    if (event == EVENT_BEGIN)
        NOTE(begun);
    else
        NOTE(ended);
}

// How long a session may be silent.
static __always_inline __u64 patience_ns(const struct session *session, __u16 protocol)
{
    if (protocol != IPPROTO_TCP)
        return session->state == STATE_OPENING ? 30 * SECOND_NS : 120 * SECOND_NS;
    switch (session->state) {
    case STATE_OPEN:
        return 7440 * SECOND_NS; // RFC 5382, 5
    case STATE_CLOSED:
        return 10 * SECOND_NS;
    default:
        return 240 * SECOND_NS;
    }
}

// The state after a packet.
static __always_inline __u8 next_state(struct session *session, const struct packet *packet,
                                       enum way way)
{
    __u8 flags = packet->tcp_flags, state = session->state;

    if (packet->tuple.protocol != IPPROTO_TCP)
        return way == INWARD ? STATE_ANSWERED : state;
    if (flags & TCP_RST)
        return STATE_CLOSED;
    if (flags & TCP_FIN) {
        session->closed_by |= 1 << way;
        return session->closed_by == 3 ? STATE_CLOSED : STATE_CLOSING;
    }
    if (state == STATE_OPENING && way == INWARD && flags & TCP_ACK)
        return STATE_ANSWERED;
    if (state == STATE_ANSWERED && way == OUTWARD && flags & TCP_ACK)
        return STATE_OPEN;
    return state;
}

static __always_inline void track(struct xdp_md *ctx, struct session *session,
                                  const struct packet *packet, const struct tuple *tuple,
                                  enum way way)
{
    __u8 before = session->state;

    session->last_ns = bpf_ktime_get_ns();
    session->packets[way] += 1;
    session->bytes[way] += packet->bytes;
    session->state = next_state(session, packet, way);
    if (session->state == STATE_CLOSED && before != STATE_CLOSED)
        tell(ctx, tuple, session, EVENT_END);
}

// A port that no other flow to this destination has: the host's own if it is free.
static __always_inline bool allocate_port(const struct tuple *tuple, struct session *session)
{
    struct owner owner = {.address = tuple->source, .port = tuple->source_port};
    __u32 hash = hash_word(hash_word(tuple->source, tuple->dest), tuple->source_port);
    struct tuple back = {
        .source = tuple->dest,
        .dest = nat_address,
        .source_port = tuple->dest_port,
        .dest_port = tuple->source_port,
        .protocol = tuple->protocol,
    };

    for (int i = 0; i < PORT_TRIES; i++) {
        if (bpf_ntohs(back.dest_port) >= 1024 &&
            bpf_map_update_elem(&inward, &back, &owner, BPF_NOEXIST) == 0) {
            session->address = nat_address;
            session->port = back.dest_port;
            return true;
        }
        hash = hash_word(hash, i);
        back.dest_port = bpf_htons(port_first + hash_scale(hash_finish(hash), port_count));
    }
    return false;
}

// Begins a session. The element is looked up once more: what is tracked is the one in the map.
static __always_inline struct session *begin(struct xdp_md *ctx, const struct tuple *tuple)
{
    struct session fresh = {.last_ns = bpf_ktime_get_ns()};

    if (!allocate_port(tuple, &fresh)) {
        NOTE(no_port);
        return NULL;
    }
    tell(ctx, tuple, &fresh, EVENT_BEGIN);
    bpf_map_update_elem(&outward, tuple, &fresh, BPF_ANY);
    return bpf_map_lookup_elem(&outward, tuple);
}

static __always_inline bool is_over(const struct session *session, const struct packet *packet)
{
    if (session->state == STATE_CLOSED && packet->tcp_flags & TCP_SYN)
        return true; // the same ports once more
    return (__s64)(bpf_ktime_get_ns() - session->last_ns) >
           (__s64)patience_ns(session, packet->tuple.protocol);
}

// Where the packet's source is to be; false when it may not leave.
static __always_inline bool go_outward(struct xdp_md *ctx, struct packet *packet,
                                       struct owner *after)
{
    struct session *session = bpf_map_lookup_elem(&outward, &packet->tuple);

    NOTE(outward);
    if (session && is_over(session, packet)) {
        NOTE(expired);
        tell(ctx, &packet->tuple, session, EVENT_END);
        session->state = STATE_OPENING;
        session->closed_by = 0;
    }
    if (!session)
        session = begin(ctx, &packet->tuple);
    if (!session)
        return false;
    track(ctx, session, packet, &packet->tuple, OUTWARD);
    after->address = session->address;
    after->port = session->port;
    return true;
}

// Whose the packet is; false when nobody asked for it.
static __always_inline bool go_inward(struct xdp_md *ctx, struct packet *packet,
                                      struct owner *after)
{
    struct owner *owner = bpf_map_lookup_elem(&inward, &packet->tuple);
    struct session *session;
    struct tuple tuple;

    NOTE(inward);
    if (!owner) {
        NOTE(no_session);
        return false;
    }
    *after = *owner;
    if (packet->is_quoting) {
        NOTE(quoted);
        return true;
    }
    tuple = packet->tuple;
    tuple.source = owner->address;
    tuple.dest = packet->tuple.source;
    tuple.source_port = owner->port;
    tuple.dest_port = packet->tuple.source_port;
    session = bpf_map_lookup_elem(&outward, &tuple);
    if (!session || is_over(session, packet)) {
        NOTE(no_session);
        return false;
    }
    track(ctx, session, packet, &tuple, INWARD);
    return true;
}

// The packet that the error quotes, as its sender knows it. Its header's sum stays what it is, so
// that of the error changes by the port alone.
static __always_inline bool rewrite_quoted(struct cursor *cursor, const struct owner *after,
                                           __u64 address_change)
{
    struct icmp_header *icmp = TAKE(cursor, struct icmp_header);
    struct iphdr *ip = TAKE(cursor, struct iphdr);
    struct ports *ports = TAKE(cursor, struct ports);

    if (!icmp || !ip || !ports)
        return false;
    icmp->checksum = checksum_change(icmp->checksum, (__u16)~ports->source + (__u64)after->port);
    ip->check = checksum_change(ip->check, address_change);
    ip->saddr = after->address;
    ports->source = after->port;
    return true;
}

// Gives the packet its new source (outward) or destination (inward).
static __always_inline bool rewrite(struct cursor *cursor, const struct packet *packet,
                                    const struct owner *after, enum way way)
{
    struct flow flow = {
        .source_port = way == OUTWARD ? after->port : packet->tuple.source_port,
        .dest_port = way == OUTWARD ? packet->tuple.dest_port : after->port,
        .protocol = packet->tuple.protocol,
    };
    __be16 port = way == OUTWARD ? packet->tuple.source_port : packet->tuple.dest_port;
    struct iphdr *ip = parse_ipv4(cursor);
    struct change change;

    if (!ip || ip->ttl <= 1)
        return false;
    change.addresses = word_change(way == OUTWARD ? ip->saddr : ip->daddr, after->address);
    change.ports = (__u16)~port + (__u64)after->port;
    if (way == OUTWARD)
        ip->saddr = after->address;
    else
        ip->daddr = after->address;
    ip->check = checksum_change(ip->check, change.addresses);
    ipv4_decrease_ttl(ip);
    if (packet->is_later_fragment)
        return true;
    if (packet->is_quoting)
        return rewrite_quoted(cursor, after, change.addresses);
    return rewrite_transport(cursor, &flow, &change);
}

static __always_inline int send(struct ethhdr *ethernet, __u32 way)
{
    struct hop *hop = bpf_map_lookup_elem(&hops, &way);

    if (!hop)
        return XDP_DROP;
    __builtin_memcpy(ethernet->h_dest, hop->dest, ETH_ALEN);
    __builtin_memcpy(ethernet->h_source, hop->source, ETH_ALEN);
    return hop->ifindex ? bpf_redirect(hop->ifindex, 0) : XDP_TX;
}

SEC("xdp")
int nat_gateway(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx), packet_start;
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);
    struct packet packet = {};
    struct owner after = {};
    bool may_go;
    enum way way;

    if (!ethernet || ethernet->h_proto != bpf_htons(ETH_P_IP))
        return XDP_PASS;
    packet_start = cursor;
    if (!read_packet(&cursor, &packet))
        return XDP_PASS;
    if (packet.tuple.dest == nat_address)
        way = INWARD;
    else if (is_inside(packet.tuple.source) && !is_inside(packet.tuple.dest) &&
             !packet.is_quoting && !is_direct(packet.tuple.dest))
        way = OUTWARD;
    else
        return XDP_PASS;
    may_go = way == OUTWARD ? go_outward(ctx, &packet, &after) : go_inward(ctx, &packet, &after);
    if (!may_go || !rewrite(&packet_start, &packet, &after, way))
        return XDP_DROP;
    return send(ethernet, way);
}

char _license[] SEC("license") = "Dual MIT/GPL";
