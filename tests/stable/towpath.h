// SPDX-License-Identifier: MIT OR Apache-2.0
//
// XDP in user space for C: opens a compiled XDP object file, proves its programs safe by the
// kernel's rules, compiles them, and runs them on packets in memory. No root, no kernel, no NIC.
// Names and conventions are libbpf's where it has the same: functions give 0 or a negative errno,
// and towpath_last_error() says more. docs/c.md shows it in use.
//
// Programs and maps belong to their object, and are gone when it is closed. Every function may be
// called from any thread; runs on the same CPU of an object take turns.
#ifndef TOWPATH_H
#define TOWPATH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct towpath_object;
struct towpath_program;
struct towpath_map;

// What went wrong in the last call of this thread that failed; never NULL, valid until the next
// call. For a rejected program: reason, C line, registers, and what to do.
const char *towpath_last_error(void);

// Opens an object file. -ENOENT and others of open(2), -EINVAL for what is no XDP object.
int towpath_object__open(const char *path, struct towpath_object **object);

// Closes it, with its programs and maps. NULL is nothing to do.
void towpath_object__close(struct towpath_object *object);

// Sets a global variable, of exactly `size` bytes, before the object is loaded. -ENOENT when there
// is none of that name, -EBUSY when the object is loaded.
int towpath_object__set_global(struct towpath_object *object, const char *name, const void *value,
			       size_t size);

// Sets the number of elements of a map, before the object is loaded.
int towpath_object__set_map_size(struct towpath_object *object, const char *name,
				 uint32_t max_entries);

// How programs are executed.
enum towpath_exec {
	TOWPATH_EXEC_JIT = 0, // machine code, at once
	TOWPATH_EXEC_LLVM = 1, // better machine code, by LLVM 19 if it is installed (-ENOTSUP)
	TOWPATH_EXEC_INTERP = 2, // by the interpreter, which checks every access
};

// Zero it, and set `sz` to its size.
struct towpath_load_opts {
	size_t sz;
	uint32_t exec; // enum towpath_exec
	uint32_t cpus; // CPUs that per-CPU maps have values for: 1 to 1024, 0 for 1
};

// Creates the maps. `opts` may be NULL.
int towpath_object__load(struct towpath_object *object, const struct towpath_load_opts *opts);

// Verifies and compiles a program of a loaded object; NULL as name is the only one. -ENOENT when
// there is no such program, or several; what the kernel would give when it is rejected.
int towpath_object__program(struct towpath_object *object, const char *name,
			    struct towpath_program **program);

// A map of a loaded object.
int towpath_object__map(struct towpath_object *object, const char *name, struct towpath_map **map);

// The time that programs see, in nanoseconds; 0 for the machine's.
int towpath_object__set_clock(struct towpath_object *object, uint64_t ns);

// The next line that a program printed, without its end, cut to `size` bytes with its NUL.
// -ENOENT when there is none.
int towpath_object__printed(struct towpath_object *object, char *line, size_t size);

// One run. Zero it, and set `sz` to its size; what is marked "out" is set by the run.
struct towpath_run {
	size_t sz;
	const void *data_in;
	void *data_out; // may be NULL, and may be where data_in is
	uint32_t data_size_in; // at least 14
	uint32_t data_size_out; // in: room; out: bytes of the packet, also when there was no room
	uint32_t ifindex; // where it arrived; 0 for 1
	uint32_t queue_index;
	uint32_t cpu;
	uint32_t retval; // out: what the program returned
	uint32_t redirect_ifindex; // out: for XDP_REDIRECT to a device, else 0
};

// Runs a program on a packet. -ENOSPC when the packet has no room in `data_out`, which takes its
// beginning; -EFAULT for what no verified program can do.
int towpath_program__run(struct towpath_program *program, struct towpath_run *run);

// What program arrays hold, as a value of 4 bytes.
uint32_t towpath_program__id(const struct towpath_program *program);

// Zero it, and set `sz` to its size.
struct towpath_map_info {
	size_t sz;
	uint32_t type; // enum bpf_map_type
	uint32_t key_size;
	uint32_t value_size;
	uint32_t max_entries;
	uint32_t cpus; // values of an element: more than 1 in per-CPU maps only
};

int towpath_map__info(const struct towpath_map *map, struct towpath_map_info *info);

// As bpf(2): keys of key_size bytes; values of value_size bytes, in per-CPU maps that rounded up to
// 8 for each CPU. Queues and stacks have keys of 0 bytes: update pushes, lookup peeks, and
// lookup_and_delete pops. -EINVAL for other sizes, else what the kernel would say.
int towpath_map__lookup_elem(const struct towpath_map *map, const void *key, size_t key_size,
			     void *value, size_t value_size, uint64_t flags);
int towpath_map__lookup_and_delete_elem(const struct towpath_map *map, const void *key,
					size_t key_size, void *value, size_t value_size,
					uint64_t flags);
int towpath_map__update_elem(const struct towpath_map *map, const void *key, size_t key_size,
			     const void *value, size_t value_size, uint64_t flags);
int towpath_map__delete_elem(const struct towpath_map *map, const void *key, size_t key_size);

// The key after `key`, or the first one after NULL. -ENOENT after the last.
int towpath_map__get_next_key(const struct towpath_map *map, const void *key, void *next,
			      size_t key_size);

// Takes the oldest record that a program sent through a ring buffer or as a perf event. `size` is
// the room, then the record's bytes. -ENOENT when there is none; -ENOSPC when there is not enough
// room: then it stays.
int towpath_map__record(struct towpath_map *map, void *record, size_t *size);

#ifdef __cplusplus
}
#endif

#endif
