//! Memory that calls read and write: sizes, keys, constant strings.

use crate::errno::Errno;
use crate::map::Shape;
use crate::program::MapDef;

use super::super::env::{Access, Result, Verifier};
use super::super::reg::{Base, Flags, Reg};
use super::super::state::{SLOT_BYTES, SlotKind, slot_index};
use super::meta::CallMeta;

/// `BPF_MAX_VAR_SIZ`: larger sizes count as unbounded.
pub(super) const VARIABLE_SIZE_MAX: u64 = 1 << 29;

impl Verifier<'_> {
    /// Checks an access of the call to `size` bytes at a register. With `raw` the call fills them,
    /// so that the stack need not be initialised before; they are data afterwards.
    pub(super) fn check_call_memory(
        &mut self,
        regno: u8,
        size: u32,
        access: Access,
        zero_size_allowed: bool,
        raw: bool,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let reg = *self.reg(regno);
        // With a variable offset the filled slots would be unknown.
        let raw = raw && reg.is(Base::Stack) && reg.var.is_const();
        self.check_helper_mem_access(regno, size, access, zero_size_allowed, raw)?;
        if raw {
            meta.raw = Some((regno, size));
        }
        Ok(())
    }

    /// Checks a size argument, and with it the memory argument before it (`check_mem_size_reg`).
    pub(super) fn check_mem_size(
        &mut self,
        regno: u8,
        access: Access,
        zero_size_allowed: bool,
        meta: &mut CallMeta,
    ) -> Result<()> {
        let size = *self.reg(regno);
        meta.size_max = size.var.umax;
        // With a variable size only a part may be filled: all must be initialised.
        let raw = meta.raw_mode && size.var.is_const();
        if size.var.smin < 0 {
            let message =
                format!("R{regno} min value is negative, either use unsigned or 'var &= const'");
            return Err(self.reject_hint(Errno::EACCES, message, BOUND_HINT));
        }
        if size.var.umin == 0 && !zero_size_allowed {
            let message = format!(
                "R{regno} invalid zero-sized read: u64=[{},{}]",
                size.var.umin, size.var.umax
            );
            return Err(self.reject_hint(
                Errno::EACCES,
                message,
                "the size may not be 0: mask it first, then check (len &= 63; if (!len) return ...): a compiler \
                 makes one comparison of two, which bounds it on one side only",
            ));
        }
        if size.var.umax >= VARIABLE_SIZE_MAX {
            let message = format!(
                "R{regno} unbounded memory access, use 'var &= const' or 'if (var < const)'"
            );
            return Err(self.reject_hint(Errno::EACCES, message, BOUND_HINT));
        }
        let bytes = size.var.umax as u32;
        self.check_call_memory(regno - 1, bytes, access, zero_size_allowed, raw, meta)?;
        self.mark_chain_precision(regno)
    }

    /// Checks memory and size of a kfunc, which may read and write it; the pointer may be null if
    /// that was checked (`check_kfunc_mem_size_reg`).
    pub(super) fn check_kfunc_mem_size(&mut self, regno: u8, meta: &mut CallMeta) -> Result<()> {
        self.with_not_null(regno - 1, |v| {
            v.check_mem_size(regno, Access::Read, true, meta)?;
            v.check_mem_size(regno, Access::Write, true, meta)
        })
    }

    /// Checks memory of a fixed size that a kfunc reads and writes (`check_mem_reg`).
    pub(crate) fn check_mem_reg(&mut self, regno: u8, size: u32) -> Result<()> {
        if self.reg(regno).is_null_const() {
            return Ok(());
        }
        self.with_not_null(regno, |v| {
            v.check_helper_mem_access(regno, size, Access::Read, true, false)?;
            v.check_helper_mem_access(regno, size, Access::Write, true, false)
        })
    }

    /// Runs a check as if a register were known not to be null.
    fn with_not_null(
        &mut self,
        regno: u8,
        check: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let saved = *self.reg(regno);
        if saved.maybe_null() {
            let reg = self.reg_mut(regno);
            reg.kind.flags = reg.kind.flags.without(Flags::MAYBE_NULL);
        }
        let result = check(self);
        if saved.maybe_null() {
            *self.reg_mut(regno) = saved;
        }
        result
    }

    /// Marks memory that the call filled as data.
    pub(super) fn mark_raw_memory(&mut self, meta: &CallMeta) -> Result<()> {
        let Some((regno, size)) = meta.raw else { return Ok(()) };
        for off in 0..size {
            self.check_mem_access(regno, off as i32, 1, Access::Write, None, false)?;
        }
        Ok(())
    }

    /// The definition of the map argument.
    pub(super) fn meta_map(&self, meta: &CallMeta) -> Result<&MapDef> {
        let def = meta.map.and_then(|(map, _)| self.map_def(map));
        def.ok_or_else(|| self.reject(Errno::EACCES, "invalid map_ptr to access map->key"))
    }

    /// Checks a key argument, and records its value if that is constant (`ARG_PTR_TO_MAP_KEY`).
    pub(super) fn check_map_key(&mut self, regno: u8, meta: &mut CallMeta) -> Result<()> {
        let def = self.meta_map(meta)?;
        let (size, kind) = (def.key_size, def.kind);
        self.check_helper_mem_access(regno, size, Access::Read, false, false)?;
        if let Some(def) = meta.map.and_then(|(map, _)| self.map_def(map)) {
            self.note_unset_key(regno, def);
        }
        meta.const_key = None;
        if kind.spec().shape == Shape::Array {
            meta.const_key = self.constant_key(regno, size)?;
        }
        Ok(())
    }

    /// The constant that the stack holds at a register, if one store wrote all of it
    /// (`get_constant_map_key`).
    fn constant_key(&mut self, regno: u8, size: u32) -> Result<Option<u64>> {
        let reg = *self.reg(regno);
        let Some(off) = reg.const_offset().filter(|off| reg.is(Base::Stack) && *off < 0) else {
            return Ok(None);
        };
        let frame = reg.frame as usize;
        let spi = slot_index(off);
        let byte = ((-off - 1) % 8) as usize;
        let Some(slot) = self.path.cur.slot(frame, spi).copied() else { return Ok(None) };
        let same = |kind| slot.kinds[..=byte].iter().rev().take_while(|k| **k == kind).count();
        if same(SlotKind::Zero) >= size as usize {
            return Ok(Some(0));
        }
        if !slot.is_scalar_spill() || same(SlotKind::Spill) != size as usize {
            return Ok(None);
        }
        let Some(value) = slot.reg.const_value() else { return Ok(None) };
        // The value decides whether the result may be null.
        self.mark_slot_precise(frame, spi);
        // The key may be the upper half of the slot.
        Ok(Some(value >> (8 * (SLOT_BYTES - 1 - byte))))
    }

    /// The text of a constant string argument, without its zero (`check_reg_const_str`).
    pub(super) fn const_str(&self, regno: u8) -> Result<Vec<u8>> {
        let reg = self.reg(regno);
        let Some(bytes) = self.read_only_bytes(reg) else {
            let message = format!("R{regno} does not point to a readonly map'");
            return Err(self.reject_hint(
                Errno::EACCES,
                message,
                "the string must be a constant: `static const char text[] = \"...\"`",
            ));
        };
        let Some(off) = reg.const_offset() else {
            let message = format!("R{regno} is not a constant address'");
            return Err(self.reject(Errno::EACCES, message));
        };
        let rest = usize::try_from(off).ok().and_then(|off| bytes.get(off..)).unwrap_or(&[]);
        match rest.iter().position(|byte| *byte == 0) {
            Some(end) => Ok(rest[..end].to_vec()),
            None => Err(self.reject(Errno::EINVAL, "string is not zero-terminated")),
        }
    }

    /// Contents of the frozen read-only map that a register points into.
    fn read_only_bytes(&self, reg: &Reg) -> Option<&[u8]> {
        let def = self.map_of(reg)?;
        if def.is_constant() { def.initial.as_deref() } else { None }
    }
}

const BOUND_HINT: &str = "bound the size before the call so that both bounds stay known: a mask \
                          (len &= 63; if (!len) return ...), of a number of 64 bits (__u64 len)";
