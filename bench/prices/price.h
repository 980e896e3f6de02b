// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What `towpath bench --helpers` measures: programs that do one thing REPEATS times, without a
// loop, and return how often it went as expected. The program `prepare`, if there is one, runs once
// before each of the others, over the same maps.
#pragma once

#include "kfuncs.h"

// crates/cli/src/bench/prices knows this number.
#define REPEATS 16

#define PRICE(operation, preparation, step)                                                        \
    SEC("xdp") int operation(struct xdp_md *ctx)                                                   \
    {                                                                                              \
        __u32 __attribute__((unused)) first = ctx->rx_queue_index;                                 \
        int done = 0;                                                                              \
        preparation;                                                                               \
        _Pragma("clang loop unroll(full)") for (int n = 0; n < REPEATS; n++)                       \
        {                                                                                          \
            step;                                                                                  \
        }                                                                                          \
        return done;                                                                               \
    }

// A key that differs from step to step and that no compiler knows.
#define KEY(n) (first + (n))

char LICENSE[] SEC("license") = "Dual MIT/GPL";
