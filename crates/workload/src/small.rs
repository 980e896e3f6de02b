//! Programs of a few instructions, for measuring and testing the surroundings of programs.

use towpath_bpf::insn::*;
use towpath_bpf::object::Env;
use towpath_bpf::program::{AttachType, KfuncRef, Linked, MapType};
use towpath_bpf::proto::id;
use towpath_bpf::{Insn, MapDef};

/// Returns this number for every frame.
pub fn returns(verdict: i32) -> Linked {
    linked("returns", vec![mov(0, verdict), EXIT], Vec::new())
}

/// Returns the byte at `offset` of the packet, or `XDP_ABORTED` if there is none.
pub fn returns_byte(offset: i32) -> Linked {
    let mut insns = packet(offset + 1, 2);
    insns.push(Insn::new(BPF_LDX | BPF_MEM | BPF_B, 0, 2, offset as i16, 0));
    insns.extend([EXIT, mov(0, 0), EXIT]);
    linked("returns_byte", insns, Vec::new())
}

/// Mixes a byte of the packet in `rounds` rounds, each with the result of the previous one, and
/// drops the frame: a program of any duration that accesses nothing else.
pub fn works(rounds: usize) -> Linked {
    let step = [
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 3, 0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_RSH, 3, 0, 0, 13),
        Insn::new(BPF_ALU64 | BPF_XOR | BPF_X, 0, 3, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MUL, 0, 0, 0, 0x5bd1_e995),
    ];
    let work = [
        &[Insn::new(BPF_LDX | BPF_MEM | BPF_B, 0, 2, 14, 0)][..],
        &step.repeat(rounds),
        // No analysis can prove that this is never reached.
        &[Insn::new(BPF_JMP | BPF_JEQ, 0, 0, 1, 0x1234_5678), mov(0, 1), EXIT],
    ]
    .concat();
    let insns = [packet(15, work.len() as i16 - 2), work].concat();
    linked("works", insns, Vec::new())
}

/// [`nested_loops`] around no instructions.
pub fn endless() -> Linked {
    linked("endless", nested_loops(&[]), Vec::new())
}

/// `bpf_loop` in `bpf_loop` in `bpf_loop`, each of 2^23 rounds, around `inner`: accepted, and
/// practically endless.
pub fn nested_loops(inner: &[Insn]) -> Vec<Insn> {
    let level = [
        mov(1, 1 << 23),
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_FUNC, 0, 6),
        Insn::default(),
        mov(3, 0),
        mov(4, 0),
        call(id::LOOP),
        mov(0, 0),
        EXIT,
    ];
    [&level.repeat(3), inner, &[mov(0, 0), EXIT]].concat()
}

/// Swaps the Ethernet addresses and returns `XDP_TX`.
pub fn reflect() -> Linked {
    let load = |dst, size, off| Insn::new(BPF_LDX | BPF_MEM | size, dst, 2, off, 0);
    let store = |src, size, off| Insn::new(BPF_STX | BPF_MEM | size, 2, src, off, 0);
    let mut insns = packet(14, 10);
    insns.extend([load(4, BPF_W, 0), load(5, BPF_H, 4), load(6, BPF_W, 6), load(7, BPF_H, 10)]);
    insns.extend([store(6, BPF_W, 0), store(7, BPF_H, 4), store(4, BPF_W, 6), store(5, BPF_H, 10)]);
    insns.extend([mov(0, 3), EXIT, mov(0, 1), EXIT]);
    linked("reflect", insns, Vec::new())
}

/// `return bpf_redirect(ifindex, 0);`.
pub fn redirect(ifindex: u32) -> Linked {
    let insns = vec![mov(1, ifindex as i32), mov(2, 0), call(id::REDIRECT), EXIT];
    linked("redirect", insns, Vec::new())
}

