//! Helpers that ask the host's routing and neighbour tables, or make SYN cookies.

use super::*;

pub(super) const TABLE: &[HelperProto] = &[
    helper(
        id::FIB_LOOKUP,
        &[CTX, MEM_WRITE, SIZE, ANY],
        "Looks up route and neighbour of an address.",
    )
    .keeps_packet()
    .gpl()
    .backed(Backing::Tables(
        "the host tables of the daemon (`[host]`, or the running host's) or of `--fib`",
    )),
    helper(
        id::CHECK_MTU,
        &[CTX, ANY, Arg::fixed(4).with(Flags::WRITE).with(Flags::ALIGNED), ANY, ANY],
        "Compares a length with the MTU of a port.",
    )
    .keeps_packet()
    .gpl()
    .backed(Backing::Tables("the ports that `--fib` or the engine knows")),
    helper(
        id::TCP_RAW_GEN_SYNCOOKIE_IPV4,
        &[IPV4_HEADER, MEM_READ, SIZE_OR_ZERO],
        "Makes a SYN cookie and its MSS without a socket, for IPv4.",
    )
    .keeps_packet()
    .gpl()
    .pkt()
    .backed(COOKIE),
    helper(
        id::TCP_RAW_GEN_SYNCOOKIE_IPV6,
        &[IPV6_HEADER, MEM_READ, SIZE_OR_ZERO],
        "Makes a SYN cookie and its MSS without a socket, for IPv6.",
    )
    .keeps_packet()
    .gpl()
    .pkt()
    .backed(COOKIE),
    helper(
        id::TCP_RAW_CHECK_SYNCOOKIE_IPV4,
        &[IPV4_HEADER, TCP_HEADER],
        "Checks the SYN cookie that an ACK carries, for IPv4.",
    )
    .keeps_packet()
    .gpl()
    .pkt()
    .backed(COOKIE),
    helper(
        id::TCP_RAW_CHECK_SYNCOOKIE_IPV6,
        &[IPV6_HEADER, TCP_HEADER],
        "Checks the SYN cookie that an ACK carries, for IPv6.",
    )
    .keeps_packet()
    .gpl()
    .pkt()
    .backed(COOKIE),
];

const IPV4_HEADER: Arg = Arg::fixed(20).with(Flags::RDONLY);
const IPV6_HEADER: Arg = Arg::fixed(40).with(Flags::RDONLY);
const TCP_HEADER: Arg = Arg::fixed(20).with(Flags::RDONLY);
const COOKIE: Backing =
    Backing::FullExcept("the secret is Towpath's own: a kernel's cookies are not accepted");
