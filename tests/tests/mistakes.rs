//! Frequent mistakes in C: the hint names the cause, its proposal helps, and the running kernel
//! refuses and accepts the same programs.
//!
//! The programs are in `tests/data/mistakes/mistakes.c`: each mistake, and `..._mended` as its hint
//! says.

use towpath_bpf::verifier::{self, Options};
use towpath_bpf::{Env, Linked, Object};
use towpath_kernel::Kernel;
use towpath_tests::sources::repository;
use towpath_tests::verdict;

/// Mistakes, and words of the hint that name the cause and what to do.
const MISTAKES: [(&str, &[&str]); 28] = [
    ("key_of_half_the_size", &["keys of map flows have 8 bytes", "4 are left", "smaller"]),
    ("value_that_is_too_small", &["values of map blocks have 64 bytes", "smaller"]),
    ("key_in_the_packet", &["keys of map flows have 8 bytes", "only 4", "copied into a variable"]),
    ("key_in_a_value", &["keys of map flows have 8 bytes", "4 are left in the value"]),
    ("less_compared", &["only 14 bytes from data on", "compare (data + 24)"]),
    ("loop_over_the_packet", &["a loop", "constant bound", "bpf_loop()"]),
    (
        "loop_to_a_length",
        &["compare (pointer + bytes)", "in line 196 is a number", "proves nothing"],
    ),
    ("length_compared", &["in line 223 is a number", "proves nothing"]),
    ("offset_without_a_limit", &["may be up to 65535", "if (offset > 1500)"]),
    ("header_behind_options", &["a pointer of its own", "(void *)(header + 1)"]),
    ("headers_of_ipv6", &["a pointer of its own", "(void *)(header + 1)"]),
    ("options_by_their_lengths", &["beyond 65,535", "in a loop bound the sum"]),
    ("arithmetic_on_data_end", &["(data + bytes > data_end)"]),
    ("beyond_what_counts", &["byte 70000", "the first 65,535 only"]),
    ("wrong_branch", &["on this path", "the wrong way round"]),
    ("after_adjust_head", &["bpf_xdp_adjust_head() in line 442", "read ctx->data"]),
    ("not_compared_after_adjust_head", &["again after anything that moves the packet"]),
    ("after_pull_data", &["bpf_xdp_pull_data() in line 483", "read ctx->data"]),
    ("after_a_function_that_moves", &["bpf_xdp_adjust_tail() in line 502", "read ctx->data"]),
    ("record_that_is_kept", &["bpf_ringbuf_reserve() in line 530", "bpf_ringbuf_discard()"]),
    ("record_that_is_gone", &["bpf_ringbuf_submit() in line 560", "use it before"]),
    ("socket_that_is_kept", &["bpf_sk_lookup_tcp() in line 579", "bpf_sk_release() is missing"]),
    ("lock_that_is_kept", &["bpf_spin_unlock() is missing"]),
    ("call_under_a_lock", &["call bpf_spin_unlock() first"]),
    ("value_that_may_not_be_there", &["compare it with NULL first"]),
    ("index_that_is_one_too_large", &["64 bytes", "to byte 65", "index >= number"]),
    ("length_with_one_bound", &["len &= 63"]),
    ("large_variables_of_two_functions", &["304 + fill 304 bytes", "per-CPU array of one"]),
];

fn object() -> Object {
    let path = repository().join("tests/data/mistakes/mistakes.o");
    Object::open(&std::fs::read(path).expect("it is in the repository"), "mistakes.o").expect("one")
}

fn linked(object: &Object, name: &str, env: &Env) -> Linked {
    let index = object.select(Some(name), None).unwrap_or_else(|error| panic!("{error}"));
    object.link(index, env).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn hints_name_the_cause_and_what_they_propose_helps() {
    let (object, env) = (object(), Env::builtin());
    assert_eq!(object.programs().len(), 2 * MISTAKES.len(), "each is there, and mended");
    let (mut told, mut wrong) = (String::new(), Vec::new());
    for (name, words) in MISTAKES {
        let rejection = verifier::verify(linked(&object, name, &env), &Options::default());
        let rejection = rejection.expect_err(name);
        told += &format!("{name}\n{rejection}\n\n");
        let missing = words.iter().filter(|words| !rejection.hint.contains(**words));
        wrong.extend(missing.map(|words| format!("{name}: no {words:?} in {:?}", rejection.hint)));
        let mended = linked(&object, &format!("{name}_mended"), &env);
        let mended = verifier::verify(mended, &Options::default()).err();
        wrong.extend(mended.map(|rejection| format!("{name}, mended: {rejection}")));
    }
    if let Some(path) = std::env::var_os("TOWPATH_MESSAGES") {
        std::fs::write(path, told).expect("it can be written");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_running_kernel_says_the_same() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let (object, env, mut wrong) = (object(), towpath_xdp::host::kernel_types(), Vec::new());
    for (name, _words) in MISTAKES {
        let refused = linked(&object, name, &env);
        let maps = kernel.load_maps(&refused.maps).expect("maps");
        let message = verifier::verify(refused.clone(), &Options::default()).expect_err(name);
        match kernel.load(&refused, &maps) {
            Ok(_loaded) => wrong.push(format!("{name}: accepted")),
            Err(theirs) if theirs.log().lines().any(|line| line.starts_with(&message.message)) => {}
            Err(theirs) => wrong.push(format!("{name}: {}\n{}", message.message, theirs.log())),
        }
        let mended = linked(&object, &format!("{name}_mended"), &env);
        let maps = kernel.load_maps(&mended.maps).expect("maps");
        if !verdict::kernel(&kernel, &mended, &maps, true).is_accepted() {
            wrong.push(format!("{name}, mended: refused"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
