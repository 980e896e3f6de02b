//! Advice on a refused program: the state at the place reveals the likely mistake.

use crate::insn::{BPF_CALL, BPF_JMP, STACK_BYTES};
use crate::proto;

use super::env::Verifier;
use super::jump::PACKET_OFF_MAX;
use super::reg::{Base, Reg};

impl Verifier<'_> {
    /// Reason why `off..off + size` from a packet pointer is not known to be inside the packet.
    pub(crate) fn packet_hint(&self, regno: u8, off: i64, size: u32) -> String {
        let reg = self.reg(regno);
        let end = off.saturating_add(size.into());
        let most = reg.var.umax;
        if off < 0 {
            return "this lies in front of the pointer, and only what is behind it is ever compared \
                    with data_end: keep a pointer to where the header begins"
                .to_owned();
        }
        // `find_good_pkt_pointers` ignores a comparison beyond that offset.
        if most.saturating_add(end as u64) > PACKET_OFF_MAX as u64 {
            return beyond_hint(reg.var.is_const(), most, end);
        }
        let known = reg.range();
        if known == 0 {
            return self.uncompared_hint(reg);
        }
        if let Some(part) = self.map_part(regno, size) {
            let left = (i64::from(known) - off).max(0);
            return format!(
                "{part}, and only {left} from here on were compared with data_end: what is less of \
                 the packet than a whole key or value is copied into a variable of the map's type \
                 first"
            );
        }
        if reg.var.is_const() {
            let base = if reg.is(Base::PacketMeta) { "data_meta" } else { "data" };
            return format!(
                "only {known} bytes from {base} on were compared with data_end, and this reaches to \
                 byte {end}: compare ({base} + {end})"
            );
        }
        format!(
            "what was compared with data_end ends {} bytes before the end of what is read here: \
             compare that end, such as (void *)(header + 1), after the offset was added",
            end - i64::from(known)
        )
    }

    /// Hint for a pointer that was never compared.
    fn uncompared_hint(&self, reg: &Reg) -> String {
        if !reg.var.is_const() {
            return "each sum with a variable offset is a pointer of its own, and this one was not \
                    compared: compare the end of what is read here, such as (void *)(header + 1), \
                    with data_end after the offset was added"
                .to_owned();
        }
        let is_beyond = |it: &Reg| it.is_packet() && it.id == reg.id && it.range() < 0;
        if self.path.cur.frame().regs.iter().any(is_beyond) {
            return "on this path the packet ends before what was compared with data_end: the \
                    comparison is the wrong way round, or this belongs into its other branch"
                .to_owned();
        }
        let distance = self.learned.distance_at.map_or_else(String::new, |at| {
            format!(
                "; what was computed {} is a number, and to compare that proves nothing",
                self.place(at)
            )
        });
        format!(
            "compare (pointer + bytes) with data_end before this access, using this pointer, and \
             again after anything that moves the packet{distance}"
        )
    }

    /// Reason why `size` bytes at `min..max` from the frame pointer are not all on the stack.
    pub(crate) fn stack_hint(&self, regno: u8, (min, max): (i64, i64), size: u32) -> String {
        let is_above = max > 0 && min >= -(STACK_BYTES as i64);
        let is_fixed = min + i64::from(size) == max;
        if is_above && is_fixed && self.is_at_call() {
            let left = (-min).max(0);
            return match self.map_part(regno, size) {
                Some(part) => format!(
                    "{part}, and {left} are left from here to the end of the stack: the variable is \
                     smaller than the map's key or value, whose type it is to have"
                ),
                None => format!(
                    "the call takes {size} bytes from here on, and {left} are left to the end of \
                     the stack: the variable is smaller than the length that is passed"
                ),
            };
        }
        let place = "the stack is the 512 bytes below the frame pointer";
        if is_above && !is_fixed {
            return format!(
                "{place}: with the largest index that is possible this ends {max} bytes above it, \
                 behind the end of the variable"
            );
        }
        if is_above {
            return format!("{place}: this is above it, behind the end of the variable");
        }
        format!("{place}: keep the object smaller, or the index within it")
    }

    /// Reason why `off..off + size` is not all in a map's value of `region` bytes; for a variable
    /// index, `off` has the largest possible one.
    pub(crate) fn value_hint(&self, regno: u8, off: i64, size: u32, region: u32) -> String {
        let left = (i64::from(region) - off).max(0);
        match self.map_part(regno, size) {
            Some(part) => {
                return format!(
                    "{part}, and {left} are left in the value that is passed: it is to be of the \
                     type of the map's key or value"
                );
            }
            None if self.is_at_call() && size > region => {
                return format!(
                    "the call takes {size} bytes from here on, and this value has {region}"
                );
            }
            None => {}
        }
        if self.reg(regno).var.is_const() {
            return format!("the value has {region} bytes: stay within, or make value_size larger");
        }
        format!(
            "the value has {region} bytes, and with the largest index that is possible this reaches \
             to byte {}: compare the index with the number of elements (index >= number) before it \
             is used",
            off.saturating_add(size.into())
        )
    }

    /// Text like `keys of map flows have 8 bytes`, if a call reads `size` bytes as a key or value.
    fn map_part(&self, regno: u8, size: u32) -> Option<String> {
        let first = self.reg(1);
        let map =
            self.map_of(first).filter(|_| self.is_at_call() && first.is(Base::ConstMapPtr))?;
        let part = match regno {
            2 if size == map.key_size => "keys",
            2 | 3 if size == map.value_size => "values",
            _ => return None,
        };
        Some(format!("{part} of map {} have {size} bytes", map.name))
    }

    /// Hint for a register that held a pointer until a call made it invalid.
    pub(crate) fn void_hint(&self, reg: &Reg) -> Option<String> {
        let call = self.call_at(reg.void.by?);
        Some(match reg.void.of_packet {
            true => format!(
                "{call} may have moved the packet or its end, and no pointer into it from before is \
                 valid any more: read ctx->data and ctx->data_end again after it, and compare again"
            ),
            false => format!("what this pointed to was given back by {call}: use it before that"),
        })
    }

    /// Hint with the call whose result is still held at the program's end, and the function that
    /// releases it.
    pub(crate) fn kept_hint(&self, acquired_at: usize) -> String {
        let call = self.call_at(acquired_at);
        let name = call.split('(').next().unwrap_or_default();
        let release = RELEASES.iter().find(|(names, _)| names.contains(&name));
        match release {
            Some((_, release)) => format!(
                "what {call} gave is still held here: {release} is missing on the way to this place"
            ),
            None => format!(
                "what {call} gave must be released (or submitted, discarded, stored) on every path"
            ),
        }
    }

    /// Text like `bpf_xdp_adjust_head() in line 12`.
    pub(crate) fn call_at(&self, idx: usize) -> String {
        let insn = self.insn_at(idx);
        let number = insn.imm.cast_unsigned();
        let name = match insn {
            _ if insn.is_kfunc_call() => {
                self.input.prog.kfuncs.get(number as usize).map(|called| called.name.as_str())
            }
            _ if insn.is_helper_call() => proto::helper_name(number),
            _ => None,
        };
        match name {
            Some(name) => format!("{name}() {}", self.place(idx)),
            None => format!("the call {}", self.place(idx)),
        }
    }

    /// Text like `in line 12`, or the instruction if lines are not known.
    fn place(&self, idx: usize) -> String {
        match self.input.prog.line_of(idx) {
            Some(line) => format!("in line {}", line.line),
            None => format!("at instruction {idx}"),
        }
    }

    fn is_at_call(&self) -> bool {
        self.insn().code == BPF_JMP | BPF_CALL
    }

    /// Stack use of each function in a chain of calls that uses too much.
    pub(crate) fn chain_hint(&self, chain: &[usize], limit: u32) -> String {
        let part = |&subprog: &usize| {
            let listed = self.learned.subprogs[subprog].function;
            let name = listed.and_then(|index| self.input.prog.functions.get(index));
            let start = self.learned.subprogs[subprog].start;
            let name = name.map_or_else(|| format!("function at {start}"), |it| it.name.clone());
            format!("{name} {}", self.frame_bytes(subprog))
        };
        let parts = chain.iter().map(part).collect::<Vec<_>>().join(" + ");
        format!(
            "{parts} bytes, and functions that call one another have {limit} together: keep what is \
             large in a map's value (a per-CPU array of one), or call less deep"
        )
    }
}

