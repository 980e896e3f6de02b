//! Source of a program's frames: the same frame as the previous run left it, or a fresh one for
//! every run.
//!
//! `BPF_PROG_TEST_RUN` hands one frame from run to run. If a program changes the headers or the
//! size of its frame, a front program runs before it: it restores them, writes the next flow's
//! source address and port, and tail-calls the program, which stays unmodified. The empty program
//! gets the same in front, so that only the program's own work remains. Here, the frames of a burst
//! are filled again before it runs, for the empty program too.

use std::sync::Arc;

use towpath_bpf::btf::Linkage;
use towpath_bpf::program::{AttachType, Function, MapType, SlotInit};
use towpath_bpf::{Env, Insn, Linked};
use towpath_workload::plain_map;

/// Treatment of a frame between two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Renewal {
    /// The frame stays as the program left it.
    Kept,
    /// The headers of the frame are written again.
    Rewritten,
    /// As `Rewritten`; also, bytes that the program added in front are removed, and those it
    /// removed come back.
    Resized,
    /// As `Resized`, for bytes at the end of the frame.
    ResizedAtEnd,
}

impl Renewal {
    /// Name in the JSON document.
    pub(super) fn name(self) -> &'static str {
        match self {
            Renewal::Kept => "kept",
            Renewal::Rewritten => "rewritten",
            Renewal::Resized | Renewal::ResizedAtEnd => "resized",
        }
    }
}

/// One frame, and the way to make the next one of it.
#[derive(Debug, Clone)]
pub(super) struct Feed {
    pub(super) packet: Vec<u8>,
    pub(super) renewal: Renewal,
    /// Number of different flows, one after another; 1 if all frames are the same.
    pub(super) flows: u32,
    /// Frames of flows that were handed out.
    turn: u64,
}

/// Offsets in a packet at which its flow is written.
#[derive(Debug, Clone, Copy)]
struct Places {
    /// The last four bytes of the source address.
    address: usize,
    /// The header's checksum, in IPv4.
    ip_checksum: Option<usize>,
    /// The source port, if there is one.
    port: Option<usize>,
    /// TCP's or UDP's checksum, if the packet uses it.
    l4_checksum: Option<usize>,
}

impl Feed {
    pub(super) fn new(packet: &[u8], renewal: Renewal) -> Self {
        Feed { packet: packet.to_vec(), renewal, flows: 1, turn: 0 }
    }

    /// Spreads the frame over `flows` flows; fails if it has no address to tell them by.
    pub(super) fn with_flows(mut self, flows: u32) -> Result<Self, String> {
        if places(&self.packet).is_none() {
            return Err("its frame has no IP address to make flows of".to_owned());
        }
        if self.renewal == Renewal::Kept {
            self.renewal = Renewal::Rewritten;
        }
        self.flows = flows;
        Ok(self)
    }

    /// The source address (its last four bytes) of a flow of this packet.
    pub(super) fn address_of(&self, flow: u32) -> Option<[u8; 4]> {
        let address = self.address()?;
        let number = u32::from_be_bytes(address) & 0xff00_0000 | flow & 0x00ff_ffff;
        Some(number.to_be_bytes())
    }

    /// The last four bytes of the packet's source address.
    pub(super) fn address(&self) -> Option<[u8; 4]> {
        let at = places(&self.packet)?.address;
        self.packet.get(at..at + 4)?.try_into().ok()
    }

    /// The next frame.
    pub(super) fn next(&mut self) -> &[u8] {
        if self.flows > 1
            && let Some(places) = places(&self.packet)
        {
            let flow = self.turn.wrapping_mul(STEP) % u64::from(self.flows);
            self.turn += 1;
            write_flow(&mut self.packet, places, flow as u32);
        }
        &self.packet
    }

