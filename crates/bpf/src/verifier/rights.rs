//! Limits on a program whose loader lacks `CAP_PERFMON`: it must not learn an address or read
//! unwritten memory (`allow_ptr_leaks`, `allow_uninit_stack`).
//!
//! Each rule is the kernel's, with its words; `docs/verifier.md` lists them.

use crate::errno::Errno;
use crate::insn::{BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JLE, BPF_JLT, BPF_JNE, Insn};
use crate::map::Values;

use super::env::{Access, Result, Verifier};
use super::reg::{Base, Flags, Reg, Void};
use super::rejection::Rejection;

impl Verifier<'_> {
    /// Whether the register holds an address that the program must not learn (`is_pointer_value`).
    pub(crate) fn is_secret(&self, reg: &Reg) -> bool {
        !self.input.options.allow_ptr_leaks && !reg.is_scalar()
    }

    /// Fails if the address in a register may not be written to `into`.
    pub(crate) fn forbid_leak(&self, regno: u8, into: &str) -> Result<()> {
        if !self.is_secret(self.reg(regno)) {
            return Ok(());
        }
        let message = format!("R{regno} leaks addr {into}");
        Err(self.reject_hint(Errno::EACCES, message, LEAK_HINT))
    }

    /// As [`Verifier::forbid_leak`], for the value of a store.
    pub(crate) fn forbid_stored_leak(
        &self,
        access: Access,
        value_regno: Option<u8>,
        into: &str,
    ) -> Result<()> {
        match value_regno.filter(|_| access == Access::Write) {
            Some(regno) => self.forbid_leak(regno, into),
            None => Ok(()),
        }
    }

    /// Arenas that instructions name, also in unreachable code (`resolve_pseudo_ldimm64`).
    fn arenas(&self) -> impl Iterator<Item = i32> {
        let is_arena = |map: i32| {
            let map = usize::try_from(map).ok().and_then(|map| self.input.prog.maps.get(map));
            map.is_some_and(|map| map.kind.values() == Values::Pages)
        };
        let named =
            self.input.prog.insns.iter().filter(|insn| insn.names_map()).map(|insn| insn.imm);
        named.filter(move |map| is_arena(*map))
    }

    pub(crate) fn has_arena(&self) -> bool {
        self.arenas().next().is_some()
    }

    /// Checks that a program that may sleep names only maps that such programs can use
    /// (`check_map_prog_compatibility`).
    fn check_sleepable_maps(&self) -> Result<()> {
        let named = self.input.prog.insns.iter().filter(|insn| insn.names_map());
        let mut kinds = named.filter_map(|insn| {
            let map = usize::try_from(insn.imm).ok()?;
            Some(self.input.prog.maps.get(map)?.kind)
        });
        match kinds.find(|kind| !kind.spec().sleepable) {
            Some(kind) if self.may_sleep() => {
                let message = "Sleepable programs can only use array, hash, ringbuf and local \
                               storage maps";
                let hint = format!("it names a map of kind {}", kind.name());
                Err(self.rejection_at(None, Errno::EINVAL, message.to_owned(), &hint))
            }
            _ => Ok(()),
        }
    }

    /// Checks the whole program: it names at most one arena, and only if it may read addresses.
    pub(crate) fn check_rights(&self) -> Result<()> {
        self.check_sleepable_maps()?;
        let mut arenas = self.arenas();
        let Some(arena) = arenas.next() else { return Ok(()) };
        if !self.input.options.allow_ptr_leaks {
            let message = "CAP_BPF and CAP_PERFMON are required to use arena".to_owned();
            return Err(self.rejection_at(None, Errno::EPERM, message, ""));
        }
        if arenas.any(|other| other != arena) {
            let message = "Only one arena per program".to_owned();
            return Err(self.rejection_at(None, Errno::EBUSY, message, ""));
        }
        Ok(())
    }

    /// Fails if the program may not look into structures of the kernel and objects.
    pub(crate) fn forbid_struct(&self, name: &str) -> Result<()> {
        if self.input.options.allow_ptr_leaks {
            return Ok(());
        }
        let message =
            format!("'struct {name}' access is allowed only to CAP_PERFMON and CAP_SYS_ADMIN");
        Err(self.reject(Errno::EPERM, message))
    }

    /// Fails if part of a pointer would become a known number.
    pub(crate) fn forbid_part(&self, regno: u8, what: &str) -> Result<()> {
        if !self.is_secret(self.reg(regno)) {
            return Ok(());
        }
        Err(self.reject_hint(Errno::EACCES, format!("R{regno} {what}"), LEAK_HINT))
    }

    /// Checks an argument that the kfunc reads without a check (`__ign`): no address may be there.
    /// Linux 6.18 takes any address.
    pub(crate) fn check_unchecked_address(&self, regno: u8, name: &str) -> Result<()> {
        let reg = self.reg(regno);
        let is_read = !matches!(name, "meta__ign" | "ctx__ign");
        let is_plain = matches!(
            reg.base(),
            Base::MapValue | Base::MapKey | Base::Packet | Base::PacketMeta | Base::Mem
        );
        let is_known = is_plain && !reg.has(Flags::UNTRUSTED);
        if self.input.options.allow_ptr_leaks || !is_read || is_known {
            return Ok(());
        }
        let message = format!("R{regno} is an address at which nothing may be read");
        let hint = "without CAP_PERFMON such functions read map values, keys, records and the \
                    packet, not the stack";
        Err(self.reject_hint(Errno::EACCES, message, hint))
    }

    /// Whether both are pointers to one packet, whose distance and order may be known: they reveal
    /// no address.
    pub(crate) fn are_of_packet(&self, dst: &Reg, src: &Reg) -> bool {
        self.input.options.packet_distances
            && dst.is_packet_any()
            && src.is_packet_any()
            && dst.ref_id == src.ref_id
    }

    /// Checks a pointer on the right side of a comparison.
    pub(crate) fn check_compared_source(&self, insn: &Insn, dst: &Reg, src: &Reg) -> Result<()> {
        let is_packet = dst.is_packet_any() && src.is_packet_any();
        if !insn.is_reg_operand() || is_packet || !self.is_secret(src) {
            return Ok(());
        }
        Err(self.prohibited_comparison(insn.src))
    }

    /// Checks a pointer on the left side of a comparison of unknown outcome: with null, or the
    /// packet's end.
    pub(crate) fn check_compared(
        &self,
        insn: &Insn,
        dst: &Reg,
        src: &Reg,
        is32: bool,
    ) -> Result<()> {
        if !self.is_secret(dst) {
            return Ok(());
        }
        let is_null_check = !insn.is_reg_operand()
            && insn.imm == 0
            && matches!(insn.op(), BPF_JEQ | BPF_JNE)
            && dst.maybe_null();
        let is_order = matches!(insn.op(), BPF_JGT | BPF_JLT | BPF_JGE | BPF_JLE);
        let is_bound = insn.is_reg_operand()
            && is_order
            && (super::jump::is_region(dst, src) || super::jump::is_region(src, dst));
        let is_distance = insn.is_reg_operand() && self.are_of_packet(dst, src);
        if !is32 && (is_null_check || is_bound || is_distance) {
            return Ok(());
        }
        Err(self.prohibited_comparison(insn.dst))
    }

    fn prohibited_comparison(&self, regno: u8) -> Box<Rejection> {
        let hint = "without CAP_PERFMON a pointer is compared with NULL where it may be NULL, and \
                    a packet pointer with data_end, and with nothing else";
        self.reject_hint(Errno::EACCES, format!("R{regno} pointer comparison prohibited"), hint)
    }

    /// Invalidates every register that matches: it becomes an unknown number, if it may be known
    /// (`mark_reg_invalid`).
    pub(crate) fn invalidate_regs(&mut self, matches: impl Fn(&Reg) -> bool) {
        let (useless, by) = (self.useless(), Some(self.path.insn_idx));
        for reg in self.path.cur.all_regs_mut().filter(|reg| matches(reg)) {
            let of_packet = reg.is_packet_any() || reg.has(Flags::PACKET_SLICE);
            *reg = Reg { void: Void { by, of_packet }, ..useless };
        }
    }

    /// Value of a pointer whose object is gone.
    pub(crate) fn useless(&self) -> Reg {
        if self.input.options.allow_ptr_leaks { Reg::UNKNOWN } else { Reg::NOT_INIT }
    }
}

const LEAK_HINT: &str = "it is an address, which a program without CAP_PERFMON (a guest's) may use \
                         but not make a number of";
