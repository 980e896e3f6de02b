//! Dequeue programs: packets that are taken out of queues, read, sent and dropped.

use crate::map::MapType;

use super::*;

const DEQUEUE: i32 = 0;
const DROP: i32 = 1;
const SCHEDULE: i32 = 2;
const LAUNCH: i32 = 3;
const REQUEST: i32 = 5;

fn kfunc(number: i32) -> Insn {
    op(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, number)
}

fn queue(kind: MapType) -> MapDef {
    MapDef { map_extra: 8, ..MapDef::new("q", kind, 4, 4, 16) }
}

fn dequeue_program(insns: Vec<Insn>, kind: MapType) -> Linked {
    let names = [
        "bpf_packet_dequeue",
        "bpf_packet_drop",
        "bpf_schedule_iface_dequeue",
        "bpf_packet_store_launch_time",
        "bpf_xdp_pull_data",
        "bpf_packet_request_tx_timestamp",
    ];
    let kfuncs = names.map(|name| KfuncRef { name: name.to_owned(), type_id: None, weak: false });
    let maps = vec![queue(kind), MapDef::new("sent", MapType::Ringbuf, 0, 0, 4096)].into();
    let attach = AttachType::Dequeue;
    Linked { attach, maps, kfuncs: kfuncs.into(), ..program(insns) }
}

fn outcome(parts: Vec<Vec<Insn>>) -> Result<Verified, Box<Rejection>> {
    let program = dequeue_program(concat(parts), MapType::PifoXdp);
    verify(program, &Options::default())
}

#[track_caller]
fn refused(parts: Vec<Vec<Insn>>, message: &str) {
    match outcome(parts) {
        Ok(_) => panic!("accepted, but: {message}"),
        Err(rejection) => assert_eq!(rejection.message, message, "{rejection}"),
    }
}

#[track_caller]
fn fine(parts: Vec<Vec<Insn>>) {
    if let Err(rejection) = outcome(parts) {
        panic!("{rejection}");
    }
}

/// r6 = ctx, at the start.
fn start() -> Vec<Insn> {
    vec![op(MOV_REG, 6, 1, 0, 0)]
}

/// r0 = a packet, or null.
fn take() -> Vec<Insn> {
    vec![
        op(BPF_ST | BPF_MEM | BPF_DW, 10, 0, -8, 0),
        op(MOV_REG, 1, 6, 0, 0),
        op(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_MAP_FD, 0, 0),
        Insn::default(),
        op(MOV, 3, 0, 0, 0),
        op(MOV_REG, 4, 10, 0, 0),
        op(ADD, 4, 0, 0, -8),
        kfunc(DEQUEUE),
    ]
}

/// Takes a packet into `to`; null ends the program.
fn take_into(to: u8) -> Vec<Insn> {
    let checked = vec![op(BPF_JMP | BPF_JNE, 0, 0, 1, 0), EXIT, op(MOV_REG, to, 0, 0, 0)];
    concat([take(), checked])
}

/// As [`take_into`], with another packet in `held`, which is dropped if there is none.
fn take_second_into(to: u8, held: u8) -> Vec<Insn> {
    let dropped = concat([drop_of(held), nothing()]);
    let mut insns = take();
    insns.push(op(BPF_JMP | BPF_JNE, 0, 0, dropped.len() as i16, 0));
    insns.extend(dropped);
    insns.push(op(MOV_REG, to, 0, 0, 0));
    insns
}

fn drop_of(packet: u8) -> Vec<Insn> {
    vec![op(MOV_REG, 1, 6, 0, 0), op(MOV_REG, 2, packet, 0, 0), kfunc(DROP)]
}

fn send(packet: u8) -> Vec<Insn> {
    vec![op(MOV_REG, 0, packet, 0, 0), EXIT]
}

fn nothing() -> Vec<Insn> {
    vec![op(MOV, 0, 0, 0, 0), EXIT]
}

/// r2 = data, r3 = data_end of a packet.
fn bytes_of(packet: u8) -> Vec<Insn> {
    vec![op(LOAD_W, 2, packet, 0, 0), op(LOAD_W, 3, packet, 4, 0)]
}

/// r4 = r2 + 14, compared with r3: the next instruction only when that is inside.
fn compared() -> Vec<Insn> {
    vec![op(MOV_REG, 4, 2, 0, 0), op(ADD, 4, 0, 0, 14), op(BPF_JMP | BPF_JGT | BPF_X, 4, 3, 1, 0)]
}

fn load_from(pointer: u8) -> Vec<Insn> {
    vec![op(LOAD_B, 5, pointer, 12, 0)]
}

