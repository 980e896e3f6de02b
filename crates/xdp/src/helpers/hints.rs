//! Receive metadata of a frame (`Documentation/networking/xdp-rx-metadata.rst`).
//!
//! As with a kernel's driver, `-EOPNOTSUPP` means that the port does not support a hint, `-ENODATA`
//! that this frame does not have it. Programs correct hints that no longer apply, for later
//! readers, by setters that were proposed to the kernel but not merged. Here the hints have room of
//! their own, but the setters return errors as if they had to be stored in front of the packet.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;

use super::{Call, KfuncTable, entry};
use crate::frame::Body;
use crate::frame::offload::{Checksum, Offload};
use crate::frame::rx_metadata::{RxChecksum, RxHash, RxMetadata, SupportedHints, VlanTag};

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_xdp_metadata_rx_timestamp", entry(timestamp)),
    ("bpf_xdp_metadata_rx_hash", entry(hash)),
    ("bpf_xdp_metadata_rx_vlan_tag", entry(vlan_tag)),
    ("bpf_xdp_metadata_rx_checksum", entry(checksum)),
    ("bpf_xdp_store_rx_ts", entry(store_timestamp)),
    ("bpf_xdp_store_rx_hash", entry(store_hash)),
    ("bpf_xdp_store_rx_vlan", entry(store_vlan)),
    ("bpf_xdp_store_tx_checksum", entry(store_tx_checksum)),
];

/// `bpf_xdp_metadata_rx_timestamp(ctx, timestamp)`
fn timestamp(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let nanoseconds = match known(call, |known| known.timestamp_ns, |told| told.timestamp) {
        Ok(nanoseconds) => nanoseconds,
        Err(errno) => return Ok(errno.to_reg()),
    };
    call.write(args[1], &nanoseconds.to_le_bytes())?;
    Ok(0)
}

/// `bpf_xdp_metadata_rx_hash(ctx, hash, rss_type)`
fn hash(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let hash = match known(call, |known| known.hash, |told| told.hash) {
        Ok(hash) => hash,
        Err(errno) => return Ok(errno.to_reg()),
    };
    call.write(args[1], &hash.value.to_le_bytes())?;
    call.write(args[2], &u32::from(hash.kind).to_le_bytes())?;
    Ok(0)
}

/// `bpf_xdp_metadata_rx_vlan_tag(ctx, vlan_proto, vlan_tci)`: the protocol as on the wire.
fn vlan_tag(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let tag = match known(call, |known| known.vlan, |told| told.vlan) {
        Ok(tag) => tag,
        Err(errno) => return Ok(errno.to_reg()),
    };
    call.write(args[1], &tag.protocol.to_be_bytes())?;
    call.write(args[2], &tag.tci.to_le_bytes())?;
    Ok(0)
}

/// `bpf_xdp_metadata_rx_checksum(ctx, ip_summed, cksum, cksum_level)`
fn checksum(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let checksum = match known(call, |known| Some(known.checksum), |_told| false) {
        Ok(checksum) => checksum,
        Err(errno) => return Ok(errno.to_reg()),
    };
    let (state, sum) = match checksum {
        RxChecksum::None => (XDP_CHECKSUM_NONE, 0),
        RxChecksum::Unnecessary => (XDP_CHECKSUM_UNNECESSARY, 0),
        RxChecksum::Complete(sum) => (XDP_CHECKSUM_COMPLETE, sum),
    };
    call.write(args[1], &state.to_le_bytes())?;
    call.write(args[2], &sum.to_le_bytes())?;
    call.write(args[3], &[0])?;
    Ok(0)
}

/// `bpf_xdp_store_rx_ts(ctx, ts)`
fn store_timestamp(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    store(call, |frame| frame.store_rx_timestamp(args[1]))
}

/// `bpf_xdp_store_rx_hash(ctx, hash, rss_type)`
fn store_hash(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let Ok(kind) = u16::try_from(args[2] as u32) else { return Ok(Errno::EINVAL.to_reg()) };
    store(call, |frame| frame.store_rx_hash(RxHash { value: args[1] as u32, kind }))
}

/// `bpf_xdp_store_rx_vlan(ctx, vlan_proto, vlan_tci)`: the protocol as on the wire.
fn store_vlan(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let tag = VlanTag { protocol: (args[1] as u16).swap_bytes(), tci: args[2] as u16 };
    store(call, |frame| frame.store_rx_vlan(tag))
}

