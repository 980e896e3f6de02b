// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Look-ups, updates and deletes in maps of every kind that holds data.
#include "price.h"

#define ENTRIES 1024

struct value {
    __u64 words[4];
};

#define TABLE(name, kind, value_type)                                                              \
    struct {                                                                                       \
        __uint(type, BPF_MAP_TYPE_##kind);                                                         \
        __uint(max_entries, ENTRIES);                                                              \
        __type(key, __u32);                                                                        \
        __type(value, value_type);                                                                 \
    } name SEC(".maps")

TABLE(array, ARRAY, struct value);
TABLE(percpu_array, PERCPU_ARRAY, struct value);
TABLE(hash, HASH, struct value);
TABLE(percpu_hash, PERCPU_HASH, struct value);
TABLE(lru_hash, LRU_HASH, struct value);
TABLE(lru_percpu_hash, LRU_PERCPU_HASH, struct value);
TABLE(lru_full, LRU_HASH, struct value);

struct prefix {
    __u32 bits;
    __u32 address;
};

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, ENTRIES);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct prefix);
    __type(value, struct value);
} lpm_trie SEC(".maps");

#define CHAIN(name, kind)                                                                          \
    struct {                                                                                       \
        __uint(type, BPF_MAP_TYPE_##kind);                                                         \
        __uint(max_entries, ENTRIES);                                                              \
        __type(value, struct value);                                                               \
    } name SEC(".maps")

CHAIN(queue, QUEUE);
CHAIN(stack, STACK);

struct {
    __uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
    __uint(max_entries, ENTRIES);
    __type(value, __u64);
} bloom_filter SEC(".maps");

struct inner {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, ENTRIES);
    __type(key, __u32);
    __type(value, struct value);
} inner_hash SEC(".maps");

struct inner_array {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, ENTRIES);
    __type(key, __u32);
    __type(value, struct value);
} inner_array SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, 4);
    __uint(key_size, sizeof(__u32));
    __array(values, struct inner_array);
} array_of_maps SEC(".maps") = {
    .values = {[0] = &inner_array},
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
    __uint(max_entries, 4);
    __uint(key_size, sizeof(__u32));
    __array(values, struct inner);
} hash_of_maps SEC(".maps") = {
    .values = {[0] = &inner_hash},
};

#define LOOKUP(operation, map, offset, expected)                                                   \
    PRICE(operation, , {                                                                           \
        __u32 key = KEY(n) + (offset);                                                             \
        done += !!bpf_map_lookup_elem(&map, &key) == (expected);                                   \
    })
#define UPDATE(operation, map, offset, flags)                                                      \
    PRICE(operation, struct value value = {{ctx->ingress_ifindex}}, {                              \
        __u32 key = KEY(n) + (offset);                                                             \
        done += !bpf_map_update_elem(&map, &key, &value, flags);                                   \
    })
#define INSERT_AND_DELETE(operation, map)                                                          \
    PRICE(operation, struct value value = {{ctx->ingress_ifindex}}, {                              \
        __u32 key = KEY(n) + ENTRIES;                                                              \
        done += !(bpf_map_update_elem(&map, &key, &value, BPF_NOEXIST) |                           \
                  bpf_map_delete_elem(&map, &key));                                                \
    })
#define DELETE_MISS(operation, map)                                                                \
    PRICE(operation, , {                                                                           \
        __u32 key = KEY(n) + ENTRIES;                                                              \
        done += !!bpf_map_delete_elem(&map, &key);                                                 \
    })

LOOKUP(array_lookup, array, 0, 1)
LOOKUP(array_lookup_miss, array, ENTRIES, 0)
UPDATE(array_update, array, 0, BPF_ANY)
LOOKUP(percpu_array_lookup, percpu_array, 0, 1)
UPDATE(percpu_array_update, percpu_array, 0, BPF_ANY)
LOOKUP(hash_lookup, hash, 0, 1)
LOOKUP(hash_lookup_miss, hash, ENTRIES, 0)
UPDATE(hash_update, hash, 0, BPF_ANY)
INSERT_AND_DELETE(hash_insert_and_delete, hash)
DELETE_MISS(hash_delete_miss, hash)
LOOKUP(percpu_hash_lookup, percpu_hash, 0, 1)
UPDATE(percpu_hash_update, percpu_hash, 0, BPF_ANY)
INSERT_AND_DELETE(percpu_hash_insert_and_delete, percpu_hash)
LOOKUP(lru_hash_lookup, lru_hash, 0, 1)
LOOKUP(lru_hash_lookup_miss, lru_hash, ENTRIES, 0)
UPDATE(lru_hash_update, lru_hash, 0, BPF_ANY)
INSERT_AND_DELETE(lru_hash_insert_and_delete, lru_hash)
LOOKUP(lru_percpu_hash_lookup, lru_percpu_hash, 0, 1)
UPDATE(lru_percpu_hash_update, lru_percpu_hash, 0, BPF_ANY)

