//! What the port that received a frame knows of it
//! (`Documentation/networking/xdp-rx-metadata.rst`).
//!
//! As with a kernel's driver, `-EOPNOTSUPP` says that the port never knows such things, `-ENODATA`
//! that of this frame it doesn't.

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;

use super::{Call, KfuncTable, entry};
use crate::frame::metadata::RxMetadata;

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_xdp_metadata_rx_timestamp", entry(timestamp)),
    ("bpf_xdp_metadata_rx_hash", entry(hash)),
    ("bpf_xdp_metadata_rx_vlan_tag", entry(vlan_tag)),
];

/// `bpf_xdp_metadata_rx_timestamp(ctx, timestamp)`
fn timestamp(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let nanoseconds = match known(call, |known| known.timestamp_ns) {
        Ok(nanoseconds) => nanoseconds,
        Err(errno) => return Ok(errno.to_reg()),
    };
    call.write(args[1], &nanoseconds.to_le_bytes())?;
    Ok(0)
}

/// `bpf_xdp_metadata_rx_hash(ctx, hash, rss_type)`
fn hash(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let hash = match known(call, |known| known.hash) {
        Ok(hash) => hash,
        Err(errno) => return Ok(errno.to_reg()),
    };
    call.write(args[1], &hash.value.to_le_bytes())?;
    call.write(args[2], &u32::from(hash.kind).to_le_bytes())?;
    Ok(0)
}

/// `bpf_xdp_metadata_rx_vlan_tag(ctx, vlan_proto, vlan_tci)`: the protocol as on the wire.
fn vlan_tag(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let tag = match known(call, |known| known.vlan) {
        Ok(tag) => tag,
        Err(errno) => return Ok(errno.to_reg()),
    };
    call.write(args[1], &tag.protocol.to_be_bytes())?;
    call.write(args[2], &tag.tci.to_le_bytes())?;
    Ok(0)
}

fn known<T>(call: &Call<'_, '_>, part: impl FnOnce(RxMetadata) -> Option<T>) -> Result<T, Errno> {
    let all = call.run.frame.rx_metadata().ok_or(Errno::EOPNOTSUPP)?;
    part(all).ok_or(Errno::ENODATA)
}

#[cfg(test)]
mod tests {
    use towpath_bpf::insn::*;
    use towpath_bpf::program::KfuncRef;
    use towpath_bpf::proto::id;

    use super::*;
    use crate::Frame;
    use crate::frame::metadata::{RxChecksum, RxHash, VlanTag};
    use crate::program::testing;

    const MOV_X: u8 = BPF_ALU64 | BPF_MOV | BPF_X;

    fn pointer(register: u8, offset: i32) -> [Insn; 2] {
        [
            Insn::new(MOV_X, register, 10, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD, register, 0, 0, offset),
        ]
    }

    /// Asks for all hints; gives what it got: return values, timestamp, hash and its kind, the
    /// tag's protocol and value.
    fn asked(known: Option<RxMetadata>) -> ([i32; 3], u64, [u32; 2], [u16; 2]) {
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
        let mut linked = testing::linked(&insns, &[]);
        linked.kfuncs = KFUNCS
            .iter()
            .map(|(name, _)| KfuncRef { name: (*name).to_owned(), type_id: None, weak: false })
            .collect();
        let program = testing::load(linked);
        let mut frame = Frame::new(&[0; 64]).expect("a good length");
        if let Some(known) = known {
            frame.set_rx_metadata(&known);
        }
        let verdict = program.run(&mut program.worker(0), &mut frame).expect("no fault");
        assert_eq!(verdict.returned, 0, "the bytes were stored");
        let word = |at: usize| {
            u32::from_le_bytes(*frame.linear()[at..].first_chunk().expect("in the packet"))
        };
        let half = |at: usize| u16::from_le_bytes([frame.linear()[at], frame.linear()[at + 1]]);
        let results = [8, 12, 0].map(|at| word(at).cast_signed());
        let timestamp = u64::from(word(16)) | u64::from(word(20)) << 32;
        (results, timestamp, [word(24), word(28)], [half(4), half(6)])
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
        assert_eq!(asked(Some(known)), all);
        let hash_only = RxMetadata { hash: known.hash, ..RxMetadata::default() };
        let no_data = -61;
        assert_eq!(asked(Some(hash_only)), ([no_data, 0, no_data], 0, all.2, [0; 2]));
    }

    #[test]
    fn a_port_that_knows_nothing_says_so() {
        let (not_supported, no_data) = (-95, -61);
        assert_eq!(asked(None), ([not_supported; 3], 0, [0; 2], [0; 2]));
        assert_eq!(asked(Some(RxMetadata::default())), ([no_data; 3], 0, [0; 2], [0; 2]));
    }
}