/// Hint for an access whose end is beyond the limit of comparisons.
fn beyond_hint(is_const: bool, most: u64, end: i64) -> String {
    if is_const {
        return format!(
            "this reaches to byte {end} of the packet, and comparisons with data_end count for the \
             first 65,535 only: no access may be beyond"
        );
    }
    format!(
        "the offset may be up to {most}, which with what is read behind it ({end}) is beyond 65,535, \
         and comparisons with data_end don't count then: bound the offset before it is added (if \
         (offset > 1500) return ..., or offset &= 0x7ff); in a loop bound the sum, with one index \
         from the packet's beginning"
    )
}

/// Functions whose results must be released, and the functions that release them.
const RELEASES: &[(&[&str], &str)] = &[
    (&["bpf_ringbuf_reserve"], "bpf_ringbuf_submit() or bpf_ringbuf_discard()"),
    (
        &["bpf_ringbuf_reserve_dynptr"],
        "bpf_ringbuf_submit_dynptr() or bpf_ringbuf_discard_dynptr()",
    ),
    (&["bpf_sk_lookup_tcp", "bpf_sk_lookup_udp", "bpf_skc_lookup_tcp"], "bpf_sk_release()"),
    (&["bpf_xdp_ct_lookup", "bpf_ct_insert_entry"], "bpf_ct_release()"),
    (&["bpf_xdp_ct_alloc"], "bpf_ct_insert_entry(), and then bpf_ct_release(),"),
    (
        &["bpf_obj_new_impl", "bpf_refcount_acquire_impl"],
        "bpf_obj_drop(), or a list or tree that takes it,",
    ),
    (&["bpf_iter_num_new"], "bpf_iter_num_destroy()"),
    (&["bpf_iter_bits_new"], "bpf_iter_bits_destroy()"),
];
