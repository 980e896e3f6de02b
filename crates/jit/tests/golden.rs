//! Programs in, XIR out: what the passes make of small programs, as text in `tests/golden`.
//!
//! `TOWPATH_BLESS=1 cargo test -p towpath-jit` writes the files anew; read the difference.

#[path = "golden/specialized.rs"]
mod specialized;

use std::path::PathBuf;
use std::sync::Arc;

use towpath_bpf::btf::{Btf, Linkage};
use towpath_bpf::insn::*;
use towpath_bpf::interp::Resolver;
use towpath_bpf::program::{AttachType, Function, KfuncRef, MapType};
use towpath_bpf::verifier::{self, Options, Verified};
use towpath_bpf::{Insn, Linked, MapDef};
use towpath_jit::{
    Callees, CompileError, Direct, Environment, LlvmForm, Machine, llvm_text, optimized,
};
use towpath_maps::{MapSet, SetOptions};

/// Kfuncs by the number that calls have.
const NUMBERS: [&str; 3] = ["bpf_iter_num_new", "bpf_iter_num_next", "bpf_iter_num_destroy"];

const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R5: u8 = 5;
const R6: u8 = 6;
const R10: u8 = 10;

/// `if (data + 14 > data_end) return 1; return (p[12] << 8 | p[13]) == 0x0800 ? 2 : 1`
#[test]
fn bytes_of_a_field_are_loaded_at_once() {
    let byte = BPF_LDX | BPF_MEM | BPF_B;
    check(
        "ethertype",
        vec![],
        vec![
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R2, R1, 4, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R1, 0, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R3, R1, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R3, 0, 0, 14),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 1),
            Insn::new(BPF_JMP | BPF_JGT | BPF_X, R3, R2, 6, 0),
            Insn::new(byte, R2, R1, 12, 0),
            Insn::new(byte, R3, R1, 13, 0),
            Insn::new(BPF_ALU64 | BPF_LSH | BPF_K, R2, 0, 0, 8),
            Insn::new(BPF_ALU64 | BPF_OR | BPF_X, R2, R3, 0, 0),
            Insn::new(BPF_JMP | BPF_JNE | BPF_K, R2, 0, 1, 0x0800),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 2),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ],
    );
}

/// `h->proto == 0x8100 || h->proto == 0x88a8` by way of numbers, then another field's bytes: both
/// fields are loaded whole, the branches are comparisons.
#[test]
fn conditions_are_no_numbers() {
    let byte = BPF_LDX | BPF_MEM | BPF_B;
    let set = |register, value| Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, register, 0, 0, value);
    let jump =
        |kind, register, by, value| Insn::new(BPF_JMP | kind | BPF_K, register, 0, by, value);
    let field = |low: i16| {
        [
            Insn::new(byte, R3, R1, low + 1, 0),
            Insn::new(byte, R5, R1, low, 0),
            Insn::new(BPF_ALU64 | BPF_LSH | BPF_K, R3, 0, 0, 8),
            Insn::new(BPF_ALU64 | BPF_OR | BPF_X, R3, R5, 0, 0),
        ]
    };
    let mut insns = vec![
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R2, R1, 4, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R3, R1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R3, 0, 0, 18),
        set(R0, 1),
        Insn::new(BPF_JMP | BPF_JGT | BPF_X, R3, R2, 18, 0),
    ];
    insns.extend(field(12));
    insns.extend([
        set(R4, 1),
        jump(BPF_JEQ, R3, 1, 0x81),
        set(R4, 0),
        set(R5, 1),
        jump(BPF_JEQ, R3, 1, 0xa888),
        set(R5, 0),
        Insn::new(BPF_ALU64 | BPF_OR | BPF_X, R4, R5, 0, 0),
        jump(BPF_JNE, R4, 6, 1),
    ]);
    insns.extend(field(16));
    insns.extend([jump(BPF_JNE, R3, 1, 8), set(R0, 2)]);
    insns.push(Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
    check("conditions", vec![], insns);
}