#[test]
fn a_packet_is_sent_or_dropped() {
    fine(vec![start(), take_into(7), send(7)]);
    fine(vec![start(), take_into(7), drop_of(7), nothing()]);
    // The result may be null: then no packet is sent.
    fine(vec![start(), take(), vec![EXIT]]);
    fine(vec![nothing()]);
    fine(vec![start(), take_into(7), take_second_into(8, 7), drop_of(7), send(8)]);
}

#[test]
fn a_packet_is_not_kept() {
    let insns = vec![start(), take_into(7), nothing()];
    refused(insns, "Unreleased reference id=2 alloc_insn=8");
    let two = vec![start(), take_into(7), take_second_into(8, 7), send(7)];
    refused(two, "Unreleased reference id=4 alloc_insn=19");
    let number = vec![vec![op(MOV, 0, 0, 0, 1), EXIT]];
    refused(number, "At program exit the register R0 is neither a packet nor NULL (scalar)");
    let ctx = vec![vec![op(MOV_REG, 0, 1, 0, 0), EXIT]];
    refused(ctx, "At program exit the register R0 is neither a packet nor NULL (ctx)");
}

#[test]
fn a_packet_is_given_up_once() {
    let twice = vec![start(), take_into(7), drop_of(7), drop_of(7), nothing()];
    refused(twice, "arg#1 expected a packet out of a queue, but got scalar");
    let sent = vec![start(), take_into(7), drop_of(7), send(7)];
    let message = "At program exit the register R0 is neither a packet nor NULL (scalar)";
    refused(sent, message);
    let unchecked = vec![start(), take(), vec![op(MOV_REG, 7, 0, 0, 0)], drop_of(7), nothing()];
    refused(unchecked, "Possibly NULL pointer passed to trusted arg1");
    let ctx = vec![start(), drop_of(6), nothing()];
    refused(ctx, "arg#1 expected a packet out of a queue, but got ctx");
    let moved = vec![start(), take_into(7), vec![op(ADD, 7, 0, 0, 8)], send(7)];
    refused(moved, "R7 pointer arithmetic on xdp_md prohibited");
}

#[test]
fn a_packets_bytes_are_compared_with_its_own_end() {
    let read = vec![start(), take_into(7), bytes_of(7), compared(), load_from(2), send(7)];
    fine(read);
    let unproved = vec![start(), take_into(7), bytes_of(7), load_from(2), send(7)];
    refused(unproved, "invalid access to packet, off=12 size=1, R2(id=0,off=12,r=0)");
    // The end of one packet proves nothing about the other.
    let two = || concat([start(), take_into(7), take_second_into(8, 7)]);
    let mixed = vec![op(LOAD_W, 2, 7, 0, 0), op(LOAD_W, 3, 8, 4, 0)];
    let end = || concat([drop_of(8), send(7)]);
    let crossed = vec![two(), mixed, compared(), load_from(2), end()];
    refused(crossed, "invalid access to packet, off=12 size=1, R2(id=0,off=12,r=0)");
    // Facts proved about one packet do not hold for the other.
    let other = vec![op(LOAD_W, 9, 8, 0, 0)];
    let proved = vec![two(), other, bytes_of(7), compared(), load_from(9), end()];
    refused(proved, "invalid access to packet, off=12 size=1, R9(id=0,off=12,r=0)");
}

#[test]
fn bytes_go_with_their_packet() {
    let held = || concat([start(), take_into(7), take_second_into(8, 7)]);
    let pointer = vec![op(MOV_REG, 9, 2, 0, 0)];
    let gone = |dropped| {
        vec![held(), bytes_of(8), compared(), pointer.clone(), drop_of(dropped), load_from(9)]
    };
    let end = |sent| vec![send(sent)];
    // A jump over the load leaves r9 unset: it is set in both ways here.
    let set = |parts: Vec<Vec<Insn>>| {
        let mut parts = parts;
        parts[3] = vec![op(MOV_REG, 9, 2, 0, 0), op(MOV_REG, 9, 2, 0, 0)];
        parts
    };
    let refused_one = set([gone(8), end(7)].concat());
    match outcome(refused_one) {
        Ok(_) => panic!("bytes of a packet that is gone"),
        Err(rejection) => assert!(rejection.message.starts_with("R9 "), "{rejection}"),
    }
}

