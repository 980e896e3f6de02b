//! Parsing of bytes into a [`Btf`], with every reference checked once.
//!
//! Like the kernel (`btf_parse` in kernel/bpf/btf.c), the parser refuses unknown contents, with the
//! type and offset in the message, because a wrong size would shift everything after it.

use std::sync::Arc;

use super::check::{check_nesting, check_references};
use super::{Btf, BtfError, Kind, Linkage, Member, Name, SecVar, Strings, Type, TypeId};

impl Btf {
    /// Parses a whole blob (the contents of `.BTF` or `/sys/kernel/btf/vmlinux`).
    pub fn parse(bytes: &[u8]) -> Result<Btf, BtfError> {
        Parser::new(bytes, None)?.run()
    }

    /// Parses a blob whose ids and strings continue those of `base` (`/sys/kernel/btf/MODULE`).
    pub fn parse_split(bytes: &[u8], base: Arc<Btf>, base_strings: &[u8]) -> Result<Btf, BtfError> {
        Parser::new(bytes, Some((base, base_strings)))?.run()
    }

    /// The string section of a blob: [`Btf::parse_split`] needs that of the base.
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
    /// Offset of the next byte in it.
    at: usize,
    /// Offset at which the current type began.
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
        let btf = Btf { base: self.base, types: self.types, ..Btf::default() };
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

    /// Reads `count` records of `bytes` bytes each; no memory is allocated for missing records.
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
        let refuse = |what| BtfError::Name { id, name: offset, what };
        let name = self.strings.at(offset).map_err(refuse)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(refuse("is longer than any identifier"));
        }
        Ok(name)
    }

    fn wrong(&self, what: &'static str) -> BtfError {
        BtfError::Type { id: self.next_id(), offset: self.start, what }
    }
}

fn le32(raw: &[u8]) -> u32 {
    raw.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte))
}

const MAGIC: u32 = 0xeb9f;
const MAGIC_SWAPPED: u32 = 0x9feb;
/// Size of `struct btf_header`, in bytes.
const HEADER_BYTES: usize = 24;
/// Longest name: twice the kernel's `KSYM_NAME_LEN`, the limit of identifiers in BTF.
const NAME_BYTES_MAX: usize = 1024;
/// Largest number of types: the kernel's `BTF_MAX_TYPE`, for base and blob together.
pub(super) const TYPES_MAX: TypeId = 0x0010_0000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::Emitter;

    #[test]
    fn what_was_parsed_is_written_back_the_same() {
        let bytes = include_bytes!("../../tests/data/core_kernel.btf");
        let btf = Btf::parse(bytes).unwrap();
        let again = Btf::parse(&Emitter::new(&btf).finish()).unwrap();
        // Unnamed parameters get names, and sections without a size are left out.
        let comparable = |btf: &Btf| {
            let types = btf.iter().map(|(_, ty)| ty.clone());
            types
                .take(28)
                .filter(|ty| !matches!(ty.kind, Kind::FuncProto { .. }))
                .collect::<Vec<_>>()
        };
        assert_eq!(comparable(&btf), comparable(&again));
    }

    #[test]
    fn damage_is_named() {
        let bytes = include_bytes!("../../tests/data/core_kernel.btf");
        assert_eq!(
            Btf::parse(&bytes[..6]).err(),
            Some(BtfError::Header("shorter than its header"))
        );
        let with = |at: usize, value: u8| {
            let mut bytes = bytes.to_vec();
            bytes[at] = value;
            Btf::parse(&bytes).unwrap_err()
        };
        assert!(matches!(with(0, 0), BtfError::Header(_)));
        let mut swapped = bytes.to_vec();
        swapped.swap(0, 1);
        assert_eq!(Btf::parse(&swapped).err(), Some(BtfError::BigEndian));
        assert!(matches!(with(13, 0xff), BtfError::Section { what: "type", .. }));
        assert!(matches!(with(24 + 7, 0x1f), BtfError::UnknownKind { id: 1, kind: 31, .. }));
        assert!(matches!(with(24 + 2, 0xff), BtfError::Name { id: 1, .. }));
    }
}