/// Swaps the Ethernet addresses as clang does it: byte by byte, each stored when it was loaded.
#[test]
fn bytes_are_copied_at_once() {
    let byte = |i: i16| {
        [
            Insn::new(BPF_LDX | BPF_MEM | BPF_B, R5, R1, i, 0),
            Insn::new(BPF_STX | BPF_MEM | BPF_B, R1, R5, 6 + i, 0),
        ]
    };
    let mut insns = vec![
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R2, R1, 4, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R3, R1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R3, 0, 0, 12),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 3),
        Insn::new(BPF_JMP | BPF_JGT | BPF_X, R3, R2, 16, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R3, R1, 6, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_H, R4, R1, 10, 0),
    ];
    insns.extend([2, 3, 0, 1, 4, 5].into_iter().flat_map(byte));
    insns.extend([
        Insn::new(BPF_STX | BPF_MEM | BPF_W, R1, R3, 0, 0),
        Insn::new(BPF_STX | BPF_MEM | BPF_H, R1, R4, 4, 0),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ]);
    check("copy_bytes", vec![], insns);
}

/// `int key = 3; long *v = lookup(&array, &key); if (v) ++*v; return 2`
#[test]
fn an_array_lookup_with_a_constant_key_is_an_address() {
    let array = map("counters", MapType::Array, 4);
    check(
        "array_counter",
        vec![array],
        vec![
            Insn::new(BPF_ST | BPF_MEM | BPF_W, R10, 0, -4, 3),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R2, R10, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R2, 0, 0, -4),
            Insn::new(BPF_LD | BPF_IMM | BPF_DW, R1, PSEUDO_MAP_FD, 0, 0),
            Insn::new(0, 0, 0, 0, 0),
            Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, 1),
            Insn::new(BPF_JMP | BPF_JEQ | BPF_K, R0, 0, 3, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_DW, R1, R0, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R1, 0, 0, 1),
            Insn::new(BPF_STX | BPF_MEM | BPF_DW, R0, R1, 0, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 2),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ],
    );
}

/// `buffer[rx_queue_index & 7] + saved`: only the buffer stays memory.
#[test]
fn stack_that_no_address_reaches_becomes_values() {
    check(
        "stack_variable_offset",
        vec![],
        vec![
            Insn::new(BPF_ST | BPF_MEM | BPF_DW, R10, 0, -16, 0x11),
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R2, R1, 16, 0),
            Insn::new(BPF_STX | BPF_MEM | BPF_DW, R10, R2, -8, 0),
            Insn::new(BPF_ALU64 | BPF_AND | BPF_K, R2, 0, 0, 7),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R3, R10, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, R3, R2, 0, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_B, R0, R3, -16, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_DW, R1, R10, -8, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, R0, R1, 0, 0),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ],
    );
}

/// Swaps the Ethernet addresses, clears four bytes behind them and writes two of them anew.
#[test]
fn neighbouring_stores_become_wide_ones() {
    let mut insns = vec![
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R2, R1, 4, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R3, R1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R3, 0, 0, 18),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 1),
        Insn::new(BPF_JMP | BPF_JGT | BPF_X, R3, R2, 17, 0),
    ];
    let half = BPF_LDX | BPF_MEM | BPF_H;
    insns.extend((0..6).map(|i| Insn::new(half, 3 + i, R1, 2 * i16::from(i), 0)));
    let store = BPF_STX | BPF_MEM | BPF_H;
    insns.extend((0..6).map(|i| Insn::new(store, R1, 3 + (i + 3) % 6, 2 * i16::from(i), 0)));
    insns.extend([
        Insn::new(BPF_ST | BPF_MEM | BPF_W, R1, 0, 14, 0),
        Insn::new(BPF_ST | BPF_MEM | BPF_B, R1, 0, 15, 5),
        Insn::new(BPF_LDX | BPF_MEM | BPF_H, R0, R1, 14, 0),
        Insn::new(BPF_ST | BPF_MEM | BPF_B, R1, 0, 14, 6),
        Insn::new(BPF_ST | BPF_MEM | BPF_H, R1, 0, 12, 0x0008),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ]);
    check("swap_addresses", vec![], insns);
}

