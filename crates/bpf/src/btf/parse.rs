//! Bytes to [`Btf`], with every reference checked once.
//!
//! The kernel (`btf_parse` in kernel/bpf/btf.c) refuses what it doesn't understand; so do we, with
//! the type and offset in the message, because a wrong size here would shift everything after it.

use std::sync::{Arc, OnceLock};

use thiserror::Error;

use super::{Btf, Kind, Linkage, Member, Name, SecVar, Type, TypeId};

/// Why a BTF blob was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BtfError {
    /// The first bytes aren't a BTF header that we read.
    #[error("not BTF: {0}")]
    Header(&'static str),
    /// A big-endian blob.
    #[error("big-endian BTF: only little-endian types are supported (compile with -target bpfel)")]
    BigEndian,
    /// A section of the blob lies outside of it.
    #[error(
        "BTF {what} section (offset {offset}, {size} bytes) lies outside the blob of {len} bytes"
    )]
    Section {
        /// `type` or `string`.
        what: &'static str,
        /// As in the header, from the end of the header.
        offset: u32,
        /// As in the header.
        size: u32,
        /// Bytes there are.
        len: usize,
    },
    /// The string section isn't text.
    #[error("BTF string section: {0}")]
    Strings(&'static str),
    /// A type's record ends after the type section.
    #[error("BTF type {id} at offset {offset} is cut off: the type section ends inside it")]
    Truncated {
        /// Type id.
        id: TypeId,
        /// Byte offset in the type section.
        offset: usize,
    },
    /// A type of a kind that doesn't exist (yet).
    #[error("BTF type {id} at offset {offset} has unknown kind {kind}")]
    UnknownKind {
        /// Type id.
        id: TypeId,
        /// Byte offset in the type section.
        offset: usize,
        /// The number.
        kind: u32,
    },
    /// A type whose contents contradict each other.
    #[error("BTF type {id} at offset {offset}: {what}")]
    Type {
        /// Type id.
        id: TypeId,
        /// Byte offset in the type section.
        offset: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// A name that isn't in the string section.
    #[error("BTF type {id}: name offset {name} {what}")]
    Name {
        /// Type id.
        id: TypeId,
        /// The offset.
        name: u32,
        /// Why not.
        what: &'static str,
    },
    /// A reference to a type that doesn't exist.
    #[error("BTF type {id} refers to type {to}, but there are only {count} types")]
    Reference {
        /// Type id.
        id: TypeId,
        /// The missing one.
        to: TypeId,
        /// How many there are.
        count: usize,
    },
    /// A type that contains itself.
    #[error("BTF type {id} contains itself")]
    Cycle {
        /// Type id.
        id: TypeId,
    },
    /// A type nested deeper than any compiler writes.
    #[error("BTF type {id} is nested more than {DEPTH_MAX} types deep")]
    Depth {
        /// Type id.
        id: TypeId,
    },
    /// More types than an id can name.
    #[error("more than {TYPES_MAX} BTF types")]
    TooMany,
}

impl Btf {
    /// Parses a whole blob (the contents of `.BTF` or `/sys/kernel/btf/vmlinux`).
    pub fn parse(bytes: &[u8]) -> Result<Btf, BtfError> {
        Parser::new(bytes, None)?.run()
    }

    /// Parses a blob whose ids and strings continue those of `base` (`/sys/kernel/btf/MODULE`).
    pub fn parse_split(bytes: &[u8], base: Arc<Btf>, base_strings: &[u8]) -> Result<Btf, BtfError> {
        Parser::new(bytes, Some((base, base_strings)))?.run()
    }

    /// The string section of a blob, which [`Btf::parse_split`] needs of the base.
    pub fn string_section(bytes: &[u8]) -> Result<&[u8], BtfError> {
        Ok(split_sections(bytes)?.1)
    }
}

/// Types and strings sections of a blob.
fn split_sections(bytes: &[u8]) -> Result<(&[u8], &[u8]), BtfError> {
    let word = |at: usize| -> Result<u32, BtfError> {
        let raw = bytes.get(at..at + 4).ok_or(BtfError::Header("shorter than its header"))?;
        Ok(le32(raw))
    };
    match word(0)? & 0xffff {
        MAGIC => {}
        MAGIC_SWAPPED => return Err(BtfError::BigEndian),
        _ => return Err(BtfError::Header("magic number 0xeb9f is missing")),
    }
    if bytes[2] != 1 {
        return Err(BtfError::Header("unknown version (expected 1)"));
    }
    let header_len = word(4)? as usize;
    if header_len < HEADER_BYTES || header_len > bytes.len() {
        return Err(BtfError::Header("header length out of range"));
    }
    let section = |what, offset: u32, size: u32| {
        let start = header_len + offset as usize;
        let end = start.checked_add(size as usize);
        end.and_then(|end| bytes.get(start..end)).ok_or(BtfError::Section {
            what,
            offset,
            size,
            len: bytes.len(),
        })
    };
    Ok((section("type", word(8)?, word(12)?)?, section("string", word(16)?, word(20)?)?))
}

/// The state of one parse.
struct Parser<'a> {
    /// The type section.
    data: &'a [u8],
    /// Next byte in it.
    at: usize,
    /// Where the current type began.
    start: usize,
    strings: Strings<'a>,
    base: Option<Arc<Btf>>,
    types: Vec<Type>,
}

