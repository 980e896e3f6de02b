//! String functions on addresses that may fault.

use super::*;

pub(super) const TABLE: &[KfuncProto] = &[
    kfunc(
        KfuncId::Strcmp,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored)],
        KRet::Scalar,
        "Compares two strings.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strcasecmp,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored)],
        KRet::Scalar,
        "Compares two strings, ignoring case.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strncasecmp,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored), p("len", KArg::Scalar)],
        KRet::Scalar,
        "Compares the start of two strings, ignoring case.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strchr,
        &[p("s__ign", KArg::Ignored), p("c", KArg::Scalar)],
        KRet::Scalar,
        "Index of the first occurrence of a byte.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strchrnul,
        &[p("s__ign", KArg::Ignored), p("c", KArg::Scalar)],
        KRet::Scalar,
        "Index of a byte, or of the end.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strnchr,
        &[p("s__ign", KArg::Ignored), p("count", KArg::Scalar), p("c", KArg::Scalar)],
        KRet::Scalar,
        "Index of a byte within a length.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strrchr,
        &[p("s__ign", KArg::Ignored), p("c", KArg::Scalar)],
        KRet::Scalar,
        "Index of the last occurrence of a byte.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(KfuncId::Strlen, &[p("s__ign", KArg::Ignored)], KRet::Scalar, "Length of a string.")
        .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strnlen,
        &[p("s__ign", KArg::Ignored), p("count", KArg::Scalar)],
        KRet::Scalar,
        "Length of a string, up to a bound.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strspn,
        &[p("s__ign", KArg::Ignored), p("accept__ign", KArg::Ignored)],
        KRet::Scalar,
        "Length of the start made of accepted bytes.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strcspn,
        &[p("s__ign", KArg::Ignored), p("reject__ign", KArg::Ignored)],
        KRet::Scalar,
        "Length of the start without rejected bytes.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strstr,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored)],
        KRet::Scalar,
        "Index of a string in another.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strcasestr,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored)],
        KRet::Scalar,
        "Index of a string in another, ignoring case.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strnstr,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored), p("len", KArg::Scalar)],
        KRet::Scalar,
        "Index of a string in the start of another.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
    kfunc(
        KfuncId::Strncasestr,
        &[p("s1__ign", KArg::Ignored), p("s2__ign", KArg::Ignored), p("len", KArg::Scalar)],
        KRet::Scalar,
        "Index of a string in the start of another, ignoring case.",
    )
    .backed(Backing::FullExcept("only memory that the program could reach is there")),
];
