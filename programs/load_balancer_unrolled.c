// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// load_balancer_unrolled: load_balancer with everything on, as long straight code.
//
// Four VLAN tags, ten IPv6 extension headers and a walk over four TCP options (or a QUIC connection
// ID) for the number of the backend that a client was told to name: parsers are unrolled, nothing
// is called. It is what large load balancers look like to a verifier, and the subject of the
// verification-speed benchmark. Maps, configuration and verdicts are load_balancer's.
#define UNROLLED
#define VLAN_DEPTH_MAX 4
#define EXTENSION_HEADERS_MAX 10

#include "load_balancer.c"
