// Everything of <towpath/towpath.h>, over the example of the Python package's tests.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <towpath/towpath.h>

#define OK(call) \
	do { \
		int error = call; \
		if (error) { \
			fprintf(stderr, "%s: %d: %s\n", #call, error, towpath_last_error()); \
			return 1; \
		} \
	} while (0)
#define SAYS(error, text, call) \
	do { \
		int got = call; \
		if (got != -(error) || !strstr(towpath_last_error(), text)) { \
			fprintf(stderr, "%s: %d: %s\n", #call, got, towpath_last_error()); \
			return 1; \
		} \
	} while (0)

static unsigned char packet[80];

static void fill(uint16_t port)
{
	memset(packet, 0, sizeof(packet));
	packet[12] = 8;
	packet[14] = 0x45;
	packet[23] = 17;
	packet[36] = port >> 8;
	packet[37] = port & 255;
}

static struct towpath_map *flows, *totals, *stages, *ports, *events, *jobs;
static struct towpath_program *meter, *refuse;
static struct towpath_object *object;
static uint32_t zero = 0, one = 1;

static int opens_and_loads(const char *path)
{
	struct towpath_load_opts opts = {.sz = sizeof(opts), .cpus = 2};
	uint64_t limit = 2;

	SAYS(ENOENT, "no such", towpath_object__open("no such", &object));
	SAYS(EINVAL, "use.c", towpath_object__open(__FILE__, &object));
	SAYS(EINVAL, "NULL", towpath_object__open(NULL, &object));
	OK(towpath_object__open(path, &object));
	SAYS(EINVAL, "not loaded", towpath_object__program(object, "meter", &meter));
	SAYS(ENOENT, "limit", towpath_object__set_global(object, "limits", &limit, sizeof(limit)));
	SAYS(EINVAL, "8 bytes", towpath_object__set_global(object, "limit", &limit, 4));
	OK(towpath_object__set_global(object, "limit", &limit, sizeof(limit)));
	OK(towpath_object__set_map_size(object, "flows", 2));
	opts.exec = 9;
	SAYS(EINVAL, "exec is 9", towpath_object__load(object, &opts));
	opts.exec = TOWPATH_EXEC_JIT;
	OK(towpath_object__load(object, &opts));
	SAYS(EBUSY, "loaded", towpath_object__load(object, NULL));
	return 0;
}

static int finds_programs_and_maps(void)
{
	SAYS(ENOENT, "refuse", towpath_object__program(object, NULL, &meter));
	OK(towpath_object__program(object, "meter", &meter));
	OK(towpath_object__program(object, "refuse", &refuse));
	SAYS(ENOENT, "none", towpath_object__map(object, "none", &flows));
	OK(towpath_object__map(object, "flows", &flows));
	OK(towpath_object__map(object, "totals", &totals));
	OK(towpath_object__map(object, "stages", &stages));
	OK(towpath_object__map(object, "ports", &ports));
	OK(towpath_object__map(object, "events", &events));
	OK(towpath_object__map(object, "jobs", &jobs));
	return 0;
}

static int runs(void)
{
	struct towpath_run run = {.sz = sizeof(run), .data_in = packet, .data_out = packet, .cpu = 1};
	uint32_t id = towpath_program__id(refuse), device = 7;
	char line[64];

	OK(towpath_map__update_elem(stages, &zero, 4, &id, 4, 0));
	OK(towpath_map__update_elem(ports, &one, 4, &device, 4, 0));
	OK(towpath_object__set_clock(object, 1000));
	fill(53);
	for (int i = 0; i < 3; i++) {
		run.data_size_in = run.data_size_out = 64;
		OK(towpath_program__run(meter, &run));
	}
	assert(run.retval == 4 && run.redirect_ifindex == 7 && run.data_size_out == 50);
	OK(towpath_object__printed(object, line, sizeof(line)));
	assert(!strcmp(line, "refused 64 bytes"));
	SAYS(ENOENT, "line", towpath_object__printed(object, line, sizeof(line)));

	fill(54);
	run.data_size_in = 80;
	run.data_size_out = 20;
	SAYS(ENOSPC, "80 bytes", towpath_program__run(meter, &run));
	run.data_size_in = 3;
	SAYS(EINVAL, "14 bytes", towpath_program__run(meter, &run));
	run.data_size_in = 80;
	run.cpu = 2;
	SAYS(EINVAL, "CPU 2 of 2", towpath_program__run(meter, &run));
	return 0;
}

static int reads_and_writes_maps(void)
{
	struct { uint16_t port, pad; } key, flow = {53, 0}, other = {54, 0};
	struct towpath_map_info info = {.sz = sizeof(info)};
	struct { uint64_t packets, last_ns; } seen;
	uint64_t per_cpu[2];

	OK(towpath_map__info(flows, &info));
	assert(info.type == 1 && info.key_size == 4 && info.value_size == 16);
	assert(info.max_entries == 2 && info.cpus == 1);
	OK(towpath_map__delete_elem(flows, &other, 4));
	OK(towpath_map__lookup_elem(flows, &flow, 4, &seen, sizeof(seen), 0));
	assert(seen.packets == 3 && seen.last_ns == 1000);
	OK(towpath_map__get_next_key(flows, NULL, &key, 4));
	assert(key.port == 53);
	SAYS(ENOENT, "", towpath_map__get_next_key(flows, &key, &key, 4));
	SAYS(EINVAL, "16 bytes", towpath_map__lookup_elem(flows, &flow, 4, &seen, 8, 0));
	OK(towpath_map__delete_elem(flows, &flow, 4));
	SAYS(ENOENT, "", towpath_map__lookup_elem(flows, &flow, 4, &seen, sizeof(seen), 0));
	OK(towpath_map__lookup_elem(totals, &zero, 4, per_cpu, sizeof(per_cpu), 0));
	assert(per_cpu[0] == 0 && per_cpu[1] == 4);
	OK(towpath_map__update_elem(totals, &one, 4, per_cpu, sizeof(per_cpu), 0));
	return 0;
}

static int takes_records(void)
{
	size_t size = 2;
	uint32_t value;

	OK(towpath_map__lookup_and_delete_elem(jobs, NULL, 0, &value, 4, 0));
	assert(value == 64);
	SAYS(ENOSPC, "4 bytes", towpath_map__record(events, &value, &size));
	assert(size == 4);
	OK(towpath_map__record(events, &value, &size));
	assert(value == 64);
	SAYS(ENOENT, "", towpath_map__record(events, &value, &size));
	return 0;
}

static int says_why_a_program_is_rejected(const char *path)
{
	OK(towpath_object__open(path, &object));
	OK(towpath_object__load(object, NULL));
	SAYS(EACCES, "careless.c:13", towpath_object__program(object, NULL, &meter));
	towpath_object__close(object);
	return 0;
}

int main(int argc, char **argv)
{
	assert(argc == 3);
	if (opens_and_loads(argv[1]) || finds_programs_and_maps() || runs() ||
	    reads_and_writes_maps() || takes_records())
		return 1;
	towpath_object__close(object);
	towpath_object__close(NULL);
	return says_why_a_program_is_rejected(argv[2]);
}