/// As [`redirect`], with a ring buffer `sent` that gets a record with this cookie when the frame
/// was sent.
pub fn redirect_and_tell(ifindex: u32, cookie: i32) -> Linked {
    let [mut map, rest] = TARGETS;
    map.dst = 2;
    let request = Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, 0);
    let mut insns = vec![map, rest, mov(3, cookie), request];
    insns.extend([mov(1, ifindex as i32), mov(2, 0), call(id::REDIRECT), EXIT]);
    let name = "bpf_xdp_request_tx_timestamp".to_owned();
    let kfuncs = vec![KfuncRef { name, type_id: None, weak: false }];
    let ring = MapDef::new("sent", MapType::Ringbuf, 0, 0, 4096);
    Linked { kfuncs, ..linked("redirect_and_tell", insns, vec![ring]) }
}

/// `return bpf_redirect_map(&targets, key, flags);` with a map `targets` of this kind.
pub fn redirect_map(kind: MapType, entries: u32, key: u32, flags: i32) -> Linked {
    let mut insns = Vec::from(TARGETS);
    insns.extend([mov(2, key as i32), mov(3, flags), call(id::REDIRECT_MAP), EXIT]);
    linked("redirect_map", insns, vec![targets(kind, entries)])
}

/// `return bpf_redirect_xsk(ctx, &targets, key, flags);` with a map `targets` of this kind.
pub fn redirect_xsk(kind: MapType, entries: u32, key: u32, flags: i32) -> Linked {
    let [mut map, rest] = TARGETS;
    map.dst = 2;
    let call = Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, 0);
    let insns = vec![map, rest, mov(3, key as i32), mov(4, flags), call, EXIT];
    let kfunc = KfuncRef { name: "bpf_redirect_xsk".to_owned(), type_id: None, weak: false };
    let linked = linked("redirect_xsk", insns, vec![targets(kind, entries)]);
    Linked { kfuncs: vec![kfunc], ..linked }
}

/// As [`redirect_map`], with the flags from byte 14 of the packet and the key from byte 15;
/// `XDP_ABORTED` if there are no such bytes.
pub fn redirect_map_by_bytes(kind: MapType, entries: u32) -> Linked {
    let load = |dst, off| Insn::new(BPF_LDX | BPF_MEM | BPF_B, dst, 2, off, 0);
    let mut insns = packet(16, 6);
    insns.extend([load(3, 14), load(2, 15)]);
    insns.extend(TARGETS);
    insns.extend([call(id::REDIRECT_MAP), EXIT, mov(0, 0), EXIT]);
    linked("redirect_map_by_bytes", insns, vec![targets(kind, entries)])
}

/// `XDP_PASS` for frames whose hash and time of arrival are known, `XDP_DROP` for others.
pub fn passes_with_hints() -> Linked {
    let copy = |dst, src| Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0);
    let add = |dst, imm| Insn::new(BPF_ALU64 | BPF_ADD, dst, 0, 0, imm);
    let kfunc = |number| Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, number);
    let fails = |skip| Insn::new(BPF_JMP | BPF_JNE, 0, 0, skip, 0);
    let insns = vec![
        copy(6, 1),
        copy(2, 10),
        add(2, -16),
        kfunc(0),
        fails(9),
        copy(1, 6),
        copy(2, 10),
        add(2, -8),
        copy(3, 10),
        add(3, -4),
        kfunc(1),
        fails(2),
        mov(0, 2),
        EXIT,
        mov(0, 1),
        EXIT,
    ];
    let names = ["bpf_xdp_metadata_rx_timestamp", "bpf_xdp_metadata_rx_hash"];
    let kfuncs = names.map(|name| KfuncRef { name: name.to_owned(), type_id: None, weak: false });
    let linked = linked("passes_with_hints", insns, Vec::new());
    Linked { kfuncs: kfuncs.into(), ..linked }
}

/// Moves an edge of the packet by `by` bytes, by `bpf_xdp_adjust_*`, and back again; passes the
/// packet if there was room for that.
pub fn passes_if_moved(helper: u32, by: i32) -> Linked {
    let copy = |dst, src| Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, dst, src, 0, 0);
    let fails = |skip| Insn::new(BPF_JMP | BPF_JNE, 0, 0, skip, 0);
    let mut insns = vec![copy(6, 1), mov(2, by), call(helper), fails(6)];
    insns.extend([copy(1, 6), mov(2, -by), call(helper), fails(2)]);
    insns.extend([mov(0, 2), EXIT, mov(0, 1), EXIT]);
    linked("passes_if_moved", insns, Vec::new())
}