#[test]
fn a_packets_context_is_read_by_its_fields() {
    let queue_index = vec![op(LOAD_W, 5, 7, 16, 0)];
    fine(vec![start(), take_into(7), queue_index, send(7)]);
    let egress = vec![op(LOAD_W, 5, 7, 20, 0)];
    refused(vec![start(), take_into(7), egress, send(7)], "invalid packet access off=20 size=4");
    let half = vec![op(BPF_LDX | BPF_MEM | BPF_H, 5, 7, 0, 0)];
    refused(vec![start(), take_into(7), half, send(7)], "invalid packet access off=0 size=2");
    let written = vec![op(BPF_ST | BPF_MEM | BPF_W, 7, 0, 12, 0)];
    refused(vec![start(), take_into(7), written, send(7)], "invalid packet access off=12 size=4");
    let unchecked = vec![start(), take(), vec![op(LOAD_W, 5, 0, 0, 0)], nothing()];
    refused(unchecked, "R0 invalid mem access 'xdp_md_or_null'");
}

#[test]
fn the_programs_own_context_has_one_field() {
    let ifindex = |off, size| vec![op(BPF_LDX | BPF_MEM | size, 5, 1, off, 0)];
    fine(vec![ifindex(0, BPF_W), nothing()]);
    refused(vec![ifindex(4, BPF_W), nothing()], "invalid bpf_context access off=4 size=4");
    refused(vec![ifindex(0, BPF_B), nothing()], "invalid bpf_context access off=0 size=1");
}

#[test]
fn who_has_no_frame_calls_nothing_that_works_on_one() {
    let adjust = vec![op(MOV, 2, 0, 0, 0), op(BPF_JMP | BPF_CALL, 0, 0, 0, 44)];
    let message = "program of this type cannot use helper bpf_xdp_adjust_head#44";
    refused(vec![adjust, nothing()], message);
    let redirect =
        vec![op(MOV, 1, 0, 0, 1), op(MOV, 2, 0, 0, 0), op(BPF_JMP | BPF_CALL, 0, 0, 0, 23)];
    refused(vec![redirect, nothing()], "program of this type cannot use helper bpf_redirect#23");
    let pull = vec![op(MOV, 2, 0, 0, 0), kfunc(4)];
    let message = "calling kernel function bpf_xdp_pull_data is not allowed";
    refused(vec![pull, nothing()], message);
    // A program that has a frame can't take one out of a queue, but may call other kfuncs.
    let xdp = |insns| {
        let program = dequeue_program(concat(insns), MapType::PifoXdp);
        let program = Linked { attach: AttachType::Xdp, ..program };
        verify(program, &Options::default()).map_err(|rejection| rejection.message)
    };
    let message = "calling kernel function bpf_packet_dequeue is not allowed";
    assert_eq!(xdp(vec![start(), take_into(7), send(7)]).err().as_deref(), Some(message));
    let schedule =
        vec![op(MOV, 1, 0, 0, 0), op(MOV, 2, 0, 0, 12), op(MOV, 3, 0, 0, 0), kfunc(SCHEDULE)];
    assert_eq!(xdp(vec![schedule, nothing()]).err(), None);
}

#[test]
fn packets_come_out_of_queues_of_packets() {
    let insns = concat([start(), take_into(7), send(7)]);
    let rejection = verify(dequeue_program(insns, MapType::PifoGeneric), &Options::default());
    let message = rejection.expect_err("it has values").message;
    assert_eq!(message, "cannot pass map_type 1024 into func bpf_packet_dequeue");
}

#[test]
fn a_packet_that_is_held_can_be_given_a_launch_time() {
    let launch = |packet| vec![op(MOV_REG, 1, packet, 0, 0), op(MOV, 2, 0, 0, 5), kfunc(LAUNCH)];
    fine(vec![start(), take_into(7), launch(7), send(7)]);
    let message = "arg#0 expected a packet out of a queue, but got ctx";
    refused(vec![start(), launch(6), nothing()], message);
    let message = "Possibly NULL pointer passed to trusted arg0";
    refused(vec![start(), take(), launch(0), nothing()], message);
}

#[test]
fn a_packet_that_is_held_can_be_asked_about() {
    let ask = |packet, map| {
        let map = op(BPF_LD | BPF_IMM | BPF_DW, 2, PSEUDO_MAP_FD, 0, map);
        vec![
            op(MOV_REG, 1, packet, 0, 0),
            map,
            Insn::default(),
            op(MOV, 3, 0, 0, 5),
            kfunc(REQUEST),
        ]
    };
    fine(vec![start(), take_into(7), ask(7, 1), send(7)]);
    let message = "cannot pass map_type 1025 into func bpf_packet_request_tx_timestamp";
    refused(vec![start(), take_into(7), ask(7, 0), send(7)], message);
    let message = "arg#0 expected a packet out of a queue, but got ctx";
    refused(vec![start(), ask(6, 1), nothing()], message);
    let message = "Possibly NULL pointer passed to trusted arg0";
    refused(vec![start(), take(), ask(0, 1), nothing()], message);
}