/// `rol32(rx_queue_index * 0xcc9e2d51, 15) * 5` as clang writes it for BPF without 32-bit
/// arithmetic.
#[test]
fn shifts_of_a_product_become_a_rotation() {
    let alu = |op: u8, dst: u8, imm: u32| Insn::new(BPF_ALU64 | op | BPF_K, dst, 0, 0, imm as i32);
    check(
        "rotate_product",
        vec![],
        vec![
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R0, R1, 16, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R2, R0, 0, 0),
            alu(BPF_MUL, R2, 0xcc9e_2d51),
            Insn::new(BPF_LD | BPF_IMM | BPF_DW, R3, 0, 0, 0xfffe_0000_u32 as i32),
            Insn::new(0, 0, 0, 0, 0),
            Insn::new(BPF_ALU64 | BPF_AND | BPF_X, R2, R3, 0, 0),
            alu(BPF_RSH, R2, 17),
            alu(BPF_MUL, R0, 0x16a8_8000),
            Insn::new(BPF_ALU64 | BPF_OR | BPF_X, R0, R2, 0, 0),
            alu(BPF_MUL, R0, 5),
            alu(BPF_LSH, R0, 32),
            alu(BPF_RSH, R0, 32),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ],
    );
}

/// `struct { u32 a, b; } key = { queue, 7 }; return lookup(&flows, &key) ? 2 : 1`; where `flows`
/// are sockets, known by `a`, there is no call
#[test]
fn a_key_goes_to_its_table_in_a_register() {
    let insns = vec![
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R1, 16, 0),
        Insn::new(BPF_STX | BPF_MEM | BPF_W, R10, R1, -8, 0),
        Insn::new(BPF_ST | BPF_MEM | BPF_W, R10, 0, -4, 7),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R2, R10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R2, 0, 0, -8),
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, R1, PSEUDO_MAP_FD, 0, 0),
        Insn::new(0, 0, 0, 0, 0),
        Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, 1),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R1, R0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 1),
        Insn::new(BPF_JMP | BPF_JEQ | BPF_K, R1, 0, 1, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 2),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ];
    check("hash_key", vec![map("flows", MapType::Hash, 8)], insns.clone());
    let sockets = MapDef::new("flows", MapType::Xskmap, 4, 4, 8);
    check("socket_entry", vec![sockets], insns);
}

/// `u64 key = queue; return lookup(queue ? &some : &others, &key) ? 2 : 1`: which table it is need
/// not be known.
#[test]
fn a_key_goes_to_one_of_two_tables_in_a_register() {
    let table = |number| {
        [
            Insn::new(BPF_LD | BPF_IMM | BPF_DW, R1, PSEUDO_MAP_FD, 0, number),
            Insn::new(0, 0, 0, 0, 0),
        ]
    };
    let mut insns = vec![
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R3, R1, 16, 0),
        Insn::new(BPF_STX | BPF_MEM | BPF_DW, R10, R3, -8, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R2, R10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R2, 0, 0, -8),
    ];
    insns.extend(table(0));
    insns.push(Insn::new(BPF_JMP | BPF_JEQ | BPF_K, R3, 0, 2, 0));
    insns.extend(table(1));
    insns.extend([
        Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, 1),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R1, R0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 1),
        Insn::new(BPF_JMP | BPF_JEQ | BPF_K, R1, 0, 1, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 2),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ]);
    let tables = ["others", "some"].map(|name| map(name, MapType::LruHash, 8));
    check("either_table", tables.into(), insns);
}

/// `if (data + 8 > data_end) return 1; *(u16 *)(data + 2) = 0; return csum_diff(0, 0, data, 8, 0)`:
/// the word that was written in halves is read in halves.
#[test]
fn a_checksum_of_constant_size_is_a_sum() {
    check(
        "csum_diff",
        vec![],
        vec![
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R2, R1, 4, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R3, R1, 0, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R1, R3, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R1, 0, 0, 8),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 1),
            Insn::new(BPF_JMP | BPF_JGT | BPF_X, R1, R2, 6, 0),
            Insn::new(BPF_ST | BPF_MEM | BPF_H, R3, 0, 2, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R1, 0, 0, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R2, 0, 0, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R4, 0, 0, 8),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R5, 0, 0, 0),
            Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, 28),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ],
    );
}