    /// A program to run in front of the program `name`, of the same kind.
    pub(super) fn program(&self, name: &str, has_frags: bool, env: &Env) -> Linked {
        let mut targets = plain_map("targets", MapType::ProgArray, (4, 4, 1));
        targets.slots = vec![(0, SlotInit::Program(name.to_owned()))];
        Linked {
            name: "feed".to_owned(),
            section: "xdp".to_owned(),
            attach: AttachType::Xdp,
            has_frags,
            license: "GPL".to_owned(),
            insns: self.insns(),
            functions: vec![entry()],
            lines: Vec::new(),
            maps: vec![targets, plain_map("turn", MapType::Array, (4, 8, 1))].into(),
            unresolved: Vec::new(),
            kfuncs: Vec::new(),
            btf: None,
            kernel_btf: Arc::clone(&env.kernel_btf),
        }
    }

    fn insns(&self) -> Vec<Insn> {
        let mut code = vec![mov(6, 1)];
        let size = self.packet.len() as i32;
        if matches!(self.renewal, Renewal::Resized | Renewal::ResizedAtEnd) {
            let at_end = self.renewal == Renewal::ResizedAtEnd;
            code.extend([load(2, 6, 4), load(1, 6, 0), alu(SUB, 2, 1), alu_imm(ADD, 2, -size)]);
            if at_end {
                code.push(Insn::new(0x87, 2, 0, 0, 0));
            }
            // Called even if the size is right, so that the empty program has the same code in
            // front.
            code.extend([mov(1, 6), call(if at_end { ADJUST_TAIL } else { ADJUST_HEAD })]);
        }
        let written = self.packet.len().min(REWRITTEN_BYTES);
        code.extend([load(7, 6, 0), load(8, 6, 4), mov(2, 7), alu_imm(ADD, 2, written as i32)]);
        let check = code.len();
        code.push(Insn::new(0x2d, 2, 8, 0, 0));
        code.extend(stores(&self.packet[..written]));
        if self.flows > 1
            && let Some(places) = places(&self.packet)
        {
            code.extend(flow_insns(&self.packet, places, self.flows));
        }
        code.extend([mov(1, 6), Insn::new(0x18, 2, 1, 0, 0), Insn::new(0, 0, 0, 0, 0)]);
        code.extend([mov_imm(3, 0), call(TAIL_CALL)]);
        code[check].off = (code.len() - check - 1) as i16;
        code.extend([mov_imm(0, 0), Insn::new(0x95, 0, 0, 0, 0)]);
        code
    }
}

/// The only function of a program.
pub(super) fn entry() -> Function {
    Function { start: 0, name: String::new(), linkage: Linkage::Static, type_id: None }
}

/// Stores of the sizes of header fields: a load wider than the stores it reads from waits.
fn stores(bytes: &[u8]) -> Vec<Insn> {
    let mut code = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let size = match at {
            12 => 2,
            _ => (bytes.len() - at).min(4),
        };
        let size = if size == 3 { 2 } else { size };
        let mut word = [0; 4];
        word[..size].copy_from_slice(&bytes[at..at + size]);
        let opcode = [0x72, 0x6a, 0, 0x62][size - 1];
        code.push(Insn::new(opcode, 7, 0, at as i16, i32::from_le_bytes(word)));
        at += size;
    }
    code
}

fn places(packet: &[u8]) -> Option<Places> {
    let ether_type = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
    let mut ip = 14;
    while matches!(ether_type(ip - 2)?, 0x8100 | 0x88a8) {
        ip += 4;
    }
    let (address, ip_checksum, protocol, l4) = match ether_type(ip - 2)? {
        0x0800 => {
            let length = usize::from(packet.get(ip)? & 15) * 4;
            (ip + 12, Some(ip + 10), *packet.get(ip + 9)?, ip + length)
        }
        0x86dd => (ip + 20, None, *packet.get(ip + 6)?, ip + 40),
        _ => return None,
    };
    let checksum = match protocol {
        6 => Some(l4 + 16),
        17 => Some(l4 + 6),
        _ => None,
    };
    let reach = REWRITTEN_BYTES.min(packet.len());
    let used = checksum.filter(|&at| at + 2 <= reach && packet[at..at + 2] != [0, 0]);
    let port = checksum.map(|_| l4).filter(|at| at + 2 <= reach);
    (address + 4 <= reach).then_some(Places { address, ip_checksum, port, l4_checksum: used })
}

