// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// census: where and when frames are processed: CPU, NUMA node, clocks, and the task interrupted.
//
// A diagnostic program: it answers "which CPU takes my frames, and from whom". It also uses most of
// what an object can ask of its loader: externs of the kernel's configuration and of its symbols,
// CO-RE, variables of all kinds, a global function, and text formatting.
//
// Maps
//   cpus    PERCPU_ARRAY  0: frames on this CPU
//   last    ARRAY         0: struct sighting, of the last frame
//   busiest ARRAY         0: CPU with the most frames, found each `survey_every` frames
//
// Configure  survey_every; trace: print each survey to the trace pipe.
// Verdicts   always XDP_PASS.
#include "kfuncs.h"

#define CPUS_MAX 64
#define TEXT_BYTES 64

extern int LINUX_KERNEL_VERSION __kconfig;
extern unsigned int CONFIG_HZ __kconfig __weak;
extern const void init_nsproxy __ksym __weak;

// Only what is read; CO-RE finds the offsets in the kernel that runs.
struct task_struct {
    int pid;
    int tgid;
    char comm[16];
} __kfunc_type;

struct sighting {
    __u64 time_ns;
    __u64 boot_ns;
    __u64 tai_ns;
    __u64 jiffies;
    __u64 pid_tgid;
    __u64 uid_gid;
    __u32 cpu;
    __u32 numa_node;
    __u32 kernel_version;
    __u32 hz;
    __u32 pid;
    char comm[16];
    char text[TEXT_BYTES];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} cpus SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct sighting);
} last SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} busiest SEC(".maps");

const volatile __u64 survey_every = 1024;
const volatile bool trace = false;
__u64 frames_seen;        // .bss
__u32 surveys_left = 100; // .data: after so many the machine is known

struct survey {
    __u64 most;
    __u32 cpu;
};

static long look_at_cpu(__u32 cpu, void *data)
{
    struct survey *survey = data;
    __u32 zero = 0;
    __u64 *frames = bpf_map_lookup_percpu_elem(&cpus, &zero, cpu);

    if (!frames)
        return 1; // no such CPU, and none after it
    if (*frames > survey->most) {
        survey->most = *frames;
        survey->cpu = cpu;
    }
    return 0;
}

// Global: verified once, for all arguments.
__noinline int survey_cpus(__u32 cpu_count)
{
    struct survey survey = {};
    __u32 zero = 0;

    if (cpu_count > CPUS_MAX)
        cpu_count = CPUS_MAX;
    bpf_loop(cpu_count, look_at_cpu, &survey, 0);
    bpf_map_update_elem(&busiest, &zero, &survey.cpu, BPF_ANY);
    return survey.cpu;
}

static __always_inline void fill_clocks(struct sighting *sighting)
{
    sighting->time_ns = bpf_ktime_get_ns();
    sighting->boot_ns = bpf_ktime_get_boot_ns();
    sighting->tai_ns = bpf_ktime_get_tai_ns();
    sighting->jiffies = bpf_jiffies64();
}

static __always_inline void fill_task(struct sighting *sighting)
{
    struct task_struct *task = (void *)bpf_get_current_task_btf();

    sighting->pid_tgid = bpf_get_current_pid_tgid();
    sighting->uid_gid = bpf_get_current_uid_gid();
    sighting->pid = task->pid;
    if (bpf_core_field_exists(task->comm))
        bpf_get_current_comm(sighting->comm, sizeof(sighting->comm));
}

static __always_inline void fill_text(struct sighting *sighting)
{
    static const char format[] = "cpu %u node %u hz %u";
    __u64 arguments[] = {sighting->cpu, sighting->numa_node, sighting->hz};

    bpf_snprintf(sighting->text, TEXT_BYTES, format, arguments, sizeof(arguments));
}

SEC("xdp")
int census(struct xdp_md *ctx)
{
    struct sighting *sighting;
    __u64 *frames;
    __u32 zero = 0;

    (void)ctx;
    frames = bpf_map_lookup_elem(&cpus, &zero);
    sighting = bpf_map_lookup_elem(&last, &zero);
    if (!frames || !sighting)
        return XDP_PASS;
    *frames += 1;
    __sync_fetch_and_add(&frames_seen, 1);
    sighting->cpu = bpf_get_smp_processor_id();
    sighting->numa_node = bpf_get_numa_node_id();
    sighting->kernel_version = LINUX_KERNEL_VERSION;
    sighting->hz = CONFIG_HZ;
    fill_clocks(sighting);
    fill_task(sighting);
    fill_text(sighting);
    if (*frames % survey_every || !surveys_left)
        return XDP_PASS;
    surveys_left -= 1;
    survey_cpus(CPUS_MAX);
    if (trace)
        bpf_printk("census: %llu frames, namespaces %s", frames_seen,
                   &init_nsproxy ? "known" : "unknown");
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
