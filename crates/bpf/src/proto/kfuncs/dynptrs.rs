//! Kfuncs on dynptrs.

use super::*;

pub(super) const TABLE: &[KfuncProto] = &[
    kfunc(
        KfuncId::DynptrSlice,
        &[
            p("p", KArg::Dynptr),
            p("offset", KArg::Scalar),
            p("buffer__opt", KArg::MemSize { optional: true }),
            p("buffer__szk", KArg::Size { constant: true }),
        ],
        KRet::Slice { writable: false },
        "A readable pointer to bytes, which are copied to the buffer if necessary.",
    )
    .ties(Ties::DYNPTR.with(Ties::BUFFER))
    .flags(&[KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::DynptrSliceRdwr,
        &[
            p("p", KArg::Dynptr),
            p("offset", KArg::Scalar),
            p("buffer__opt", KArg::MemSize { optional: true }),
            p("buffer__szk", KArg::Size { constant: true }),
        ],
        KRet::Slice { writable: true },
        "A writable pointer to bytes, or to a copy in the buffer.",
    )
    .ties(Ties::DYNPTR.with(Ties::BUFFER))
    .flags(&[KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::DynptrAdjust,
        &[p("p", KArg::Dynptr), p("start", KArg::Scalar), p("end", KArg::Scalar)],
        KRet::Scalar,
        "Narrows the range of a dynptr.",
    ),
    kfunc(
        KfuncId::DynptrIsNull,
        &[p("p", KArg::Dynptr)],
        KRet::Scalar,
        "Whether a dynptr is invalid.",
    ),
    kfunc(
        KfuncId::DynptrIsRdonly,
        &[p("p", KArg::Dynptr)],
        KRet::Scalar,
        "Whether a dynptr may only be read.",
    ),
    kfunc(
        KfuncId::DynptrSize,
        &[p("p", KArg::Dynptr)],
        KRet::Scalar,
        "Number of bytes that a dynptr covers.",
    ),
    kfunc(
        KfuncId::DynptrClone,
        &[p("p", KArg::Dynptr), p("clone__uninit", KArg::DynptrUninit)],
        KRet::Scalar,
        "Makes a second dynptr to the same memory.",
    )
    .ties(Ties::FIRST),
    kfunc(
        KfuncId::DynptrCopy,
        &[
            p("dst_ptr", KArg::Dynptr),
            p("dst_off", KArg::Scalar),
            p("src_ptr", KArg::Dynptr),
            p("src_off", KArg::Scalar),
            p("size", KArg::Scalar),
        ],
        KRet::Scalar,
        "Copies bytes between dynptrs.",
    ),
    kfunc(
        KfuncId::DynptrMemset,
        &[
            p("p", KArg::Dynptr),
            p("offset", KArg::Scalar),
            p("size", KArg::Scalar),
            p("val", KArg::Scalar),
        ],
        KRet::Scalar,
        "Fills bytes of a dynptr.",
    ),
    kfunc(
        KfuncId::ProbeReadKernelDynptr,
        &[
            p("dptr", KArg::Dynptr),
            p("off", KArg::Scalar),
            p("size", KArg::Scalar),
            p("unsafe_ptr__ign", KArg::Ignored),
        ],
        KRet::Scalar,
        "Reads kernel memory into a dynptr.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::ProbeReadKernelStrDynptr,
        &[
            p("dptr", KArg::Dynptr),
            p("off", KArg::Scalar),
            p("size", KArg::Scalar),
            p("unsafe_ptr__ign", KArg::Ignored),
        ],
        KRet::Scalar,
        "Reads a string in kernel memory into a dynptr.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::ProbeReadUserDynptr,
        &[
            p("dptr", KArg::Dynptr),
            p("off", KArg::Scalar),
            p("size", KArg::Scalar),
            p("unsafe_ptr__ign", KArg::Ignored),
        ],
        KRet::Scalar,
        "Reads user memory into a dynptr.",
    )
    .backed(Backing::NothingFound("-EFAULT")),
    kfunc(
        KfuncId::ProbeReadUserStrDynptr,
        &[
            p("dptr", KArg::Dynptr),
            p("off", KArg::Scalar),
            p("size", KArg::Scalar),
            p("unsafe_ptr__ign", KArg::Ignored),
        ],
        KRet::Scalar,
        "Reads a string in user memory into a dynptr.",
    )
    .backed(Backing::NothingFound("-EFAULT")),
    kfunc(
        KfuncId::CopyFromUserStr,
        &[
            p("dst", KArg::MemSize { optional: false }),
            p("dst__sz", KArg::Size { constant: false }),
            p("unsafe_ptr__ign", KArg::Ignored),
            p("flags", KArg::Scalar),
        ],
        KRet::Scalar,
        "Reads a string in user memory, paging in.",
    )
    .flags(&[KfuncFlags::SLEEPABLE])
    .backed(SLEEPS),
    kfunc(
        KfuncId::CopyFromUserDynptr,
        &[
            p("dptr", KArg::Dynptr),
            p("off", KArg::Scalar),
            p("size", KArg::Scalar),
            p("unsafe_ptr__ign", KArg::Ignored),
        ],
        KRet::Scalar,
        "Reads user memory into a dynptr, paging in.",
    )
    .flags(&[KfuncFlags::SLEEPABLE])
    .backed(SLEEPS),
    kfunc(
        KfuncId::CopyFromUserStrDynptr,
        &[
            p("dptr", KArg::Dynptr),
            p("off", KArg::Scalar),
            p("size", KArg::Scalar),
            p("unsafe_ptr__ign", KArg::Ignored),
        ],
        KRet::Scalar,
        "Reads a string in user memory into a dynptr, paging in.",
    )
    .flags(&[KfuncFlags::SLEEPABLE])
    .backed(SLEEPS),
    kfunc(
        KfuncId::CopyFromUserTaskStr,
        &[
            p("dst", KArg::MemSize { optional: false }),
            p("dst__sz", KArg::Size { constant: false }),
            p("unsafe_ptr__ign", KArg::Ignored),
            p("tsk", KArg::Object("task_struct")),
            p("flags", KArg::Scalar),
        ],
        KRet::Scalar,
        "Reads a string in the memory of a task, paging in.",
    )
    .flags(&[KfuncFlags::SLEEPABLE])
    .backed(SLEEPS),
    kfunc(
        KfuncId::CopyFromUserTaskDynptr,
        &[
            p("dptr", KArg::Dynptr),
            p("off", KArg::Scalar),
            p("size", KArg::Scalar),
            p("unsafe_ptr__ign", KArg::Ignored),
            p("tsk", KArg::Object("task_struct")),
        ],
        KRet::Scalar,
        "Reads the memory of a task into a dynptr, paging in.",
    )
    .flags(&[KfuncFlags::SLEEPABLE])
    .backed(SLEEPS),
    kfunc(
        KfuncId::CopyFromUserTaskStrDynptr,
        &[
            p("dptr", KArg::Dynptr),
            p("off", KArg::Scalar),
            p("size", KArg::Scalar),
            p("unsafe_ptr__ign", KArg::Ignored),
            p("tsk", KArg::Object("task_struct")),
        ],
        KRet::Scalar,
        "Reads a string in the memory of a task into a dynptr, paging in.",
    )
    .flags(&[KfuncFlags::SLEEPABLE])
    .backed(SLEEPS),
];

const SLEEPS: Backing = Backing::NothingFound(
    "-EFAULT; as it may sleep, only work queue callbacks and `syscall` programs may call it",
);