/// One's complement sum of all words under a checksum except those of the flow (`fields`), from the
/// checksum that the packet has.
fn rest_of_sum(packet: &[u8], checksum: usize, fields: &[usize]) -> u32 {
    let word = |at: usize| u32::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let mut sum = word(checksum) ^ 0xffff;
    for &field in fields {
        sum += word(field) ^ 0xffff;
    }
    fold(sum)
}

fn fold(sum: u32) -> u32 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

fn port_of(flow: u32) -> u16 {
    (flow & 0x7fff) as u16 + 1024
}

fn write_flow(packet: &mut [u8], places: Places, flow: u32) {
    let Places { address, ip_checksum, port, l4_checksum } = places;
    let mut fields = vec![address, address + 2];
    let ip_rest = ip_checksum.map(|at| (at, rest_of_sum(packet, at, &fields)));
    fields.extend(port);
    let l4_rest = l4_checksum.map(|at| (at, rest_of_sum(packet, at, &fields)));
    packet[address + 1..address + 4].copy_from_slice(&flow.to_be_bytes()[1..]);
    if let Some(at) = port {
        packet[at..at + 2].copy_from_slice(&port_of(flow).to_be_bytes());
    }
    let word =
        |packet: &[u8], at: usize| u32::from(u16::from_be_bytes([packet[at], packet[at + 1]]));
    let sum = word(packet, address) + word(packet, address + 2);
    for (rest, extra) in [(ip_rest, 0), (l4_rest, port.map_or(0, |at| word(packet, at)))] {
        if let Some((at, rest)) = rest {
            let checksum = (fold(rest + sum + extra) ^ 0xffff) as u16;
            packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        }
    }
}

/// [`write_flow`] for the next flow, in BPF: r7 is the packet.
fn flow_insns(packet: &[u8], places: Places, flows: u32) -> Vec<Insn> {
    let Places { address, ip_checksum, port, l4_checksum } = places;
    let mut fields = vec![address, address + 2];
    let ip_rest = ip_checksum.map(|at| (at, rest_of_sum(packet, at, &fields)));
    fields.extend(port);
    let l4_rest = l4_checksum.map(|at| (at, rest_of_sum(packet, at, &fields)));
    let first = i32::from_be_bytes([packet[address], 0, 0, 0]);
    let mut code = vec![
        // The turn, and the next.
        Insn::new(0x18, 1, 2, 0, 1),
        Insn::new(0, 0, 0, 0, 0),
        Insn::new(0x79, 2, 1, 0, 0),
        mov(3, 2),
        alu_imm(ADD, 3, 1),
        Insn::new(0x7b, 1, 3, 0, 0),
        // The flow: r2; its address: r3; the sum of the address's halves: r4.
        alu_imm(MUL, 2, STEP as i32),
        alu_imm(MOD, 2, flows as i32),
        mov(3, 2),
        Insn::new(0x44, 3, 0, 0, first),
        mov(4, 3),
        Insn::new(0xdc, 4, 0, 0, 32),
        Insn::new(0x63, 7, 4, address as i16, 0),
        mov(4, 3),
        alu_imm(RSH, 4, 16),
        alu_imm(AND, 3, 0xffff),
        alu(ADD, 4, 3),
    ];
    if let Some((at, rest)) = ip_rest {
        code.push(mov(5, 4));
        code.extend(checksum_insns(5, at, rest));
    }
    if let Some(at) = port {
        code.extend([alu_imm(AND, 2, 0x7fff), alu_imm(ADD, 2, 1024), alu(ADD, 4, 2)]);
        code.extend([Insn::new(0xdc, 2, 0, 0, 16), Insn::new(0x6b, 7, 2, at as i16, 0)]);
    }
    if let Some((at, rest)) = l4_rest {
        code.extend(checksum_insns(4, at, rest));
    }
    code
}

