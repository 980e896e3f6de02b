//! An object file of LLVM as code in memory: its sections one behind the other, then a table of
//! addresses (the "global offset table") through which code accesses everything outside.

use std::collections::HashMap;

use object::elf;
use object::read::elf::ElfFile64;
use object::{
    Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionFlags,
    SectionIndex, SymbolIndex, SymbolSection,
};

use super::lines;
use super::relocate::{self, Patch};
use crate::code_unsafe::Code;
use crate::error::CompileError;

/// Largest object file, in bytes.
pub(super) const OBJECT_BYTES_MAX: usize = 64 << 20;

/// Code in its place, and the offsets of its functions.
#[derive(Debug)]
pub(super) struct Linked {
    pub(super) code: Code,
    offsets: HashMap<String, usize>,
    /// Offsets at which code for another BPF instruction begins, with its slot; in order.
    pub(super) origins: Vec<(usize, u32)>,
}

impl Linked {
    /// Offset of a function by name.
    pub(super) fn offset(&self, name: &str) -> Option<usize> {
        self.offsets.get(name).copied()
    }
}

/// Places an object file. `address` gives the addresses of its undefined symbols.
///
/// # Errors
///
/// Fails if the file differs from the form that LLVM makes for Towpath, or if there is no memory.
pub(super) fn link(
    bytes: &[u8],
    limit: usize,
    address: impl Fn(&str) -> Option<u64>,
) -> Result<Linked, CompileError> {
    let file: ElfFile64<'_> = ElfFile64::parse(bytes).map_err(|error| broken(&error))?;
    let plan = Plan::new(&file)?;
    let code =
        Code::place(plan.bytes, limit, |base, memory| plan.fill(&file, base, memory, &address))?;
    let mut offsets = HashMap::new();
    for symbol in file.symbols().filter(|symbol| symbol.is_global()) {
        if let (Ok(name), Some(offset)) = (symbol.name(), plan.offset(&symbol)) {
            offsets.insert(name.to_owned(), offset);
        }
    }
    let origins = plan.origins(&file);
    Ok(Linked { code, offsets, origins })
}

/// Layout in memory.
struct Plan {
    /// Offset of each section that is kept.
    sections: HashMap<SectionIndex, usize>,
    /// Offset of each symbol's entry in the table of addresses.
    table: HashMap<SymbolIndex, usize>,
    /// Offset of the jump to each outside function that code calls as if it were near.
    stubs: HashMap<SymbolIndex, usize>,
    bytes: usize,
}

impl Plan {
    fn new(file: &ElfFile64<'_>) -> Result<Plan, CompileError> {
        let mut plan = Plan {
            sections: HashMap::new(),
            table: HashMap::new(),
            stubs: HashMap::new(),
            bytes: 0,
        };
        let wanted: Vec<_> = file.sections().filter(is_wanted).collect();
        for section in &wanted {
            if is_writable(section) {
                return Err(broken(&"a section to write to"));
            }
            plan.bytes = plan.bytes.next_multiple_of(section.align().clamp(16, 4096) as usize);
            plan.sections.insert(section.index(), plan.bytes);
            plan.bytes += section.data().map_err(|error| broken(&error))?.len();
        }
        plan.bytes = plan.bytes.next_multiple_of(16);
        for section in &wanted {
            for (_, relocation) in section.relocations() {
                let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
                let (RelocationFlags::Elf { r_type }, Ok(target)) =
                    (relocation.flags(), file.symbol_by_index(symbol))
                else {
                    continue;
                };
                let far = target.section() == SymbolSection::Undefined;
                if relocate::uses_table(r_type) || far && relocate::is_near_call(r_type) {
                    plan.reserve_entry(symbol);
                }
                if far && relocate::is_near_call(r_type) && !plan.stubs.contains_key(&symbol) {
                    plan.stubs.insert(symbol, plan.bytes);
                    plan.bytes += relocate::STUB_BYTES;
                }
            }
        }
        if plan.bytes > OBJECT_BYTES_MAX {
            return Err(broken(&"too long"));
        }
        Ok(plan)
    }

    fn reserve_entry(&mut self, symbol: SymbolIndex) {
        let offset = self.bytes;
        if *self.table.entry(symbol).or_insert(offset) == offset {
            self.bytes += 16;
        }
    }

