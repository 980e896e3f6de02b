//! The types that hostile programs come with, written by hand: no compiler runs for each of them.

use std::sync::{Arc, LazyLock};

use towpath_bpf::btf::{Btf, TypeId};

/// All types, and the numbers of those that programs and maps name.
#[derive(Debug)]
pub(super) struct Types {
    /// The types.
    pub(super) btf: Arc<Btf>,
    /// `u32`, the key of arrays.
    pub(super) key: TypeId,
    /// `struct plain { u64 a, b; }`
    pub(super) plain: TypeId,
    /// `struct node`, with a reference count, a place in lists and one in trees.
    pub(super) node: TypeId,
    /// `struct guarded`, with a lock, a list and a tree.
    pub(super) guarded: TypeId,
    /// `struct keeper`, with places for a `plain` and a `node`.
    pub(super) keeper: TypeId,
    /// `struct timed`, with a timer.
    pub(super) timed: TypeId,
    /// Types of functions.
    pub(super) functions: Functions,
}

/// What functions of a program may be.
#[derive(Debug)]
pub(super) struct Functions {
    /// `int entry(struct xdp_md *)`
    pub(super) entry: TypeId,
    /// As `entry`, and tagged with the name of [`EXCEPTION_CALLBACK`].
    pub(super) entry_that_catches: TypeId,
    /// `int caught(u64 cookie)`
    pub(super) caught: TypeId,
    /// `static u64 part(u64, u64, u64, u64, u64)`
    pub(super) part: TypeId,
    /// `int number(struct xdp_md *, u64)`
    pub(super) global_number: TypeId,
    /// `int memory(struct plain *, u64)`
    pub(super) global_memory: TypeId,
    /// The same, where the pointer is never null.
    pub(super) global_nonnull: TypeId,
}

/// Name of the function that makes the result of programs that throw.
pub(super) const EXCEPTION_CALLBACK: &str = "caught";

/// Bytes of `struct plain`.
pub(super) const PLAIN_BYTES: u32 = 16;
/// Bytes of `struct node`, and where its list and tree nodes are.
pub(super) const NODE_BYTES: u32 = 80;
/// Offset of the list node in `struct node`.
pub(super) const NODE_LIST: i32 = 24;
/// Bytes of `struct guarded`, and offsets of its list and tree.
pub(super) const GUARDED_BYTES: u32 = 56;
/// Offset of the list.
pub(super) const GUARDED_LIST: i32 = 24;
/// Offset of the tree.
pub(super) const GUARDED_TREE: i32 = 40;
/// Offset of the tree node in `struct node`.
pub(super) const NODE_TREE: i32 = 48;
/// Bytes of `struct keeper`: a number, a `plain`, a `node`.
pub(super) const KEEPER_BYTES: u32 = 24;
/// Bytes of `struct timed`: a number and a timer.
pub(super) const TIMED_BYTES: u32 = 24;

/// The one set of types.
pub(super) fn types() -> &'static Types {
    static TYPES: LazyLock<Types> = LazyLock::new(write);
    &TYPES
}

fn write() -> Types {
    let mut out = Blob::default();
    let key = out.int("u32", 4, false);
    let word = out.int("u64", 8, false);
    let int = out.int("int", 4, true);
    let lock = out.structure("bpf_spin_lock", 4, &[("val", key, 0)]);
    let timer = out.structure("bpf_timer", 16, &[("a", word, 0), ("b", word, 8)]);
    let count = out.structure("bpf_refcount", 4, &[("val", key, 0)]);
    let words = |out: &mut Blob, name: &str, bytes: u32| {
        let names = ["a", "b", "c", "d"];
        let members: Vec<_> = names
            .iter()
            .take(bytes as usize / 8)
            .zip(0..)
            .map(|(n, i)| (*n, word, i * 8))
            .collect();
        out.structure(name, bytes, &members)
    };
    let list_node = words(&mut out, "bpf_list_node", 24);
    let tree_node = words(&mut out, "bpf_rb_node", 32);
    let list = words(&mut out, "bpf_list_head", 16);
    let tree = words(&mut out, "bpf_rb_root", 16);
    let plain = words(&mut out, "hostile_plain", PLAIN_BYTES);
    let node = [
        ("key", word, 0),
        ("data", word, 8),
        ("refs", count, 16),
        ("in_list", list_node, NODE_LIST as u32),
        ("in_tree", tree_node, NODE_TREE as u32),
    ];
    let node = out.structure("hostile_node", NODE_BYTES, &node);
    let guarded = [
        ("lock", lock, 0),
        ("small", key, 4),
        ("a", word, 8),
        ("b", word, 16),
        ("list", list, GUARDED_LIST as u32),
        ("tree", tree, GUARDED_TREE as u32),
    ];
    let guarded = out.structure("guarded", GUARDED_BYTES, &guarded);
    out.tag("contains:hostile_node:in_list", guarded, 4);
    out.tag("contains:hostile_node:in_tree", guarded, 5);
    let kept = [plain, node].map(|target| {
        let tagged = out.kind(KIND_TYPE_TAG, "kptr", target, 0, &[]);
        out.pointer(tagged)
    });
    let keeper = [("n", word, 0), ("plain", kept[0], 8), ("node", kept[1], 16)];
    let keeper = out.structure("keeper", KEEPER_BYTES, &keeper);
    let timed = out.structure("timed", TIMED_BYTES, &[("n", word, 0), ("timer", timer, 8)]);
    let functions = Functions::write(&mut out, (key, word, int), plain);
    let btf = Arc::new(Btf::parse(&out.finish()).unwrap_or_default());
    Types { btf, key, plain, node, guarded, keeper, timed, functions }
}

