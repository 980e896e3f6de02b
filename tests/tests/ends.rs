//! Results of calls become invalid when the object that they depend on ends: programs made from a
//! table, verified here and by the running kernel. Towpath refuses every program that the kernel
//! refuses.

use std::collections::BTreeSet;

use towpath_bpf::object::{Env, Object};
use towpath_bpf::proto::{self, Ties};
use towpath_kernel::Kernel;
use towpath_tests::ends::{self, THINGS};
use towpath_tests::{sources, verdict};

#[test]
fn nothing_is_used_after_its_end() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let object = match sources::generated_object("ends", &ends::source()) {
        Ok(object) => object,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let bytes = std::fs::read(&object).expect("an object just compiled");
    let object = Object::open(&bytes, "ends.o").expect("an object of clang");
    let env = Env::new(kernel.btf().clone());
    let (mut wrong, mut refused, mut accepted) = (Vec::new(), 0, 0);
    for (index, program) in object.programs().iter().enumerate() {
        let linked = object.link(index, &env).expect("all that it names exists");
        let ours = verdict::ours(&linked);
        let maps = kernel.load_maps(&linked.maps).expect("maps");
        let kernels = verdict::kernel(&kernel, &linked, &maps, true);
        let says = format!("ours: {:?}, kernel: {:?}", ours.reason(), kernels.reason());
        let is_use_after = program.name.starts_with("no_");
        let is_right = match (ours.is_accepted(), kernels.is_accepted()) {
            (ours, _) if is_use_after => !ours,
            (ours, kernels) => ours && kernels,
        };
        refused += usize::from(!ours.is_accepted());
        accepted += usize::from(ours.is_accepted());
        if !is_right {
            wrong.push(format!("{}: {says}", program.name));
        }
    }
    assert!(refused > 200 && accepted > 20, "{refused} refused, {accepted} accepted");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whatever a row ties to something has a program, or a reason to have none.
#[test]
fn each_tie_has_a_thing() {
    let shown: BTreeSet<&str> = THINGS.iter().flat_map(|thing| thing.of).copied().collect();
    let helpers = proto::helpers().map(|row| (row.name, row.ties));
    let kfuncs = proto::kfuncs().map(|row| (row.name, row.ties));
    let tied = helpers.chain(kfuncs).filter(|(_, ties)| *ties != Ties::NONE);
    let missing: Vec<&str> = tied
        .map(|(name, _)| name)
        .filter(|name| !shown.contains(name) && !ELSEWHERE.contains(name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Objects of the kernel's that are references and nothing else: found or not, there are none here;
/// `tests/data/calls` has their programs. The last ones are in `OF_CALLS`, or in 6.18 need a
/// program that may sleep (crypto contexts: `tests/data/calls/syscalls.c`).
const ELSEWHERE: &[&str] = &[
    "bpf_skc_to_tcp6_sock",
    "bpf_skc_to_tcp_timewait_sock",
    "bpf_skc_to_tcp_request_sock",
    "bpf_skc_to_udp6_sock",
    "bpf_skc_to_unix_sock",
    "bpf_skc_to_mptcp_sock",
    "bpf_xdp_ct_lookup",
    "bpf_xdp_ct_alloc",
    "bpf_ct_insert_entry",
    "bpf_packet_dequeue",
    "bpf_xdp_get_xfrm_state",
    "bpf_percpu_obj_new_impl",
    "bpf_task_acquire",
    "bpf_task_from_vpid",
    "bpf_task_get_cgroup1",
    "bpf_cgroup_acquire",
    "bpf_cgroup_ancestor",
    "bpf_cgroup_from_id",
    "bpf_lookup_system_key",
    "bpf_for_each_map_elem",
    "bpf_user_ringbuf_drain",
    "bpf_iter_task_next",
    "bpf_iter_css_next",
    "bpf_crypto_ctx_create",
    "bpf_crypto_ctx_acquire",
];
