//! Kfuncs that every program type has: casts, sections, locks, work queues, exceptions.

use super::*;

pub(super) const TABLE: &[KfuncProto] = &[
    kfunc(
        KfuncId::CastToKernCtx,
        &[p("obj", KArg::Ctx)],
        KRet::KernCtx,
        "The kernel object behind the context.",
    )
    .backed(Backing::FullExcept("its fields read as 0 unless the frame has them")),
    kfunc(
        KfuncId::RdonlyCast,
        &[p("obj__ign", KArg::Ignored), p("btf_id__k", KArg::Const)],
        KRet::CastTo,
        "Treats an address as a read-only object of a kernel type.",
    )
    .backed(Backing::FullExcept("addresses outside the program's memory read as 0")),
    kfunc(KfuncId::RcuReadLock, &[], KRet::Void, "Enters an RCU read section."),
    kfunc(KfuncId::RcuReadUnlock, &[], KRet::Void, "Leaves an RCU read section."),
    kfunc(KfuncId::PreemptDisable, &[], KRet::Void, "Disables preemption."),
    kfunc(KfuncId::PreemptEnable, &[], KRet::Void, "Enables preemption."),
    kfunc(
        KfuncId::LocalIrqSave,
        &[p("flags__irq_flag", KArg::IrqFlag)],
        KRet::Void,
        "Disables interrupts and saves their state.",
    ),
    kfunc(
        KfuncId::LocalIrqRestore,
        &[p("flags__irq_flag", KArg::IrqFlag)],
        KRet::Void,
        "Restores the state of interrupts.",
    ),
    kfunc(
        KfuncId::ResSpinLock,
        &[p("lock", KArg::ResSpinLock)],
        KRet::Scalar,
        "Takes a resilient lock; fails instead of deadlocking.",
    )
    .flags(&[KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::ResSpinUnlock,
        &[p("lock", KArg::ResSpinLock)],
        KRet::Void,
        "Releases a resilient lock.",
    ),
    kfunc(
        KfuncId::ResSpinLockIrqsave,
        &[p("lock", KArg::ResSpinLock), p("flags__irq_flag", KArg::IrqFlag)],
        KRet::Scalar,
        "Takes a resilient lock with interrupts disabled.",
    )
    .flags(&[KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::ResSpinUnlockIrqrestore,
        &[p("lock", KArg::ResSpinLock), p("flags__irq_flag", KArg::IrqFlag)],
        KRet::Void,
        "Releases a resilient lock and restores the state of interrupts.",
    ),
    kfunc(
        KfuncId::WqInit,
        &[p("wq", KArg::Workqueue), p("p__map", KArg::Map), p("flags", KArg::Scalar)],
        KRet::Scalar,
        "Prepares the work queue in a map value.",
    ),
    kfunc(
        KfuncId::WqSetCallbackImpl,
        &[
            p("wq", KArg::Workqueue),
            p("callback_fn", KArg::Callback),
            p("flags", KArg::Scalar),
            p("aux__prog", KArg::Prog),
        ],
        KRet::Scalar,
        "Sets the callback of a work queue.",
    )
    .backed(LATER),
    kfunc(
        KfuncId::WqStart,
        &[p("wq", KArg::Workqueue), p("flags", KArg::Scalar)],
        KRet::Scalar,
        "Queues the callback of a work queue.",
    )
    .backed(LATER),
    kfunc(
        KfuncId::Throw,
        &[p("cookie", KArg::Scalar)],
        KRet::Void,
        "Leaves the program at once with a value.",
    ),
    kfunc(
        KfuncId::MapSumElemCount,
        &[p("map", KArg::Object("bpf_map"))],
        KRet::Scalar,
        "Number of elements in a map.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS]),
    kfunc(
        KfuncId::StreamVprintkImpl,
        &[
            p("stream_id", KArg::Scalar),
            p("fmt__str", KArg::ConstStr),
            p("args", KArg::MemSize { optional: false }),
            p("len__sz", KArg::Size { constant: false }),
            p("aux__prog", KArg::Prog),
        ],
        KRet::Scalar,
        "Prints to a stream of the program.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS]),
    kfunc(
        KfuncId::ArenaAllocPages,
        &[
            p("p__map", KArg::Map),
            p("addr__ign", KArg::Ignored),
            p("page_cnt", KArg::Scalar),
            p("node_id", KArg::Scalar),
            p("flags", KArg::Scalar),
        ],
        KRet::Scalar,
        "Allocates pages of an arena, from work queue callbacks and `syscall` programs.",
    )
    .flags(&[KfuncFlags::SLEEPABLE, KfuncFlags::TRUSTED_ARGS]),
    kfunc(
        KfuncId::ArenaFreePages,
        &[p("p__map", KArg::Map), p("ptr__ign", KArg::Ignored), p("page_cnt", KArg::Scalar)],
        KRet::Void,
        "Frees pages of an arena, from work queue callbacks and `syscall` programs.",
    )
    .flags(&[KfuncFlags::SLEEPABLE, KfuncFlags::TRUSTED_ARGS]),
    kfunc(
        KfuncId::ArenaReservePages,
        &[p("p__map", KArg::Map), p("ptr__ign", KArg::Ignored), p("page_cnt", KArg::Scalar)],
        KRet::Scalar,
        "Reserves pages of an arena, from work queue callbacks and `syscall` programs.",
    )
    .flags(&[KfuncFlags::SLEEPABLE, KfuncFlags::TRUSTED_ARGS]),
];

const LATER: Backing =
    Backing::FullExcept("the callback runs on the first worker that is between bursts");
