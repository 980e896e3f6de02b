//! BTF back into bytes, for `BPF_BTF_LOAD`.
//!
//! A [`Btf`] keeps no raw bytes, because linking changes types (several object files, section sizes
//! that clang leaves at 0), so the blob for the kernel is written again. Type ids stay the same.
//! Format: the kernel's `Documentation/bpf/btf.rst`.

use std::collections::HashMap;

use super::{Btf, Kind, Linkage, Member, SecVar, Type};
use crate::program::Linked;

/// Writes one blob. Strings may be added before [`Emitter::finish`], for line information.
#[derive(Debug)]
pub struct Emitter<'a> {
    btf: &'a Btf,
    strings: Vec<u8>,
    offsets: HashMap<String, u32>,
}

impl<'a> Emitter<'a> {
    /// Starts a blob with all types of `btf`.
    pub fn new(btf: &'a Btf) -> Self {
        Emitter { btf, strings: vec![0], offsets: HashMap::new() }
    }

    /// Offset of a string in the blob; adds the string if it is new.
    pub fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        if let Some(&offset) = self.offsets.get(text) {
            return offset;
        }
        let offset = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        self.offsets.insert(text.to_owned(), offset);
        offset
    }

    /// The whole blob.
    pub fn finish(mut self) -> Vec<u8> {
        let mut types = Vec::new();
        for id in 1..self.btf.types().len() {
            let ty = self.btf.types()[id].clone();
            self.emit_type(&mut types, &ty);
        }
        let (type_bytes, string_bytes) = (types.len() as u32, self.strings.len() as u32);
        let mut blob = Vec::with_capacity(HEADER_BYTES + types.len() + self.strings.len());
        blob.extend_from_slice(&MAGIC.to_le_bytes());
        blob.extend_from_slice(&[VERSION, 0]);
        for word in [HEADER_BYTES as u32, 0, type_bytes, type_bytes, string_bytes] {
            put(&mut blob, word);
        }
        blob.extend_from_slice(&types);
        blob.extend_from_slice(&self.strings);
        blob
    }

    fn emit_type(&mut self, out: &mut Vec<u8>, ty: &Type) {
        let name = self.string(&ty.name);
        match &ty.kind {
            // Void is type 0 only; elsewhere it stands for an unknown kind.
            Kind::Void => header(out, name, Head::new(KIND_INT), 1, &[0x0800_0008]),
            &Kind::Int { size, bits, offset, signed, boolean, char } => {
                let encoding = u32::from(signed) | u32::from(char) << 1 | u32::from(boolean) << 2;
                let detail = encoding << 24 | u32::from(offset) << 16 | u32::from(bits);
                header(out, name, Head::new(KIND_INT), size, &[detail]);
            }
            &Kind::Ptr(to) => header(out, name, Head::new(KIND_PTR), to, &[]),
            &Kind::Array { elem, index, count } => {
                header(out, name, Head::new(KIND_ARRAY), 0, &[elem, index, count]);
            }
            Kind::Composite { union, size, members } => {
                self.emit_composite(out, name, *union, *size, members);
            }
            Kind::Enum { size, signed, wide, values } => {
                self.emit_enum(out, name, (*size, *signed, *wide), values);
            }
            &Kind::Fwd { union } => header(out, name, Head::new(KIND_FWD).flag(union), 0, &[]),
            &Kind::Typedef(to) => header(out, name, Head::new(KIND_TYPEDEF), to, &[]),
            &Kind::Volatile(to) => header(out, name, Head::new(KIND_VOLATILE), to, &[]),
            &Kind::Const(to) => header(out, name, Head::new(KIND_CONST), to, &[]),
            &Kind::Restrict(to) => header(out, name, Head::new(KIND_RESTRICT), to, &[]),
            &Kind::Func { proto, linkage } => {
                // The kernel allows no extern functions in a program's BTF (`btf_func_check_meta`);
                // libbpf writes kfunc declarations as global too.
                let global = linkage != Linkage::Static;
                header(out, name, Head::new(KIND_FUNC).count(usize::from(global)), proto, &[]);
            }
            Kind::FuncProto { ret, params } => self.emit_prototype(out, name, *ret, params),
            &Kind::Var { ty, linkage } => self.emit_variable(out, name, ty, linkage),
            Kind::Datasec { size, vars } => self.emit_section(out, &ty.name, *size, vars),
            &Kind::Float(size) => header(out, name, Head::new(KIND_FLOAT), size, &[]),
            &Kind::DeclTag { ty, component } => {
                header(out, name, Head::new(KIND_DECL_TAG), ty, &[component as u32]);
            }
            &Kind::TypeTag(to) => header(out, name, Head::new(KIND_TYPE_TAG), to, &[]),
        }
    }

    fn emit_composite(
        &mut self,
        out: &mut Vec<u8>,
        name: u32,
        union: bool,
        size: u32,
        members: &[Member],
    ) {
        // Bit-field widths share a word with the offset when the kind flag is set.
        let bit_fields = members.iter().any(|member| member.bit_size != 0);
        let kind = if union { KIND_UNION } else { KIND_STRUCT };
        header(out, name, Head::new(kind).count(members.len()).flag(bit_fields), size, &[]);
        for member in members {
            let name = self.string(&member.name);
            let place = if bit_fields {
                member.bit_size << 24 | member.bit_offset
            } else {
                member.bit_offset
            };
            [name, member.ty, place].into_iter().for_each(|word| put(out, word));
        }
    }

    fn emit_enum(
        &mut self,
        out: &mut Vec<u8>,
        name: u32,
        (size, signed, wide): (u32, bool, bool),
        values: &[(impl AsRef<str>, i64)],
    ) {
        let kind = if wide { KIND_ENUM64 } else { KIND_ENUM };
        header(out, name, Head::new(kind).count(values.len()).flag(signed), size, &[]);
        for (name, value) in values {
            let name = self.string(name.as_ref());
            put(out, name);
            put(out, *value as u32);
            if wide {
                put(out, (*value >> 32) as u32);
            }
        }
    }

    fn emit_prototype(
        &mut self,
        out: &mut Vec<u8>,
        name: u32,
        ret: u32,
        params: &[(impl AsRef<str>, u32)],
    ) {
        header(out, name, Head::new(KIND_FUNC_PROTO).count(params.len()), ret, &[]);
        for (name, ty) in params {
            // The kernel requires names for the parameters of functions (`btf_func_check`), and
            // clang has none in declarations of kfuncs; libbpf makes names up too.
            let name = match name.as_ref() {
                "" if *ty != 0 => "unnamed",
                name => name,
            };
            let name = self.string(name);
            put(out, name);
            put(out, *ty);
        }
    }

    /// Writes a variable. Externs become global variables, and those without a size (`extern const
    /// void x`) an integer of the same name: `btf_var_check_meta` accepts neither.
    fn emit_variable(&mut self, out: &mut Vec<u8>, name: u32, ty: u32, linkage: Linkage) {
        if self.btf.types().get(ty as usize).is_none_or(|target| self.is_void(target)) {
            return header(out, name, Head::new(KIND_INT), 4, &[INT32]);
        }
        let linkage = u32::from(linkage != Linkage::Static);
        header(out, name, Head::new(KIND_VAR), ty, &[linkage]);
    }

    fn is_void(&self, ty: &Type) -> bool {
        match ty.kind {
            Kind::Void => true,
            Kind::Const(to) | Kind::Volatile(to) => {
                self.btf.types().get(to as usize).is_none_or(|target| self.is_void(target))
            }
            _ => false,
        }
    }

    /// Writes a section. Sections of externs list functions, which the kernel refuses
    /// (`btf_datasec_resolve`), and nothing refers to them; an integer replaces them so that ids
    /// don't move. It also replaces a section without a size, whose variables lie outside it.
    fn emit_section(&mut self, out: &mut Vec<u8>, name: &str, size: u32, vars: &[SecVar]) {
        if matches!(name, ".ksyms" | ".kconfig") || size == 0 || vars.is_empty() {
            let name = self.string("towpath_extern_section");
            return header(out, name, Head::new(KIND_INT), 4, &[INT32]);
        }
        let name = self.string(name);
        header(out, name, Head::new(KIND_DATASEC).count(vars.len()), size, &[]);
        let mut sorted = vars.to_vec();
        sorted.sort_by_key(|var| var.offset);
        for var in sorted {
            [var.ty, var.offset, var.size].into_iter().for_each(|word| put(out, word));
        }
    }
}

