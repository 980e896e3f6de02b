//! Linking: one program with every function that it reaches, in the order of the first reference.
//!
//! The order, and the resolution of each reference, are libbpf's (`bpf_object__reloc_code`,
//! `bpf_object__relocate_data`), so that the kernel can be shown the same instructions.

use std::sync::Arc;

use super::code::{Function, Reference, Referent};
use super::core::{Applied, Relocator, types_are_compatible};
use super::elf::limit;
use super::externs::{ExternKind, config_bytes, undefined_function};
use super::{Env, Object, ObjectError};
use crate::btf::{Kind, TypeId};
use crate::insn::{
    Insn, PSEUDO_BTF_ID, PSEUDO_FUNC, PSEUDO_KFUNC_CALL, PSEUDO_MAP_FD, PSEUDO_MAP_VALUE,
};
use crate::program::{self, KfuncRef, Line, Linked, MapDef, Unresolved};
use crate::proto;

/// Links the program that starts at function `entry`.
pub(super) fn link(object: &Object, program: usize, env: &Env) -> Result<Linked, ObjectError> {
    let Some(entry) = object.programs.get(program) else {
        return Err(ObjectError::NoProgram { index: program, count: object.programs.len() });
    };
    let mut linker = Linker::new(object, env);
    linker.place_all(object.entries[program])?;
    let callback = object.btf.as_deref();
    let callback =
        callback.and_then(|btf| object.code.exception_callback(object.entries[program], btf));
    if let Some(callback) = callback.filter(|&callback| linker.placed[callback].is_none()) {
        linker.place_all(callback)?;
    }
    let Linker { insns, functions, lines, kfuncs, unresolved, .. } = linker;
    Ok(Linked {
        name: entry.name.clone(),
        section: entry.section.clone(),
        attach: entry.attach,
        has_frags: entry.has_frags,
        license: object.license.clone(),
        insns,
        functions,
        lines,
        maps: maps_in(object, env)?,
        kfuncs,
        unresolved,
        btf: object.btf.clone(),
        kernel_btf: Arc::clone(&env.kernel_btf),
    })
}

/// The object's maps, with the configuration filled in.
fn maps_in(object: &Object, env: &Env) -> Result<Arc<[MapDef]>, ObjectError> {
    let Some(config) = object.config_map else { return Ok(Arc::clone(&object.maps)) };
    let bytes = config_bytes(&object.externs, env)?;
    let mut maps = Arc::clone(&object.maps);
    if let Some(map) = Arc::make_mut(&mut maps).get_mut(config) {
        map.initial = Some(bytes);
    }
    Ok(maps)
}

/// The program as far as it is linked.
struct Linker<'a> {
    object: &'a Object,
    env: &'a Env,
    relocator: Option<Relocator<'a>>,
    /// First slot of each function of the object, once it is placed.
    placed: Vec<Option<u32>>,
    insns: Vec<Insn>,
    functions: Vec<program::Function>,
    lines: Vec<Line>,
    kfuncs: Vec<KfuncRef>,
    unresolved: Vec<Unresolved>,
}

impl<'a> Linker<'a> {
    fn new(object: &'a Object, env: &'a Env) -> Self {
        let relocator = object.btf.as_deref().map(|btf| Relocator::new(btf, &env.kernel_btf));
        Linker {
            object,
            env,
            relocator,
            placed: vec![None; object.code.functions.len()],
            insns: Vec::new(),
            functions: Vec::new(),
            lines: Vec::new(),
            kfuncs: Vec::new(),
            unresolved: Vec::new(),
        }
    }

    /// Places the entry and all functions it reaches: a callee goes to the end at its first
    /// reference, and its own callees follow before the caller's next one.
    fn place_all(&mut self, entry: usize) -> Result<(), ObjectError> {
        let object = self.object;
        self.place(entry)?;
        let mut open = vec![(entry, object.code.functions[entry].references.iter())];
        while let Some((caller, references)) = open.last_mut() {
            let caller = *caller;
            let Some(reference) = references.next() else {
                open.pop();
                continue;
            };
            if let Referent::Function(callee) = reference.target
                && self.placed[callee].is_none()
            {
                self.place(callee)?;
                open.push((callee, object.code.functions[callee].references.iter()));
            }
            self.resolve(caller, reference)?;
        }
        Ok(())
    }

    /// Appends a function, its types, lines and CO-RE relocations.
    fn place(&mut self, index: usize) -> Result<(), ObjectError> {
        let function = &self.object.code.functions[index];
        let start = self.insns.len();
        limit("instructions in a program", start + function.insns.len(), INSNS_MAX)?;
        self.placed[index] = Some(start as u32);
        self.insns.extend_from_slice(&function.insns);
        self.functions.push(program::Function {
            start: start as u32,
            name: function.name.clone(),
            linkage: function.linkage,
            type_id: function.type_id,
        });
        self.lines.extend(
            function
                .lines
                .iter()
                .map(|line| Line { insn: line.insn + start as u32, ..line.clone() }),
        );
        self.relocate_types(function, start)
    }

    fn relocate_types(&mut self, function: &Function, start: usize) -> Result<(), ObjectError> {
        let Some(relocator) = &mut self.relocator else { return Ok(()) };
        let insns = &mut self.insns[start..];
        for relocation in &function.core {
            let at = function.slot_of(relocation.offset);
            let applied = relocator.apply(relocation, insns, at);
            let applied = applied.map_err(|what| ObjectError::Relocation {
                section: function.section.clone(),
                offset: relocation.offset.into(),
                symbol: function.name.clone(),
                what,
            })?;
            if let Applied::Poisoned(what) = applied {
                self.unresolved.push(Unresolved { insn: (start + at) as u32, what });
            }
        }
        Ok(())
    }

