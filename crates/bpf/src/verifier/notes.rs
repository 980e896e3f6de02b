//! Likely mistakes that the rules allow: reported beside the verdict, never instead of it.
//!
//! An example is a key on the stack with unwritten bytes: a privileged program may read these, and
//! the map stores their random contents, so a value under such a key is not found again.

use std::ops::Range;

use crate::program::MapDef;

use super::env::Verifier;
use super::reg::Base;
use super::rejection::Note;
use super::state::{SlotKind, kind_index, slot_index};

impl Verifier<'_> {
    /// Adds a note on a key that the call reads from the stack if some of its bytes were never
    /// written.
    pub(crate) fn note_unset_key(&mut self, regno: u8, def: &MapDef) {
        let reg = *self.reg(regno);
        let Some(off) = reg.const_offset().filter(|off| reg.is(Base::Stack) && *off < 0) else {
            return;
        };
        if self.learned.notes.iter().any(|note| note.insn.index == self.path.insn_idx) {
            return;
        }
        let is_unset = |byte: &u32| {
            let at = off + i64::from(*byte);
            let slot = self.path.cur.slot(reg.frame as usize, slot_index(at));
            slot.is_none_or(|slot| slot.kinds[kind_index(at)] == SlotKind::Invalid)
        };
        let unset: Vec<u32> = (0..def.key_size).filter(is_unset).collect();
        let Some((&first, &last)) = unset.first().zip(unset.last()) else { return };
        let what = name_bytes(def, first..last + 1);
        let message = format!(
            "nothing sets {what} of the key of map {}: the map stores whatever lay on the stack; \
             clear the key first (__builtin_memset(&key, 0, sizeof(key)))",
            def.name
        );
        if let Some(insn) = self.rejected_insn(self.path.insn_idx) {
            self.learned.notes.push(Note { insn, message });
        }
    }
}

/// Bytes of a key, by its members where BTF names them.
fn name_bytes(def: &MapDef, bytes: Range<u32>) -> String {
    let place = match bytes.len() {
        1 => format!("byte {}", bytes.start),
        _ => format!("bytes {} to {}", bytes.start, bytes.end - 1),
    };
    let Some(btf) = def.btf.as_ref().filter(|_| def.key_type != 0) else { return place };
    let (mut before, mut names) = (None, Vec::new());
    for member in btf.members(def.key_type) {
        let start = member.bit_offset / 8;
        let size = btf.size_of(member.ty).and_then(|size| u32::try_from(size).ok()).unwrap_or(0);
        if start < bytes.end && bytes.start < start.saturating_add(size) {
            names.push(&*member.name);
        } else if start.saturating_add(size) <= bytes.start {
            before = Some(&*member.name);
        }
    }
    match (names.is_empty(), before) {
        (false, _) => format!("{place} ({})", names.join(", ")),
        (true, Some(before)) => format!("{place} (padding behind {before})"),
        (true, None) => place,
    }
}
