//! Checks on all types of a blob together: references exist, and no type contains itself.
//!
//! After this, walks through names and contents end, so that accessors need no limits of their own.

use super::{Btf, BtfError, Kind, TypeId};

/// Checks that each id that a type refers to exists.
pub(super) fn check_references(btf: &Btf) -> Result<(), BtfError> {
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

/// Checks that no type contains itself or is nested absurdly deep, so that walks over contained
/// types end.
///
/// Depth-first without recursion: `depth` is 0 for types that were not visited, `OPEN` while their
/// contents are being visited, and afterwards 1 + the deepest of them.
pub(super) fn check_nesting(btf: &Btf) -> Result<(), BtfError> {
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

/// The `n`-th type that is part of this one by value or through a typedef or qualifier.
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

/// Largest depth: four times the kernel's `MAX_RESOLVE_DEPTH`; C code nests structs, arrays and
/// typedefs far less.
pub(super) const DEPTH_MAX: u8 = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btf::{Emitter, Member, Name, Type};

    /// A blob with these types, from id 1 on.
    fn parse(kinds: Vec<Kind>) -> Result<Btf, BtfError> {
        let mut btf = Btf::default();
        for kind in kinds {
            btf.push(Type { name: Name::from(""), kind });
        }
        Btf::parse(&Emitter::new(&btf).finish())
    }

    fn holder(ty: TypeId) -> Kind {
        let member = Member { name: Name::from("m"), ty, bit_offset: 0, bit_size: 0 };
        Kind::Composite { union: false, size: 8, members: Box::new([member]) }
    }

    #[test]
    fn a_type_may_point_to_itself_but_not_contain_itself() {
        assert!(parse(vec![holder(2), Kind::Ptr(1)]).is_ok());
        assert_eq!(parse(vec![holder(2), Kind::Const(1)]).err(), Some(BtfError::Cycle { id: 1 }));
        assert_eq!(parse(vec![Kind::Typedef(1)]).err(), Some(BtfError::Cycle { id: 1 }));
        let array = Kind::Array { elem: 1, index: 0, count: 3 };
        assert_eq!(parse(vec![array]).err(), Some(BtfError::Cycle { id: 1 }));
    }

    #[test]
    fn references_must_exist() {
        let error = parse(vec![Kind::Ptr(0), Kind::Ptr(3)]).err();
        assert_eq!(error, Some(BtfError::Reference { id: 2, to: 3, count: 3 }));
    }

    #[test]
    fn chains_are_followed_to_a_depth_only_from_either_end() {
        let chain = |len: u32| (0..len).map(Kind::Typedef).collect::<Vec<_>>();
        assert!(parse(chain(u32::from(DEPTH_MAX) - 1)).is_ok());
        assert!(matches!(parse(chain(100_000)), Err(BtfError::Depth { .. })));
        let upwards = (0..100_000).map(|id| Kind::Typedef((id + 2) % 100_001)).collect();
        assert!(matches!(parse(upwards), Err(BtfError::Depth { .. })));
    }

    #[test]
    fn a_declaration_that_never_ends_is_cut() {
        let proto = Kind::FuncProto {
            ret: 1,
            params: Box::new([(Name::from("a"), 1), (Name::from("b"), 1)]),
        };
        let btf = parse(vec![Kind::Ptr(2), proto]).unwrap();
        assert!(btf.c_name(1).len() < 1 << 20);
    }
}
