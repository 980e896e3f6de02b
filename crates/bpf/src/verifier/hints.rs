//! Advice on a program that is refused: what is known at the place tells which mistake it was.

use crate::insn::{BPF_CALL, BPF_JMP, STACK_BYTES};

use super::env::Verifier;
use super::jump::PACKET_OFF_MAX;
use super::reg::Reg;

impl Verifier<'_> {
    /// Why `off..off + size` from a packet pointer on is not known to be in the packet.
    pub(crate) fn packet_hint(&self, reg: &Reg, off: i64, size: u32) -> String {
        let end = off.saturating_add(size.into());
        let most = reg.var.umax;
        if off < 0 {
            return "this lies in front of the pointer, and only what is behind it is ever compared \
                    with data_end: keep a pointer to where the header begins"
                .to_owned();
        }
        // `find_good_pkt_pointers` takes no notice of a comparison beyond that.
        if !reg.var.is_const() && most.saturating_add(end as u64) > PACKET_OFF_MAX as u64 {
            return format!(
                "the offset may be up to {most}, which with what is read behind it ({end}) is \
                 beyond 65,535, and comparisons with data_end don't count then: bound the offset \
                 before it is added (if (offset > 1500) return ..., or offset &= 0x7ff); in a loop \
                 bound the sum, with one index from the packet's beginning"
            );
        }
        match reg.range() {
            0 if !reg.var.is_const() => format!(
                "each sum with a variable offset is a pointer of its own, and this one was not \
                 compared: compare (this pointer + {end}) with data_end after the offset was added"
            ),
            0 => "compare (pointer + bytes) with data_end before this access, using this pointer, \
                  and again after anything that moves the packet"
                .to_owned(),
            known => format!(
                "only {known} bytes behind this pointer were compared with data_end, and this \
                 reaches to byte {end}: compare (pointer + {end})"
            ),
        }
    }

    /// Why `size` bytes at `min..max` from the frame pointer on are not all on the stack.
    pub(crate) fn stack_hint(&self, min: i64, max: i64, size: u32) -> String {
        let is_above = max > 0 && min >= -(STACK_BYTES as i64);
        if is_above && self.is_at_call() {
            let left = (-min).max(0);
            return format!(
                "the call takes {size} bytes from here on, and {left} are left below the frame \
                 pointer: the variable is smaller than the map's key or value, or than the length \
                 that is passed"
            );
        }
        let place = "the stack is the 512 bytes below the frame pointer";
        if is_above {
            return format!("{place}: this is above it, behind the end of the variable");
        }
        format!("{place}: keep the object smaller, or the index within it")
    }

    /// Why `off..off + size` is not all in a map's value of `region` bytes.
    pub(crate) fn value_hint(&self, reg: &Reg, size: u32, region: u32) -> String {
        if self.is_at_call() && size > region {
            return format!(
                "the call takes {size} bytes from here on, and this value has {region}: the key or \
                 value that the map wants is larger"
            );
        }
        if reg.var.is_const() {
            return format!("the value has {region} bytes: stay within, or make value_size larger");
        }
        "check the index against the size of the value before using it".to_owned()
    }

    fn is_at_call(&self) -> bool {
        self.insn().code == BPF_JMP | BPF_CALL
    }

    /// How much of the stack each function uses, in a chain of calls that uses too much.
    pub(crate) fn chain_hint(&self, chain: &[usize], limit: u32) -> String {
        let part = |&subprog: &usize| {
            let listed = self.subprogs[subprog].function;
            let name = listed.and_then(|index| self.prog.functions.get(index));
            let start = self.subprogs[subprog].start;
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
