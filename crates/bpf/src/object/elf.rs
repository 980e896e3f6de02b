//! The ELF container: sections, symbols and relocations, each read once into plain values.
//!
//! The `object` crate finds the tables; this module checks them against the form of a BPF object,
//! so that the rest of the loader sees only valid indices and never the file's own structures.

use std::collections::HashMap;

use ::object::elf;
use ::object::endian::LittleEndian;
use ::object::read::elf::{FileHeader, Rel as _, SectionHeader, Sym};

use super::ObjectError;

/// A checked ELF file.
#[derive(Debug)]
pub(super) struct Elf<'a> {
    /// Sections by index; 0 is the null section.
    pub(super) sections: Vec<Section<'a>>,
    /// Symbols by index; 0 is the null symbol.
    pub(super) symbols: Vec<Symbol<'a>>,
    /// Index of the first section of each name.
    by_name: HashMap<&'a str, usize>,
    /// By section: indices of its symbols.
    members: Vec<Vec<usize>>,
}

/// One section.
#[derive(Debug)]
pub(super) struct Section<'a> {
    pub(super) name: &'a str,
    /// Whether the section holds instructions.
    pub(super) executable: bool,
    /// Whether the section occupies no bytes in the file (`.bss`).
    pub(super) is_nobits: bool,
    /// Whether the section is part of the program's memory (`SHF_ALLOC`).
    pub(super) is_alloc: bool,
    /// Contents; empty for `SHT_NOBITS`.
    pub(super) data: &'a [u8],
    /// Size in bytes, also for `SHT_NOBITS`.
    pub(super) size: u64,
    /// References from this section, by offset.
    pub(super) relocations: Vec<Relocation>,
}

/// A reference from a place in a section to a symbol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Relocation {
    /// Offset in the section, in bytes.
    pub(super) offset: u64,
    /// Index of the symbol, which exists.
    pub(super) symbol: usize,
}

/// One symbol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol<'a> {
    /// Name; empty for section symbols.
    pub(super) name: &'a str,
    pub(super) place: SymbolSection,
    /// Offset in its section, in bytes.
    pub(super) value: u64,
    pub(super) size: u64,
    pub(super) kind: elf::SymbolType,
    pub(super) bind: elf::SymbolBind,
    /// Whether the symbol is `STV_HIDDEN` or `STV_INTERNAL`: global for the linker only.
    pub(super) is_hidden: bool,
}

/// Place of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SymbolSection {
    /// In a section that exists.
    Section(usize),
    /// In another file: an extern.
    Undefined,
    /// Absolute, common or reserved: no program can refer to it.
    Reserved,
}

impl Symbol<'_> {
    /// Whether the symbol is global or weak.
    pub(super) fn is_global(&self) -> bool {
        self.bind == elf::STB_GLOBAL || self.bind == elf::STB_WEAK
    }

    pub(super) fn is_weak(&self) -> bool {
        self.bind == elf::STB_WEAK
    }

    pub(super) fn is_function(&self) -> bool {
        self.kind == elf::STT_FUNC
    }

    /// Name in error messages.
    pub(super) fn label(&self, elf: &Elf<'_>) -> String {
        let name = match self.place {
            SymbolSection::Section(index) if self.name.is_empty() => elf.sections[index].name,
            _ => self.name,
        };
        name.chars().take(LABEL_CHARS_MAX).collect()
    }
}

impl<'a> Elf<'a> {
    /// Reads the tables of a little-endian relocatable BPF file.
    pub(super) fn parse(bytes: &'a [u8], name: &str) -> Result<Self, ObjectError> {
        let refuse = |what: String| ObjectError::File { name: name.to_owned(), what };
        let header = check_header(bytes).map_err(refuse)?;
        let damaged = |cause: ::object::read::Error| refuse(format!("damaged ELF file: {cause}"));
        let table = header.sections(LittleEndian, bytes).map_err(damaged)?;
        limit("sections", table.len(), SECTIONS_MAX)?;
        let mut sections = Vec::with_capacity(table.len());
        for (index, raw) in table.enumerate() {
            sections.push(read_section(index.0, raw, &table, bytes)?);
        }
        let symbols = table.symbols(LittleEndian, bytes, elf::SHT_SYMTAB).map_err(damaged)?;
        limit("symbols", symbols.len(), SYMBOLS_MAX)?;
        let mut parsed = Elf {
            symbols: Vec::with_capacity(symbols.len()),
            by_name: sections.iter().enumerate().rev().map(|(at, s)| (s.name, at)).collect(),
            members: vec![Vec::new(); sections.len()],
            sections,
        };
        for (index, raw) in symbols.enumerate() {
            let symbol = read_symbol(index.0, raw, symbols.strings(), parsed.sections.len());
            let symbol = symbol.map_err(refuse)?;
            if let SymbolSection::Section(section) = symbol.place {
                parsed.members[section].push(parsed.symbols.len());
            }
            parsed.symbols.push(symbol);
        }
        for raw in table.iter() {
            match raw.sh_type(LittleEndian) {
                elf::SHT_REL => parsed.read_relocations(raw, bytes)?,
                elf::SHT_RELA => parsed.refuse_addends(raw)?,
                _ => {}
            }
        }
        Ok(parsed)
    }