/// `return bpf_redirect_map(&queue, 0, 0);` with a PIFO_XDP map `queue` for `entries` packets.
pub fn enqueue(entries: u32) -> Linked {
    let mut insns = Vec::from(TARGETS);
    insns.extend([mov(2, 0), mov(3, 0), call(id::REDIRECT_MAP), EXIT]);
    linked("enqueue", insns, vec![queue(entries)])
}

/// `return bpf_packet_dequeue(ctx, &queue, 0, &rank);` of such a map.
pub fn dequeue(entries: u32) -> Linked {
    let [mut map, rest] = TARGETS;
    map.dst = 2;
    let call = Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, 0);
    let rank = Insn::new(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 0);
    let address = Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 4, 10, 0, 0);
    let place = Insn::new(BPF_ALU64 | BPF_ADD, 4, 0, 0, -8);
    let insns = vec![rank, map, rest, mov(3, 0), address, place, call, EXIT];
    let kfunc = KfuncRef { name: "bpf_packet_dequeue".to_owned(), type_id: None, weak: false };
    let linked = linked("dequeue", insns, vec![queue(entries)]);
    let (section, attach) = ("dequeue".to_owned(), AttachType::Dequeue);
    Linked { kfuncs: vec![kfunc], section, attach, ..linked }
}

/// Encapsulates or decapsulates the frame with an SA of the port with this ifindex, and returns a
/// verdict; another one if the frame was refused.
pub fn esp(is_encap: bool, ifindex: u32, verdict: i32, refused: i32) -> Linked {
    let word = |offset| Insn::new(BPF_ST | BPF_MEM | BPF_DW, 10, 0, offset, 0);
    let address = Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 3, 10, 0, 0);
    let place = Insn::new(BPF_ALU64 | BPF_ADD, 3, 0, 0, -16);
    let call = Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, 0);
    let fails = Insn::new(BPF_JMP | BPF_JNE, 0, 0, 2, 0);
    let mut insns = vec![word(-16), word(-8), mov(2, ifindex as i32), address, place, mov(4, 16)];
    insns.extend([call, fails, mov(0, verdict), EXIT, mov(0, refused), EXIT]);
    let name = if is_encap { "bpf_xdp_esp_encap" } else { "bpf_xdp_esp_decap" };
    let kfunc = KfuncRef { name: name.to_owned(), type_id: None, weak: false };
    Linked { kfuncs: vec![kfunc], ..linked("esp", insns, Vec::new()) }
}

fn queue(entries: u32) -> MapDef {
    MapDef { map_extra: 1, ..MapDef::new("queue", MapType::PifoXdp, 4, 4, entries) }
}

fn targets(kind: MapType, entries: u32) -> MapDef {
    let value_size = if kind == MapType::Xskmap { 4 } else { 8 };
    MapDef::new("targets", kind, 4, value_size, entries)
}

/// `r1 = &targets`
const TARGETS: [Insn; 2] =
    [Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0), Insn::new(0, 0, 0, 0, 0)];

/// r2 = data; continues with the next instruction if the packet has `bytes`, else skips `skip`
/// instructions.
fn packet(bytes: i32, skip: i16) -> Vec<Insn> {
    vec![
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 2, 1, 0, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 3, 1, 4, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, 4, 2, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD, 4, 0, 0, bytes),
        Insn::new(BPF_JMP | BPF_JGT | BPF_X, 4, 3, skip, 0),
    ]
}

fn mov(dst: u8, imm: i32) -> Insn {
    Insn::new(BPF_ALU64 | BPF_MOV, dst, 0, 0, imm)
}

fn call(helper: u32) -> Insn {
    Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, helper as i32)
}

const EXIT: Insn = Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0);

fn linked(name: &str, insns: Vec<Insn>, maps: Vec<MapDef>) -> Linked {
    let linked = Linked::of_insns(name, insns, maps, &Env::builtin().kernel_btf);
    Linked { section: "xdp.frags".to_owned(), ..linked }
}