impl<'a> Parser<'a> {
    fn new(bytes: &'a [u8], base: Option<(Arc<Btf>, &'a [u8])>) -> Result<Self, BtfError> {
        let (data, strings) = split_sections(bytes)?;
        let (base, base_strings) = match base {
            Some((base, strings)) => (Some(base), strings),
            None => (None, &[][..]),
        };
        let mut types = Vec::with_capacity(data.len() / 24 + 1);
        if base.is_none() {
            types.push(Type { name: Name::from(""), kind: Kind::Void });
        }
        let strings = Strings::new(base_strings, strings)?;
        Ok(Parser { data, at: 0, start: 0, strings, base, types })
    }

    fn run(mut self) -> Result<Btf, BtfError> {
        while self.at < self.data.len() {
            self.start = self.at;
            if self.next_id() >= TYPES_MAX {
                return Err(BtfError::TooMany);
            }
            let parsed = self.one()?;
            self.types.push(parsed);
        }
        let btf = Btf { base: self.base, types: self.types, index: OnceLock::new() };
        check_references(&btf)?;
        check_nesting(&btf)?;
        Ok(btf)
    }

    fn next_id(&self) -> TypeId {
        (self.base.as_ref().map_or(0, |base| base.len()) + self.types.len()) as TypeId
    }

    fn one(&mut self) -> Result<Type, BtfError> {
        let name = self.word()?;
        let info = self.word()?;
        let size_or_type = self.word()?;
        let (count, kind, flag) = (info & 0xffff, info >> 24 & 0x1f, info >> 31 != 0);
        let name = self.name(name)?;
        let kind = match kind {
            1 => self.int(size_or_type)?,
            2 => Kind::Ptr(size_or_type),
            3 => Kind::Array { elem: self.word()?, index: self.word()?, count: self.word()? },
            4 | 5 => self.composite(kind == 5, size_or_type, count, flag)?,
            6 | 19 => self.enumeration(size_or_type, count, flag, kind == 19)?,
            7 => Kind::Fwd { union: flag },
            8 => Kind::Typedef(size_or_type),
            9 => Kind::Volatile(size_or_type),
            10 => Kind::Const(size_or_type),
            11 => Kind::Restrict(size_or_type),
            12 => Kind::Func { proto: size_or_type, linkage: self.linkage(count)? },
            13 => self.func_proto(size_or_type, count)?,
            14 => {
                let linkage = self.word()?;
                Kind::Var { ty: size_or_type, linkage: self.linkage(linkage)? }
            }
            15 => self.datasec(size_or_type, count)?,
            16 => Kind::Float(size_or_type),
            17 => Kind::DeclTag { ty: size_or_type, component: self.word()? as i32 },
            18 => Kind::TypeTag(size_or_type),
            kind => {
                return Err(BtfError::UnknownKind { id: self.next_id(), offset: self.start, kind });
            }
        };
        Ok(Type { name, kind })
    }

    fn int(&mut self, size: u32) -> Result<Kind, BtfError> {
        let word = self.word()?;
        let (encoding, offset, bits) = (word >> 24 & 0xf, (word >> 16) as u8, word as u8);
        if size > 16 || !size.is_power_of_two() {
            return Err(self.wrong("an integer must be 1, 2, 4, 8 or 16 bytes"));
        }
        if u32::from(bits) + u32::from(offset) > size * 8 {
            return Err(self.wrong("an integer's bits don't fit its size"));
        }
        Ok(Kind::Int {
            size,
            bits,
            offset,
            signed: encoding & 1 != 0,
            char: encoding & 2 != 0,
            boolean: encoding & 4 != 0,
        })
    }

    fn composite(
        &mut self,
        union: bool,
        size: u32,
        count: u32,
        bitfields: bool,
    ) -> Result<Kind, BtfError> {
        let members = self.list(count, 12, |parser| {
            let (name, ty, offset) = (parser.word()?, parser.word()?, parser.word()?);
            let name = parser.name(name)?;
            let (bit_offset, bit_size) =
                if bitfields { (offset & 0x00ff_ffff, offset >> 24) } else { (offset, 0) };
            Ok(Member { name, ty, bit_offset, bit_size })
        })?;
        Ok(Kind::Composite { union, size, members })
    }

    fn enumeration(
        &mut self,
        size: u32,
        count: u32,
        signed: bool,
        wide: bool,
    ) -> Result<Kind, BtfError> {
        // An enum that is only declared has no size.
        if size > 8 || !(size.is_power_of_two() || size == 0) {
            return Err(self.wrong("an enum must be 1, 2, 4 or 8 bytes"));
        }
        let values = self.list(count, if wide { 12 } else { 8 }, |parser| {
            let (name, low) = (parser.word()?, parser.word()?);
            let value = match (wide, signed) {
                (true, _) => i64::from(low) | i64::from(parser.word()?) << 32,
                (false, true) => i64::from(low as i32),
                (false, false) => i64::from(low),
            };
            Ok((parser.name(name)?, value))
        })?;
        Ok(Kind::Enum { size, signed, wide, values })
    }

    fn func_proto(&mut self, ret: TypeId, count: u32) -> Result<Kind, BtfError> {
        let params = self.list(count, 8, |parser| {
            let (name, ty) = (parser.word()?, parser.word()?);
            Ok((parser.name(name)?, ty))
        })?;
        Ok(Kind::FuncProto { ret, params })
    }

    fn datasec(&mut self, size: u32, count: u32) -> Result<Kind, BtfError> {
        let vars = self.list(count, 12, |parser| {
            Ok(SecVar { ty: parser.word()?, offset: parser.word()?, size: parser.word()? })
        })?;
        Ok(Kind::Datasec { size, vars })
    }

    /// `count` records, each of `bytes`; nothing is allocated for records that aren't there.
    fn list<T>(
        &mut self,
        count: u32,
        bytes: usize,
        mut record: impl FnMut(&mut Self) -> Result<T, BtfError>,
    ) -> Result<Box<[T]>, BtfError> {
        if count as usize * bytes > self.data.len() - self.at {
            return Err(BtfError::Truncated { id: self.next_id(), offset: self.start });
        }
        (0..count).map(|_| record(self)).collect()
    }

    fn linkage(&self, number: u32) -> Result<Linkage, BtfError> {
        match number {
            0 => Ok(Linkage::Static),
            1 => Ok(Linkage::Global),
            2 => Ok(Linkage::Extern),
            _ => Err(self.wrong("unknown linkage (expected static, global or extern)")),
        }
    }

    fn word(&mut self) -> Result<u32, BtfError> {
        let raw = self
            .data
            .get(self.at..self.at + 4)
            .ok_or(BtfError::Truncated { id: self.next_id(), offset: self.start })?;
        self.at += 4;
        Ok(le32(raw))
    }

    fn name(&mut self, offset: u32) -> Result<Name, BtfError> {
        let id = self.next_id();
        self.strings.at(offset).map_err(|what| BtfError::Name { id, name: offset, what })
    }

    fn wrong(&self, what: &'static str) -> BtfError {
        BtfError::Type { id: self.next_id(), offset: self.start, what }
    }
}