    /// Index and section of this name.
    pub(super) fn section(&self, name: &str) -> Option<(usize, &Section<'a>)> {
        let index = *self.by_name.get(name)?;
        Some((index, &self.sections[index]))
    }

    /// Symbols that lie in a section, in the order of the file.
    pub(super) fn symbols_in(&self, section: usize) -> impl Iterator<Item = &Symbol<'a>> {
        self.members[section].iter().map(|&symbol| &self.symbols[symbol])
    }

    /// Refuses relocations with their own addends: no BPF compiler writes them, and ignoring them
    /// would leave references at 0.
    fn refuse_addends(&self, raw: &elf::SectionHeader64<LittleEndian>) -> Result<(), ObjectError> {
        let target = self.sections.get(raw.sh_info(LittleEndian) as usize);
        match target.filter(|section| section.is_alloc) {
            None => Ok(()),
            Some(section) => Err(ObjectError::Section {
                section: format!(".rela{}", section.name),
                what: "relocations of type SHT_RELA (expected SHT_REL, as clang writes)".to_owned(),
            }),
        }
    }

    fn read_relocations(
        &mut self,
        raw: &elf::SectionHeader64<LittleEndian>,
        bytes: &[u8],
    ) -> Result<(), ObjectError> {
        let symbol_count = self.symbols.len();
        let target = raw.sh_info(LittleEndian) as usize;
        // Sections outside of the program's memory (debug information) are ignored.
        let Some(section) = self.sections.get_mut(target).filter(|section| section.is_alloc) else {
            return Ok(());
        };
        let wrong = |section: &str, what: String| ObjectError::Section {
            section: format!(".rel{section}"),
            what,
        };
        let list = match raw.rel(LittleEndian, bytes) {
            Ok(Some((list, _))) => list,
            Ok(None) => return Ok(()),
            Err(cause) => return Err(wrong(section.name, cause.to_string())),
        };
        limit("relocations in one section", list.len(), RELOCATIONS_MAX)?;
        for (index, entry) in list.iter().enumerate() {
            let (offset, symbol) =
                (entry.r_offset(LittleEndian), entry.r_sym(LittleEndian) as usize);
            if symbol >= symbol_count {
                let what = format!("entry {index} refers to symbol {symbol} of {symbol_count}");
                return Err(wrong(section.name, what));
            }
            if offset >= section.size {
                let what = format!("entry {index} is for offset {offset:#x}, after the end");
                return Err(wrong(section.name, what));
            }
            section.relocations.push(Relocation { offset, symbol });
        }
        section.relocations.sort_by_key(|entry| entry.offset);
        Ok(())
    }
}

/// Refuses counts that no compiler produces, before memory is allocated for them.
pub(super) fn limit(what: &str, count: usize, max: usize) -> Result<(), ObjectError> {
    if count <= max {
        return Ok(());
    }
    let (count, max) = (count as u64, max as u64);
    Err(ObjectError::Limit { what: format!("too many {what}"), count, max })
}

fn check_header(bytes: &[u8]) -> Result<&elf::FileHeader64<LittleEndian>, String> {
    if bytes.get(..4) != Some(&elf::ELFMAG) {
        return Err(
            "not an ELF file (expected a BPF object, as clang -target bpf -c writes)".into()
        );
    }
    if bytes.get(4) == Some(&elf::ELFCLASS32.0) {
        return Err("a 32-bit ELF file (BPF objects are 64-bit ones)".into());
    }
    if bytes.get(5) == Some(&elf::ELFDATA2MSB.0) {
        return Err("a big-endian object: compile with -target bpfel".into());
    }
    let header = elf::FileHeader64::<LittleEndian>::parse(bytes)
        .map_err(|cause| format!("damaged ELF file: {cause}"))?;
    let machine = header.e_machine(LittleEndian);
    // Objects from before BPF had a machine number have EM_NONE; libbpf accepts these too.
    if machine != elf::EM_BPF && machine != elf::EM_NONE {
        return Err(format!("an object for {}: compile with -target bpf", machine_name(machine.0)));
    }
    match header.e_type(LittleEndian) {
        elf::ET_REL => Ok(header),
        elf::ET_EXEC => Err("an executable (expected a relocatable object, cc -c)".into()),
        elf::ET_DYN => Err("a shared library (expected a relocatable object, cc -c)".into()),
        kind => Err(format!("an ELF file of type {} (expected a relocatable object, 1)", kind.0)),
    }
}

