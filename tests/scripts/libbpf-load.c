// Loads each XDP program of object files through libbpf: a second opinion on our linker.
//
// usage: libbpf-load OBJECT...
// Prints one line a program: object, name, 0 or errno, tag (the kernel's hash of the instructions).
// A program without a known section is loaded as XDP. Built and run by the `parity` program.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int silent(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

static void print_tag(const struct bpf_program *prog)
{
	struct bpf_prog_info info = {};
	__u32 size = sizeof(info);

	if (bpf_obj_get_info_by_fd(bpf_program__fd(prog), &info, &size))
		return;
	putchar(' ');
	for (int i = 0; i < 8; i++)
		printf("%02x", info.tag[i]);
}

/* Sizes and inner maps that an object expects to be set at run time. */
static void prepare(struct bpf_map *map)
{
	enum bpf_map_type type = bpf_map__type(map);

	if (bpf_map__max_entries(map) == 0 && type != BPF_MAP_TYPE_PERF_EVENT_ARRAY)
		bpf_map__set_max_entries(map, 64);
	if ((type == BPF_MAP_TYPE_ARRAY_OF_MAPS || type == BPF_MAP_TYPE_HASH_OF_MAPS) &&
	    !bpf_map__inner_map(map)) {
		int inner = bpf_map_create(BPF_MAP_TYPE_ARRAY, NULL, 4, 4, 1, NULL);

		bpf_map__set_inner_map_fd(map, inner);
	}
}

/* Loads program number `wanted` alone; returns 0 when there is none. */
static int load_one(const char *path, int wanted)
{
	struct bpf_object *object = bpf_object__open_file(path, NULL);
	struct bpf_program *prog, *found = NULL;
	struct bpf_map *map;
	int index = 0;

	if (!object) {
		printf("%s - %d\n", path, errno);
		return 0;
	}
	/* What the objects leave to their own loaders; the Rust side does the same. */
	bpf_object__for_each_map(map, object) {
		bpf_map__set_pin_path(map, NULL);
		prepare(map);
	}
	bpf_object__for_each_program(prog, object) {
		if (bpf_program__type(prog) == BPF_PROG_TYPE_UNSPEC)
			bpf_program__set_type(prog, BPF_PROG_TYPE_XDP);
		bpf_program__set_autoload(prog, index == wanted);
		if (index++ == wanted)
			found = prog;
	}
	if (found && bpf_program__type(found) == BPF_PROG_TYPE_XDP) {
		int error = bpf_object__load(object);

		printf("%s %s %d", path, bpf_program__name(found), -error);
		if (!error)
			print_tag(found);
		putchar('\n');
	}
	bpf_object__close(object);
	return found != NULL;
}

int main(int argc, char **argv)
{
	libbpf_set_print(silent);
	for (int i = 1; i < argc; i++)
		for (int program = 0; load_one(argv[i], program); program++)
			;
	return 0;
}
