//! The program that asks a driver for its metadata of each frame, and stores it in front of the
//! packet ([`DriverHints`]), before frames are steered to sockets.

use towpath_bpf::Insn;

/// Numbers of the kfuncs in the kernel's types.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kfuncs {
    pub(crate) timestamp: u32,
    pub(crate) hash: u32,
    pub(crate) vlan_tag: u32,
}

/// A driver's metadata of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriverHints {
    /// Arrival time, in nanoseconds of the device's clock.
    pub timestamp_ns: Option<u64>,
    /// Hash of its addresses, and the covered fields (`enum xdp_rss_hash_type`).
    pub hash: Option<(u32, u32)>,
    /// The stripped VLAN tag: protocol and value.
    pub vlan: Option<(u16, u16)>,
}

impl DriverHints {
    /// Number of bytes in front of the packet.
    pub const BYTES: usize = 32;

    /// Parses the bytes that the program stored; `None` if they are something else.
    pub fn parse(bytes: &[u8; DriverHints::BYTES]) -> Option<DriverHints> {
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |it| u32::from_ne_bytes(*it));
        let long = |at: usize| bytes[at..].first_chunk().map_or(0, |it| u64::from_ne_bytes(*it));
        let half = |at: usize| [bytes[at], bytes[at + 1]];
        if word(0) != MAGIC.cast_unsigned() {
            return None;
        }
        let has = |flag: i32| word(4) & flag.cast_unsigned() != 0;
        Some(DriverHints {
            // Drivers without timestamps report 0 instead of an error.
            timestamp_ns: Some(long(16)).filter(|&ns| has(TIMESTAMP) && ns != 0),
            hash: has(HASH).then(|| (word(8), word(12))),
            vlan: has(VLAN_TAG)
                .then(|| (u16::from_be_bytes(half(24)), u16::from_ne_bytes(half(26)))),
        })
    }
}

/// The instructions of this code, followed by `steer`:
///
/// ```c
/// struct { u32 magic, flags, hash, type; u64 timestamp; __be16 proto; u16 tci; u32 pad; } it = {};
/// it.magic = MAGIC;
/// if (!bpf_xdp_metadata_rx_timestamp(ctx, &it.timestamp)) it.flags |= TIMESTAMP;
/// if (!bpf_xdp_metadata_rx_hash(ctx, &it.hash, &it.type)) it.flags |= HASH;
/// if (!bpf_xdp_metadata_rx_vlan_tag(ctx, &it.proto, &it.tci)) it.flags |= VLAN_TAG;
/// if (!bpf_xdp_adjust_meta(ctx, -sizeof(it)) && data_meta + sizeof(it) <= data)
///     *data_meta = it;
/// ```
pub(crate) fn instructions(steer: &[Insn], kfuncs: Kfuncs) -> Vec<Insn> {
    let mut insns = vec![
        insn(MOV_REG, 6, 1, 0, 0),
        insn(MOV_IMM, 7, 0, 0, 0),
        insn(STORE_IMM_U32, 10, 0, BASE, MAGIC),
        insn(STORE_IMM_U32, 10, 0, BASE + 4, 0),
        insn(STORE_IMM_U64, 10, 0, BASE + 8, 0),
        insn(STORE_IMM_U64, 10, 0, BASE + 16, 0),
        insn(STORE_IMM_U64, 10, 0, BASE + 24, 0),
    ];
    insns.extend(ask(kfuncs.timestamp, [16, 16], TIMESTAMP));
    insns.extend(ask(kfuncs.hash, [8, 12], HASH));
    insns.extend(ask(kfuncs.vlan_tag, [24, 26], VLAN_TAG));
    insns.extend([
        insn(STORE_U32, 10, 7, BASE + 4, 0),
        insn(MOV_REG, 1, 6, 0, 0),
        insn(MOV_IMM, 2, 0, 0, -(DriverHints::BYTES as i32)),
        insn(CALL, 0, 0, 0, XDP_ADJUST_META),
        insn(JUMP_NE_IMM, 0, 0, 13, 0),
        insn(LOAD_U32, 1, 6, DATA_META, 0),
        insn(LOAD_U32, 2, 6, DATA, 0),
        insn(MOV_REG, 3, 1, 0, 0),
        insn(ADD_IMM, 3, 0, 0, DriverHints::BYTES as i32),
        insn(JUMP_GT_REG, 3, 2, 8, 0),
    ]);
    for at in [0, 8, 16, 24] {
        insns.extend([insn(LOAD_U64, 2, 10, BASE + at, 0), insn(STORE_U64, 1, 2, at, 0)]);
    }
    insns.push(insn(MOV_REG, 1, 6, 0, 0));
    insns.extend(steer);
    insns
}