fn store(call: &mut Call<'_, '_>, set: impl FnOnce(&mut Body)) -> Result<u64, Stop> {
    let frame = &mut *call.run.frame;
    if frame.has_no_room_for_hints() {
        return Ok(Errno::ENOSPC.to_reg());
    }
    set(frame);
    frame.settle_origin();
    Ok(0)
}

/// `bpf_xdp_store_tx_checksum(ctx, csum_start, csum_offset)`
fn store_tx_checksum(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let (Ok(start), Ok(offset)) = (u16::try_from(args[1] as u32), u16::try_from(args[2] as u32))
    else {
        return Ok(Errno::EINVAL.to_reg());
    };
    let frame = &mut *call.run.frame;
    // Completing it writes to the linear part.
    if usize::from(start) + usize::from(offset) + 2 > frame.linear_len() {
        return Ok(Errno::EINVAL.to_reg());
    }
    // For a large packet, the segmentation determines the checksums.
    if frame.offload().is_some_and(|offload| offload.gso.is_some()) {
        return Ok(Errno::EBUSY.to_reg());
    }
    frame.set_offload(Some(Offload { checksum: Some(Checksum { start, offset }), gso: None }));
    Ok(0)
}

/// A hint, or the error if the frame does not have it.
fn known<T>(
    call: &Call<'_, '_>,
    part: impl FnOnce(RxMetadata) -> Option<T>,
    is_told: impl FnOnce(SupportedHints) -> bool,
) -> Result<T, Errno> {
    let frame = &call.run.frame;
    let known = frame.rx_metadata().and_then(part);
    known.ok_or_else(|| match is_told(frame.told_rx_metadata()) {
        true => Errno::ENODATA,
        false => Errno::EOPNOTSUPP,
    })
}

/// `enum xdp_checksum`
const XDP_CHECKSUM_NONE: u32 = 1 << 0;
const XDP_CHECKSUM_UNNECESSARY: u32 = 1 << 1;
const XDP_CHECKSUM_COMPLETE: u32 = 1 << 2;

#[cfg(test)]
mod tests {
    use towpath_bpf::insn::*;
    use towpath_bpf::program::KfuncRef;
    use towpath_bpf::proto::id;

    use super::*;
    use crate::Frame;
    use crate::frame::offload::{Gso, GsoKind};
    use crate::program::testing;

    const MOV_X: u8 = BPF_ALU64 | BPF_MOV | BPF_X;

    fn pointer(register: u8, offset: i32) -> [Insn; 2] {
        [
            Insn::new(MOV_X, register, 10, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD, register, 0, 0, offset),
        ]
    }

