//! Kfuncs for tasks, cgroups and keys of the host.

use super::*;

pub(super) const TABLE: &[KfuncProto] = &[
    kfunc(
        KfuncId::TaskAcquire,
        &[p("p", KArg::Object("task_struct"))],
        KRet::Object("task_struct"),
        "Takes a reference to a task.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RCU, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::TaskRelease,
        &[p("p", KArg::Object("task_struct"))],
        KRet::Void,
        "Releases a task.",
    )
    .flags(&[KfuncFlags::RELEASE])
    .backed(NOTHING_TO_RELEASE),
    kfunc(
        KfuncId::TaskFromPid,
        &[p("pid", KArg::Scalar)],
        KRet::Object("task_struct"),
        "Finds a task by id.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::TaskFromVpid,
        &[p("vpid", KArg::Scalar)],
        KRet::Object("task_struct"),
        "Finds a task by id in the current pid namespace.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::TaskUnderCgroup,
        &[p("task", KArg::Object("task_struct")), p("ancestor", KArg::Object("cgroup"))],
        KRet::Scalar,
        "Whether a task is in a cgroup.",
    )
    .flags(&[KfuncFlags::RCU])
    .backed(Backing::NothingFound("0")),
    kfunc(
        KfuncId::TaskGetCgroup1,
        &[p("task", KArg::Object("task_struct")), p("hierarchy_id", KArg::Scalar)],
        KRet::Object("cgroup"),
        "The cgroup of a task in a version 1 hierarchy.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RCU, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::CgroupAcquire,
        &[p("cgrp", KArg::Object("cgroup"))],
        KRet::Object("cgroup"),
        "Takes a reference to a cgroup.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RCU, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::CgroupRelease,
        &[p("cgrp", KArg::Object("cgroup"))],
        KRet::Void,
        "Releases a cgroup.",
    )
    .flags(&[KfuncFlags::RELEASE])
    .backed(NOTHING_TO_RELEASE),
    kfunc(
        KfuncId::CgroupAncestor,
        &[p("cgrp", KArg::Object("cgroup")), p("level", KArg::Scalar)],
        KRet::Object("cgroup"),
        "An ancestor of a cgroup.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RCU, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::CgroupFromId,
        &[p("cgid", KArg::Scalar)],
        KRet::Object("cgroup"),
        "Finds a cgroup by id.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::CgroupReadXattr,
        &[
            p("cgroup", KArg::Object("cgroup")),
            p("name__str", KArg::ConstStr),
            p("value_p", KArg::Dynptr),
        ],
        KRet::Scalar,
        "Reads an extended attribute of a cgroup.",
    )
    .flags(&[KfuncFlags::RCU])
    .backed(Backing::NothingFound("-ENODATA")),
    kfunc(
        KfuncId::SendSignalTask,
        &[
            p("task", KArg::Object("task_struct")),
            p("sig", KArg::Scalar),
            p("type", KArg::Scalar),
            p("value", KArg::Scalar),
        ],
        KRet::Scalar,
        "Sends a signal to a task.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS])
    .backed(Backing::NothingFound("-EPERM")),
    kfunc(
        KfuncId::LookupSystemKey,
        &[p("id", KArg::Scalar)],
        KRet::Object("bpf_key"),
        "Finds a system keyring.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::KeyPut,
        &[p("bkey", KArg::Object("bpf_key"))],
        KRet::Void,
        "Releases a keyring.",
    )
    .flags(&[KfuncFlags::RELEASE])
    .backed(NOTHING_TO_RELEASE),
    kfunc(
        KfuncId::GetKmemCache,
        &[p("addr", KArg::Scalar)],
        KRet::Object("kmem_cache"),
        "The slab cache that holds an address.",
    )
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::CrashKexec,
        &[p("regs", KArg::Object("pt_regs"))],
        KRet::Void,
        "Crashes the kernel for a dump.",
    )
    .flags(&[KfuncFlags::DESTRUCTIVE])
    .backed(Backing::Never("it is destructive, and no XDP program can obtain its argument")),
    kfunc(
        KfuncId::TaskWorkScheduleSignalImpl,
        &[
            p("task", KArg::Object("task_struct")),
            p("tw", KArg::TaskWork),
            p("map__map", KArg::Map),
            p("callback", KArg::Callback),
            p("aux__prog", KArg::Prog),
        ],
        KRet::Scalar,
        "Runs a function in a task, with a signal.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS])
    .backed(Backing::NothingFound("-ESRCH")),
    kfunc(
        KfuncId::TaskWorkScheduleResumeImpl,
        &[
            p("task", KArg::Object("task_struct")),
            p("tw", KArg::TaskWork),
            p("map__map", KArg::Map),
            p("callback", KArg::Callback),
            p("aux__prog", KArg::Prog),
        ],
        KRet::Scalar,
        "Runs a function in a task when it resumes.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS])
    .backed(Backing::NothingFound("-ESRCH")),
];
