//! Queries on a [`Btf`]: types behind typedefs and qualifiers, their sizes, types by name.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, LazyLock, OnceLock};

use super::{Btf, Kind, Later, Member, Name, SecVar, Type, TypeId};

/// Kind that [`Btf::kind`] returns for an id that doesn't exist, so that callers need no second
/// case.
static VOID: Kind = Kind::Void;

impl Btf {
    /// Number of types, including `void` and those of the base: ids are below this.
    pub fn len(&self) -> usize {
        self.base_len() + self.types().len()
    }

    /// Whether there is no type but `void`.
    pub fn is_empty(&self) -> bool {
        self.len() <= 1
    }

    /// A type by id.
    pub fn get(&self, id: TypeId) -> Option<&Type> {
        match (id as usize).checked_sub(self.base_len()) {
            Some(own) => self.types().get(own),
            None => self.base()?.get(id),
        }
    }

    /// Kind of a type; `Void` if there is no such id.
    pub fn kind(&self, id: TypeId) -> &Kind {
        self.get(id).map_or(&VOID, |ty| &ty.kind)
    }

    /// Name of a type; empty if it has none.
    pub fn name(&self, id: TypeId) -> &str {
        self.get(id).map_or("", |ty| &ty.name)
    }

    /// All types with their ids, in order.
    pub fn iter(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        (0..self.len() as TypeId).filter_map(|id| Some((id, self.get(id)?)))
    }

    /// Own types with their ids, without those of the base.
    pub(crate) fn own_types(&self) -> impl Iterator<Item = (TypeId, &Type)> {
        (self.base_len() as TypeId..).zip(self.types())
    }

    /// One of the own types, to be completed by the object loader (sizes of data sections).
    pub(crate) fn own_type_mut(&mut self, id: TypeId) -> Option<&mut Type> {
        let own = (id as usize).checked_sub(self.base_len())?;
        self.settle().types.get_mut(own)
    }

    /// An extension of `base` without types of its own.
    pub(crate) fn on_top_of(base: Arc<Btf>) -> Btf {
        // If the base is empty, it lacks even `void`, which has to be the first type.
        Btf { base: (!base.is_empty()).then_some(base), ..Btf::default() }
    }

    /// Adds a type whose references exist, and returns its id.
    pub(crate) fn push(&mut self, ty: Type) -> TypeId {
        let btf = self.settle();
        if btf.types.is_empty() && btf.base.is_none() {
            btf.types.push(Type { name: Name::from(""), kind: Kind::Void });
        }
        btf.types.push(ty);
        btf.index = OnceLock::new();
        btf.tags = OnceLock::new();
        (btf.len() - 1) as TypeId
    }

    /// A `Btf` whose types come from `read`, which is called at the first access to one of them.
    pub(crate) fn later(read: impl FnOnce() -> Btf + Send + 'static) -> Btf {
        let later = Arc::new(LazyLock::new(Box::new(read) as Box<_>));
        Btf { later: Some(Later(later)), ..Btf::default() }
    }

    /// The types themselves, read now if they were not read before.
    fn now(&self) -> &Btf {
        self.later.as_ref().map_or(self, |Later(later)| later.now())
    }

    /// As [`Btf::now`], for changes.
    fn settle(&mut self) -> &mut Btf {
        if self.later.is_some() {
            *self = self.now().clone();
        }
        self
    }

    pub(super) fn types(&self) -> &[Type] {
        &self.now().types
    }

    fn base(&self) -> Option<&Arc<Btf>> {
        self.now().base.as_ref()
    }

    /// The id behind typedefs, `const`, `volatile`, `restrict` and type tags.
    pub fn resolve(&self, mut id: TypeId) -> TypeId {
        loop {
            match *self.kind(id) {
                Kind::Typedef(to)
                | Kind::Volatile(to)
                | Kind::Const(to)
                | Kind::Restrict(to)
                | Kind::TypeTag(to) => id = to,
                _ => return id,
            }
        }
    }

    /// The id behind `const`, `volatile`, `restrict` and type tags, but not typedefs.
    pub fn strip_qualifiers(&self, mut id: TypeId) -> TypeId {
        loop {
            match *self.kind(id) {
                Kind::Volatile(to) | Kind::Const(to) | Kind::Restrict(to) | Kind::TypeTag(to) => {
                    id = to;
                }
                _ => return id,
            }
        }
    }