/// `struct { u32 a, b; } s = { queue, 3 }; return add(&s)`: neither call nor stack is left.
#[test]
fn a_function_called_once_becomes_part_of_its_caller() {
    check(
        "inlined_call",
        vec![],
        vec![
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R1, 16, 0),
            Insn::new(BPF_STX | BPF_MEM | BPF_W, R10, R1, -8, 0),
            Insn::new(BPF_ST | BPF_MEM | BPF_W, R10, 0, -4, 3),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R1, R10, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R1, 0, 0, -8),
            Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, 1),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
            // add: one argument lies on its own stack meanwhile
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R2, R1, 0, 0),
            Insn::new(BPF_STX | BPF_MEM | BPF_DW, R10, R2, -8, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R0, R1, 4, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_DW, R2, R10, -8, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, R0, R2, 0, 0),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ],
    );
}

/// `for (i = 0; i < 4; i++) a[i] = i * queue;` then
/// `for (i = 0; i < 4; i++) { sum += a[i]; if (sum > 99) break; }`: no loop and no array are left.
#[test]
fn loops_of_few_rounds_are_their_rounds() {
    let element = [
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R3, R10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R4, R2, 0, 0),
        Insn::new(BPF_ALU64 | BPF_LSH | BPF_K, R4, 0, 0, 3),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, R3, R4, 0, 0),
    ];
    let mut insns = vec![
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R6, R1, 16, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R2, 0, 0, 0),
    ];
    insns.extend(element);
    insns.extend([
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R5, R2, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MUL | BPF_X, R5, R6, 0, 0),
        Insn::new(BPF_STX | BPF_MEM | BPF_DW, R3, R5, -32, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R2, 0, 0, 1),
        Insn::new(BPF_JMP | BPF_JNE | BPF_K, R2, 0, -9, 4),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R2, 0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 0),
    ]);
    insns.extend(element);
    insns.extend([
        Insn::new(BPF_LDX | BPF_MEM | BPF_DW, R5, R3, -32, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, R0, R5, 0, 0),
        Insn::new(BPF_JMP | BPF_JGT | BPF_K, R0, 0, 2, 99),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R2, 0, 0, 1),
        Insn::new(BPF_JMP | BPF_JNE | BPF_K, R2, 0, -9, 4),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ]);
    check("unrolled", vec![], insns);
}

/// `u64 sum = queue; bpf_loop(ifindex, add, &sum, 0); return sum` with
/// `long add(u32 i, u64 *sum) { *sum += i; return *sum > 99; }`
#[test]
fn bpf_loop_is_a_loop_and_its_state_a_value() {
    check(
        "bpf_loop",
        vec![],
        vec![
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R2, R1, 16, 0),
            Insn::new(BPF_STX | BPF_MEM | BPF_DW, R10, R2, -8, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R1, 12, 0),
            Insn::new(BPF_LD | BPF_IMM | BPF_DW, R2, PSEUDO_FUNC, 0, 7),
            Insn::new(0, 0, 0, 0, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R3, R10, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R3, 0, 0, -8),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R4, 0, 0, 0),
            Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, 181),
            Insn::new(BPF_LDX | BPF_MEM | BPF_DW, R0, R10, -8, 0),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
            // add
            Insn::new(BPF_LDX | BPF_MEM | BPF_DW, R3, R2, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, R3, R1, 0, 0),
            Insn::new(BPF_STX | BPF_MEM | BPF_DW, R2, R3, 0, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 0),
            Insn::new(BPF_JMP | BPF_JLE | BPF_K, R3, 0, 1, 99),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 1),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ],
    );
}

