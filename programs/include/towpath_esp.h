// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// The record that programs and a port of kind `ipsec` exchange in a frame's metadata
// (docs/ipsec.md). Frames that were sent to the port are encapsulated or decapsulated, and then
// arrive at the port with this record as their metadata:
//
//     struct towpath_esp_meta *esp = (void *)(long)ctx->data_meta;
//     if ((void *)(esp + 1) > (void *)(long)ctx->data || esp->status != TOWPATH_ESP_DONE)
//         return XDP_DROP;
#pragma once

#include "xdp.h"

struct towpath_esp_meta {
    __u32 sa;              // number of the SA; 0: none was used
    __u32 spi;             // SPI of the SA, in the machine's byte order
    __u8 dir;              // enum towpath_esp_dir
    __u8 status;           // enum towpath_esp_status
    __u16 moved;           // bytes by which the packet's first byte moved, as a signed number
    __u32 ingress_ifindex; // port at which the frame arrived before it was sent to this port
};

enum towpath_esp_dir {
    TOWPATH_ESP_BYPASS = 0, // let through by a bypass policy
    TOWPATH_ESP_IN = 1,     // decapsulated
    TOWPATH_ESP_OUT = 2,    // encapsulated
};

// Frames with a status other than DONE arrive only if the port has `deliver_refused`. Packets that
// were refused before the cryptography are unchanged. In packets that were refused after it (always
// with BAD_ICV and ENGINE_FAILED), the protected part is zeros.
enum towpath_esp_status {
    TOWPATH_ESP_DONE = 0,
    TOWPATH_ESP_REFUSED = 1,       // the packet is malformed, or does not fit its SA
    TOWPATH_ESP_TOO_BIG = 2,       // the packet would exceed the path MTU
    TOWPATH_ESP_NO_SA = 3,         // there is no SA for the packet
    TOWPATH_ESP_NO_POLICY = 4,     // no policy matches the packet, or its policy discards it
    TOWPATH_ESP_EXPIRED = 5,       // the SA has ended
    TOWPATH_ESP_REPLAYED = 6,      // the sequence number was seen before, or is too old
    TOWPATH_ESP_BAD_ICV = 7,       // the integrity check failed
    TOWPATH_ESP_ENGINE_FAILED = 8, // the engine failed
    TOWPATH_ESP_BUSY = 9,          // kfuncs: another worker or the port's queue uses the SA
    // A program that chooses the SA of a frame writes `sa`, `spi` and this status before it sends
    // the frame to the port. The record must be the whole metadata, exactly 16 bytes; otherwise the
    // SPI or the policy decides.
    TOWPATH_ESP_CHOSEN = 0x80,
};

// ESP without the port's queue (docs/ipsec.md): the frame is encapsulated or decapsulated at once,
// with an SA of the port of kind `ipsec` that has this ifindex. No kernel has these functions. They
// are weak, so that programs load in the kernel too:
//
//     struct towpath_esp_meta esp = {};
//     if (bpf_xdp_esp_decap && bpf_xdp_esp_decap(ctx, ifindex, &esp, sizeof(esp)) == 0)
//         return XDP_PASS; // `esp` has the SA; pointers into the packet are invalid
//     return bpf_redirect(ifindex, 0);
//
// `meta` is the record above, on the stack or in a map. Before the call, it chooses an SA if its
// status is CHOSEN; otherwise set it to zeros. Afterwards, it has the outcome.
//
// 0; -EINVAL (size, record in the packet, REFUSED), -ENODEV (no such port, or it is down),
// -EOPNOTSUPP (the frame is several packets in one, or too long for one buffer), -EMSGSIZE
// (TOO_BIG), -ENOENT (NO_SA), -EACCES (NO_POLICY), -EKEYEXPIRED (EXPIRED), -EALREADY (REPLAYED),
// -EBADMSG (BAD_ICV), -EIO (ENGINE_FAILED), -EBUSY (BUSY: send the frame to the port).
extern int bpf_xdp_esp_decap(struct xdp_md *ctx, __u32 ifindex, struct towpath_esp_meta *meta,
                             __u32 meta__sz) __ksym __weak;
extern int bpf_xdp_esp_encap(struct xdp_md *ctx, __u32 ifindex, struct towpath_esp_meta *meta,
                             __u32 meta__sz) __ksym __weak;