    /// Kind of the type behind typedefs and qualifiers.
    pub fn resolved(&self, id: TypeId) -> &Kind {
        self.kind(self.resolve(id))
    }

    /// Size of a value of this type in bytes; `None` for `void`, functions and forward
    /// declarations.
    pub fn size_of(&self, id: TypeId) -> Option<u64> {
        let mut factor = 1u64;
        let mut id = id;
        loop {
            let size = match *self.resolved(id) {
                Kind::Int { size, .. }
                | Kind::Composite { size, .. }
                | Kind::Enum { size, .. }
                | Kind::Datasec { size, .. }
                | Kind::Float(size) => u64::from(size),
                Kind::Ptr(_) => POINTER_BYTES,
                Kind::Array { elem, count, .. } => {
                    factor = factor.checked_mul(u64::from(count))?;
                    id = elem;
                    continue;
                }
                Kind::Var { ty, .. } => {
                    id = ty;
                    continue;
                }
                _ => return None,
            };
            return factor.checked_mul(size);
        }
    }

    /// The members of a struct or union behind any other names; empty for anything else.
    pub fn members(&self, id: TypeId) -> &[Member] {
        match self.resolved(id) {
            Kind::Composite { members, .. } => members,
            _ => &[],
        }
    }

    /// A member by name, also inside anonymous structs and unions.
    pub fn member(&self, id: TypeId, name: &str) -> Option<FoundMember<'_>> {
        self.member_within(id, name, &mut HashSet::new())
    }

    /// Looks for a member; `seen` has the anonymous types that lack it, so that each is searched
    /// only once.
    fn member_within(
        &self,
        id: TypeId,
        name: &str,
        seen: &mut HashSet<TypeId>,
    ) -> Option<FoundMember<'_>> {
        for (index, member) in self.members(id).iter().enumerate() {
            let bit_offset = member.bit_offset;
            if &*member.name == name {
                let (owner, index) = (self.resolve(id), index as i32);
                return Some(FoundMember { member, bit_offset, owner, index });
            }
            if member.name.is_empty() && !seen.contains(&member.ty) {
                if let Some(inner) = self.member_within(member.ty, name, seen) {
                    let bit_offset = bit_offset.checked_add(inner.bit_offset)?;
                    return Some(FoundMember { bit_offset, ..inner });
                }
                seen.insert(member.ty);
            }
        }
        None
    }

    /// The first type of this name that `wanted` accepts.
    pub fn find(&self, name: &str, wanted: impl Fn(&Kind) -> bool) -> Option<TypeId> {
        self.candidates(essential_name(name))
            .find(|&id| self.name(id) == name && wanted(self.kind(id)))
    }

    /// A struct or union by name.
    pub fn find_composite(&self, name: &str) -> Option<TypeId> {
        self.find(name, |kind| matches!(kind, Kind::Composite { .. }))
    }

    /// A function by name.
    pub fn find_func(&self, name: &str) -> Option<TypeId> {
        self.find(name, |kind| matches!(kind, Kind::Func { .. }))
    }

    /// A variable by name.
    pub fn find_var(&self, name: &str) -> Option<TypeId> {
        self.find(name, |kind| matches!(kind, Kind::Var { .. }))
    }

    /// The variables of a data section, by section name.
    pub fn datasec(&self, section: &str) -> Option<(TypeId, &[SecVar])> {
        let id = self.find(section, |kind| matches!(kind, Kind::Datasec { .. }))?;
        match self.kind(id) {
            Kind::Datasec { vars, .. } => Some((id, vars)),
            _ => None,
        }
    }

    /// Ids, ascending, of types whose name without flavour is `essential`.
    pub fn candidates(&self, essential: &str) -> impl Iterator<Item = TypeId> + use<'_> {
        let own = self.now().index.get_or_init(|| NameIndex::of(self));
        let in_base: Vec<TypeId> = match self.base() {
            Some(base) => base.candidates(essential).collect(),
            None => Vec::new(),
        };
        in_base.into_iter().chain(own.ids(essential, self.base_len()))
    }

    /// Texts of the declaration tags (`btf_decl_tag`) of a type in the blob's order, or of one of
    /// its members or parameters if `component` isn't -1.
    pub fn decl_tags(&self, of: TypeId, component: i32) -> impl Iterator<Item = &str> {
        let place = (of, component);
        let TagIndex(all) = self.now().tags.get_or_init(|| TagIndex::of(self));
        let from = all.partition_point(|(at, _)| *at < place);
        let tags = all[from..].iter().take_while(move |(at, _)| *at == place);
        tags.map(|&(_, tag)| self.name(tag))
    }

    /// Number of types in the base: the first own id.
    pub(crate) fn base_len(&self) -> usize {
        self.base().map_or(0, |base| base.len())
    }
}

