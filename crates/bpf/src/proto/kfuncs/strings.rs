//! String functions on addresses that may fault.

use super::*;

pub(super) const TABLE: &[KfuncProto] = &[
    kfunc(
        KfuncId::Strcmp,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored)],
        KRet::Scalar,
        "Compares two strings.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strcasecmp,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored)],
        KRet::Scalar,
        "Compares two strings, ignoring case.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strncasecmp,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored), p("len", KArg::Scalar)],
        KRet::Scalar,
        "Compares the start of two strings, ignoring case.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strchr,
        &[p("s__ign", KArg::Ignored), p("c", KArg::Scalar)],
        KRet::Scalar,
        "Index of the first occurrence of a byte.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strchrnul,
        &[p("s__ign", KArg::Ignored), p("c", KArg::Scalar)],
        KRet::Scalar,
        "Index of the first occurrence of a byte, or of the end.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strnchr,
        &[p("s__ign", KArg::Ignored), p("count", KArg::Scalar), p("c", KArg::Scalar)],
        KRet::Scalar,
        "Index of the first occurrence of a byte within a length.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strrchr,
        &[p("s__ign", KArg::Ignored), p("c", KArg::Scalar)],
        KRet::Scalar,
        "Index of the last occurrence of a byte.",
    )
    .backed(OWN_MEMORY),
    kfunc(KfuncId::Strlen, &[p("s__ign", KArg::Ignored)], KRet::Scalar, "Length of a string.")
        .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strnlen,
        &[p("s__ign", KArg::Ignored), p("count", KArg::Scalar)],
        KRet::Scalar,
        "Length of a string, up to a bound.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strspn,
        &[p("s__ign", KArg::Ignored), p("accept__ign", KArg::Ignored)],
        KRet::Scalar,
        "Length of the start made of accepted bytes.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strcspn,
        &[p("s__ign", KArg::Ignored), p("reject__ign", KArg::Ignored)],
        KRet::Scalar,
        "Length of the start without rejected bytes.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strstr,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored)],
        KRet::Scalar,
        "Index of a string in another.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strcasestr,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored)],
        KRet::Scalar,
        "Index of a string in another, ignoring case.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strnstr,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored), p("len", KArg::Scalar)],
        KRet::Scalar,
        "Index of a string in the start of another.",
    )
    .backed(OWN_MEMORY),
    kfunc(
        KfuncId::Strncasestr,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored), p("len", KArg::Scalar)],
        KRet::Scalar,
        "Index of a string in the start of another, ignoring case.",
    )
    .backed(OWN_MEMORY),
];