impl Functions {
    fn write(
        out: &mut Blob,
        (key, word, int): (TypeId, TypeId, TypeId),
        plain: TypeId,
    ) -> Functions {
        let fields = ["data", "data_end", "data_meta", "ingress", "queue", "egress"];
        let fields: Vec<_> = fields.iter().zip(0..).map(|(name, i)| (*name, key, i * 4)).collect();
        let context = out.structure("xdp_md", 24, &fields);
        let (context, memory) = (out.pointer(context), out.pointer(plain));
        let entry = out.function("entry", int, &[context], true);
        let entry_that_catches = out.function("entry", int, &[context], true);
        out.tag(&format!("exception_callback:{EXCEPTION_CALLBACK}"), entry_that_catches, -1);
        let caught = out.function(EXCEPTION_CALLBACK, int, &[word], true);
        let part = out.function("part", word, &[word; 5], false);
        let global_number = out.function("number", int, &[context, word], true);
        let global_memory = out.function("memory", int, &[memory, word], true);
        let global_nonnull = out.function("nonnull", int, &[memory, word], true);
        out.tag("arg:nonnull", global_nonnull, 0);
        Functions {
            entry,
            entry_that_catches,
            caught,
            part,
            global_number,
            global_memory,
            global_nonnull,
        }
    }
}

/// BTF being written (`Documentation/bpf/btf.rst`).
struct Blob {
    types: Vec<u32>,
    strings: Vec<u8>,
    count: TypeId,
}

impl Default for Blob {
    fn default() -> Self {
        Blob { types: Vec::new(), strings: vec![0], count: 0 }
    }
}

impl Blob {
    fn string(&mut self, text: &str) -> u32 {
        let offset = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        offset
    }

    /// One type; `low` goes into the information word beside the kind.
    fn kind(&mut self, kind: u32, name: &str, word: u32, low: u32, rest: &[u32]) -> TypeId {
        let name = if name.is_empty() { 0 } else { self.string(name) };
        self.types.extend([name, (kind << 24) | low, word]);
        self.types.extend(rest);
        self.count += 1;
        self.count
    }

    fn int(&mut self, name: &str, bytes: u32, signed: bool) -> TypeId {
        self.kind(KIND_INT, name, bytes, 0, &[(u32::from(signed) << 24) | (bytes * 8)])
    }

    fn pointer(&mut self, to: TypeId) -> TypeId {
        self.kind(KIND_PTR, "", to, 0, &[])
    }

    /// Members by name, type and offset in bytes.
    fn structure(&mut self, name: &str, bytes: u32, members: &[(&str, TypeId, u32)]) -> TypeId {
        let rest: Vec<u32> = members
            .iter()
            .flat_map(|(name, ty, offset)| [self.string(name), *ty, offset * 8])
            .collect();
        self.kind(KIND_STRUCT, name, bytes, members.len() as u32, &rest)
    }

    fn function(&mut self, name: &str, ret: TypeId, params: &[TypeId], global: bool) -> TypeId {
        let rest: Vec<u32> = params.iter().flat_map(|ty| [self.string("x"), *ty]).collect();
        let proto = self.kind(KIND_FUNC_PROTO, "", ret, params.len() as u32, &rest);
        self.kind(KIND_FUNC, name, proto, u32::from(global), &[])
    }

    fn tag(&mut self, text: &str, ty: TypeId, component: i32) -> TypeId {
        self.kind(KIND_DECL_TAG, text, ty, 0, &[component.cast_unsigned()])
    }

    fn finish(self) -> Vec<u8> {
        let types: Vec<u8> = self.types.into_iter().flat_map(u32::to_le_bytes).collect();
        let (bytes, strings) = (types.len() as u32, self.strings.len() as u32);
        let mut blob = vec![0x9f, 0xeb, 1, 0];
        blob.extend([24, 0, bytes, bytes, strings].into_iter().flat_map(u32::to_le_bytes));
        blob.extend(types);
        blob.extend(self.strings);
        blob
    }
}

const KIND_INT: u32 = 1;
const KIND_PTR: u32 = 2;
const KIND_STRUCT: u32 = 4;
const KIND_FUNC: u32 = 12;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_DECL_TAG: u32 = 17;
const KIND_TYPE_TAG: u32 = 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_are_what_their_names_say() {
        let types = types();
        assert_eq!(types.btf.name(types.guarded), "guarded");
        assert_eq!(types.btf.size_of(types.node), Some(NODE_BYTES.into()));
        assert_eq!(types.btf.name(types.functions.global_nonnull), "nonnull");
    }
}
