//! The program behind [`crate::LiveFrames`].

use std::os::fd::{AsFd as _, AsRawFd as _};

use towpath_bpf::Insn;

use crate::live::Maps;
use crate::live_unsafe::{self as ring, Ring};

/// The instructions of `steer` for frames of the interface, and of this code for frames of test
/// runs, which come from the loopback device, unlike frames of any other interface:
///
/// ```c
/// ring = rings[bpf_get_smp_processor_id()];
/// if (!ring || ring->head == ring->tail)
///     return XDP_DROP;
/// slot = &ring->slots[ring->head % SLOTS];
/// if (slot->len <= sizeof(slot->data) && slot->len >= ETH_HLEN &&
///     !bpf_xdp_adjust_tail(ctx, slot->len - bpf_xdp_get_buff_len(ctx)) &&
///     !bpf_xdp_store_bytes(ctx, 0, slot->data, slot->len) &&
///     bpf_redirect_map(&device, 0, 0) == XDP_REDIRECT) {
///     ring->head++;       /* atomic: behind the reading of the slot */
///     return XDP_REDIRECT;
/// }
/// ring->refused++;
/// ring->head++;
/// return XDP_DROP;
/// ```
pub(crate) fn instructions(steer: &[Insn], maps: &Maps) -> Vec<Insn> {
    let mut insns = vec![
        insn(MOV_REG, 6, 1, 0, 0),
        insn(LOAD_U32, 2, 6, INGRESS_IFINDEX, 0),
        insn(JUMP_EQ_IMM, 2, 0, 1 + steer.len() as i16, LOOPBACK_IFINDEX),
        insn(MOV_REG, 1, 6, 0, 0),
    ];
    insns.extend(steer);
    insns.extend(find_packet(maps));
    insns.extend(send_packet(maps));
    insns.extend([
        insn(MOV_IMM, 1, 0, 0, 1),
        insn(FETCH_ADD_U32, 7, 1, ring::REFUSED_OFFSET, FETCH_ADD),
        insn(MOV_IMM, 1, 0, 0, 1),
        insn(FETCH_ADD_U32, 7, 1, ring::HEAD_OFFSET, FETCH_ADD),
        // End for runs that found no packet.
        insn(MOV_IMM, 0, 0, 0, XDP_DROP),
        insn(EXIT, 0, 0, 0, 0),
    ]);
    insns
}

/// r7 = ring, r9 = its next slot, r8 = the length of the packet there
fn find_packet(maps: &Maps) -> [Insn; FIND] {
    let [rings, rings_high] = map(maps.rings.as_fd().as_raw_fd());
    let to = |label: usize, at: usize| (label - at - 1) as i16;
    [
        insn(CALL, 0, 0, 0, GET_SMP_PROCESSOR_ID),
        insn(STORE_U32, 10, 0, -4, 0),
        insn(MOV_REG, 2, 10, 0, 0),
        insn(ADD_IMM, 2, 0, 0, -4),
        rings,
        rings_high,
        insn(CALL, 0, 0, 0, MAP_LOOKUP_ELEM),
        insn(JUMP_EQ_IMM, 0, 0, to(NOTHING, 7), 0),
        insn(MOV_REG, 1, 0, 0, 0),
        insn(STORE_IMM_U32, 10, 0, -4, 0),
        insn(MOV_REG, 2, 10, 0, 0),
        insn(ADD_IMM, 2, 0, 0, -4),
        insn(CALL, 0, 0, 0, MAP_LOOKUP_ELEM),
        insn(JUMP_EQ_IMM, 0, 0, to(NOTHING, 13), 0),
        insn(MOV_REG, 7, 0, 0, 0),
        insn(LOAD_U32, 8, 7, ring::HEAD_OFFSET, 0),
        insn(LOAD_U32, 1, 7, ring::TAIL_OFFSET, 0),
        insn(JUMP_EQ_REG, 8, 1, to(NOTHING, 17), 0),
        insn(AND_IMM, 8, 0, 0, Ring::SLOTS as i32 - 1),
        insn(SHIFT_LEFT_IMM, 8, 0, 0, ring::SLOT_BYTES.ilog2() as i32),
        insn(MOV_REG, 9, 7, 0, 0),
        insn(ADD_REG, 9, 8, 0, 0),
        insn(LOAD_U32, 8, 9, ring::SLOTS_OFFSET as i16, 0),
        insn(JUMP_GT_IMM, 8, 0, to(REFUSED, 23), Ring::PACKET_BYTES_MAX as i32),
        insn(JUMP_LT_IMM, 8, 0, to(REFUSED, 24), 14),
    ]
}

