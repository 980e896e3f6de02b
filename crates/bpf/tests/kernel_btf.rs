//! The types that the running kernel publishes parse, quickly, and are found by name.

use std::time::Instant;

use towpath_bpf::btf::{Btf, Kind};

#[test]
fn the_running_kernels_types_parse() {
    let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        println!("skipped: this kernel publishes no BTF");
        return;
    };
    let start = Instant::now();
    let btf = Btf::parse(&bytes).unwrap();
    println!("{} types in {:?}", btf.len(), start.elapsed());
    let start = Instant::now();
    let task = btf.find_composite("task_struct").unwrap();
    println!("first search {:?}", start.elapsed());
    let comm = btf.member(task, "comm").unwrap().member;
    assert_eq!(btf.size_of(comm.ty), Some(16));
    assert_eq!(btf.c_declaration(comm.ty, "comm"), "char comm[16]");
    let cwd = btf.member(task, "real_parent").unwrap().member;
    assert_eq!(btf.c_name(cwd.ty), "struct task_struct *");
    let func = btf.find_func("bpf_prog_run_xdp").or_else(|| btf.find_func("schedule")).unwrap();
    assert!(matches!(btf.kind(func), Kind::Func { .. }));
    assert!(btf.candidates("task_struct").any(|id| id == task));
}