/// `bpf_for_each_map_elem(&array, add, &sum, 0)`, where `add` adds `key * value`: no key is copied.
#[test]
fn a_walk_over_an_array_is_a_loop() {
    check(
        "for_each",
        vec![map("array", MapType::Array, 4)],
        vec![
            Insn::new(BPF_ST | BPF_MEM | BPF_DW, R10, 0, -8, 0),
            Insn::new(BPF_LD | BPF_IMM | BPF_DW, R1, PSEUDO_MAP_FD, 0, 0),
            Insn::new(0, 0, 0, 0, 0),
            Insn::new(BPF_LD | BPF_IMM | BPF_DW, R2, PSEUDO_FUNC, 0, 7),
            Insn::new(0, 0, 0, 0, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R3, R10, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R3, 0, 0, -8),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R4, 0, 0, 0),
            Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, 164),
            Insn::new(BPF_LDX | BPF_MEM | BPF_DW, R0, R10, -8, 0),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R2, R2, 0, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_DW, R3, R3, 0, 0),
            Insn::new(BPF_ALU64 | BPF_MUL | BPF_X, R3, R2, 0, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_DW, R2, R4, 0, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, R2, R3, 0, 0),
            Insn::new(BPF_STX | BPF_MEM | BPF_DW, R4, R2, 0, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 0),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ],
    );
}

/// A number that is stored in quarters and loaded whole is the number.
#[test]
fn quarters_of_a_number_are_the_number() {
    let mut insns = vec![
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R2, R1, 12, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R3, R1, 16, 0),
        Insn::new(BPF_ALU64 | BPF_LSH | BPF_K, R3, 0, 0, 32),
        Insn::new(BPF_ALU64 | BPF_OR | BPF_X, R3, R2, 0, 0),
    ];
    for quarter in 0..4 {
        insns.push(Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R4, R3, 0, 0));
        insns.push(Insn::new(BPF_ALU64 | BPF_RSH | BPF_K, R4, 0, 0, 16 * quarter));
        insns.push(Insn::new(BPF_STX | BPF_MEM | BPF_H, R10, R4, -8 + 2 * quarter as i16, 0));
    }
    let load = Insn::new(BPF_LDX | BPF_MEM | BPF_DW, R0, R10, -8, 0);
    insns.extend([load, Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0)]);
    check("quarters", vec![], insns);
}

/// `for (n = 0; can_loop; n ^= queue) ; return n`
#[test]
fn rounds_left_for_may_goto_are_a_value() {
    check(
        "may_goto",
        vec![],
        vec![
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R1, 16, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 0),
            Insn::new(BPF_JMP | BPF_JCOND, 0, 0, 2, 0),
            Insn::new(BPF_ALU64 | BPF_XOR | BPF_X, R0, R1, 0, 0),
            Insn::new(BPF_JMP | BPF_JA, 0, 0, -3, 0),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ],
    );
}

/// Address of the iterator's state.
fn state(dst: u8) -> [Insn; 2] {
    [
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, dst, R10, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, dst, 0, 0, -8),
    ]
}

/// `bpf_iter_num_new`, `_next` and `_destroy` by their numbers.
fn kfunc(number: i32) -> Insn {
    Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_KFUNC_CALL, 0, number)
}

/// A loop over 0 to 99 that begins with `next` and sums up in r6, which is returned.
fn over_numbers(round: &[Insn]) -> Vec<Insn> {
    let mut insns = state(R1).to_vec();
    insns.extend([
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R2, 0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R3, 0, 0, 100),
        kfunc(0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R6, 0, 0, 0),
    ]);
    insns.extend(state(R1));
    insns.extend(round);
    insns.extend(state(R1));
    insns.extend([
        kfunc(2),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R0, R6, 0, 0),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ]);
    insns
}

/// `bpf_for(i, 0, 100) sum += i; return sum`
#[test]
fn an_iterator_over_numbers_is_two_numbers() {
    let round = [
        kfunc(1),
        Insn::new(BPF_JMP | BPF_JEQ | BPF_K, R0, 0, 3, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, R6, R1, 0, 0),
        Insn::new(BPF_JMP | BPF_JA, 0, 0, -7, 0),
    ];
    check("iter_num", vec![], over_numbers(&round));
}

