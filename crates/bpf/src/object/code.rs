//! Functions: the executable sections cut at their symbols, with every reference kept symbolic.
//!
//! A function may be a program, a subprogram or both. A reference that can't be resolved is kept
//! with its reason: only the programs that reach it are refused.

use std::collections::{BTreeMap, HashSet};

use super::ObjectError;
use super::elf::{Elf, Section, Symbol, SymbolSection, limit};
use super::ext::{BtfExt, CoreRelocation, part};
use super::externs::Externs;
use super::maps::Maps;
use crate::btf::{Btf, Kind, Linkage, TypeId};
use crate::insn::{INSN_SIZE, Insn};
use crate::program::Line;

/// All functions of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Code {
    pub(super) functions: Vec<Function>,
    /// Function that starts at a slot of a section: index in `functions`.
    by_place: BTreeMap<(usize, u64), usize>,
}

/// One function.
#[derive(Debug, Clone)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) section: String,
    /// ELF index of the section.
    section_index: usize,
    /// First slot in the section.
    pub(super) start: u64,
    pub(super) insns: Vec<Insn>,
    /// References, ordered by instruction.
    pub(super) references: Vec<Reference>,
    /// CO-RE relocations, ordered by instruction; offsets are bytes in the section.
    pub(super) core: Vec<CoreRelocation>,
    /// Source lines; instruction numbers are relative to the function.
    pub(super) lines: Vec<Line>,
    pub(super) type_id: Option<TypeId>,
    /// Linkage in the verifier's sense: hidden functions count as static.
    pub(super) linkage: Linkage,
    /// Whether the function is visible to other objects, and can be a program.
    pub(super) is_global: bool,
}

/// A reference of an instruction to a symbol.
#[derive(Debug, Clone)]
pub(super) struct Reference {
    /// Slot in the function.
    pub(super) insn: usize,
    pub(super) target: Referent,
    /// Name of the symbol, for messages.
    pub(super) symbol: String,
}

/// Target of a reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Referent {
    Map(usize),
    /// A place in the value of a data section's map.
    Data {
        map: usize,
        offset: u32,
    },
    Function(usize),
    Extern(usize),
    /// A reference that can't be resolved, with the reason.
    Broken(&'static str),
}

impl Code {
    /// Cuts the executable sections into functions.
    pub(super) fn collect(
        elf: &Elf<'_>,
        btf: Option<&Btf>,
        ext: &BtfExt,
    ) -> Result<Self, ObjectError> {
        let mut code = Code::default();
        for (index, section) in elf.sections.iter().enumerate().filter(|(_, s)| s.executable) {
            if section.data.len() % INSN_SIZE != 0 {
                let what = format!("{} bytes aren't whole instructions", section.data.len());
                return Err(ObjectError::Section { section: section.name.to_owned(), what });
            }
            code.cut_section(elf, index, section)?;
        }
        limit("functions", code.functions.len(), FUNCTIONS_MAX)?;
        for function in &mut code.functions {
            function.attach_types(btf, ext);
        }
        Ok(code)
    }

    fn cut_section(
        &mut self,
        elf: &Elf<'_>,
        index: usize,
        section: &Section<'_>,
    ) -> Result<(), ObjectError> {
        let wrong = |what: String| ObjectError::Section { section: section.name.to_owned(), what };
        let mut symbols = function_symbols(elf, index);
        // If two symbols name one place, the global one counts.
        symbols.sort_by_key(|symbol| (symbol.value, !symbol.is_global()));
        symbols.dedup_by_key(|symbol| symbol.value);
        for (at, symbol) in symbols.iter().enumerate() {
            let next = symbols.get(at + 1).map_or(section.size, |next| next.value);
            // Symbols of assembly code and of old compilers have no size.
            let size =
                if symbol.size == 0 { next.saturating_sub(symbol.value) } else { symbol.size };
            let end = symbol.value.saturating_add(size);
            if symbol.value % INSN_SIZE as u64 != 0 || size % INSN_SIZE as u64 != 0 {
                return Err(wrong(format!("function {} isn't whole instructions", symbol.name)));
            }
            if end > section.size {
                return Err(wrong(format!("function {} ends after the section", symbol.name)));
            }
            if end > next {
                return Err(wrong(format!("function {} overlaps the next one", symbol.name)));
            }
            let bytes = &section.data[symbol.value as usize..end as usize];
            let (slots, _) = bytes.as_chunks::<INSN_SIZE>();
            let start = symbol.value / INSN_SIZE as u64;
            self.by_place.insert((index, start), self.functions.len());
            self.functions.push(Function {
                name: symbol.name.to_owned(),
                section: section.name.to_owned(),
                section_index: index,
                start,
                insns: slots.iter().map(|&slot| Insn::from_le_bytes(slot)).collect(),
                references: Vec::new(),
                core: Vec::new(),
                lines: Vec::new(),
                type_id: None,
                linkage: if symbol.is_hidden { Linkage::Static } else { Linkage::Global },
                is_global: symbol.is_global(),
            });
        }
        Ok(())
    }