// Every update makes room by removing another element.
__u32 turn;

PRICE(lru_hash_insert_into_full, struct value value = {{ctx->ingress_ifindex}};
      __u32 from = turn; turn = from + REPEATS, {
          __u32 key = from + n;
          done += !bpf_map_update_elem(&lru_full, &key, &value, BPF_ANY);
      })

PRICE(percpu_lookup_of_another_cpu, , {
    __u32 key = KEY(n);
    done += !!bpf_map_lookup_percpu_elem(&percpu_array, &key, 0);
})

#define PREFIX(n) {32, bpf_htonl(0x0a000000 + ((n) << 8))}

PRICE(lpm_trie_lookup, , {
    struct prefix key = PREFIX(KEY(n));
    done += !!bpf_map_lookup_elem(&lpm_trie, &key);
})
PRICE(lpm_trie_lookup_miss, , {
    struct prefix key = PREFIX(KEY(n) + 0xa00000);
    done += !bpf_map_lookup_elem(&lpm_trie, &key);
})
PRICE(lpm_trie_update, struct value value = {{ctx->ingress_ifindex}}, {
    struct prefix key = PREFIX(KEY(n));
    key.bits = 24;
    done += !bpf_map_update_elem(&lpm_trie, &key, &value, BPF_ANY);
})
PRICE(lpm_trie_insert_and_delete, struct value value = {{ctx->ingress_ifindex}}, {
    struct prefix key = PREFIX(KEY(n));
    done += !(bpf_map_update_elem(&lpm_trie, &key, &value, BPF_ANY) |
              bpf_map_delete_elem(&lpm_trie, &key));
})

#define PUSH_AND_POP(operation, map)                                                               \
    PRICE(operation, struct value value = {{ctx->ingress_ifindex}}, {                              \
        done += !(bpf_map_push_elem(&map, &value, BPF_ANY) | bpf_map_pop_elem(&map, &value));      \
    })
#define PEEK(operation, map)                                                                       \
    PRICE(operation, struct value value = {}, done += !bpf_map_peek_elem(&map, &value))

PUSH_AND_POP(queue_push_and_pop, queue)
PEEK(queue_peek, queue)
PUSH_AND_POP(stack_push_and_pop, stack)
PEEK(stack_peek, stack)

PRICE(bloom_filter_push, , {
    __u64 value = KEY(n);
    done += !bpf_map_push_elem(&bloom_filter, &value, BPF_ANY);
})
PRICE(bloom_filter_peek, , {
    __u64 value = KEY(n);
    done += !bpf_map_peek_elem(&bloom_filter, &value);
})
PRICE(bloom_filter_peek_miss, , {
    __u64 value = KEY(n) + (1 << 30);
    done += !!bpf_map_peek_elem(&bloom_filter, &value);
})

#define INNER_LOOKUP(operation, map)                                                               \
    PRICE(operation, , {                                                                           \
        __u32 key = KEY(n);                                                                        \
        void *inner = bpf_map_lookup_elem(&map, &first);                                           \
        if (inner)                                                                                 \
            done += !!bpf_map_lookup_elem(inner, &key);                                            \
    })

INNER_LOOKUP(array_of_maps_lookup_in_inner_array, array_of_maps)
INNER_LOOKUP(hash_of_maps_lookup_in_inner_hash, hash_of_maps)

struct bpf_map;

static long count_element(struct bpf_map *map, __u32 *key, struct value *value, __u32 *count)
{
    *count += 1;
    return *count == REPEATS;
}

// One step is one element.
SEC("xdp")
int array_for_each_element(struct xdp_md *ctx)
{
    __u32 count = 0;

    bpf_for_each_map_elem(&array, count_element, &count, 0);
    return count;
}

SEC("xdp")
int prepare(struct xdp_md *ctx)
{
    struct value value = {};
    __u64 word;
    __u32 key;

    for (int n = 0; n < 2 * REPEATS; n++) {
        struct prefix prefix = {24, bpf_htonl(0x0a000000 + (n << 8))};

        key = n;
        bpf_map_update_elem(&hash, &key, &value, BPF_ANY);
        bpf_map_update_elem(&percpu_hash, &key, &value, BPF_ANY);
        bpf_map_update_elem(&lru_hash, &key, &value, BPF_ANY);
        bpf_map_update_elem(&lru_percpu_hash, &key, &value, BPF_ANY);
        bpf_map_update_elem(&inner_hash, &key, &value, BPF_ANY);
        bpf_map_update_elem(&lpm_trie, &prefix, &value, BPF_ANY);
        bpf_map_push_elem(&queue, &value, BPF_ANY);
        bpf_map_push_elem(&stack, &value, BPF_ANY);
        word = n;
        bpf_map_push_elem(&bloom_filter, &word, BPF_ANY);
    }
    return 0;
}
