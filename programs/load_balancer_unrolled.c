// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// load_balancer_unrolled: load_balancer with everything on, as long straight code.
//
// Four VLAN tags, eight IPv6 extension headers, a walk over 24 TCP options (or a QUIC connection
// ID) for the number of the backend that a client was told to name, and rendezvous hashing over 48
// candidates where the ring has no answer: parsers are unrolled, nothing is called. It is what
// large load balancers look like to a verifier (5,400 instructions), and the subject of the
// verification-speed benchmark. Configuration and verdicts are load_balancer's.
//
// Maps   load_balancer's, and
//   candidates   ARRAY   service number -> up to 48 backend numbers, 0xffffffff for none
#define UNROLLED
#define VLAN_DEPTH_MAX 4
#define EXTENSION_HEADERS_MAX 8

#include "load_balancer.c"