/// The string sections of base and blob, each string made once.
pub(crate) struct Strings<'a> {
    base: &'a str,
    own: &'a str,
    /// By offset: 1 + index in `made`; 0 for offsets that no name used yet.
    by_offset: Vec<u32>,
    made: Vec<Name>,
    empty: Name,
    /// Bytes that may still be copied: names that are each other's tails would add up to the
    /// square of the section's size.
    budget: usize,
}

impl<'a> Strings<'a> {
    pub(crate) fn new(base: &'a [u8], own: &'a [u8]) -> Result<Self, BtfError> {
        let text = |bytes: &'a [u8]| {
            if bytes.last().is_some_and(|&last| last != 0) {
                return Err(BtfError::Strings("doesn't end with a NUL byte"));
            }
            std::str::from_utf8(bytes)
                .map_err(|_source| BtfError::Strings("holds bytes that aren't UTF-8"))
        };
        let (base, own) = (text(base)?, text(own)?);
        let by_offset = vec![0; base.len() + own.len()];
        let budget = 4 * by_offset.len() + 4096;
        Ok(Strings { base, own, by_offset, made: Vec::new(), empty: Name::from(""), budget })
    }

    /// The string at an offset, or why there is none.
    pub(crate) fn at(&mut self, offset: u32) -> Result<Name, &'static str> {
        if offset == 0 {
            return Ok(self.empty.clone());
        }
        let offset = offset as usize;
        let slot = *self.by_offset.get(offset).ok_or("lies outside the string section")?;
        if let Some(made) = (slot as usize).checked_sub(1).and_then(|index| self.made.get(index)) {
            return Ok(made.clone());
        }
        let tail = match offset.checked_sub(self.base.len()) {
            Some(offset) => self.own.get(offset..),
            None => self.base.get(offset..),
        };
        let text =
            tail.and_then(|tail| tail.split('\0').next()).ok_or("isn't a whole character")?;
        self.budget = self.budget.checked_sub(text.len()).ok_or("overlaps too many other names")?;
        let name = Name::from(text);
        self.made.push(name.clone());
        self.by_offset[offset] = self.made.len() as u32;
        Ok(name)
    }
}

