//! Conversion of a loader's instructions into those that are verified: descriptors become indexes
//! of the program's maps, ids of kernel functions become names.
//!
//! Kernel counterpart: `resolve_pseudo_ldimm64`, `add_kfunc_call`, `bpf_prog_calc_tag`.

use std::sync::Arc;

use towpath_bpf::insn::{
    PSEUDO_BTF_ID, PSEUDO_FUNC, PSEUDO_MAP_FD, PSEUDO_MAP_IDX, PSEUDO_MAP_IDX_VALUE,
    PSEUDO_MAP_VALUE,
};
use towpath_bpf::map::Values;
use towpath_bpf::program::{DataSection, KfuncRef};
use towpath_bpf::{Errno, Insn, MapDef};
use towpath_maps::flags::BPF_F_RDONLY_PROG;
use towpath_maps::number;

use super::Call;
use super::log::Refusal;
use crate::attr::prog_load as field;
use crate::object::Tag;
use crate::object::map::MapObject;
use crate::sha256::{HASH_BYTES, sha256};

/// A program's instructions and what they refer to.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    /// For the verifier.
    pub(super) insns: Vec<Insn>,
    /// For display: with the ids of maps.
    pub(super) shown: Vec<Insn>,
    pub(super) maps: Vec<Arc<MapObject>>,
    pub(super) kfuncs: Vec<KfuncRef>,
}

impl Call<'_> {
    /// Resolves all references.
    pub(super) fn resolve(&self, insns: &[Insn]) -> Result<Resolved, Refusal> {
        let mut resolved = Resolved::default();
        let mut slots = insns.iter().enumerate();
        while let Some((at, &insn)) = slots.next() {
            if insn.is_kfunc_call() {
                let call = self.resolve_kfunc(insn, &mut resolved)?;
                resolved.push(call, insn);
                continue;
            }
            if !insn.is_ld_imm64() {
                resolved.push(insn, insn);
                continue;
            }
            let second = slots.next().map(|(_, second)| *second);
            let second = second.filter(|second| Insn { imm: 0, ..*second } == Insn::default());
            let second =
                second.ok_or_else(|| refuse(at, Errno::EINVAL, "invalid bpf_ld_imm64 insn"))?;
            let (first, shown) = match insn.src {
                0 | PSEUDO_BTF_ID | PSEUDO_FUNC => (insn, insn),
                _ => self.resolve_map(at, insn, second, &mut resolved)?,
            };
            resolved.push(first, shown);
            resolved.push(second, second);
        }
        Ok(resolved)
    }

    /// The load of a map, or of an address in its value.
    fn resolve_map(
        &self,
        at: usize,
        insn: Insn,
        second: Insn,
        resolved: &mut Resolved,
    ) -> Result<(Insn, Insn), Refusal> {
        let to_value = matches!(insn.src, PSEUDO_MAP_VALUE | PSEUDO_MAP_IDX_VALUE);
        let to_map = matches!(insn.src, PSEUDO_MAP_FD | PSEUDO_MAP_IDX) && second.imm == 0;
        if !to_value && !to_map {
            return Err(refuse(at, Errno::EINVAL, "unrecognized bpf_ld_imm64 insn"));
        }
        let by_index = matches!(insn.src, PSEUDO_MAP_IDX | PSEUDO_MAP_IDX_VALUE);
        let descriptor = if by_index { self.array_entry(at, insn.imm)? } else { insn.imm as u32 };
        let handle = self.caller.handle(descriptor);
        let handle = handle.and_then(|handle| handle.map().cloned()).map_err(|errno| {
            let text = format!("fd {descriptor} is not pointing to valid bpf_map\n");
            Refusal::new(errno, text)
        })?;
        let map = handle.object();
        if to_value {
            check_direct_value(map, second.imm as u32).map_err(|errno| {
                refuse(at, errno, "no direct value access support for this map")
            })?;
        }
        let index = resolved.index_of(map)?;
        let src = if to_value { PSEUDO_MAP_VALUE } else { PSEUDO_MAP_FD };
        Ok((Insn { src, imm: index, ..insn }, Insn { src, imm: map.id() as i32, ..insn }))
    }

    /// A descriptor out of `fd_array`.
    fn array_entry(&self, at: usize, index: i32) -> Result<u32, Refusal> {
        let array = self.u64(field::FD_ARRAY);
        if array == 0 {
            return Err(refuse(at, Errno::EPROTO, "fd_idx without fd_array is invalid"));
        }
        let mut descriptor = [0; 4];
        self.caller.read(array.wrapping_add(i64::from(index) as u64 * 4), &mut descriptor)?;
        Ok(u32::from_ne_bytes(descriptor))
    }

    /// The call of a kernel function by its BTF id; those of modules are not known here.
    fn resolve_kfunc(&self, insn: Insn, resolved: &mut Resolved) -> Result<Insn, Refusal> {
        let id = u32::try_from(insn.imm).ok().filter(|_| insn.off == 0);
        let Some(name) = id.and_then(|id| self.objects.kfunc_name(id)) else {
            let text = format!("kernel btf_id {} is not a function\n", insn.imm);
            return Err(Refusal::new(Errno::EINVAL, text));
        };
        let known = resolved.kfuncs.iter().position(|kfunc| kfunc.name == name);
        let index = known.unwrap_or_else(|| {
            let kfunc = KfuncRef { name: name.to_string(), type_id: None, weak: false };
            resolved.kfuncs.push(kfunc);
            resolved.kfuncs.len() - 1
        });
        Ok(Insn { imm: index as i32, ..insn })
    }
}

