//! The meaning of section names for their programs: a table that never refuses.
//!
//! Tools differ in the names they accept (libbpf's `section_defs`, iproute2's `prog`, the samples'
//! `xdp1`), and a name is only a hint: any program can be selected and is then loaded as XDP.

use crate::program::AttachType;
use crate::suggest;

/// Kind of program in a section, by the section's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ProgramKind {
    /// An XDP program.
    Xdp,
    /// A program that selects the next packet to leave a queue (`BPF_PROG_TYPE_DEQUEUE`).
    Dequeue,
    /// A program that users call (`BPF_PROG_TYPE_SYSCALL`), e.g. to set maps up.
    Syscall,
    /// A program for another hook, in libbpf's words (`kprobe`, `tc`): it runs here only if it
    /// would be accepted as an XDP program too.
    Other(&'static str),
    /// An unknown name: an XDP program if the user selects it.
    Unknown,
}

impl ProgramKind {
    /// Name of the kind in listings.
    pub fn name(self) -> &'static str {
        match self {
            ProgramKind::Xdp => "xdp",
            ProgramKind::Dequeue => "dequeue",
            ProgramKind::Syscall => "syscall",
            ProgramKind::Other(name) => name,
            ProgramKind::Unknown => "unknown",
        }
    }
}

/// Meaning of a section name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionMeaning {
    /// Kind of program.
    pub kind: ProgramKind,
    /// Hook that the programs may be attached to.
    pub attach: AttachType,
    /// Whether the programs handle frames of several buffers.
    pub has_frags: bool,
}

/// Looks a section name up. The kernel's loaders accept a leading `?` ("don't load by default").
///
/// Names that only begin like XDP's (`xdp_sock`, `xdp1`) mean XDP too: libbpf before 1.0 compared
/// prefixes, and objects from then are in use.
pub fn meaning_of(section: &str) -> SectionMeaning {
    let name = section.strip_prefix('?').unwrap_or(section);
    for &(pattern, attach, has_frags) in XDP_SECTIONS {
        if matches(name, pattern) {
            return SectionMeaning { kind: ProgramKind::Xdp, attach, has_frags };
        }
    }
    if matches(name, "dequeue+") {
        let (kind, attach) = (ProgramKind::Dequeue, AttachType::Dequeue);
        // A waiting frame may have several buffers, and the program sees the first.
        return SectionMeaning { kind, attach, has_frags: true };
    }
    if name == "syscall" {
        let (kind, attach) = (ProgramKind::Syscall, AttachType::Syscall);
        return SectionMeaning { kind, attach, has_frags: false };
    }
    let kind = match OTHER_SECTIONS.iter().find(|&&pattern| matches(name, pattern)) {
        Some(pattern) => ProgramKind::Other(pattern.trim_end_matches(['/', '+'])),
        None if name.starts_with("xdp") => ProgramKind::Xdp,
        None => ProgramKind::Unknown,
    };
    SectionMeaning { kind, attach: AttachType::Xdp, has_frags: false }
}

/// A remark on an unknown section name: its programs are taken for XDP, and libbpf refuses them.
/// There is none on iproute2's names (`prog`, `ID/KEY`).
pub fn note(section: &str) -> Option<String> {
    let name = section.strip_prefix('?').unwrap_or(section);
    let is_iproute2 = name == "prog" || name.starts_with(|first: char| first.is_ascii_digit());
    if meaning_of(section).kind != ProgramKind::Unknown || is_iproute2 || is_text(name) {
        return None;
    }
    let names = XDP_SECTIONS.iter().map(|(name, ..)| name.trim_end_matches('+'));
    let near = suggest::near(&name.to_ascii_lowercase(), names.clone())
        .or_else(|| names.clone().find(|it| name.eq_ignore_ascii_case(it)));
    let near = near.map_or_else(String::new, |near| format!(" (did you mean \"{near}\"?)"));
    Some(format!(
        "section \"{section}\" names no kind of program{near}: it is taken for XDP here, and \
         refused by libbpf"
    ))
}

/// Whether this is the section in which compilers put functions without a section attribute.
pub(super) fn is_text(section: &str) -> bool {
    section == ".text" || section.starts_with(".text.")
}

