//! The program's context: `struct xdp_md`.
//!
//! Its fields are 32 bits wide, but `data`, `data_end` and `data_meta` are pointers. The kernel's
//! verifier rewrites their loads into loads of the real, 64-bit ones (`xdp_convert_ctx_access`);
//! here a 4-byte load at their offset has the same result.

use towpath_bpf::interp::Violation;

use super::Run;
use crate::frame::Frame;
use crate::held::XDP_MD_BYTES;

impl Run<'_> {
    /// Offset of an address in `xdp_md`, if it is in the context.
    pub(super) fn context_offset(&self, addr: u64) -> Option<u64> {
        let offset = addr.wrapping_sub(self.worker.context_addr());
        (offset < XDP_MD_BYTES).then_some(offset)
    }

    /// Loads a field.
    pub(super) fn load_context(&self, addr: u64, offset: u64, size: u32) -> Result<u64, Violation> {
        load_field(self.frame, addr, offset, size)
    }

    /// Loads a field of a packet that the program holds; `None` if the address refers to none.
    pub(super) fn load_held(&self, addr: u64, size: u32) -> Option<Result<u64, Violation>> {
        let (frame, offset) = self.worker.held.at(addr)?;
        Some(load_field(frame, addr, offset, size))
    }
}

fn load_field(frame: &Frame, addr: u64, offset: u64, size: u32) -> Result<u64, Violation> {
    Ok(match (offset, size) {
        (DATA, 4) => frame.data_addr(),
        (DATA_END, 4) => frame.data_end_addr(),
        (DATA_META, 4) => frame.data_meta_addr(),
        (INGRESS_IFINDEX, 4) => u64::from(frame.rx.ifindex),
        (RX_QUEUE_INDEX, 4) => u64::from(frame.rx.queue_index),
        (EGRESS_IFINDEX, 4) => u64::from(frame.egress_ifindex),
        _ => {
            let why = "the context is read by whole, aligned 4-byte fields";
            return Err(Violation::Memory { addr, size: size.into(), write: false, why });
        }
    })
}

const DATA: u64 = 0;
const DATA_END: u64 = 4;
const DATA_META: u64 = 8;
const INGRESS_IFINDEX: u64 = 12;
const RX_QUEUE_INDEX: u64 = 16;
/// Offset of `egress_ifindex`, also for `struct dequeue_ctx`: it is that structure's only field,
/// and dequeue programs start with its address.
pub(crate) const EGRESS_IFINDEX: u64 = 20;