    /// Reads all hints; returns the return values, timestamp, hash and its kind, and the tag's
    /// protocol and value.
    fn asked(known: Option<(RxMetadata, SupportedHints)>) -> ([i32; 3], u64, [u32; 2], [u16; 2]) {
        let mut insns = vec![Insn::new(MOV_X, 6, 1, 0, 0)];
        for (index, arguments) in [[-16, 0], [-8, -4], [-28, -26]].into_iter().enumerate() {
            insns.push(Insn::new(MOV_X, 1, 6, 0, 0));
            insns.extend([pointer(2, arguments[0]), pointer(3, arguments[1])].concat());
            insns.push(Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, index as i32));
            let result = -24 + 4 * (index as i16 % 2) - 8 * (index as i16 / 2);
            insns.push(Insn::new(BPF_STX | BPF_MEM | BPF_W, 10, 0, result, 0));
        }
        insns.push(Insn::new(MOV_X, 1, 6, 0, 0));
        insns.push(Insn::new(BPF_ALU64 | BPF_MOV, 2, 0, 0, 0));
        insns.extend(pointer(3, -32));
        insns.push(Insn::new(BPF_ALU64 | BPF_MOV, 4, 0, 0, 32));
        insns.push(Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id::XDP_STORE_BYTES as i32));
        insns.push(Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
        let program = loaded(&insns);
        let mut frame = Frame::new(&[0; 64]).expect("a good length");
        if let Some((known, told)) = known {
            frame.set_rx_metadata(&known);
            frame.tells_rx_metadata(told);
        }
        let verdict = program.run(&mut program.worker(0), &mut frame).expect("no fault");
        assert_eq!(verdict.returned, 0, "the bytes were stored");
        let packet = frame.to_vec();
        let word =
            |at: usize| u32::from_le_bytes(*packet[at..].first_chunk().expect("in the packet"));
        let half = |at: usize| u16::from_le_bytes([packet[at], packet[at + 1]]);
        let results = [8, 12, 0].map(|at| word(at).cast_signed());
        let timestamp = u64::from(word(16)) | u64::from(word(20)) << 32;
        (results, timestamp, [word(24), word(28)], [half(4), half(6)])
    }

    fn loaded(insns: &[Insn]) -> crate::Program {
        testing::load(linked(insns))
    }

    fn linked(insns: &[Insn]) -> towpath_bpf::Linked {
        let mut linked = testing::linked(insns, &[]);
        let refer = |name: &str| KfuncRef { name: name.to_owned(), type_id: None, weak: false };
        linked.kfuncs = KFUNCS.iter().map(|(name, _)| refer(name)).collect();
        linked
    }

    /// Loads a device-bound, verified program.
    fn verified(insns: &[Insn]) -> crate::Program {
        let mut options = crate::LoadOptions::default();
        options.verifier.device_bound = true;
        crate::Program::from_linked(linked(insns), &options).expect("a good program")
    }

    /// Calls a kfunc with numbers on a frame; returns its return value.
    fn called(name: &str, args: [i32; 2], frame: &mut Frame) -> i32 {
        let number = KFUNCS.iter().position(|(kfunc, _)| *kfunc == name).expect("a kfunc");
        let mov = |register, imm| Insn::new(BPF_ALU64 | BPF_MOV, register, 0, 0, imm);
        let insns = [
            mov(2, args[0]),
            mov(3, args[1]),
            Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, number as i32),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ];
        let program = loaded(&insns);
        let verdict = program.run(&mut program.worker(0), frame).expect("no fault");
        verdict.returned.cast_signed()
    }

    #[test]
    fn a_program_says_what_is_known() {
        let mut frame = Frame::new(&[0; 64]).expect("a good length");
        frame.rx.ifindex = 9;
        assert_eq!(called("bpf_xdp_store_rx_ts", [77, 0], &mut frame), 0);
        assert_eq!(called("bpf_xdp_store_rx_hash", [5, 25], &mut frame), 0);
        let tag = i32::from(0x88a8_u16.to_be());
        assert_eq!(called("bpf_xdp_store_rx_vlan", [tag, 3], &mut frame), 0);
        let said = RxMetadata {
            hash: Some(RxHash { value: 5, kind: 25 }),
            timestamp_ns: Some(77),
            vlan: Some(VlanTag { protocol: 0x88a8, tci: 3 }),
            checksum: RxChecksum::None,
        };
        assert_eq!(frame.rx_metadata(), Some(said));
        frame.arrive(10, 0);
        assert_eq!(frame.origin().ifindex, 9, "where it was said");
        assert_eq!(called("bpf_xdp_store_rx_hash", [5, 1 << 16], &mut frame), -22, "no such kind");
        frame.adjust_meta(-216).expect("there is headroom");
        for name in ["bpf_xdp_store_rx_ts", "bpf_xdp_store_rx_hash", "bpf_xdp_store_rx_vlan"] {
            assert_eq!(called(name, [1, 1], &mut frame), -28, "{name}");
        }
        assert_eq!(frame.rx_metadata(), Some(said));
    }

    #[test]
    fn a_program_asks_the_sender() {
        let mut frame = Frame::new(&[0; 64]).expect("a good length");
        let checksum = "bpf_xdp_store_tx_checksum";
        assert_eq!(called(checksum, [34, 6], &mut frame), 0);
        let asked = Offload { checksum: Some(Checksum { start: 34, offset: 6 }), gso: None };
        assert_eq!(frame.offload(), Some(asked));
        assert_eq!(called(checksum, [34, 28], &mut frame), 0, "the last two bytes");
        for outside in [[34, 29], [60, 3], [-1, 0], [0, 1 << 16]] {
            assert_eq!(called(checksum, outside, &mut frame), -22);
        }
        let gso = Gso { kind: GsoKind::Tcp4, size: 100, header: 54, ecn: false };
        frame.set_offload(Some(Offload { gso: Some(gso), ..asked }));
        assert_eq!(called(checksum, [34, 6], &mut frame), -16);
    }

    #[test]
    fn what_is_known_of_a_checksum_ends_with_the_bytes() {
        let checksum = "bpf_xdp_metadata_rx_checksum";
        let number = KFUNCS.iter().position(|(kfunc, _)| *kfunc == checksum).expect("a kfunc");
        let mut insns = vec![Insn::new(MOV_X, 6, 1, 0, 0)];
        for (register, offset) in [(2, -8), (3, -4), (4, -12)] {
            insns.extend(pointer(register, offset));
        }
        insns.push(Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, number as i32));
        insns.push(Insn::new(BPF_JMP | BPF_JEQ, 0, 0, 1, 0));
        insns.push(Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
        insns.push(Insn::new(BPF_LDX | BPF_MEM | BPF_W, 0, 10, -8, 0));
        insns.push(Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
        let asks = verified(&insns);
        let ask = |frame: &mut Frame| {
            asks.run(&mut asks.worker(0), frame).expect("no fault").returned.cast_signed()
        };
        let mut frame = Frame::new(&[0; 64]).expect("a good length");
        assert_eq!(ask(&mut frame), -95);
        for (state, answer) in
            [(RxChecksum::None, 1), (RxChecksum::Unnecessary, 2), (RxChecksum::Complete(9), 4)]
        {
            frame.set_rx_metadata(&RxMetadata { checksum: state, ..RxMetadata::NOTHING });
            assert_eq!(ask(&mut frame), answer);
            assert_eq!(ask(&mut frame), answer, "to ask changes nothing");
        }
        // A program that may write a byte, whether it does or not.
        let store = verified(&[
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, 2, 1, 0, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, 3, 1, 4, 0),
            Insn::new(MOV_X, 4, 2, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD, 4, 0, 0, 1),
            Insn::new(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 1, 0),
            Insn::new(BPF_ST | BPF_MEM | BPF_B, 2, 0, 0, 7),
            Insn::new(BPF_ALU64 | BPF_MOV, 0, 0, 0, 2),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ]);
        store.run(&mut store.worker(0), &mut frame).expect("no fault");
        assert_eq!(ask(&mut frame), 1);
    }

    #[test]
    fn a_program_reads_what_the_port_knows() {
        let known = RxMetadata {
            hash: Some(RxHash { value: 0xdead_beef, kind: 0x19 }),
            timestamp_ns: Some(0x1_2345_6789),
            vlan: Some(VlanTag { protocol: 0x88a8, tci: 0x6007 }),
            checksum: RxChecksum::Unnecessary,
        };
        let all = ([0; 3], 0x1_2345_6789, [0xdead_beef, 0x19], [0x88a8_u16.to_be(), 0x6007]);
        assert_eq!(asked(Some((known, SupportedHints::default()))), all);
        let hash_only = RxMetadata { hash: known.hash, ..RxMetadata::default() };
        let (not_supported, no_data) = (-95, -61);
        let answers = [not_supported, 0, not_supported];
        assert_eq!(
            asked(Some((hash_only, SupportedHints::default()))),
            (answers, 0, all.2, [0; 2])
        );
        let told = SupportedHints { timestamp: true, ..SupportedHints::default() };
        let answers = [no_data, 0, not_supported];
        assert_eq!(asked(Some((hash_only, told))), (answers, 0, all.2, [0; 2]));
    }

    #[test]
    fn a_port_that_knows_nothing_says_so() {
        let (not_supported, no_data) = (-95, -61);
        let nothing = RxMetadata::default();
        assert_eq!(asked(None), ([not_supported; 3], 0, [0; 2], [0; 2]));
        assert_eq!(asked(Some((nothing, SupportedHints::ALL))), ([no_data; 3], 0, [0; 2], [0; 2]));
        let sums_only = Some((nothing, SupportedHints::default()));
        assert_eq!(asked(sums_only), ([not_supported; 3], 0, [0; 2], [0; 2]));
        // Frames that crossed a pair may come from any port.
        let mut frame = Frame::new(&[0; 64]).expect("a good length");
        frame.cross();
        assert_eq!(frame.told_rx_metadata(), SupportedHints::ALL);
    }
}