/// Matches a name: `name+` is the name alone or with `/...` behind it, `name/` needs the slash, any
/// other pattern must be equal.
fn matches(name: &str, pattern: &str) -> bool {
    match pattern.strip_suffix('+') {
        Some(stem) => {
            name.strip_prefix(stem).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        None if pattern.ends_with('/') => name.starts_with(pattern),
        None => name == pattern,
    }
}

/// XDP names: libbpf's, its older spellings, and those of libxdp and the samples.
const XDP_SECTIONS: &[(&str, AttachType, bool)] = &[
    ("xdp.frags/devmap+", AttachType::Devmap, true),
    ("xdp/devmap+", AttachType::Devmap, false),
    ("xdp_devmap+", AttachType::Devmap, false),
    ("xdp_devmap.frags+", AttachType::Devmap, true),
    ("xdp_frags/devmap+", AttachType::Devmap, true),
    ("xdp.frags/cpumap+", AttachType::Cpumap, true),
    ("xdp/cpumap+", AttachType::Cpumap, false),
    ("xdp_cpumap+", AttachType::Cpumap, false),
    ("xdp_cpumap.frags+", AttachType::Cpumap, true),
    ("xdp_frags/cpumap+", AttachType::Cpumap, true),
    ("xdp.frags+", AttachType::Xdp, true),
    ("xdp_frags+", AttachType::Xdp, true),
    ("xdp+", AttachType::Xdp, false),
];

/// libbpf's other sections (`section_defs` in libbpf.c).
const OTHER_SECTIONS: &[&str] = &[
    "socket+",
    "sk_reuseport/migrate",
    "sk_reuseport",
    "kprobe.multi+",
    "kretprobe.multi+",
    "kprobe.session+",
    "uprobe.multi+",
    "uprobe.session+",
    "uretprobe.multi+",
    "kprobe+",
    "uprobe+",
    "uprobe.s+",
    "kretprobe+",
    "uretprobe+",
    "uretprobe.s+",
    "ksyscall+",
    "kretsyscall+",
    "usdt+",
    "usdt.s+",
    "tcx/",
    "tc+",
    "classifier+",
    "action+",
    "netkit/",
    "tracepoint+",
    "tp+",
    "raw_tracepoint+",
    "raw_tp+",
    "raw_tracepoint.w+",
    "raw_tp.w+",
    "tp_btf+",
    "fentry+",
    "fentry.s+",
    "fmod_ret+",
    "fmod_ret.s+",
    "fexit+",
    "fexit.s+",
    "freplace+",
    "lsm+",
    "lsm.s+",
    "lsm_cgroup+",
    "iter+",
    "iter.s+",
    "perf_event+",
    "lwt_in+",
    "lwt_out+",
    "lwt_xmit+",
    "lwt_seg6local",
    "sockops+",
    "sk_skb+",
    "sk_msg+",
    "lirc_mode2+",
    "flow_dissector+",
    "cgroup/",
    "cgroup_skb/",
    "sk_lookup+",
    "struct_ops+",
    "struct_ops.s+",
    "netfilter",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xdp_sections_in_all_spellings() {
        let cases = [
            ("xdp", AttachType::Xdp, false),
            ("xdp/my_prog", AttachType::Xdp, false),
            ("?xdp.frags", AttachType::Xdp, true),
            ("xdp/devmap", AttachType::Devmap, false),
            ("xdp_devmap/map_prog", AttachType::Devmap, false),
            ("xdp.frags/cpumap", AttachType::Cpumap, true),
            ("xdp_cpumap/x", AttachType::Cpumap, false),
        ];
        for (name, attach, has_frags) in cases {
            let expected = SectionMeaning { kind: ProgramKind::Xdp, attach, has_frags };
            assert_eq!(meaning_of(name), expected, "{name}");
        }
    }

    #[test]
    fn other_names_are_listed_not_refused() {
        assert_eq!(meaning_of("kprobe/do_open").kind, ProgramKind::Other("kprobe"));
        assert_eq!(meaning_of("tc").kind, ProgramKind::Other("tc"));
        assert_eq!(meaning_of("dequeue/fair").attach, AttachType::Dequeue);
        assert_eq!(meaning_of("?syscall").attach, AttachType::Syscall);
        assert_eq!(meaning_of("syscall/more").kind, ProgramKind::Unknown);
        assert_eq!(meaning_of("dequeue_more").kind, ProgramKind::Unknown);
        assert_eq!(meaning_of("xdp_sock").kind, ProgramKind::Xdp);
        assert_eq!(meaning_of("prog").kind, ProgramKind::Unknown);
    }

    #[test]
    fn sections_that_mean_nothing_are_told_unless_iproute2_has_them() {
        for (section, near) in [("xpd", "xdp"), ("XDP", "xdp"), ("xd", "xdp"), ("?xpd", "xdp")] {
            let note = note(section).expect("it means nothing");
            assert!(note.contains(&format!("did you mean \"{near}\"?")), "{note}");
        }
        assert!(note("filter").is_some_and(|note| !note.contains("did you mean")));
        for known in ["xdp", "xdp/name", "xdp1", "tc", "prog", "2/1", "0xabccba/0", ".text"] {
            assert_eq!(note(known), None, "{known}");
        }
    }
}
