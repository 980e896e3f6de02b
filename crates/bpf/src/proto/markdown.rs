//! `docs/helpers.md`, generated from the tables so that it never disagrees with the code.

use std::fmt::Write as _;

use super::{Capability, HelperProto, KfuncFlags, KfuncProto, helpers, kfuncs};

/// The whole page.
pub fn page() -> String {
    let mut text = String::from(HEADER);
    text.push_str("\n## Helpers\n\n| id | helper | what it does | in Towpath | notes |\n");
    text.push_str("| --- | --- | --- | --- | --- |\n");
    let mut rows: Vec<&HelperProto> = helpers().collect();
    rows.sort_by_key(|helper| helper.id);
    for helper in rows {
        helper_row(&mut text, helper);
    }
    text.push_str("\n## Kfuncs\n\n| kfunc | what it does | in Towpath | notes |\n");
    text.push_str("| --- | --- | --- | --- |\n");
    let mut rows: Vec<&KfuncProto> = kfuncs().collect();
    rows.sort_by_key(|kfunc| kfunc.name);
    for kfunc in rows {
        kfunc_row(&mut text, kfunc);
    }
    text
}

fn helper_row(text: &mut String, helper: &HelperProto) {
    let mut notes = Vec::new();
    if helper.gpl_only {
        notes.push("GPL only");
    }
    match helper.capability {
        Capability::Net => {}
        Capability::Bpf => notes.push("`CAP_BPF`"),
        Capability::Perfmon => notes.push("`CAP_PERFMON`"),
    }
    if helper.pkt_access {
        notes.push("takes packet pointers");
    }
    if helper.changes_packet {
        notes.push("voids packet pointers");
    }
    if !helper.is_for_syscalls() {
        notes.push(NO_SYSCALLS);
    }
    let HelperProto { id, name, summary, backing, .. } = helper;
    // Writing to a `String` can't fail.
    let _ = writeln!(text, "| {id} | `{name}` | {summary} | {backing} | {} |", notes.join(", "));
}

fn kfunc_row(text: &mut String, kfunc: &KfuncProto) {
    let mut notes = Vec::new();
    let flags = [
        (KfuncFlags::ACQUIRE, "acquires"),
        (KfuncFlags::RELEASE, "releases"),
        (KfuncFlags::RET_NULL, "may return null"),
        (KfuncFlags::DEV_BOUND, "device-bound programs only"),
        (KfuncFlags::CHANGES_PACKET, "voids packet pointers"),
    ];
    if kfunc.is_for_setup() {
        notes.push("`syscall` programs only");
    } else if !kfunc.is_for_syscalls() {
        notes.push(NO_SYSCALLS);
    }
    notes.extend(flags.iter().filter(|(flag, _)| kfunc.flags.has(*flag)).map(|(_, note)| *note));
    let params: Vec<&str> = kfunc.params.iter().map(|param| param.name).collect();
    let KfuncProto { name, summary, backing, .. } = kfunc;
    let params = params.join(", ");
    // Writing to a `String` can't fail.
    let _ = writeln!(text, "| `{name}({params})` | {summary} | {backing} | {} |", notes.join(", "));
}

const HEADER: &str = "\
# Helpers and kfuncs

The helpers and kfuncs that programs may call, and the effect of each call in Towpath. This page is
generated from the tables in `crates/bpf/src/proto`; a test fails when it is out of date
(`TOWPATH_BLESS=1 cargo test -p towpath-bpf helpers_page` rewrites it).

The verifier accepts every call below with the kernel's types. Calls that query the host's network
stack answer from tables that Towpath owns, or as a kernel would if it found nothing. Notes mark the
calls that [programs that users call](test.md#programs-that-users-call) (`SEC(\"syscall\")`) may not
make.
";

const NO_SYSCALLS: &str = "not from `syscall` programs";