/// The same with the test at the loop's end: what `next` gave goes round the loop, and is the
/// iterator's number all the same.
#[test]
fn an_iterator_whose_items_are_carried_along_becomes_numbers_too() {
    let mut round = vec![
        kfunc(1),
        Insn::new(BPF_JMP | BPF_JEQ | BPF_K, R0, 0, 6, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, R6, R1, 0, 0),
    ];
    round.extend(state(R1));
    round.extend([kfunc(1), Insn::new(BPF_JMP | BPF_JNE | BPF_K, R0, 0, -6, 0)]);
    check("iter_num_carried", vec![], over_numbers(&round));
}

/// `for (i = 0; i < 750; i++) { if (p + 2 > end) break; sum += *(u16 *)p; p += 2; } return sum`
#[test]
fn a_loop_that_sums_up_has_its_rounds_done_at_once() {
    let add = [
        Insn::new(BPF_LDX | BPF_MEM | BPF_H, R5, R1, 0, 0),
        Insn::new(BPF_ALU | BPF_ADD | BPF_X, R0, R5, 0, 0),
    ];
    check("loop_sum", vec![], over_packet(2, &add));
}

/// The same with `sum += ntohs(*(u16 *)p)`.
#[test]
fn a_loop_that_sums_up_numbers_in_network_order_has_its_rounds_done_at_once_too() {
    let add = [
        Insn::new(BPF_LDX | BPF_MEM | BPF_H, R5, R1, 0, 0),
        Insn::new(BPF_ALU | BPF_END | BPF_X, R5, 0, 0, 16),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, R0, R5, 0, 0),
    ];
    check("loop_sum_swapped", vec![], over_packet(2, &add));
}

/// `for (i = 0; i < 750; i++) { if (p + 1 > end) break; hash = hash * 31 + *p; *p++ ^= 0x5a; }`:
/// the rounds that are left to do are counted in front, and a loop without tests does them.
#[test]
fn a_loop_whose_rounds_can_be_counted_does_not_test_each() {
    let round = [
        Insn::new(BPF_LDX | BPF_MEM | BPF_B, R5, R1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MUL | BPF_K, R0, 0, 0, 31),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, R0, R5, 0, 0),
        Insn::new(BPF_ALU64 | BPF_XOR | BPF_K, R5, 0, 0, 0x5a),
        Insn::new(BPF_STX | BPF_MEM | BPF_B, R1, R5, 0, 0),
    ];
    check("loop_counted", vec![], over_packet(1, &round));
}

/// Where the rounds are counted in front, LLVM does many at once; without, it can't.
#[test]
fn llvm_does_many_counted_rounds_at_once() {
    let round = [
        Insn::new(BPF_LDX | BPF_MEM | BPF_B, R5, R1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_XOR | BPF_K, R5, 0, 0, 0x5a),
        Insn::new(BPF_STX | BPF_MEM | BPF_B, R1, R5, 0, 0),
    ];
    let verified = verified("mask", vec![], over_packet(1, &round));
    match in_process(&verified, 0x7f12_3456_0000, LlvmForm::Optimized).1 {
        Ok(text) => assert!(text.contains(" x i8>"), "{text}"),
        Err(CompileError::Llvm(why)) if is_missing(&why) => eprintln!("skipped: {why}"),
        Err(why) => panic!("{why}"),
    }
}

/// Whether LLVM refused nothing, but is not there.
fn is_missing(why: &str) -> bool {
    why.starts_with("this build is without it") || why.starts_with("no libLLVM")
}

/// `for (i = 0; i < 750; i++) { if (p + size > end) break; BODY; p += size; } return r0`
fn over_packet(size: i32, body: &[Insn]) -> Vec<Insn> {
    let mut insns = vec![
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R2, R1, 4, 0),
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R3, 0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R4, R1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R4, 0, 0, size),
        Insn::new(BPF_JMP | BPF_JGT | BPF_X, R4, R2, body.len() as i16 + 3, 0),
    ];
    insns.extend(body);
    insns.extend([
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R1, R4, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R3, 0, 0, 1),
        Insn::new(BPF_JMP | BPF_JLT | BPF_K, R3, 0, -(body.len() as i16 + 6), 750),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ]);
    insns
}

