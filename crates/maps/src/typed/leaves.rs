//! A type as a list of its parts, to find the parts that two versions of a type have in common.

use towpath_bpf::btf::{Btf, Kind, TypeId};

/// One thing that a value holds and that has no parts of its own here: an integer, a pointer, an
/// enumeration, an array of those, a union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Its place by name: `stats.packets`, `slots[2].owner`.
    pub path: String,
    /// Bits from the start of the value.
    pub bit_offset: u32,
    /// Width in bits.
    pub bits: u32,
    /// Its type in C: `unsigned int`, `char[16]`.
    pub c_type: String,
}

/// The leaves of a type, by offset; `None` when it has more than [`LEAVES_MAX`], or parts that lie
/// outside of it.
pub fn leaves(btf: &Btf, id: TypeId) -> Option<Vec<Leaf>> {
    let mut walk = Walk { btf, leaves: Vec::new(), fuel: FUEL };
    walk.add(id, String::new(), 0)?;
    Some(walk.leaves)
}

struct Walk<'a> {
    btf: &'a Btf,
    leaves: Vec<Leaf>,
    /// Most types that are visited: a damaged file must not cause an endless walk.
    fuel: u32,
}

impl Walk<'_> {
    fn add(&mut self, id: TypeId, path: String, bit_offset: u32) -> Option<()> {
        self.fuel = self.fuel.checked_sub(1)?;
        let btf = self.btf;
        match btf.resolved(id) {
            Kind::Composite { union: false, .. } => self.members(id, &path, bit_offset),
            Kind::Datasec { vars, .. } => vars.iter().try_for_each(|var| {
                self.add(var.ty, btf.name(var.ty).to_owned(), bit_at(0, var.offset)?)
            }),
            Kind::Var { ty, .. } => self.add(*ty, path, bit_offset),
            Kind::Array { elem, count, .. } if self.has_parts(*elem) => {
                let size = u32::try_from(btf.size_of(*elem)?).ok()?;
                (0..*count).try_for_each(|index| {
                    let at = bit_at(bit_offset, size.checked_mul(index)?)?;
                    self.add(*elem, format!("{path}[{index}]"), at)
                })
            }
            _ => {
                let bits = bit_at(0, u32::try_from(btf.size_of(id)?).ok()?)?;
                self.push(Leaf { path, bit_offset, bits, c_type: btf.c_name(id) })
            }
        }
    }

    /// Members of anonymous structs are the outer one's own.
    fn members(&mut self, id: TypeId, path: &str, bit_offset: u32) -> Option<()> {
        let btf = self.btf;
        btf.members(id).iter().try_for_each(|member| {
            let path = match (path.is_empty(), member.name.is_empty()) {
                (_, true) => path.to_owned(),
                (true, false) => member.name.to_string(),
                (false, false) => format!("{path}.{}", member.name),
            };
            let bit_offset = bit_offset.checked_add(member.bit_offset)?;
            match member.bit_size {
                0 => self.add(member.ty, path, bit_offset),
                bits => {
                    let c_type = format!("{} : {bits}", btf.c_name(member.ty));
                    self.push(Leaf { path, bit_offset, bits, c_type })
                }
            }
        })
    }

    fn has_parts(&self, id: TypeId) -> bool {
        match self.btf.resolved(id) {
            Kind::Composite { union, .. } => !union,
            Kind::Array { elem, .. } => {
                !matches!(self.btf.resolved(*elem), Kind::Array { .. }) && self.has_parts(*elem)
            }
            _ => false,
        }
    }

    fn push(&mut self, leaf: Leaf) -> Option<()> {
        self.leaves.push(leaf);
        (self.leaves.len() <= LEAVES_MAX).then_some(())
    }
}

fn bit_at(bits: u32, bytes: u32) -> Option<u32> {
    bits.checked_add(bytes.checked_mul(8)?)
}

/// Most leaves: more than any value with named parts has.
pub const LEAVES_MAX: usize = 4096;
const FUEL: u32 = 4 * LEAVES_MAX as u32;
