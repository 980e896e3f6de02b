//! Members of kernel structures that pass trust on: a pointer loaded from one is as trusted as the
//! pointer it was loaded through (the `BTF_TYPE_SAFE_*` lists of the kernel's verifier).

/// Trust in a pointer member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Trust {
    None,
    /// Valid as long as the object that contains it.
    Trusted,
    TrustedOrNull,
    /// Valid within an RCU read-side section.
    Rcu,
    RcuOrNull,
}

/// Trust in the pointer `member` of `struct within`.
pub(super) fn field_trust(within: &str, member: &str) -> Trust {
    let row = FIELDS.iter().find(|(name, field, _)| *name == within && *field == member);
    row.map_or(Trust::None, |(_, _, trust)| *trust)
}

const FIELDS: [(&str, &str, Trust); 17] = [
    ("task_struct", "cpus_ptr", Trust::Rcu),
    ("task_struct", "cgroups", Trust::Rcu),
    ("task_struct", "real_parent", Trust::Rcu),
    ("task_struct", "group_leader", Trust::Rcu),
    ("cgroup", "kn", Trust::Rcu),
    ("css_set", "dfl_cgrp", Trust::Rcu),
    ("cgroup_subsys_state", "cgroup", Trust::Rcu),
    ("mm_struct", "exe_file", Trust::RcuOrNull),
    ("sk_buff", "sk", Trust::RcuOrNull),
    ("request_sock", "sk", Trust::RcuOrNull),
    ("linux_binprm", "file", Trust::Trusted),
    ("file", "f_inode", Trust::Trusted),
    ("dentry", "d_inode", Trust::Trusted),
    ("path", "dentry", Trust::Trusted),
    ("socket", "sk", Trust::TrustedOrNull),
    ("vm_area_struct", "vm_mm", Trust::TrustedOrNull),
    ("vm_area_struct", "vm_file", Trust::TrustedOrNull),
];