/// `counters[queue & 1023] += 64` in an arena: one look at one page, since counters are aligned.
#[test]
fn an_aligned_access_to_an_arena_looks_at_one_page() {
    let cast = Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R1, R1, 1, 1);
    let arena = MapDef { flags: 1 << 10, ..MapDef::new("arena", MapType::Arena, 0, 0, 8) };
    check(
        "arena_counter",
        vec![arena],
        vec![
            Insn::new(BPF_LD | BPF_IMM | BPF_DW, R2, PSEUDO_MAP_FD, 0, 0),
            Insn::new(0, 0, 0, 0, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R1, 16, 0),
            Insn::new(BPF_ALU64 | BPF_AND | BPF_K, R1, 0, 0, 1023),
            Insn::new(BPF_ALU64 | BPF_LSH | BPF_K, R1, 0, 0, 3),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R1, 0, 0, 0x2000_0000),
            cast,
            Insn::new(BPF_LDX | BPF_MEM | BPF_DW, R0, R1, 8, 0),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R0, 0, 0, 64),
            Insn::new(BPF_STX | BPF_MEM | BPF_DW, R1, R0, 8, 0),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ],
    );
}

/// `return *p += queue` for a pointer without a known alignment, at once, then as user space's.
#[test]
fn an_atomic_operation_in_an_arena_is_aligned_or_ends_the_run() {
    let cast = |imm| Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R1, R1, 1, imm);
    let arena = MapDef { flags: 1 << 10, ..MapDef::new("arena", MapType::Arena, 0, 0, 8) };
    check(
        "arena_atomic",
        vec![arena],
        vec![
            Insn::new(BPF_LD | BPF_IMM | BPF_DW, R2, PSEUDO_MAP_FD, 0, 0),
            Insn::new(0, 0, 0, 0, 0),
            Insn::new(BPF_LDX | BPF_MEM | BPF_W, R1, R1, 16, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R0, R1, 0, 0),
            cast(1),
            Insn::new(BPF_STX | BPF_ATOMIC | BPF_W, R1, R0, -4, BPF_FETCH),
            cast(1 << 16),
            Insn::new(BPF_ALU64 | BPF_ADD | BPF_X, R0, R1, 0, 0),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ],
    );
}

/// The least of six packet words, one compared with the next: three selects wait for each other,
/// the other two are branches, which LLVM gets as selects.
#[test]
fn long_chains_of_selects_are_cut_by_branches() {
    let word = |register, offset| Insn::new(BPF_LDX | BPF_MEM | BPF_W, register, R1, offset, 0);
    let mut insns = vec![
        word(R2, 4),
        word(R1, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R3, R1, 0, 0),
        Insn::new(BPF_ALU64 | BPF_ADD | BPF_K, R3, 0, 0, 24),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, R0, 0, 0, 1),
        Insn::new(BPF_JMP | BPF_JGT | BPF_X, R3, R2, 16, 0),
        word(R0, 0),
    ];
    for index in 1..6 {
        insns.extend([
            word(R3, 4 * index),
            Insn::new(BPF_JMP | BPF_JGT | BPF_X, R3, R0, 1, 0),
            Insn::new(BPF_ALU64 | BPF_MOV | BPF_X, R0, R3, 0, 0),
        ]);
    }
    insns.push(Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
    check("select_chain", vec![], insns.clone());
    let verified = verified("least", vec![], insns);
    match in_process(&verified, 0x7f12_3456_0000, LlvmForm::Optimized).1 {
        Ok(text) => assert!(text.contains("llvm.umin"), "{text}"),
        Err(CompileError::Llvm(why)) if is_missing(&why) => eprintln!("skipped: {why}"),
        Err(why) => panic!("{why}"),
    }
}

fn map(name: &str, kind: MapType, key_size: u32) -> MapDef {
    MapDef::new(name, kind, key_size, 8, 8)
}