impl Resolved {
    fn push(&mut self, insn: Insn, shown: Insn) {
        self.insns.push(insn);
        self.shown.push(shown);
    }

    fn index_of(&mut self, map: &Arc<MapObject>) -> Result<i32, Refusal> {
        if let Some(index) = self.maps.iter().position(|known| Arc::ptr_eq(known, map)) {
            return Ok(index as i32);
        }
        if self.maps.len() == MAPS_MAX {
            let text = format!("The total number of maps per program has reached {MAPS_MAX}\n");
            return Err(Refusal::new(Errno::E2BIG, text));
        }
        self.maps.push(Arc::clone(map));
        Ok(self.maps.len() as i32 - 1)
    }

    /// Definitions of the maps for the verifier: contents that can't change any more are constants
    /// (`bpf_map_is_rdonly`).
    pub(super) fn definitions(&self) -> Vec<MapDef> {
        let define = |map: &Arc<MapObject>| {
            let mut def = map.map().def().clone();
            let constant = map.map().is_frozen() && def.flags & BPF_F_RDONLY_PROG != 0;
            if constant && def.kind.is_array() && def.max_entries == 1 {
                let value = map.map().user().lookup(&0u32.to_ne_bytes(), 0);
                def.initial = value.ok().map(|value| value.bytes().to_vec());
                def.section = Some(DataSection::Rodata);
            }
            def
        };
        self.maps.iter().map(define).collect()
    }
}

/// `map_direct_value_addr`
fn check_direct_value(map: &MapObject, offset: u32) -> Result<(), Errno> {
    let def = map.map().def();
    match def.kind.values() {
        Values::Bytes if !def.kind.is_array() => Err(Errno::EINVAL),
        Values::Bytes if def.max_entries != 1 => Err(Errno::ENOTSUPP),
        Values::Bytes if offset < def.value_size && offset < OFFSET_END => Ok(()),
        Values::Pages => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

fn refuse(at: usize, errno: Errno, what: &str) -> Refusal {
    Refusal::new(errno, format!("insn {at}: {what}\n"))
}

/// The hash of a program: where it has descriptors of maps, zeroes count.
pub(super) fn digest(insns: &[Insn]) -> [u8; HASH_BYTES] {
    let mut bytes = Vec::with_capacity(insns.len() * 8);
    let mut after_map = false;
    for insn in insns {
        let of_map = insn.is_ld_imm64() && matches!(insn.src, PSEUDO_MAP_FD | PSEUDO_MAP_VALUE);
        let is_second = after_map && Insn { imm: 0, ..*insn } == Insn::default();
        let starts = !after_map && of_map;
        let insn = if starts || is_second { Insn { imm: 0, ..*insn } } else { *insn };
        bytes.extend(insn.to_le_bytes());
        after_map = starts;
    }
    sha256(&bytes)
}

impl Tag {
    /// The tag of a program (`bpf_prog_calc_tag`).
    pub fn of(insns: &[Insn]) -> Tag {
        Tag::from_digest(&digest(insns))
    }

    /// The part of a digest that names a program.
    pub(super) fn from_digest(digest: &[u8; HASH_BYTES]) -> Tag {
        let mut tag = [0; 8];
        tag.copy_from_slice(&digest[..8]);
        Tag(tag)
    }
}

/// The descriptors that `fd_array` lists are those of maps (or of BTF), and all are kept.
impl Call<'_> {
    /// `process_fd_array`: the maps of a `fd_array` that has a length.
    pub(super) fn listed_maps(&self, resolved: &mut Resolved) -> Result<(), Refusal> {
        let count = self.u32(field::FD_ARRAY_CNT) as usize;
        if count > MAPS_MAX {
            return Err(Errno::E2BIG.into());
        }
        let mut bytes = vec![0; count * 4];
        self.caller.read(self.u64(field::FD_ARRAY), &mut bytes)?;
        for descriptor in bytes.as_chunks::<4>().0 {
            let handle = self.caller.handle(number(descriptor))?;
            if handle.btf().is_ok() {
                continue;
            }
            let map = handle.map()?;
            resolved.index_of(map.object())?;
        }
        Ok(())
    }
}

/// Most maps of a program (`MAX_USED_MAPS`).
const MAPS_MAX: usize = 64;
/// `BPF_MAX_VAR_OFF`
const OFFSET_END: u32 = 1 << 29;
