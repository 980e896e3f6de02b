/* One program for each kind of CO-RE relocation; what they return is checked by the test. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define CORE __attribute__((preserve_access_index))

typedef __u64 u64;
typedef __u32 u32;
enum mode { MODE_OFF = 1, MODE_ON = 2, MODE_GONE = 5 };
enum wide { WIDE_MAX = 0x7766554433221100ull };
struct point { long x; u64 y; } CORE;
struct thing {
	struct point at[2];
	u32 grown;
	u64 shrunk;
	int flags : 2;
	unsigned mode : 6;
	enum mode kind;
	char name[16];
	int signed_now;
	u32 gone;
	u32 tail[];
} CORE;
struct thing___old { u32 renamed; } CORE;
struct ops { int (*run)(struct thing *thing, int how); } CORE;
struct ops___other { long (*run)(struct thing *thing); } CORE;
struct absent { int x; } CORE;

#define PROG(name, value) \
	SEC("xdp") u64 name(struct xdp_md *ctx) { struct thing *t = (void *)ctx; return value; }
#define INFO(field, what) __builtin_preserve_field_info(field, BPF_FIELD_##what)

PROG(offset_nested, INFO(t->at[1].y, BYTE_OFFSET))
PROG(offset_flexible, INFO(t->tail[3], BYTE_OFFSET))
PROG(size_array, INFO(t->name, BYTE_SIZE))
PROG(size_grown, INFO(t->grown, BYTE_SIZE))
PROG(exists_no, INFO(t->gone, EXISTS))
PROG(exists_yes, INFO(t->kind, EXISTS))
PROG(exists_flavour, INFO(((struct thing___old *)t)->renamed, EXISTS))
PROG(signed_yes, INFO(t->signed_now, SIGNED))
PROG(signed_no, INFO(t->grown, SIGNED))
PROG(bitfield_offset, INFO(t->mode, BYTE_OFFSET))
PROG(bitfield_lshift, INFO(t->mode, LSHIFT_U64))
PROG(bitfield_rshift, INFO(t->mode, RSHIFT_U64))
PROG(type_exists, bpf_core_type_exists(struct thing))
PROG(type_absent, bpf_core_type_exists(struct absent))
PROG(type_size, bpf_core_type_size(struct point))
PROG(type_local, bpf_core_type_id_local(struct ops))
PROG(type_target, bpf_core_type_id_kernel(struct ops))
PROG(type_matches, bpf_core_type_matches(struct ops))
PROG(type_matches_not, bpf_core_type_matches(struct ops___other))
PROG(enum_exists, bpf_core_enum_value_exists(enum mode, MODE_ON))
PROG(enum_gone, bpf_core_enum_value_exists(enum mode, MODE_GONE))
PROG(enum_value, bpf_core_enum_value(enum mode, MODE_ON))
PROG(enum_wide, bpf_core_enum_value(enum wide, WIDE_MAX))
PROG(load_grown, t->grown)
PROG(load_shrunk, t->shrunk)
PROG(load_gone, t->gone)
PROG(value_gone, bpf_core_enum_value(enum mode, MODE_GONE))
