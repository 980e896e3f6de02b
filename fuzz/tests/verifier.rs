//! Whatever the instructions, verification ends soon, with a proof or a reason.

use std::sync::Arc;

use towpath_bpf::btf::Btf;
use towpath_bpf::insn::Insn;
use towpath_bpf::program::{AttachType, MapType};
use towpath_bpf::verifier::{Options, verify_with_log};
use towpath_bpf::{Linked, MapDef};

#[test]
fn any_stream_is_judged() {
    let kernel = Arc::new(Btf::default());
    bolero::check!().with_type::<Vec<[u8; 8]>>().for_each(|slots| {
        let insns: Vec<Insn> = slots.iter().map(|slot| Insn::from_le_bytes(*slot)).collect();
        judge(insns, &kernel);
    });
}

#[test]
fn any_stream_of_known_opcodes_is_judged() {
    let kernel = Arc::new(Btf::default());
    bolero::check!().with_type::<Vec<(u8, u8, i8, i32)>>().for_each(|fields| {
        let mut insns: Vec<Insn> = fields.iter().map(|fields| likely(*fields)).collect();
        insns.push(Insn::new(0x95, 0, 0, 0, 0));
        judge(insns, &kernel);
    });
}

/// Opcodes that exist, registers that exist, short jumps and offsets, small immediates.
fn likely((code, regs, off, imm): (u8, u8, i8, i32)) -> Insn {
    const CODES: [u8; 48] = [
        0x07, 0x0f, 0x17, 0x1f, 0x27, 0x37, 0x3f, 0x47, 0x57, 0x5f, 0x67, 0x77, 0x87, 0x97, 0xa7,
        0xb7, 0xbf, 0xc7, 0xd4, 0xdc, 0x04, 0x0c, 0xb4, 0xbc, 0x05, 0x15, 0x1d, 0x25, 0x2d, 0x35,
        0x45, 0x55, 0x65, 0x75, 0xa5, 0xb5, 0xe5, 0x16, 0x61, 0x69, 0x71, 0x79, 0x62, 0x7a, 0x63,
        0x7b, 0xdb, 0x85,
    ];
    let code = CODES[usize::from(code) % CODES.len()];
    let (dst, src) = ((regs & 15) % 11, (regs >> 4) % 11);
    let is_jump = matches!(code & 7, 5 | 6);
    let uses_src = code & 8 != 0 && !matches!(code & 7, 0..=3);
    let off = if is_jump { i16::from(off % 8) } else { i16::from(off) };
    match code {
        0x85 => Insn::new(code, 0, src % 2, 0, imm % 16),
        0x05 | 0xe5 => Insn::new(code, 0, 0, off, 0),
        0x87 => Insn::new(code, dst, 0, 0, 0),
        0xd4 | 0xdc => Insn::new(code, dst, 0, 0, [16, 32, 64][imm as usize % 3]),
        0x61..=0x7b => {
            let imm = if code & 7 == 2 { imm % 256 } else { 0 };
            Insn::new(code, dst, if code & 7 == 2 { 0 } else { src }, off, imm)
        }
        0xdb => Insn::new(code, dst, src, off & !7, imm & 1),
        _ if uses_src => Insn::new(code, dst, src, if is_jump { off } else { 0 }, 0),
        _ => Insn::new(code, dst, 0, if is_jump { off } else { 0 }, imm % 64),
    }
}

fn judge(insns: Vec<Insn>, kernel: &Arc<Btf>) {
    let linked = Linked {
        name: "fuzzed".to_owned(),
        section: "xdp".to_owned(),
        attach: AttachType::Xdp,
        has_frags: false,
        license: "GPL".to_owned(),
        insns,
        functions: Vec::new(),
        lines: Vec::new(),
        maps: vec![map(MapType::Array), map(MapType::Hash), map(MapType::Ringbuf)].into(),
        unresolved: Vec::new(),
        kfuncs: Vec::new(),
        btf: None,
        kernel_btf: Arc::clone(kernel),
    };
    let mut options = Options::default();
    options.log_level = 2;
    options.log_bytes_max = 1 << 16;
    options.insns_processed_max = 20_000;
    let report = verify_with_log(linked, &options);
    assert!(report.stats.insns_processed <= 20_001);
    assert!(report.log.len() <= (1 << 16) + 100);
}

fn map(kind: MapType) -> MapDef {
    let ring = kind == MapType::Ringbuf;
    MapDef::new(
        kind.name(),
        kind,
        if ring { 0 } else { 4 },
        if ring { 0 } else { 16 },
        if ring { 4096 } else { 4 },
    )
}