    /// The function that runs if `entry` throws: named by a tag of its type
    /// (`__exception_cb(name)`), without a reference from an instruction.
    pub(super) fn exception_callback(&self, entry: usize, btf: &Btf) -> Option<usize> {
        let type_id = self.functions[entry].type_id?;
        let mut tags = btf.decl_tags(type_id, -1);
        let name = tags.find_map(|tag| tag.strip_prefix("exception_callback:"))?;
        let is_callback = |function: &Function| function.is_global && function.name == name;
        self.functions.iter().position(is_callback)
    }

    /// Functions that other functions call or take the address of.
    pub(super) fn called(&self) -> HashSet<usize> {
        let references = self.functions.iter().flat_map(|function| &function.references);
        let function = |reference: &Reference| match reference.target {
            Referent::Function(index) => Some(index),
            _ => None,
        };
        references.filter_map(function).collect()
    }

    /// Resolves the references of all functions.
    pub(super) fn resolve(&mut self, elf: &Elf<'_>, maps: &Maps, externs: &Externs) {
        let resolver = Resolver { elf, maps, externs, by_place: &self.by_place };
        for function in &mut self.functions {
            function.references = resolver.references(function);
        }
    }
}

/// Symbols of functions in a section, or labels if the compiler marked no functions.
fn function_symbols<'e, 'a>(elf: &'e Elf<'a>, section: usize) -> Vec<&'e Symbol<'a>> {
    let functions: Vec<_> = elf.symbols_in(section).filter(|symbol| symbol.is_function()).collect();
    if !functions.is_empty() {
        return functions;
    }
    let is_label = |symbol: &&Symbol<'_>| {
        symbol.is_global() && symbol.kind == ::object::elf::STT_NOTYPE && !symbol.name.is_empty()
    };
    elf.symbols_in(section).filter(is_label).collect()
}

impl Function {
    /// Takes the part of `.BTF.ext` that lies in this function.
    fn attach_types(&mut self, btf: Option<&Btf>, ext: &BtfExt) {
        let slot = INSN_SIZE as u64;
        let (start, end) = (self.start * slot, (self.start + self.insns.len() as u64) * slot);
        let section = self.section.as_str();
        let info = part(ext.functions.get(section), |info| info.offset, start, start + 1).first();
        let type_id = info.map(|info| info.type_id);
        match (type_id, type_id.and_then(|id| btf.map(|btf| btf.kind(id)))) {
            (Some(id), Some(&Kind::Func { linkage, .. })) => {
                self.type_id = Some(id);
                if linkage != Linkage::Global {
                    self.linkage = Linkage::Static;
                }
            }
            // The kernel takes linkage from types only.
            _ => self.linkage = Linkage::Static,
        }
        let relative = |offset: u32| ((u64::from(offset) - start) / slot) as u32;
        self.lines = part(ext.lines.get(section), |line| line.offset, start, end)
            .iter()
            .map(|line| Line {
                insn: relative(line.offset),
                file: line.file.clone(),
                text: line.text.clone(),
                line: line.line,
                column: line.column,
            })
            .collect();
        self.core = part(ext.relocations.get(section), |core| core.offset, start, end).to_vec();
    }

    /// Slot in the function of a byte offset in its section.
    pub(super) fn slot_of(&self, offset: u32) -> usize {
        (u64::from(offset) / INSN_SIZE as u64).saturating_sub(self.start) as usize
    }

    /// Byte offset in the section of a slot of the function.
    pub(super) fn offset_of(&self, insn: usize) -> u64 {
        (self.start + insn as u64) * INSN_SIZE as u64
    }
}

/// Resolver of symbols and references.
struct Resolver<'a> {
    elf: &'a Elf<'a>,
    maps: &'a Maps,
    externs: &'a Externs,
    by_place: &'a BTreeMap<(usize, u64), usize>,
}

