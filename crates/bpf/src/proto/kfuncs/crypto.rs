//! Kfuncs that make crypto contexts (in programs that users call), and encrypt with them (in XDP
//! programs).

use super::*;

pub(super) const TABLE: &[KfuncProto] = &[
    kfunc(
        KfuncId::CryptoCtxCreate,
        &[
            p("params", KArg::MemSize { optional: false }),
            p("params__sz", KArg::Size { constant: false }),
            p("err", KArg::Mem(4)),
        ],
        KRet::Object("bpf_crypto_ctx"),
        "Makes a cipher context from the name of a cipher and a key.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL, KfuncFlags::SLEEPABLE])
    .backed(CIPHERS),
    kfunc(
        KfuncId::CryptoCtxAcquire,
        &[p("ctx", KArg::Object("bpf_crypto_ctx"))],
        KRet::Object("bpf_crypto_ctx"),
        "Takes another reference to a cipher context.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RCU, KfuncFlags::RET_NULL]),
    kfunc(
        KfuncId::CryptoCtxRelease,
        &[p("ctx", KArg::Object("bpf_crypto_ctx"))],
        KRet::Void,
        "Releases a cipher context.",
    )
    .flags(&[KfuncFlags::RELEASE]),
    kfunc(
        KfuncId::CryptoEncrypt,
        CRYPT,
        KRet::Scalar,
        "Encrypts bytes with a cipher context that a `syscall` program made.",
    )
    .flags(&[KfuncFlags::RCU]),
    kfunc(
        KfuncId::CryptoDecrypt,
        CRYPT,
        KRet::Scalar,
        "Decrypts bytes with a cipher context that a `syscall` program made.",
    )
    .flags(&[KfuncFlags::RCU]),
];

const CRYPT: &[KParam] = &[
    p("ctx", KArg::Object("bpf_crypto_ctx")),
    p("src", KArg::Dynptr),
    p("dst", KArg::Dynptr),
    p("siv__nullable", KArg::DynptrOrNull),
];

const CIPHERS: Backing = Backing::FullExcept("only [these ciphers](differences.md#ciphers) exist");