/// The `info` word of `struct btf_type`.
#[derive(Clone, Copy)]
struct Head(u32);

impl Head {
    fn new(kind: u32) -> Self {
        Head(kind << 24)
    }

    /// `vlen`: members, values, parameters or variables.
    fn count(self, count: usize) -> Self {
        Head(self.0 | (count as u32 & 0xffff))
    }

    /// `kind_flag`.
    fn flag(self, on: bool) -> Self {
        Head(self.0 | u32::from(on) << 31)
    }
}

fn header(out: &mut Vec<u8>, name: u32, head: Head, size_or_type: u32, rest: &[u32]) {
    [name, head.0, size_or_type].iter().chain(rest).for_each(|&word| put(out, word));
}

fn put(out: &mut Vec<u8>, word: u32) {
    out.extend_from_slice(&word.to_le_bytes());
}

const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER_BYTES: usize = 24;
/// Detail word of a signed 32-bit integer.
const INT32: u32 = 0x0100_0020;

const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_FWD: u32 = 7;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_RESTRICT: u32 = 11;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_FLOAT: u32 = 16;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;
const KIND_ENUM64: u32 = 19;

/// `struct bpf_func_info` records of a linked program: one for each function, or none at all, as
/// the kernel requires either every function's type or no types.
pub fn func_info(linked: &Linked) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(linked.functions.len() * FUNC_INFO_BYTES);
    for function in &linked.functions {
        let Some(type_id) = function.type_id else {
            return Vec::new();
        };
        for word in [function.start, type_id] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

/// `struct bpf_line_info` records, whose strings are added to the blob; none if a function's first
/// line is missing (`check_btf_line` requires it).
pub fn line_info(linked: &Linked, strings: &mut Emitter<'_>) -> Vec<u8> {
    let starts_known = linked
        .functions
        .iter()
        .all(|f| linked.lines.binary_search_by_key(&f.start, |line| line.insn).is_ok());
    if !starts_known {
        return Vec::new();
    }
    let mut bytes = Vec::with_capacity(linked.lines.len() * LINE_INFO_BYTES);
    for line in &linked.lines {
        let (file, text) = (strings.string(&line.file), strings.string(&line.text));
        let place = line.line << 10 | line.column.min(0x3ff);
        for word in [line.insn, file, text, place] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
    }
    bytes
}

/// Size of `struct bpf_func_info`, in bytes.
pub const FUNC_INFO_BYTES: usize = 8;
/// Size of `struct bpf_line_info`, in bytes.
pub const LINE_INFO_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_records_have_the_documented_layout() {
        let int = Type {
            name: "int".into(),
            kind: Kind::Int {
                size: 4,
                bits: 32,
                offset: 0,
                signed: true,
                boolean: false,
                char: false,
            },
        };
        let void = Type { name: "".into(), kind: Kind::Void };
        let mut btf = Btf::default();
        btf.types.extend([void, int]);
        let blob = Emitter::new(&btf).finish();
        assert_eq!(&blob[..8], &[0x9f, 0xeb, 1, 0, 24, 0, 0, 0]);
        assert_eq!(&blob[24..28], &1u32.to_le_bytes(), "name is the first string");
        assert_eq!(&blob[28..32], &(KIND_INT << 24).to_le_bytes());
        assert_eq!(&blob[36..40], &INT32.to_le_bytes());
        assert_eq!(&blob[40..], b"\0int\0");
    }
}
