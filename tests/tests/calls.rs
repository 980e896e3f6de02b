//! Calls of helpers and kfuncs, right and almost right: `ok_*` is accepted, `no_*` refused.
//!
//! The names were settled with Linux 6.18 as arbiter; the programs need its types, so the test is
//! skipped where no kernel publishes any.

use std::path::Path;
use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::object::{Env, Object};
use towpath_kernel::Kernel;
use towpath_tests::compare::{self, ObjectBudget};
use towpath_tests::ways::Way;
use towpath_tests::{sources, verdict};
use towpath_xdp::Exec;

#[test]
fn calls_are_accepted_and_refused_as_named() {
    let folder = match sources::call_objects() {
        Ok(folder) => folder,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let Ok(types) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        return eprintln!("skipped: this kernel publishes no BTF");
    };
    let env = Env::new(Arc::new(Btf::parse(&types).expect("the kernel's own types")));
    let mut wrong = Vec::new();
    let mut judged = 0;
    for path in sources::object_files(&folder) {
        judged += judge(&path, &env, &mut wrong);
    }
    assert!(judged > 250, "only {judged} programs found in {}", folder.display());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Some of them do something that is worth running.
#[test]
fn they_run_as_in_the_kernel() {
    let (kernel, folder) = match (Kernel::open(), sources::call_objects()) {
        (Ok(kernel), Ok(folder)) => (kernel, folder),
        (Err(why), _) => return eprintln!("skipped: {why}"),
        (_, Err(why)) => return eprintln!("skipped: {why}"),
    };
    let budget = ObjectBudget {
        paths: vec![folder.join("runs.o")],
        packets: 4,
        ways: [Exec::Interp, Exec::Jit, Exec::Llvm].map(Way::of).to_vec(),
        ..ObjectBudget::default()
    };
    let report = compare::objects(&kernel, &budget);
    assert!(report.passed(), "{report}");
}

/// Verifies every program of an object; gives their number.
fn judge(path: &Path, env: &Env, wrong: &mut Vec<String>) -> usize {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).expect("an object just compiled");
    let object = Object::open(&bytes, &name).expect("an object of clang");
    for (index, program) in object.programs().iter().enumerate() {
        let wanted = program.name.starts_with("ok_");
        let (accepted, why) = match object.link(index, env) {
            Ok(linked) => {
                let verdict = verdict::ours(&linked);
                (verdict.is_accepted(), verdict.reason().to_owned())
            }
            Err(error) => (false, error.to_string()),
        };
        if accepted != wanted {
            wrong.push(format!("{name} {}: accepted {accepted}: {why}", program.name));
        }
    }
    object.programs().len()
}
