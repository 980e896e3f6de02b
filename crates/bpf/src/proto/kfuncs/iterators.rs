//! Open-coded iterators: kfuncs in threes, `new`, `next` and `destroy`.

use super::*;

pub(super) const TABLE: &[KfuncProto] = &[
    kfunc(
        KfuncId::IterTaskNew,
        &[
            p("it", KArg::Iter(Iter::Task)),
            p("task__nullable", KArg::ObjectOrNull("task_struct")),
            p("flags", KArg::Scalar),
        ],
        KRet::Scalar,
        "Starts a walk over tasks or threads.",
    )
    .flags(&[KfuncFlags::ITER_NEW, KfuncFlags::TRUSTED_ARGS, KfuncFlags::RCU_PROTECTED])
    .backed(Backing::NothingFound("0, an empty walk")),
    kfunc(
        KfuncId::IterTaskNext,
        &[p("it", KArg::Iter(Iter::Task))],
        KRet::Object("task_struct"),
        "The next task or thread of the walk.",
    )
    .ties(Ties::RCU)
    .flags(&[KfuncFlags::ITER_NEXT, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::IterTaskDestroy,
        &[p("it", KArg::Iter(Iter::Task))],
        KRet::Void,
        "Ends a walk over tasks or threads.",
    )
    .flags(&[KfuncFlags::ITER_DESTROY]),
    kfunc(
        KfuncId::IterTaskVmaNew,
        &[
            p("it", KArg::Iter(Iter::TaskVma)),
            p("task", KArg::Object("task_struct")),
            p("addr", KArg::Scalar),
        ],
        KRet::Scalar,
        "Starts a walk over mappings of a task.",
    )
    .flags(&[KfuncFlags::ITER_NEW, KfuncFlags::RCU])
    .backed(Backing::NothingFound("0, an empty walk")),
    kfunc(
        KfuncId::IterTaskVmaNext,
        &[p("it", KArg::Iter(Iter::TaskVma))],
        KRet::Object("vm_area_struct"),
        "The next mapping of the walk.",
    )
    .flags(&[KfuncFlags::ITER_NEXT, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::IterTaskVmaDestroy,
        &[p("it", KArg::Iter(Iter::TaskVma))],
        KRet::Void,
        "Ends a walk over mappings of a task.",
    )
    .flags(&[KfuncFlags::ITER_DESTROY]),
    kfunc(
        KfuncId::IterCssNew,
        &[
            p("it", KArg::Iter(Iter::Css)),
            p("start", KArg::Object("cgroup_subsys_state")),
            p("flags", KArg::Scalar),
        ],
        KRet::Scalar,
        "Starts a walk over a cgroup hierarchy.",
    )
    .flags(&[KfuncFlags::ITER_NEW, KfuncFlags::TRUSTED_ARGS, KfuncFlags::RCU_PROTECTED])
    .backed(Backing::NothingFound("0, an empty walk")),
    kfunc(
        KfuncId::IterCssNext,
        &[p("it", KArg::Iter(Iter::Css))],
        KRet::Object("cgroup_subsys_state"),
        "The next cgroup of the walk.",
    )
    .ties(Ties::RCU)
    .flags(&[KfuncFlags::ITER_NEXT, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::IterCssDestroy,
        &[p("it", KArg::Iter(Iter::Css))],
        KRet::Void,
        "Ends a walk over a cgroup hierarchy.",
    )
    .flags(&[KfuncFlags::ITER_DESTROY]),
    kfunc(
        KfuncId::IterCssTaskNew,
        &[
            p("it", KArg::Iter(Iter::CssTask)),
            p("css", KArg::Object("cgroup_subsys_state")),
            p("flags", KArg::Scalar),
        ],
        KRet::Scalar,
        "Starts a walk over tasks of a cgroup.",
    )
    .flags(&[KfuncFlags::ITER_NEW, KfuncFlags::TRUSTED_ARGS])
    .backed(Backing::NothingFound("0, an empty walk")),
    kfunc(
        KfuncId::IterCssTaskNext,
        &[p("it", KArg::Iter(Iter::CssTask))],
        KRet::Object("task_struct"),
        "The next task of the walk.",
    )
    .flags(&[KfuncFlags::ITER_NEXT, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::IterCssTaskDestroy,
        &[p("it", KArg::Iter(Iter::CssTask))],
        KRet::Void,
        "Ends a walk over tasks of a cgroup.",
    )
    .flags(&[KfuncFlags::ITER_DESTROY]),
    kfunc(
        KfuncId::IterNumNew,
        &[p("it", KArg::Iter(Iter::Num)), p("start", KArg::Scalar), p("end", KArg::Scalar)],
        KRet::Scalar,
        "Starts a walk over integers.",
    )
    .flags(&[KfuncFlags::ITER_NEW]),
    kfunc(
        KfuncId::IterNumNext,
        &[p("it", KArg::Iter(Iter::Num))],
        KRet::Mem(4),
        "The next integer of the walk.",
    )
    .ties(Ties::FIRST)
    .flags(&[KfuncFlags::ITER_NEXT, KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::IterNumDestroy,
        &[p("it", KArg::Iter(Iter::Num))],
        KRet::Void,
        "Ends a walk over integers.",
    )
    .flags(&[KfuncFlags::ITER_DESTROY]),
    kfunc(
        KfuncId::IterBitsNew,
        &[
            p("it", KArg::Iter(Iter::Bits)),
            p("unsafe_ptr__ign", KArg::Ignored),
            p("nr_words", KArg::Scalar),
        ],
        KRet::Scalar,
        "Starts a walk over the set bits of memory.",
    )
    .flags(&[KfuncFlags::ITER_NEW])
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::IterBitsNext,
        &[p("it", KArg::Iter(Iter::Bits))],
        KRet::Mem(4),
        "Index of the next set bit of the walk.",
    )
    .ties(Ties::FIRST)
    .flags(&[KfuncFlags::ITER_NEXT, KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::IterBitsDestroy,
        &[p("it", KArg::Iter(Iter::Bits))],
        KRet::Void,
        "Ends a walk over the set bits of memory.",
    )
    .flags(&[KfuncFlags::ITER_DESTROY]),
];
