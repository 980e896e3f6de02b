// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// A kernel function that only Towpath has: where the bridge above the ingress port would send a
// frame. It is weak, so that programs load in the kernel too:
//
//     struct bpf_fdb_lookup fdb = { .vlan = 0 };
//     __builtin_memcpy(fdb.addr, eth->h_dest, ETH_ALEN);
//     if (bpf_fdb_lookup && bpf_fdb_lookup(ctx, &fdb, sizeof(fdb)) == 0)
//         return bpf_redirect(fdb.ifindex, 0);
//     return XDP_PASS; // the bridge floods, or there is none
#pragma once

#include "xdp.h"

struct bpf_fdb_lookup {
    __u8 addr[6];  // in: the address that is looked for
    __u16 vlan;    // in: its VLAN, 0 for untagged
    __u32 ifindex; // out: the port it is behind
};

// 0, or -EINVAL (size, VLAN above 4095), -ENODEV (the ingress port is below no bridge), -ENOENT
// (the address is not known, or was not seen for the bridge's ageing time).
extern int bpf_fdb_lookup(struct xdp_md *ctx, struct bpf_fdb_lookup *params,
                          __u32 params__sz) __ksym __weak;