impl Resolver<'_> {
    fn references(&self, function: &Function) -> Vec<Reference> {
        let relocations = &self.elf.sections[function.section_index].relocations;
        let mut references = Vec::new();
        let mut at = 0;
        while let Some(insn) = function.insns.get(at) {
            let offset = function.offset_of(at);
            let first = relocations.partition_point(|entry| entry.offset < offset);
            let relocation = relocations.get(first).filter(|entry| entry.offset == offset);
            let reference = match relocation {
                Some(relocation) => {
                    let symbol = &self.elf.symbols[relocation.symbol];
                    let target = if insn.is_ld_imm64() {
                        self.load_target(relocation.symbol, symbol, insn)
                    } else {
                        self.call_target(relocation.symbol, symbol, insn)
                    };
                    Some((target, symbol.label(self.elf)))
                }
                None => self.local_target(function, at, insn).map(|target| (target, String::new())),
            };
            if let Some((target, symbol)) = reference {
                references.push(Reference { insn: at, target, symbol });
            }
            at += if insn.is_ld_imm64() { 2 } else { 1 };
        }
        references
    }

    /// The target of a 64-bit load; the immediate is added to the symbol's value.
    fn load_target(&self, index: usize, symbol: &Symbol<'_>, insn: &Insn) -> Referent {
        let section = match symbol.place {
            SymbolSection::Section(section) => section,
            SymbolSection::Undefined => return self.extern_target(index),
            SymbolSection::Reserved => {
                return Referent::Broken("an absolute symbol has no place in memory");
            }
        };
        let offset = symbol.value.wrapping_add(insn.imm as u64);
        if let Some(&map) = self.maps.by_section.get(&section) {
            return match u32::try_from(offset) {
                Ok(at) if offset <= self.elf.sections[section].size => {
                    Referent::Data { map, offset: at }
                }
                _ => Referent::Broken("the place lies outside the data section"),
            };
        }
        if let Some(&map) = self.maps.by_place.get(&(section, offset)) {
            return Referent::Map(map);
        }
        if self.elf.sections[section].executable {
            return self.function_at(section, offset / INSN_SIZE as u64, offset);
        }
        if self.elf.sections[section].name == JUMP_TABLES {
            return Referent::Broken(
                "it is a jump table (gotox), which kernels up to 6.18 don't have: compile with \
                 -fno-jump-tables, or with -mcpu=v3",
            );
        }
        Referent::Broken("its section holds no map, variable or function")
    }

    /// The target of a call: the immediate counts slots from the symbol, less one.
    fn call_target(&self, index: usize, symbol: &Symbol<'_>, insn: &Insn) -> Referent {
        if !insn.is_pseudo_call() {
            return Referent::Broken("only calls and 64-bit loads can refer to a symbol");
        }
        match symbol.place {
            SymbolSection::Undefined => self.extern_target(index),
            SymbolSection::Reserved => Referent::Broken("an absolute symbol can't be called"),
            SymbolSection::Section(section) => {
                let slot = (symbol.value / INSN_SIZE as u64)
                    .wrapping_add_signed(i64::from(insn.imm))
                    .wrapping_add(1);
                self.function_at(section, slot, symbol.value)
            }
        }
    }

    /// Within a section clang leaves no relocation for calls; everything else needs one.
    fn local_target(&self, function: &Function, at: usize, insn: &Insn) -> Option<Referent> {
        if insn.is_pseudo_call() {
            let slot = (function.start + at as u64 + 1).wrapping_add_signed(i64::from(insn.imm));
            return Some(self.function_at(function.section_index, slot, 0));
        }
        if insn.is_kfunc_call() {
            return Some(Referent::Broken("a kfunc call without a relocation names no kfunc"));
        }
        (insn.is_ld_imm64() && insn.src != 0)
            .then_some(Referent::Broken("a load of a map or address without a relocation"))
    }

    fn extern_target(&self, symbol: usize) -> Referent {
        let index = self.externs.of_symbol(symbol);
        index.map_or(Referent::Broken("the symbol isn't defined"), Referent::Extern)
    }

    fn function_at(&self, section: usize, slot: u64, offset: u64) -> Referent {
        if !offset.is_multiple_of(INSN_SIZE as u64) {
            return Referent::Broken("the target isn't at a whole instruction");
        }
        match self.by_place.get(&(section, slot)) {
            Some(&function) => Referent::Function(function),
            None => Referent::Broken("no function starts at the target"),
        }
    }
}

/// Section in which clang 22 and newer put the targets of a `switch` at `-mcpu=v4`.
const JUMP_TABLES: &str = ".jumptables";
/// Largest number of functions: far above the kernel's 256 subprograms for each of many programs.
const FUNCTIONS_MAX: usize = 1 << 16;
