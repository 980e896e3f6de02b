//! Kfuncs for objects a program allocates, and the lists and trees that hold them.

use super::*;

pub(super) const TABLE: &[KfuncProto] = &[
    kfunc(
        KfuncId::ObjNewImpl,
        &[p("local_type_id__k", KArg::Const), p("meta__ign", KArg::Ignored)],
        KRet::NewObject,
        "Allocates an object of a type of the program.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::ObjDropImpl,
        &[p("p__alloc", KArg::Alloc), p("meta__ign", KArg::Ignored)],
        KRet::Void,
        "Frees an object, and what its fields hold.",
    )
    .flags(&[KfuncFlags::RELEASE]),
    kfunc(
        KfuncId::PercpuObjNewImpl,
        &[p("local_type_id__k", KArg::Const), p("meta__ign", KArg::Ignored)],
        KRet::NewPercpuObject,
        "Allocates an object for each CPU.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::PercpuObjDropImpl,
        &[p("p__alloc", KArg::PercpuAlloc), p("meta__ign", KArg::Ignored)],
        KRet::Void,
        "Frees an object of each CPU.",
    )
    .flags(&[KfuncFlags::RELEASE]),
    kfunc(
        KfuncId::RefcountAcquireImpl,
        &[p("p__refcounted_kptr", KArg::Refcounted), p("meta__ign", KArg::Ignored)],
        KRet::SameObject,
        "Takes another reference to an object.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL, KfuncFlags::RCU]),
    kfunc(
        KfuncId::ListPushFrontImpl,
        &[
            p("head", KArg::ListHead),
            p("node", KArg::ListNode),
            p("meta__ign", KArg::Ignored),
            p("off", KArg::Scalar),
        ],
        KRet::Scalar,
        "Adds an object at the front of a list.",
    ),
    kfunc(
        KfuncId::ListPushBackImpl,
        &[
            p("head", KArg::ListHead),
            p("node", KArg::ListNode),
            p("meta__ign", KArg::Ignored),
            p("off", KArg::Scalar),
        ],
        KRet::Scalar,
        "Adds an object at the back of a list.",
    ),
    kfunc(
        KfuncId::ListPopFront,
        &[p("head", KArg::ListHead)],
        KRet::ListNode,
        "Takes the object at the front of a list.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::ListPopBack,
        &[p("head", KArg::ListHead)],
        KRet::ListNode,
        "Takes the object at the back of a list.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::ListFront,
        &[p("head", KArg::ListHead)],
        KRet::ListNode,
        "Looks at the object at the front of a list.",
    )
    .ties(Ties::LOCK)
    .flags(&[KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::ListBack,
        &[p("head", KArg::ListHead)],
        KRet::ListNode,
        "Looks at the object at the back of a list.",
    )
    .ties(Ties::LOCK)
    .flags(&[KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::RbtreeAddImpl,
        &[
            p("root", KArg::RbRoot),
            p("node", KArg::RbNode),
            p("less", KArg::Callback),
            p("meta__ign", KArg::Ignored),
            p("off", KArg::Scalar),
        ],
        KRet::Scalar,
        "Adds an object to a tree, ordered by a function.",
    ),
    kfunc(
        KfuncId::RbtreeRemove,
        &[p("root", KArg::RbRoot), p("node", KArg::RbNode)],
        KRet::RbNode,
        "Takes an object out of a tree.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::RbtreeFirst,
        &[p("root", KArg::RbRoot)],
        KRet::RbNode,
        "The least object of a tree.",
    )
    .ties(Ties::LOCK)
    .flags(&[KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::RbtreeRoot,
        &[p("root", KArg::RbRoot)],
        KRet::RbNode,
        "The object at the root of a tree.",
    )
    .ties(Ties::LOCK)
    .flags(&[KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::RbtreeLeft,
        &[p("root", KArg::RbRoot), p("node", KArg::RbNode)],
        KRet::RbNode,
        "The left child of a node.",
    )
    .ties(Ties::LOCK)
    .flags(&[KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::RbtreeRight,
        &[p("root", KArg::RbRoot), p("node", KArg::RbNode)],
        KRet::RbNode,
        "The right child of a node.",
    )
    .ties(Ties::LOCK)
    .flags(&[KfuncFlags::RET_NULL]),
];
