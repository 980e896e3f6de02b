//! The running kernel's own BTF, for the ids of kfuncs.

use std::sync::{Arc, OnceLock};

use towpath_bpf::btf::{Btf, Kind};

/// Path at which the kernel publishes its types.
const VMLINUX_BTF: &str = "/sys/kernel/btf/vmlinux";

/// The kernel's types; read at the first use, empty if it publishes none.
#[derive(Debug, Default)]
pub(crate) struct KernelTypes {
    btf: OnceLock<Arc<Btf>>,
}

impl KernelTypes {
    pub(crate) fn btf(&self) -> &Arc<Btf> {
        self.btf.get_or_init(|| {
            let bytes = std::fs::read(VMLINUX_BTF).unwrap_or_default();
            Arc::new(Btf::parse(&bytes).unwrap_or_default())
        })
    }

    /// The BTF id of a kernel function; `None` if it doesn't exist (or is in a module, whose BTF
    /// this small loader doesn't read).
    pub(crate) fn function(&self, name: &str) -> Option<u32> {
        self.btf().find(name, |kind| matches!(kind, Kind::Func { .. }))
    }

    /// The BTF id of a kernel function or variable; `None` as for [`KernelTypes::function`].
    pub(crate) fn symbol(&self, name: &str) -> Option<u32> {
        self.btf().find(name, |kind| matches!(kind, Kind::Func { .. } | Kind::Var { .. }))
    }
}
