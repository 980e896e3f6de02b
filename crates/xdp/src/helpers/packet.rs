//! Helpers that change or copy the frame, and the kfunc that pulls frags into its linear part.

use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::call::status;
use super::{Call, KfuncTable, Table, entry, moving};

pub(super) const TABLE: Table = &[
    (id::XDP_ADJUST_HEAD, moving(adjust_head)),
    (id::XDP_ADJUST_META, moving(adjust_meta)),
    (id::XDP_ADJUST_TAIL, moving(adjust_tail)),
    (id::XDP_GET_BUFF_LEN, entry(buff_len)),
    (id::XDP_LOAD_BYTES, entry(load_bytes)),
    (id::XDP_STORE_BYTES, entry(store_bytes)),
];

pub(super) const KFUNCS: KfuncTable = &[("bpf_xdp_pull_data", moving(pull_data))];

/// `bpf_xdp_adjust_head(ctx, delta)`
#[inline(always)]
fn adjust_head(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(status(call.run.frame.adjust_head(args[1] as i32)))
}

/// `bpf_xdp_adjust_meta(ctx, delta)`
#[inline(always)]
fn adjust_meta(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(status(call.run.frame.adjust_meta(args[1] as i32)))
}

/// `bpf_xdp_adjust_tail(ctx, delta)`
#[inline(always)]
fn adjust_tail(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(status(call.run.frame.adjust_tail(args[1] as i32)))
}

/// `bpf_xdp_get_buff_len(ctx)`
#[inline(always)]
fn buff_len(call: &mut Call<'_, '_>, _args: [u64; 5]) -> Result<u64, Stop> {
    Ok(call.run.frame.len() as u64)
}

/// `bpf_xdp_load_bytes(ctx, offset, buf, len)`
#[inline(always)]
fn load_bytes(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, offset, buf, len, _] = args;
    let (offset, len) = (offset as u32 as usize, len as u32 as usize);
    Ok(status(call.run.load_frame(offset, buf, len)?))
}

/// `bpf_xdp_store_bytes(ctx, offset, buf, len)`
#[inline(always)]
fn store_bytes(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, offset, buf, len, _] = args;
    let (offset, len) = (offset as u32 as usize, len as u32 as usize);
    Ok(status(call.run.store_frame(offset, buf, len)?))
}

/// `bpf_xdp_pull_data(ctx, len)`
#[inline(always)]
fn pull_data(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(status(call.run.frame.pull_data(args[1] as u32 as usize)))
}