    /// Offset in memory of a symbol of the file.
    fn offset<'data>(&self, symbol: &impl ObjectSymbol<'data>) -> Option<usize> {
        let section = self.sections.get(&symbol.section_index()?)?;
        Some(section + symbol.address() as usize)
    }

    /// Origins of the code by the file's line table; empty without one.
    fn origins(&self, file: &ElfFile64<'_>) -> Vec<(usize, u32)> {
        let Some(section) = file.section_by_name(".debug_line") else { return Vec::new() };
        let Ok(mut table) = section.data().map(<[u8]>::to_vec) else { return Vec::new() };
        for (offset, relocation) in section.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else { continue };
            let Ok(symbol) = file.symbol_by_index(symbol) else { continue };
            let place = self.offset(&symbol).zip(table.get_mut(offset as usize..));
            if let Some((start, place)) = place
                && let Some(place) = place.first_chunk_mut()
            {
                *place = (start as u64).wrapping_add_signed(relocation.addend()).to_le_bytes();
            }
        }
        let found = lines::read(&table).into_iter();
        found.map(|(address, slot)| (address as usize, slot)).collect()
    }

    fn fill(
        &self,
        file: &ElfFile64<'_>,
        base: u64,
        memory: &mut [u8],
        address: &impl Fn(&str) -> Option<u64>,
    ) -> Result<(), CompileError> {
        let value = |index: SymbolIndex| {
            let symbol = file.symbol_by_index(index).map_err(|error| broken(&error))?;
            if let Some(offset) = self.offset(&symbol) {
                return Ok(base + offset as u64);
            }
            let name = symbol.name().map_err(|error| broken(&error))?;
            address(name).ok_or_else(|| broken(&format_args!("nothing is called {name:?}")))
        };
        for (&symbol, &offset) in &self.table {
            let entry = memory.get_mut(offset..offset + 8).ok_or_else(|| broken(&"too short"))?;
            entry.copy_from_slice(&value(symbol)?.to_le_bytes());
        }
        for (symbol, &offset) in &self.stubs {
            let entry = self.table.get(symbol).ok_or_else(|| broken(&"no entry"))?;
            let stub = memory.get_mut(offset..offset + relocate::STUB_BYTES);
            let stub = stub.ok_or_else(|| broken(&"too short"))?;
            relocate::stub(stub, base + offset as u64, base + *entry as u64).map_err(error)?;
        }
        for section in file.sections() {
            let Some(&at) = self.sections.get(&section.index()) else { continue };
            let bytes = section.data().map_err(|error| broken(&error))?;
            let place = memory.get_mut(at..at + bytes.len()).ok_or_else(|| broken(&"too short"))?;
            place.copy_from_slice(bytes);
        }
        self.relocate(file, base, memory, &value)
    }

    fn relocate(
        &self,
        file: &ElfFile64<'_>,
        base: u64,
        memory: &mut [u8],
        value: &impl Fn(SymbolIndex) -> Result<u64, CompileError>,
    ) -> Result<(), CompileError> {
        for section in file.sections() {
            let Some(&start) = self.sections.get(&section.index()) else { continue };
            for (offset, relocation) in section.relocations() {
                let (RelocationTarget::Symbol(symbol), RelocationFlags::Elf { r_type }) =
                    (relocation.target(), relocation.flags())
                else {
                    return Err(broken(&"a relocation without symbol"));
                };
                let target = if relocate::uses_table(r_type) {
                    self.table.get(&symbol).map(|entry| base + *entry as u64)
                } else {
                    self.stubs.get(&symbol).map(|stub| base + *stub as u64)
                };
                let target = target.map_or_else(|| value(symbol), Ok)?;
                let at = start as u64 + offset;
                let patch = Patch {
                    r_type,
                    place: base + at,
                    target: target.wrapping_add_signed(relocation.addend()),
                };
                let bytes = memory.get_mut(at as usize..).ok_or_else(|| broken(&"too short"))?;
                relocate::apply(bytes, patch).map_err(error)?;
            }
        }
        Ok(())
    }
}

/// Whether a section is needed at run time. Unwind tables are not: compiled code is never unwound.
fn is_wanted<'data>(section: &impl ObjectSection<'data>) -> bool {
    let is_frames = section.name().is_ok_and(|name| name.starts_with(".eh_frame"));
    has_flag(section, elf::SHF_ALLOC.0) && section.size() > 0 && !is_frames
}

fn is_writable<'data>(section: &impl ObjectSection<'data>) -> bool {
    has_flag(section, elf::SHF_WRITE.0)
}

fn has_flag<'data>(section: &impl ObjectSection<'data>, flag: u64) -> bool {
    let SectionFlags::Elf { sh_flags, .. } = section.flags() else { return false };
    sh_flags.0 & flag != 0
}

fn error(what: String) -> CompileError {
    CompileError::Llvm(what)
}

fn broken(what: &dyn std::fmt::Display) -> CompileError {
    CompileError::Llvm(format!("its object file is broken: {what}"))
}
