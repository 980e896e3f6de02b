// Prints the kernel's verifier test tables as JSON, one test a line.
//
// The tables are C initialisers inside the kernel's own test runner, which this file includes from
// an unpacked kernel source (never part of this repository): only its compiler can read them.
// Built and run by verifier-tables.sh.
#define main unused_main
#include "test_verifier.c"
#undef main

static void print_string(const char *text)
{
	putchar('"');
	for (; text && *text; text++) {
		unsigned char c = *text;
		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void print_hex(const char *key, const void *bytes, size_t count)
{
	printf(",\"%s\":\"", key);
	for (size_t i = 0; i < count; i++)
		printf("%02x", ((const unsigned char *)bytes)[i]);
	putchar('"');
}

static int first_map;

/* Instruction slots that load the map of this name. */
static void print_map(const char *name, const int *slots)
{
	if (!*slots)
		return;
	printf("%s\"%s\":[", first_map ? "" : ",", name);
	first_map = 0;
	for (int i = 0; i < MAX_FIXUPS && slots[i]; i++)
		printf("%s%d", i ? "," : "", slots[i]);
	putchar(']');
}

static void print_maps(const struct bpf_test *t)
{
	first_map = 1;
	printf(",\"maps\":{");
	print_map("hash_8b", t->fixup_map_hash_8b);
	print_map("hash_48b", t->fixup_map_hash_48b);
	print_map("hash_16b", t->fixup_map_hash_16b);
	print_map("array_48b", t->fixup_map_array_48b);
	print_map("sockmap", t->fixup_map_sockmap);
	print_map("sockhash", t->fixup_map_sockhash);
	print_map("xskmap", t->fixup_map_xskmap);
	print_map("stacktrace", t->fixup_map_stacktrace);
	print_map("prog1", t->fixup_prog1);
	print_map("prog2", t->fixup_prog2);
	print_map("map_in_map", t->fixup_map_in_map);
	print_map("cgroup_storage", t->fixup_cgroup_storage);
	print_map("percpu_cgroup_storage", t->fixup_percpu_cgroup_storage);
	print_map("spin_lock", t->fixup_map_spin_lock);
	print_map("array_ro", t->fixup_map_array_ro);
	print_map("array_wo", t->fixup_map_array_wo);
	print_map("array_small", t->fixup_map_array_small);
	print_map("sk_storage", t->fixup_sk_storage_map);
	print_map("event_output", t->fixup_map_event_output);
	print_map("reuseport_array", t->fixup_map_reuseport_array);
	print_map("ringbuf", t->fixup_map_ringbuf);
	print_map("timer", t->fixup_map_timer);
	print_map("kptr", t->fixup_map_kptr);
	putchar('}');
}

static void print_kfuncs(const struct bpf_test *t)
{
	printf(",\"kfuncs\":[");
	for (int i = 0; i < MAX_FIXUPS && t->fixup_kfunc_btf_id[i].kfunc; i++)
		printf("%s[\"%s\",%d]", i ? "," : "", t->fixup_kfunc_btf_id[i].kfunc,
		       t->fixup_kfunc_btf_id[i].insn_idx);
	putchar(']');
}

static void print_types(const struct bpf_test *t)
{
	int words = 0;

	printf(",\"func_info\":[");
	for (int i = 0; i < t->func_info_cnt; i++)
		printf("%s[%u,%u]", i ? "," : "", t->func_info[i].insn_off, t->func_info[i].type_id);
	putchar(']');
	if (!t->btf_types[0])
		return;
	while (words < MAX_BTF_TYPES && t->btf_types[words] != BTF_END_RAW)
		words++;
	print_hex("btf_types", t->btf_types, words * sizeof(__u32));
	print_hex("btf_strings", t->btf_strings, sizeof(t->btf_strings));
}

int main(void)
{
	/* Types of the maps that hold locks and timers: int, bpf_spin_lock, val, bpf_timer, timer. What
	 * follows points into the kernel's test module, and is refused where that isn't loaded.
	 */
	printf("{\"map_btf\":true");
	print_hex("btf_types", btf_raw_types, 28 * sizeof(__u32));
	print_hex("btf_strings", btf_str_sec, sizeof(btf_str_sec));
	printf("}\n");
	for (unsigned int i = 0; i < ARRAY_SIZE(tests); i++) {
		struct bpf_test *t = &tests[i];
		const struct bpf_insn *insns = t->insns;
		int count;

		if (t->fill_helper) {
			t->fill_insns = calloc(MAX_TEST_INSNS, sizeof(struct bpf_insn));
			t->fill_helper(t);
			insns = t->fill_insns;
			count = t->prog_len;
		} else {
			count = probe_filter_length(insns);
		}
		printf("{\"index\":%u,\"name\":", i);
		print_string(t->descr);
		printf(",\"prog_type\":%d,\"attach_type\":%d,\"flags\":%d,\"result\":\"%s\",\"error\":",
		       t->prog_type, t->expected_attach_type, t->flags,
		       t->result == REJECT ? "reject" : "accept");
		print_string(t->errstr);
		print_hex("insns", insns, count * sizeof(*insns));
		print_maps(t);
		print_kfuncs(t);
		print_types(t);
		printf("}\n");
		free(t->fill_insns);
	}
	return 0;
}
