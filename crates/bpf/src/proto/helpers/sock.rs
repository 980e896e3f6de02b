//! Helpers that look up sockets of the host's stack and convert between socket types.

use super::*;

pub(super) const TABLE: &[HelperProto] = &[
    helper(id::SK_LOOKUP_TCP, LOOKUP, "Finds a TCP socket by addresses and ports.")
        .keeps_packet()
        .ties(Ties::OWN)
        .pkt()
        .ret(Ret::new(RetKind::Socket).with(Flags::NULL))
        .backed(SOCKETS),
    helper(id::SK_LOOKUP_UDP, LOOKUP, "Finds a UDP socket by addresses and ports.")
        .keeps_packet()
        .ties(Ties::OWN)
        .pkt()
        .ret(Ret::new(RetKind::Socket).with(Flags::NULL))
        .backed(SOCKETS),
    helper(
        id::SKC_LOOKUP_TCP,
        LOOKUP,
        "Finds a TCP socket or request socket by addresses and ports.",
    )
    .keeps_packet()
    .ties(Ties::OWN)
    .pkt()
    .ret(Ret::new(RetKind::SockCommon).with(Flags::NULL))
    .backed(SOCKETS),
    helper(id::SK_RELEASE, &[SOCK.with(Flags::RELEASE)], "Releases a looked-up socket.")
        .keeps_packet(),
    helper(
        id::TCP_CHECK_SYNCOOKIE,
        &[SOCK, MEM_READ, SIZE, MEM_READ, SIZE],
        "Checks a SYN cookie for a listening socket.",
    )
    .keeps_packet()
    .gpl()
    .pkt()
    .backed(Backing::FullExcept(
        "it returns -ENOENT for a listener, because no listener's queue is ever full",
    )),
    helper(
        id::TCP_GEN_SYNCOOKIE,
        &[SOCK, MEM_READ, SIZE, MEM_READ, SIZE],
        "Makes a SYN cookie for a listening socket.",
    )
    .keeps_packet()
    .gpl()
    .pkt()
    .backed(Backing::FullExcept(
        "it returns -ENOENT for a listener, because no listener's queue is ever full",
    )),
    convert(id::SKC_TO_TCP6_SOCK, "tcp6_sock", "Socket as `struct tcp6_sock`, if it is one."),
    convert(id::SKC_TO_TCP_SOCK, "tcp_sock", "Socket as `struct tcp_sock`, if it is one."),
    convert(
        id::SKC_TO_TCP_TIMEWAIT_SOCK,
        "tcp_timewait_sock",
        "Socket as `struct tcp_timewait_sock`, if it is one.",
    ),
    convert(
        id::SKC_TO_TCP_REQUEST_SOCK,
        "tcp_request_sock",
        "Socket as `struct tcp_request_sock`, if it is one.",
    ),
    convert(id::SKC_TO_UDP6_SOCK, "udp6_sock", "Socket as `struct udp6_sock`, if it is one."),
    convert(id::SKC_TO_UNIX_SOCK, "unix_sock", "Socket as `struct unix_sock`, if it is one."),
    HelperProto {
        args: &[Arg::new(ArgKind::SockCommon)],
        ..convert(
            id::SKC_TO_MPTCP_SOCK,
            "mptcp_sock",
            "Socket as `struct mptcp_sock`, if it is one.",
        )
    },
];

const fn convert(id: u32, btf: &'static str, summary: &'static str) -> HelperProto {
    helper(id, &[SOCK], summary)
        .ties(Ties::FIRST)
        .cap_perfmon()
        .ret(Ret::new(RetKind::BtfId(btf)).with(Flags::NULL))
        .backed(NO_SOCKET)
}

const SOCK: Arg = Arg::new(ArgKind::BtfIdSockCommon);
const LOOKUP: &[Arg] = &[CTX, MEM_READ, SIZE, ANY, ANY];
const SOCKETS: Backing = Backing::Tables("a test case's sockets; elsewhere none exist");
const NO_SOCKET: Backing = Backing::NothingFound("a null pointer");