/// A member that was found, and its position.
#[derive(Debug, Clone, Copy)]
pub struct FoundMember<'a> {
    /// The member.
    pub member: &'a Member,
    /// Offset from the start of the type that was searched, in bits.
    pub bit_offset: u32,
    /// The struct or union that contains the member: possibly an anonymous one.
    pub owner: TypeId,
    /// Index among the owner's members.
    pub index: i32,
}

/// A name without its flavour: `task_struct` of `task_struct___v6` (`bpf_core_essential_name_len`).
///
/// A flavour lets one source file describe a kernel type as several kernel versions have it.
pub fn essential_name(name: &str) -> &str {
    let bytes = name.as_bytes();
    let is_start =
        |at: usize| bytes[at] != b'_' && &bytes[at + 1..at + 4] == b"___" && bytes[at + 4] != b'_';
    match (0..bytes.len().saturating_sub(4)).rev().find(|&at| is_start(at)) {
        Some(at) => name.get(..=at).unwrap_or(name),
        None => name,
    }
}

/// Own ids of a [`Btf`] by name without flavour: the first of each name, and a chain of the others.
#[derive(Debug, Default, Clone)]
pub(super) struct NameIndex {
    first: HashMap<Name, TypeId>,
    /// By own index: the next id of the same name; 0 at the end of the chain.
    next: Vec<TypeId>,
}

impl NameIndex {
    fn of(btf: &Btf) -> Self {
        let mut index = NameIndex { first: HashMap::new(), next: vec![0; btf.types().len()] };
        // The iteration is backwards, so that each chain ascends.
        for (own, ty) in btf.types().iter().enumerate().rev().filter(|(_, ty)| !ty.name.is_empty())
        {
            let id = (btf.base_len() + own) as TypeId;
            let essential = essential_name(&ty.name);
            let key =
                if essential.len() == ty.name.len() { ty.name.clone() } else { essential.into() };
            index.next[own] = index.first.insert(key, id).unwrap_or(0);
        }
        index
    }

    fn ids(&self, name: &str, base_len: usize) -> impl Iterator<Item = TypeId> + use<'_> {
        std::iter::successors(self.first.get(name).copied(), move |&id| {
            self.next.get(id as usize - base_len).copied()
        })
        .take_while(|&id| id != 0)
    }
}

/// Declaration tags: the place that each is attached to, and its id. Sorted.
#[derive(Debug, Clone)]
pub(super) struct TagIndex(Vec<((TypeId, i32), TypeId)>);

impl TagIndex {
    fn of(btf: &Btf) -> Self {
        let tags = btf.iter().filter_map(|(id, tag)| match tag.kind {
            Kind::DeclTag { ty, component } => Some(((ty, component), id)),
            _ => None,
        });
        let mut tags: Vec<_> = tags.collect();
        tags.sort_unstable();
        TagIndex(tags)
    }
}

/// Size of a BPF pointer: 64 bits on every machine.
const POINTER_BYTES: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flavour_is_what_follows_three_underscores() {
        assert_eq!(essential_name("task_struct___v6"), "task_struct");
        assert_eq!(essential_name("a___b___c"), "a___b");
        assert_eq!(essential_name("___x"), "___x");
        assert_eq!(essential_name("x____y"), "x____y");
        assert_eq!(essential_name("x___"), "x___");
    }

    #[test]
    fn types_are_read_when_the_first_is_asked_for() {
        let (asked, is_asked) = (Arc::new(()), |asked: &Arc<()>| Arc::strong_count(asked) == 1);
        let kept = Arc::clone(&asked);
        let mut btf = Btf::later(move || {
            drop(kept);
            let mut btf = Btf::default();
            btf.push(Type { name: Name::from("a"), kind: Kind::Float(8) });
            btf
        });
        let copy = btf.clone();
        assert!(!is_asked(&asked));
        assert_eq!((copy.name(1), copy.len()), ("a", 2));
        assert!(is_asked(&asked), "once, for all that are the same");
        btf.push(Type { name: Name::from("b"), kind: Kind::Float(4) });
        assert_eq!(btf.find("b", |_| true), Some(2));
        assert_eq!(copy.find("b", |_| true), None, "a copy is its own");
    }
}