/// Each id that a type mentions exists.
fn check_references(btf: &Btf) -> Result<(), BtfError> {
    let count = btf.len();
    for (id, kind) in btf.own_types().map(|(id, ty)| (id, &ty.kind)) {
        let mut missing = None;
        for_each_reference(kind, |to| {
            if to as usize >= count {
                missing = Some(to);
            }
        });
        if let Some(to) = missing {
            return Err(BtfError::Reference { id, to, count });
        }
    }
    Ok(())
}

fn for_each_reference(kind: &Kind, mut visit: impl FnMut(TypeId)) {
    match kind {
        Kind::Void | Kind::Int { .. } | Kind::Enum { .. } | Kind::Fwd { .. } | Kind::Float(_) => {}
        Kind::Ptr(to)
        | Kind::Typedef(to)
        | Kind::Volatile(to)
        | Kind::Const(to)
        | Kind::Restrict(to)
        | Kind::TypeTag(to)
        | Kind::Func { proto: to, .. }
        | Kind::Var { ty: to, .. }
        | Kind::DeclTag { ty: to, .. } => visit(*to),
        Kind::Array { elem, index, .. } => {
            visit(*elem);
            visit(*index);
        }
        Kind::Composite { members, .. } => members.iter().for_each(|member| visit(member.ty)),
        Kind::FuncProto { ret, params } => {
            visit(*ret);
            params.iter().for_each(|(_, ty)| visit(*ty));
        }
        Kind::Datasec { vars, .. } => vars.iter().for_each(|var| visit(var.ty)),
    }
}

/// No type contains itself or is nested absurdly deep, so that walks over contained types end.
///
/// Depth-first without recursion: `depth` is 0 for types not seen, `OPEN` while their contents are
/// being looked at, and afterwards 1 + the deepest of them.
fn check_nesting(btf: &Btf) -> Result<(), BtfError> {
    const OPEN: u8 = u8::MAX;
    let first = btf.base_len();
    let mut depth = vec![0u8; btf.types.len()];
    let mut stack: Vec<(usize, usize)> = Vec::new();
    for root in 0..btf.types.len() {
        if depth[root] != 0 {
            continue;
        }
        stack.push((root, 0));
        depth[root] = OPEN;
        while let Some((at, next)) = stack.pop() {
            let Some(inner) = contained(&btf.types[at].kind, next) else {
                let deepest = contents(&btf.types[at].kind)
                    .filter_map(|id| (id as usize).checked_sub(first))
                    .map(|inner| depth[inner])
                    .max()
                    .unwrap_or(0);
                depth[at] = deepest + 1;
                if depth[at] > DEPTH_MAX {
                    return Err(BtfError::Depth { id: (first + at) as TypeId });
                }
                continue;
            };
            stack.push((at, next + 1));
            let Some(inner) = (inner as usize).checked_sub(first) else { continue };
            match depth[inner] {
                0 => {
                    depth[inner] = OPEN;
                    stack.push((inner, 0));
                }
                OPEN => return Err(BtfError::Cycle { id: (first + inner) as TypeId }),
                _ => {}
            }
        }
    }
    Ok(())
}

/// The `n`-th type that is part of this one by value or by another name.
fn contained(kind: &Kind, n: usize) -> Option<TypeId> {
    match kind {
        Kind::Composite { members, .. } => members.get(n).map(|member| member.ty),
        Kind::Typedef(to)
        | Kind::Volatile(to)
        | Kind::Const(to)
        | Kind::Restrict(to)
        | Kind::TypeTag(to)
        | Kind::Array { elem: to, .. }
        | Kind::Var { ty: to, .. }
        | Kind::Func { proto: to, .. }
        | Kind::DeclTag { ty: to, .. } => (n == 0).then_some(*to),
        _ => None,
    }
}

fn contents(kind: &Kind) -> impl Iterator<Item = TypeId> {
    (0..).map_while(|n| contained(kind, n))
}

fn le32(raw: &[u8]) -> u32 {
    raw.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

const MAGIC: u32 = 0xeb9f;
const MAGIC_SWAPPED: u32 = 0x9feb;
/// Bytes of `struct btf_header`.
const HEADER_BYTES: usize = 24;
/// The kernel's `BTF_MAX_TYPE`, with room for base and blob.
const TYPES_MAX: TypeId = 0x0010_0000;
/// Four times the kernel's `MAX_RESOLVE_DEPTH`: C code nests structs, arrays and typedefs far less.
const DEPTH_MAX: u8 = 128;