/// Adds the rest to a sum, folds it, and stores the checksum.
fn checksum_insns(reg: u8, at: usize, rest: u32) -> Vec<Insn> {
    let mut code = vec![alu_imm(ADD, reg, rest as i32)];
    for _ in 0..2 {
        code.extend([
            mov(0, reg),
            alu_imm(RSH, 0, 16),
            alu_imm(AND, reg, 0xffff),
            alu(ADD, reg, 0),
        ]);
    }
    code.extend([alu_imm(XOR, reg, 0xffff), Insn::new(0xdc, reg, 0, 0, 16)]);
    code.push(Insn::new(0x6b, 7, reg, at as i16, 0));
    code
}

fn mov(to: u8, from: u8) -> Insn {
    Insn::new(0xbf, to, from, 0, 0)
}

fn mov_imm(to: u8, value: i32) -> Insn {
    Insn::new(0xb7, to, 0, 0, value)
}

fn load(to: u8, base: u8, offset: i16) -> Insn {
    Insn::new(0x61, to, base, offset, 0)
}

/// 64-bit arithmetic between registers; `operation` as in the instruction set.
fn alu(operation: u8, to: u8, from: u8) -> Insn {
    Insn::new(operation | 0x0f, to, from, 0, 0)
}

fn alu_imm(operation: u8, to: u8, value: i32) -> Insn {
    Insn::new(operation | 0x07, to, 0, 0, value)
}

fn call(helper: i32) -> Insn {
    Insn::new(0x85, 0, 0, 0, helper)
}

const ADD: u8 = 0x00;
const SUB: u8 = 0x10;
const MUL: u8 = 0x20;
const AND: u8 = 0x50;
const RSH: u8 = 0x70;
const MOD: u8 = 0x90;
const XOR: u8 = 0xa0;
const TAIL_CALL: i32 = 12;
const ADJUST_HEAD: i32 = 44;
const ADJUST_TAIL: i32 = 65;
/// Bytes at the start of a packet that hold the headers which programs change.
const REWRITTEN_BYTES: usize = 128;
/// Step from flow to flow: odd and large, so that no two successive flows are neighbours.
const STEP: u64 = 0x0037_79b9;

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet, IPv4 and UDP with right checksums.
    fn packet() -> Vec<u8> {
        let mut packet = vec![0; 60];
        packet[12..14].copy_from_slice(&[8, 0]);
        packet[14..34].copy_from_slice(&[
            0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 2, 3, 192, 0, 2, 1,
        ]);
        packet[34..42].copy_from_slice(&[0x10, 0, 0, 53, 0, 26, 0x12, 0x34]);
        let sum = !sum(&packet[14..34]);
        packet[24..26].copy_from_slice(&sum.to_be_bytes());
        packet
    }

    fn sum(bytes: &[u8]) -> u16 {
        let words = bytes.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        fold(words.sum()) as u16
    }

    #[test]
    fn flows_differ_and_their_checksums_are_right() {
        let mut feed = Feed::new(&packet(), Renewal::Kept).with_flows(1000).unwrap();
        let before = sum(&feed.packet[26..60]);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..1000 {
            let frame = feed.next();
            assert_eq!(sum(&frame[14..34]), 0xffff);
            assert_eq!(sum(&frame[26..60]), before, "what changes is made up for");
            seen.insert(frame[26..36].to_vec());
        }
        assert_eq!(seen.len(), 1000);
    }

    #[test]
    fn a_frame_without_addresses_has_no_flows() {
        assert!(Feed::new(&[0; 60], Renewal::Kept).with_flows(10).is_err());
    }
}