fn check(name: &str, maps: Vec<MapDef>, insns: Vec<Insn>) {
    let verified = verified(name, maps, insns);
    let process = |base| in_process(&verified, base, LlvmForm::Given);
    let (first, second) = (process(0x7f12_3456_0000), process(0x7f65_4321_0000));
    let [text, again] = [first.1, second.1].map(|text| text.expect("supported"));
    assert!(text.contains("define i64 @batch("), "{text}");
    assert_eq!(text, again, "what is kept on disk is good for every process");
    compare(name, &first.0);
}

fn verified(name: &str, maps: Vec<MapDef>, insns: Vec<Insn>) -> Verified {
    let kfunc = |name: &str| KfuncRef { name: name.into(), type_id: None, weak: false };
    let linked = Linked {
        name: name.into(),
        section: "xdp".into(),
        attach: AttachType::Xdp,
        has_frags: false,
        license: "GPL".into(),
        insns,
        functions: vec![Function {
            start: 0,
            name: name.into(),
            linkage: Linkage::Global,
            type_id: None,
        }],
        lines: vec![],
        maps: maps.into(),
        unresolved: Vec::new(),
        kfuncs: NUMBERS.map(kfunc).into(),
        btf: None,
        kernel_btf: Arc::new(Btf::default()),
    };
    verifier::verify(linked, &Options::default()).expect("a correct program")
}

/// XIR, and what LLVM makes of it or gets, in a process whose maps and values begin at `base`.
fn in_process(verified: &Verified, base: u64, form: LlvmForm) -> (String, LlvmText, MapSet) {
    let set = MapSet::create(&verified.linked().maps, &SetOptions::new(1)).expect("small maps");
    let environment = Environment {
        linked: verified.linked(),
        resolver: &Addresses { base },
        maps: set.maps(),
        slots: &[],
        callees: Callees {
            helper: |_| never,
            kfunc: |_| never,
            tail_call: never,
            catch: never,
            probe: never,
            guard: never,
            direct: DIRECT,
        },
    };
    let options = Default::default();
    let module = optimized(verified, &environment, &options).expect("supported");
    let text = llvm_text(verified, &environment, &options, form);
    // The maps too: the next ones must not get the same addresses.
    (module.to_string(), text, set)
}

type LlvmText = Result<String, CompileError>;

fn compare(name: &str, found: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.xir"));
    if std::env::var_os("TOWPATH_BLESS").is_some() {
        std::fs::write(&path, found).expect("the folder is there");
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{}", path.display());
}

/// Passes compute no addresses, and neither does LLVM's form of a program.
struct Addresses {
    base: u64,
}

impl Resolver for Addresses {
    fn map(&self, index: usize) -> Option<u64> {
        Some(self.base + index as u64 * 0x100)
    }
    fn map_value(&self, index: usize, offset: u32) -> Option<u64> {
        Some(self.base + 0x1_0000 + index as u64 * 0x100 + u64::from(offset))
    }
    fn variable(&self, _type_id: u32) -> Option<u64> {
        None
    }
    fn kfunc(&self, _kfunc: &KfuncRef) -> Option<u32> {
        None
    }
}

extern "C" fn never(_: *mut Machine, _: u64, _: u64, _: u64, _: u64, _: u64) -> u64 {
    0
}

/// A function of so many arguments that does nothing.
macro_rules! none {
    ($($arg:ty),*) => {{
        extern "C" fn none($(_: $arg),*) -> u64 {
            0
        }
        none
    }};
}

const DIRECT: Direct = Direct {
    csum_diff: none!(u64, u64, u64, u64, u64),
    ktime: none!(*mut Machine),
    jiffies: none!(*mut Machine),
    random: none!(*mut Machine),
    redirect: none!(*mut Machine, u64, u64),
    redirect_map: none!(*mut Machine, u64, u64, u64),
    load_bytes: none!(*mut Machine, u64, u64, u64),
    store_bytes: none!(*mut Machine, u64, u64, u64),
    check_mtu: none!(*mut Machine, u64, u64, u64, u64),
    ring_reserve: none!(*mut Machine, u64, u64),
    ring_submit: none!(*mut Machine, u64),
    ring_discard: none!(*mut Machine, u64),
};
