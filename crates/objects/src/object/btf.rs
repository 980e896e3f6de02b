//! Type information as an object.

use std::sync::Arc;

use towpath_bpf::btf::Btf;

use crate::ids::Lease;

/// A BTF blob with its id.
#[derive(Debug)]
pub struct BtfObject {
    lease: Lease<BtfObject>,
    btf: Arc<Btf>,
    bytes: Box<[u8]>,
}

impl BtfObject {
    pub(crate) fn new(lease: Lease<BtfObject>, btf: Arc<Btf>, bytes: Vec<u8>) -> BtfObject {
        BtfObject { lease, btf, bytes: bytes.into() }
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.lease.id()
    }

    /// The types.
    pub fn types(&self) -> &Arc<Btf> {
        &self.btf
    }

    /// The blob as it was loaded.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