    /// Writes a reference of a placed function into its instruction.
    fn resolve(&mut self, caller: usize, reference: &Reference) -> Result<(), ObjectError> {
        let function = &self.object.code.functions[caller];
        let Some(start) = self.placed[caller] else { return Ok(()) };
        let at = start as usize + reference.insn;
        let refuse = |what: String| ObjectError::Relocation {
            section: function.section.clone(),
            offset: function.offset_of(reference.insn),
            symbol: reference.symbol.clone(),
            what,
        };
        match reference.target {
            Referent::Broken(what) => return Err(refuse(what.to_owned())),
            Referent::Map(map) => self.write_load(at, PSEUDO_MAP_FD, map as i32, 0),
            Referent::Data { map, offset } => {
                self.write_load(at, PSEUDO_MAP_VALUE, map as i32, offset as i32);
            }
            Referent::Function(callee) => {
                let callee = self.placed[callee].unwrap_or(start);
                let distance = i64::from(callee) - at as i64 - 1;
                let insn = &mut self.insns[at];
                if insn.is_ld_imm64() {
                    insn.src = PSEUDO_FUNC;
                }
                insn.imm = distance as i32;
            }
            Referent::Extern(index) => self.resolve_extern(at, index).map_err(refuse)?,
        }
        Ok(())
    }

    fn resolve_extern(&mut self, at: usize, index: usize) -> Result<(), String> {
        let object = self.object;
        let Some(ext) = object.externs.get(index) else {
            return Err("the symbol isn't defined".to_owned());
        };
        let is_load = self.insns[at].is_ld_imm64();
        match (&ext.kind, is_load) {
            (ExternKind::Unknown(what), _) => Err((*what).to_owned()),
            (ExternKind::Function { is_ksym: false, .. }, false)
                if proto::kfunc(&ext.name).is_none() =>
            {
                Err(undefined_function(&ext.name))
            }
            (ExternKind::Function { type_id, .. }, false) => {
                let kfunc = self.kfunc(&ext.name, *type_id, ext.weak)?;
                let insn = &mut self.insns[at];
                (insn.src, insn.imm) = (PSEUDO_KFUNC_CALL, kfunc);
                Ok(())
            }
            (_, false) => Err("it is a variable and can't be called".to_owned()),
            (ExternKind::Config { offset, .. }, true) => {
                let map = object.config_map.ok_or("there is no .kconfig map")?;
                self.write_load(at, PSEUDO_MAP_VALUE, map as i32, *offset as i32);
                Ok(())
            }
            (ExternKind::Function { .. }, true) => {
                let found = self.env.kernel_btf.find_func(&ext.name);
                self.write_kernel_id(at, found, ext.weak)
            }
            (ExternKind::Variable { ty: 0 }, true) => {
                let address = match self.env.symbols.get(&ext.name) {
                    Some(&address) => address,
                    None if ext.weak => 0,
                    None => return Err("no kernel symbol of this name is known".to_owned()),
                };
                self.write_load(at, 0, address as i32, (address >> 32) as i32);
                Ok(())
            }
            (ExternKind::Variable { ty }, true) => {
                let found = self.kernel_variable(&ext.name, *ty)?;
                self.write_kernel_id(at, found, ext.weak)
            }
        }
    }

    /// The kernel's variable of this name, if its type is the one the program expects.
    fn kernel_variable(&self, name: &str, ty: TypeId) -> Result<Option<TypeId>, String> {
        let kernel = &self.env.kernel_btf;
        let Some(id) = kernel.find_var(name) else { return Ok(None) };
        let Kind::Var { ty: target, .. } = *kernel.kind(id) else { return Ok(None) };
        let local = self.object.btf.as_deref();
        let target = kernel.strip_qualifiers(target);
        if local.is_some_and(|local| types_are_compatible(local, ty, kernel, target)) {
            return Ok(Some(id));
        }
        Err(format!("the kernel's variable is of type {}", kernel.c_name(target)))
    }

    fn write_kernel_id(
        &mut self,
        at: usize,
        found: Option<TypeId>,
        weak: bool,
    ) -> Result<(), String> {
        match found {
            Some(id) => self.write_load(at, PSEUDO_BTF_ID, id as i32, 0),
            None if weak => self.write_load(at, 0, 0, 0),
            None => {
                return Err(
                    "the kernel's BTF has no such symbol (declare it __weak to get 0)".into()
                );
            }
        }
        Ok(())
    }

    fn kfunc(&mut self, name: &str, type_id: TypeId, weak: bool) -> Result<i32, String> {
        let known = self.kfuncs.iter().position(|kfunc| kfunc.name == name);
        let index = known.unwrap_or_else(|| {
            self.kfuncs.push(KfuncRef { name: name.to_owned(), type_id: Some(type_id), weak });
            self.kfuncs.len() - 1
        });
        if index >= KFUNCS_MAX {
            return Err(format!("the program calls more than {KFUNCS_MAX} different kfuncs"));
        }
        Ok(index as i32)
    }

    /// Fills both halves of a 64-bit load. A load that ends with the function has only one half;
    /// the verifier refuses it.
    fn write_load(&mut self, at: usize, pseudo: u8, low: i32, high: i32) {
        if let Some(insn) = self.insns.get_mut(at) {
            (insn.src, insn.imm) = (pseudo, low);
        }
        if let Some(second) = self.insns.get_mut(at + 1) {
            second.imm = high;
        }
    }
}

/// The kernel's `MAX_KFUNC_DESCS`.
const KFUNCS_MAX: usize = 256;
/// Largest number of instructions: the kernel's `BPF_COMPLEXITY_LIMIT_INSNS`, the limit for
/// privileged programs.
const INSNS_MAX: usize = 1_000_000;