fn machine_name(machine: u16) -> String {
    match machine {
        3 => "i386".into(),
        40 => "arm".into(),
        62 => "x86-64".into(),
        183 => "aarch64".into(),
        243 => "riscv".into(),
        other => format!("ELF machine {other}"),
    }
}

fn read_section<'a>(
    index: usize,
    raw: &elf::SectionHeader64<LittleEndian>,
    table: &::object::read::elf::SectionTable<'a, elf::FileHeader64<LittleEndian>>,
    bytes: &'a [u8],
) -> Result<Section<'a>, ObjectError> {
    let wrong = |what: String| ObjectError::Section { section: format!("number {index}"), what };
    let kind = raw.sh_type(LittleEndian);
    let size = raw.sh_size(LittleEndian);
    let name = table
        .section_name(LittleEndian, raw)
        .map_err(|cause| wrong(format!("no name: {cause}")))?;
    let name = checked_name(name).map_err(|what| wrong(what.to_owned()))?;
    let is_nobits = kind == elf::SHT_NOBITS;
    let data = if kind == elf::SHT_NULL || is_nobits {
        &[][..]
    } else {
        raw.data(LittleEndian, bytes).map_err(|_cause| ObjectError::Section {
            section: name.to_owned(),
            what: format!(
                "{size} bytes at file offset {:#x} lie outside the file of {} bytes",
                raw.sh_offset(LittleEndian),
                bytes.len()
            ),
        })?
    };
    let flags = raw.sh_flags(LittleEndian).0;
    Ok(Section {
        name,
        executable: kind == elf::SHT_PROGBITS && flags & elf::SHF_EXECINSTR.0 != 0,
        is_nobits,
        is_alloc: flags & elf::SHF_ALLOC.0 != 0,
        data,
        size,
        relocations: Vec::new(),
    })
}

fn read_symbol<'a>(
    index: usize,
    raw: &elf::Sym64<LittleEndian>,
    strings: ::object::read::StringTable<'a>,
    section_count: usize,
) -> Result<Symbol<'a>, String> {
    let name = raw
        .name(LittleEndian, strings)
        .map_err(|cause| format!("symbol {index}: no name: {cause}"))?;
    // A source file's name has the encoding of its directory.
    let name = if raw.st_type() == elf::STT_FILE { &[][..] } else { name };
    let name = checked_name(name).map_err(|what| format!("symbol {index}: {what}"))?;
    let place = match raw.st_shndx(LittleEndian).0 {
        0 => SymbolSection::Undefined,
        reserved if reserved >= elf::SHN_LORESERVE => SymbolSection::Reserved,
        section if usize::from(section) < section_count => SymbolSection::Section(section.into()),
        section => {
            return Err(format!("symbol {name}: in section {section} of {section_count}"));
        }
    };
    let visibility = raw.st_visibility();
    Ok(Symbol {
        name,
        place,
        value: raw.st_value(LittleEndian),
        size: raw.st_size(LittleEndian),
        kind: raw.st_type(),
        bind: raw.st_bind(),
        is_hidden: visibility == elf::STV_HIDDEN || visibility == elf::STV_INTERNAL,
    })
}

fn checked_name(name: &[u8]) -> Result<&str, &'static str> {
    if name.len() > NAME_BYTES_MAX {
        return Err("its name is longer than any identifier");
    }
    std::str::from_utf8(name).map_err(|_cause| "its name isn't UTF-8")
}

/// Longest name: twice the kernel's `KSYM_NAME_LEN`. Names are copied, and many symbols can share a
/// long one.
const NAME_BYTES_MAX: usize = 1024;
/// Longest label: enough to recognise a symbol in a message.
const LABEL_CHARS_MAX: usize = 64;
/// Largest number of sections: ELF's own limit without extended numbering, far above clang's
/// numbers.
const SECTIONS_MAX: usize = 0xff00;
/// Largest number of symbols: a thousand times that of a large real object.
const SYMBOLS_MAX: usize = 1 << 20;
/// Largest number of relocations: one for each instruction of the largest section.
const RELOCATIONS_MAX: usize = 1 << 20;