/// Copies the packet into the frame and redirects the frame, or falls through.
fn send_packet(maps: &Maps) -> [Insn; SEND] {
    let [device, device_high] = map(maps.device.as_fd().as_raw_fd());
    let to = |label: usize, at: usize| (label - FIND - at - 1) as i16;
    [
        insn(MOV_REG, 1, 6, 0, 0),
        insn(CALL, 0, 0, 0, XDP_GET_BUFF_LEN),
        insn(MOV_REG, 2, 8, 0, 0),
        insn(SUB_REG, 2, 0, 0, 0),
        insn(JUMP_EQ_IMM, 2, 0, 3, 0),
        insn(MOV_REG, 1, 6, 0, 0),
        insn(CALL, 0, 0, 0, XDP_ADJUST_TAIL),
        insn(JUMP_NE_IMM, 0, 0, to(REFUSED, 7), 0),
        insn(MOV_REG, 1, 6, 0, 0),
        insn(MOV_IMM, 2, 0, 0, 0),
        insn(MOV_REG, 3, 9, 0, 0),
        insn(ADD_IMM, 3, 0, 0, (ring::SLOTS_OFFSET + ring::DATA_OFFSET) as i32),
        insn(MOV_REG, 4, 8, 0, 0),
        insn(CALL, 0, 0, 0, XDP_STORE_BYTES),
        insn(JUMP_NE_IMM, 0, 0, to(REFUSED, 14), 0),
        device,
        device_high,
        insn(MOV_IMM, 2, 0, 0, 0),
        insn(MOV_IMM, 3, 0, 0, 0),
        insn(CALL, 0, 0, 0, REDIRECT_MAP),
        insn(JUMP_NE_IMM, 0, 0, to(REFUSED, 20), XDP_REDIRECT),
        insn(MOV_IMM, 1, 0, 0, 1),
        insn(FETCH_ADD_U32, 7, 1, ring::HEAD_OFFSET, FETCH_ADD),
        insn(EXIT, 0, 0, 0, 0),
    ]
}

fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn::new(code, dst, src, off, imm)
}

/// `r1 = map`
fn map(fd: i32) -> [Insn; 2] {
    [Insn::new(LOAD_IMM64, 1, PSEUDO_MAP_FD, 0, fd), Insn::new(0, 0, 0, 0, 0)]
}

/// Numbers of instructions of the second half's parts, and from its start to its ends.
const FIND: usize = 25;
const SEND: usize = 24;
const REFUSED: usize = FIND + SEND;
const NOTHING: usize = REFUSED + 4;

const MOV_REG: u8 = 0xbf;
const MOV_IMM: u8 = 0xb7;
const ADD_REG: u8 = 0x0f;
const ADD_IMM: u8 = 0x07;
const SUB_REG: u8 = 0x1f;
const AND_IMM: u8 = 0x57;
const SHIFT_LEFT_IMM: u8 = 0x67;
const LOAD_U32: u8 = 0x61;
const LOAD_IMM64: u8 = 0x18;
const STORE_U32: u8 = 0x63;
const STORE_IMM_U32: u8 = 0x62;
const FETCH_ADD_U32: u8 = 0xc3;
const FETCH_ADD: i32 = 0x01;
const JUMP_EQ_REG: u8 = 0x1d;
const JUMP_EQ_IMM: u8 = 0x15;
const JUMP_NE_IMM: u8 = 0x55;
const JUMP_GT_IMM: u8 = 0x25;
const JUMP_LT_IMM: u8 = 0xa5;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const PSEUDO_MAP_FD: u8 = 1;

const MAP_LOOKUP_ELEM: i32 = 1;
const GET_SMP_PROCESSOR_ID: i32 = 8;
const REDIRECT_MAP: i32 = 51;
const XDP_ADJUST_TAIL: i32 = 65;
const XDP_GET_BUFF_LEN: i32 = 188;
const XDP_STORE_BYTES: i32 = 190;

/// `ingress_ifindex` of `struct xdp_md`.
const INGRESS_IFINDEX: i16 = 12;
/// Ifindex of the loopback device, in every namespace (`LOOPBACK_IFINDEX`).
const LOOPBACK_IFINDEX: i32 = 1;
const XDP_DROP: i32 = 1;
const XDP_REDIRECT: i32 = 4;