/// Calls a kfunc with addresses in the structure, and sets the flag if the call gives 0. Kfuncs
/// with a single address ignore the second.
fn ask(kfunc: u32, places: [i32; 2], flag: i32) -> [Insn; 8] {
    let [first, second] = places.map(|at| i32::from(BASE) + at);
    [
        insn(MOV_REG, 1, 6, 0, 0),
        insn(MOV_REG, 2, 10, 0, 0),
        insn(ADD_IMM, 2, 0, 0, first),
        insn(MOV_REG, 3, 10, 0, 0),
        insn(ADD_IMM, 3, 0, 0, second),
        Insn::new(CALL, 0, PSEUDO_KFUNC_CALL, 0, kfunc.cast_signed()),
        insn(JUMP_NE_IMM, 0, 0, 1, 0),
        insn(OR_IMM, 7, 0, 0, flag),
    ]
}

fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
    Insn::new(code, dst, src, off, imm)
}

/// Offset of the structure on the stack.
const BASE: i16 = -(DriverHints::BYTES as i16);
/// Marks hints, so that remains of an earlier packet are not taken for hints.
const MAGIC: i32 = 0x7470_6831;
const TIMESTAMP: i32 = 1;
const HASH: i32 = 2;
const VLAN_TAG: i32 = 4;

/// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_META: i16 = 8;
const XDP_ADJUST_META: i32 = 54;

const MOV_REG: u8 = 0xbf;
const MOV_IMM: u8 = 0xb7;
const ADD_IMM: u8 = 0x07;
const OR_IMM: u8 = 0x47;
const LOAD_U32: u8 = 0x61;
const LOAD_U64: u8 = 0x79;
const STORE_U32: u8 = 0x63;
const STORE_U64: u8 = 0x7b;
const STORE_IMM_U32: u8 = 0x62;
const STORE_IMM_U64: u8 = 0x7a;
const JUMP_NE_IMM: u8 = 0x55;
const JUMP_GT_REG: u8 = 0x2d;
const CALL: u8 = 0x85;
const PSEUDO_KFUNC_CALL: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_program_wrote_is_read() {
        let mut bytes = [0; DriverHints::BYTES];
        assert_eq!(DriverHints::parse(&bytes), None);
        bytes[..4].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[8..28].copy_from_slice(&[7; 20]);
        assert_eq!(DriverHints::parse(&bytes), Some(DriverHints::default()), "it flagged nothing");
        bytes[4] = 7;
        bytes[24..28].copy_from_slice(&[0x81, 0, 5, 0]);
        let number = u32::from_ne_bytes([7; 4]);
        let all = DriverHints {
            timestamp_ns: Some(u64::from_ne_bytes([7; 8])),
            hash: Some((number, number)),
            vlan: Some((0x8100, u16::from_ne_bytes([5, 0]))),
        };
        assert_eq!(DriverHints::parse(&bytes), Some(all));
        bytes[16..24].fill(0);
        let unstamped = DriverHints { timestamp_ns: None, ..all };
        assert_eq!(DriverHints::parse(&bytes), Some(unstamped));
    }
}
