// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What a port of kind `ipsec` and programs tell each other in a frame's metadata (docs/ipsec.md).
// Frames that are sent to the port arrive at it when they are encapsulated or decapsulated, with
// this record in front:
//
//     struct towpath_esp_meta *esp = (void *)(long)ctx->data_meta;
//     if ((void *)(esp + 1) > (void *)(long)ctx->data || esp->status != TOWPATH_ESP_DONE)
//         return XDP_DROP;
#pragma once

#include "xdp.h"

struct towpath_esp_meta {
    __u32 sa;              // number of the SA; 0: none was used
    __u32 spi;             // its SPI, as a number of this machine
    __u8 dir;              // enum towpath_esp_dir
    __u8 status;           // enum towpath_esp_status
    __u16 moved;           // bytes by which the packet's first byte moved, as a signed number
    __u32 ingress_ifindex; // where the frame arrived before it was sent to the port
};

enum towpath_esp_dir {
    TOWPATH_ESP_BYPASS = 0, // its policy lets it by
    TOWPATH_ESP_IN = 1,     // decapsulated
    TOWPATH_ESP_OUT = 2,    // encapsulated
};

// Frames with a status other than DONE arrive only if the port has `deliver_refused`. Their packets
// are as they were sent to the port; after BAD_ICV the protected part is zeros.
enum towpath_esp_status {
    TOWPATH_ESP_DONE = 0,
    TOWPATH_ESP_REFUSED = 1,       // malformed, or not as its SA is
    TOWPATH_ESP_TOO_BIG = 2,       // it would exceed the path's MTU
    TOWPATH_ESP_NO_SA = 3,         // no SA is there for it
    TOWPATH_ESP_NO_POLICY = 4,     // no policy is there for it, or one that discards it
    TOWPATH_ESP_EXPIRED = 5,       // its SA has ended
    TOWPATH_ESP_REPLAYED = 6,      // its number was seen before, or is too old
    TOWPATH_ESP_BAD_ICV = 7,       // the integrity check failed
    TOWPATH_ESP_ENGINE_FAILED = 8, // the engine failed
    // A program that chooses the SA of a frame writes `sa`, `spi` and this before it sends the
    // frame to the port; else the SPI, or the policy, decides.
    TOWPATH_ESP_CHOSEN = 0x80,
};
