//! The kernel that an object file is linked against: its types, version, configuration and symbols.
//!
//! Every question has an answer without a running kernel, so that the same file links to the same
//! instructions on every machine; a caller that wants the machine's own answers passes them in.

use std::collections::HashMap;
use std::sync::Arc;

use super::builtin::{kernel_btf as builtin_btf, with_kfuncs};
use crate::btf::Btf;

/// The kernel that programs are linked against.
#[derive(Debug, Clone)]
pub struct Env {
    /// Target of CO-RE relocations, typed ksyms and kfuncs. Contains every kfunc that Towpath has.
    pub kernel_btf: Arc<Btf>,
    /// `LINUX_KERNEL_VERSION`, as `KERNEL_VERSION(a, b, c)` computes it.
    pub kernel_version: u32,
    /// `CONFIG_*` options, with the text of a `.config` file: `y`, `m`, `n`, `100`, `0x10`,
    /// `"text"`. An option that is missing is unset.
    pub config: HashMap<String, String>,
    /// Addresses of typeless ksyms (`/proc/kallsyms`). A weak symbol that is missing has address 0.
    pub symbols: HashMap<String, u64>,
}

impl Env {
    /// A kernel with these types; its version is [`KERNEL_VERSION_DEFAULT`], its configuration
    /// [`CONFIG_DEFAULT`], and no symbol has an address. A kfunc that Towpath has gets an address
    /// (`bpf_ksym_exists`) even if these types lack it.
    pub fn new(kernel_btf: Arc<Btf>) -> Self {
        Env::later(move || kernel_btf)
    }

    /// As [`Env::new`], with types that are read at the first access to one: reading the running
    /// kernel's takes a tenth of a second.
    pub fn later(read: impl FnOnce() -> Arc<Btf> + Send + 'static) -> Self {
        let config = CONFIG_DEFAULT.iter().map(|&(k, v)| (k.to_owned(), v.to_owned()));
        Env {
            kernel_btf: Arc::new(Btf::later(|| with_kfuncs(read()))),
            kernel_version: KERNEL_VERSION_DEFAULT,
            config: config.collect(),
            symbols: HashMap::new(),
        }
    }

    /// The kernel that Towpath itself resembles, from the types that ship with it.
    pub fn builtin() -> Self {
        Env::new(builtin_btf())
    }

    /// The running kernel's types, in the format of `/sys/kernel/btf/vmlinux`; Towpath's own if
    /// `read` finds none, or invalid ones.
    pub fn of_kernel(read: impl FnOnce() -> Option<Vec<u8>> + Send + 'static) -> Self {
        let parsed = |bytes: Vec<u8>| Btf::parse(&bytes).ok();
        Env::later(move || read().and_then(parsed).map_or_else(builtin_btf, Arc::new))
    }
}

/// Linux 6.18.0: the kernel whose rules Towpath follows.
pub const KERNEL_VERSION_DEFAULT: u32 = 6 << 16 | 18 << 8;

/// Options that XDP programs read from `.kconfig`.
pub const CONFIG_DEFAULT: &[(&str, &str)] = &[
    ("CONFIG_BPF", "y"),
    ("CONFIG_BPF_SYSCALL", "y"),
    ("CONFIG_BPF_JIT", "y"),
    ("CONFIG_NET", "y"),
    ("CONFIG_INET", "y"),
    ("CONFIG_IPV6", "y"),
    ("CONFIG_HZ", "250"),
    ("CONFIG_NR_CPUS", "8192"),
    ("CONFIG_XDP_SOCKETS", "y"),
    ("CONFIG_MMU", "y"),
    ("CONFIG_64BIT", "y"),
];
