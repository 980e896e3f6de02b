//! A linked program in the form for `BPF_PROG_LOAD`: bytes, with the kernel's own ids.

use std::os::fd::AsFd as _;

use towpath_bpf::btf::emit::{Emitter, func_info, line_info};
use towpath_bpf::insn::{PSEUDO_BTF_ID, PSEUDO_MAP_FD, PSEUDO_MAP_VALUE};
use towpath_bpf::{Insn, Linked};

use crate::map::MapSet;
use crate::program::LoadError;
use crate::sys_unsafe::number;
use crate::types::KernelTypes;

/// All parts of a program that the kernel reads through a pointer.
#[derive(Debug, Default)]
pub(crate) struct Image {
    pub(crate) insns: Vec<u8>,
    /// The licence with its terminating zero.
    pub(crate) license: Vec<u8>,
    /// A BTF blob; empty if the program has no types.
    pub(crate) btf: Vec<u8>,
    /// `struct bpf_func_info` records, which callbacks and global functions need.
    pub(crate) func_info: Vec<u8>,
    /// `struct bpf_line_info` records.
    pub(crate) line_info: Vec<u8>,
}

impl Image {
    pub(crate) fn new(
        linked: &Linked,
        maps: &MapSet,
        types: &KernelTypes,
    ) -> Result<Self, LoadError> {
        let mut image = Image {
            insns: instructions(linked, maps, types)?,
            license: linked.license.bytes().filter(|&byte| byte != 0).chain([0]).collect(),
            ..Image::default()
        };
        if let Some(btf) = &linked.btf {
            let mut emitter = Emitter::new(btf);
            image.func_info = func_info(linked);
            if !image.func_info.is_empty() {
                image.line_info = line_info(linked, &mut emitter);
            }
            image.btf = emitter.finish();
        }
        Ok(image)
    }
}

fn instructions(linked: &Linked, maps: &MapSet, types: &KernelTypes) -> Result<Vec<u8>, LoadError> {
    let mut bytes = Vec::with_capacity(linked.insns.len() * 8);
    let mut second_slot = false;
    for (at, &insn) in linked.insns.iter().enumerate() {
        let insn = if second_slot { insn } else { translate(insn, at, linked, maps, types)? };
        second_slot = !second_slot && insn.is_ld_imm64();
        bytes.extend_from_slice(&insn.to_le_bytes());
    }
    Ok(bytes)
}

fn translate(
    insn: Insn,
    at: usize,
    linked: &Linked,
    maps: &MapSet,
    types: &KernelTypes,
) -> Result<Insn, LoadError> {
    if insn.names_map() {
        let map = usize::try_from(insn.imm).ok().and_then(|index| maps.maps().get(index));
        let map = map.ok_or(LoadError::NoSuchMap { insn: at, index: insn.imm })?;
        let src = if insn.is_map_ref() { PSEUDO_MAP_FD } else { PSEUDO_MAP_VALUE };
        return Ok(Insn { src, imm: number(map.as_fd()) as i32, ..insn });
    }
    if insn.is_ld_imm64() && insn.src == PSEUDO_BTF_ID {
        let name = linked.kernel_btf.get(insn.imm as u32).map(|ty| &*ty.name);
        return Ok(match name.and_then(|name| types.symbol(name)) {
            Some(id) => Insn { imm: id as i32, ..insn },
            // A weak kfunc that only Towpath has is null in the kernel.
            None => Insn { src: 0, imm: 0, ..insn },
        });
    }
    if insn.is_kfunc_call() {
        let kfunc = usize::try_from(insn.imm).ok().and_then(|index| linked.kfuncs.get(index));
        let kfunc = kfunc.ok_or(LoadError::NoSuchKfunc { insn: at, index: insn.imm })?;
        return match types.function(&kfunc.name) {
            Some(id) => Ok(Insn { imm: id as i32, ..insn }),
            // libbpf's placeholder for a missing weak kfunc: the verifier refuses the call where it
            // can be reached (`BPF_KFUNC_CALL_UNRESOLVED`).
            None if kfunc.weak => Ok(Insn { imm: 0, ..insn }),
            None => Err(LoadError::UnknownKfunc { insn: at, name: kfunc.name.clone() }),
        };
    }
    Ok(insn)
}
