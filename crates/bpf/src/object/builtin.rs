//! The kernel types that ship with Towpath, for machines that publish none.

use std::sync::{Arc, LazyLock};

use crate::btf::Btf;

/// The types, parsed once.
pub(super) fn kernel_btf() -> Arc<Btf> {
    static PARSED: LazyLock<Arc<Btf>> = LazyLock::new(|| Arc::new(Btf::default()));
    Arc::clone(&PARSED)
}
