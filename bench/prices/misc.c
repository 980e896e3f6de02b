// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Clocks, numbers of the machine and the task, locks, timers, loops and text made of numbers.
// Flags: -fno-builtin
#include "price.h"

#define CLOCK_MONOTONIC 1

struct locked {
    struct bpf_spin_lock lock;
    __u32 value;
};

struct timed {
    struct bpf_timer timer;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct locked);
} locks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct timed);
} timers SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u8[256]);
} buffers SEC(".maps");

PRICE(ktime_get_ns, , done += bpf_ktime_get_ns() != 0)
PRICE(ktime_get_boot_ns, , done += bpf_ktime_get_boot_ns() != 0)
PRICE(ktime_get_coarse_ns, , done += bpf_ktime_get_coarse_ns() != 0)
PRICE(ktime_get_tai_ns, , done += bpf_ktime_get_tai_ns() != 0)
PRICE(jiffies64, , done += bpf_jiffies64() != 0)
PRICE(get_prandom_u32, __u32 sum = 0, (sum |= bpf_get_prandom_u32(), done += sum != 0))
PRICE(get_smp_processor_id, , done += bpf_get_smp_processor_id() < 4096)
PRICE(get_numa_node_id, , done += bpf_get_numa_node_id() < 4096)
PRICE(get_current_pid_tgid, , done += bpf_get_current_pid_tgid() != 0)
PRICE(get_current_uid_gid, , done += bpf_get_current_uid_gid() != 1)
PRICE(get_current_comm, char name[16], done += !bpf_get_current_comm(name, sizeof(name)))

#define VALUE_OF(type, name, map)                                                                  \
    struct type *name = bpf_map_lookup_elem(&map, &first);                                         \
    if (!name)                                                                                     \
        return 0

PRICE(spin_lock_and_unlock, VALUE_OF(locked, locked, locks), {
    bpf_spin_lock(&locked->lock);
    locked->value += n;
    bpf_spin_unlock(&locked->lock);
    done += 1;
})

static int elapsed(void *map, __u32 *key, struct timed *value)
{
    return 0;
}

PRICE(timer_start, VALUE_OF(timed, timed, timers);
      bpf_timer_init(&timed->timer, &timers, CLOCK_MONOTONIC);
      bpf_timer_set_callback(&timed->timer, elapsed),
      done += !bpf_timer_start(&timed->timer, 10000000000ull + n, 0))
PRICE(timer_start_and_cancel, VALUE_OF(timed, timed, timers);
      bpf_timer_init(&timed->timer, &timers, CLOCK_MONOTONIC);
      bpf_timer_set_callback(&timed->timer, elapsed), {
          bpf_timer_start(&timed->timer, 10000000000ull + n, 0);
          done += bpf_timer_cancel(&timed->timer) >= 0;
      })

static long count_round(__u32 index, int *count)
{
    *count += 1;
    return 0;
}

// One step is one round.
SEC("xdp")
int loop_round(struct xdp_md *ctx)
{
    int count = 0;

    bpf_loop(REPEATS + ctx->rx_queue_index, count_round, &count, 0);
    return count;
}

SEC("xdp")
int iter_num_round(struct xdp_md *ctx)
{
    struct bpf_iter_num numbers;
    int count = 0;

    bpf_iter_num_new(&numbers, 0, REPEATS + (ctx->rx_queue_index & 7));
    while (bpf_iter_num_next(&numbers))
        count += 1;
    bpf_iter_num_destroy(&numbers);
    return count;
}

SEC("xdp")
int iter_bits_round(struct xdp_md *ctx)
{
    __u64 words[2] = {0x5555555555555555 + ctx->rx_queue_index, 0};
    struct bpf_iter_bits bits;
    int count = 0;

    bpf_iter_bits_new(&bits, words, 1);
    while (count < REPEATS && bpf_iter_bits_next(&bits))
        count += 1;
    bpf_iter_bits_destroy(&bits);
    return count;
}

PRICE(strtol, char text[16] = "-12345678"; long number, {
    text[8] = '0' + (first + n) % 10;
    done += bpf_strtol(text, sizeof(text), 10, &number) == 9;
})
PRICE(strtoul, char text[16] = "123456789"; unsigned long number, {
    text[8] = '0' + (first + n) % 10;
    done += bpf_strtoul(text, sizeof(text), 10, &number) == 9;
})
PRICE(snprintf, char text[64]; __u64 words[2] = {first}, {
    words[1] = n;
    done += bpf_snprintf(text, sizeof(text), "of %d packets %x", words, sizeof(words)) > 0;
})

struct buffer {
    __u8 bytes[256];
};

PRICE(probe_read_kernel_64, VALUE_OF(buffer, from, buffers); __u8 bytes[64],
      done += !bpf_probe_read_kernel(bytes, sizeof(bytes), from->bytes + n))
PRICE(probe_read_kernel_str, VALUE_OF(buffer, from, buffers); char bytes[64],
      done += bpf_probe_read_kernel_str(bytes, sizeof(bytes), from->bytes + n) > 0)
PRICE(dynptr_from_mem, VALUE_OF(buffer, memory, buffers), {
    struct bpf_dynptr view;
    done += !bpf_dynptr_from_mem(memory, sizeof(*memory), 0, &view);
})
PRICE(dynptr_read_of_memory_64, VALUE_OF(buffer, memory, buffers); struct bpf_dynptr view;
      bpf_dynptr_from_mem(memory, sizeof(*memory), 0, &view); __u8 bytes[64],
      done += !bpf_dynptr_read(bytes, sizeof(bytes), &view, n, 0))
PRICE(dynptr_write_to_memory_64, VALUE_OF(buffer, memory, buffers); struct bpf_dynptr view;
      bpf_dynptr_from_mem(memory, sizeof(*memory), 0, &view); __u8 bytes[64] = {},
      done += !bpf_dynptr_write(&view, n, bytes, sizeof(bytes), 0))
PRICE(dynptr_data_of_memory, VALUE_OF(buffer, memory, buffers); struct bpf_dynptr view;
      bpf_dynptr_from_mem(memory, sizeof(*memory), 0, &view),
      done += !!bpf_dynptr_data(&view, n, 64))
