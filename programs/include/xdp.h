// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What every program here includes: the kernel's headers as Debian ships them, the words they
// lack, and a cursor that keeps "have I proved this byte is there" in one place.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_INET 2
#define AF_INET6 10

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

// One pair of counters; values of the statistics maps.
struct counter {
    __u64 packets;
    __u64 bytes;
};

// A read position in the linear part of a frame. `end` never moves; `pos` moves only past bytes
// that were compared with `end`, which is what the verifier wants to see.
struct cursor {
    void *pos;
    void *end;
};

static __always_inline struct cursor cursor_at_start(struct xdp_md *ctx)
{
    struct cursor cursor = {
        .pos = (void *)(long)ctx->data,
        .end = (void *)(long)ctx->data_end,
    };
    return cursor;
}

// Returns the next `size` bytes and steps over them, or NULL when the frame ends before.
static __always_inline void *take(struct cursor *cursor, __u64 size)
{
    void *start = cursor->pos;

    if (start + size > cursor->end)
        return NULL;
    cursor->pos = start + size;
    return start;
}

#define TAKE(cursor, type) ((type *)take(cursor, sizeof(type)))

// Length of the linear part; what statistics count unless a program asks for whole frames.
static __always_inline __u64 linear_bytes(struct xdp_md *ctx)
{
    __u64 bytes = ctx->data_end - ctx->data;

    // Or clang moves a constant into the subtraction, and a packet pointer is no number.
    barrier_var(bytes);
    return bytes;
}

// For maps whose counters are per CPU: no atomics needed.
static __always_inline void count(struct counter *counter, __u64 bytes)
{
    counter->packets += 1;
    counter->bytes += bytes;
}
