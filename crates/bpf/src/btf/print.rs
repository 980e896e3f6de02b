//! Types in C syntax: `struct iphdr *`, `const char[16]`, `int (*)(void *, u32)`.

use super::{Btf, Kind, TypeId};

impl Btf {
    /// The type in C syntax, e.g. for a cast.
    pub fn c_name(&self, id: TypeId) -> String {
        self.c_declaration(id, "")
    }

    /// A declaration of `name` with this type, e.g. `__u32 counters[4]`.
    pub fn c_declaration(&self, id: TypeId, name: &str) -> String {
        let mut printer = Printer { btf: self, fuel: STEPS_MAX };
        let mut text = String::new();
        printer.declare(id, name.to_owned(), &mut text);
        text
    }
}

/// Writes one declaration.
struct Printer<'a> {
    btf: &'a Btf,
    /// Number of types that may still be visited: a damaged blob can make declarations endless.
    fuel: u32,
}

impl Printer<'_> {
    /// Declares a type around `inner`: C declarations grow from the name outwards.
    fn declare(&mut self, id: TypeId, inner: String, text: &mut String) {
        if self.fuel == 0 || inner.len() > TEXT_MAX {
            text.push_str("...");
            return;
        }
        self.fuel -= 1;
        let btf = self.btf;
        match btf.kind(id) {
            Kind::Ptr(to) => {
                let needs_parens =
                    matches!(self.btf.kind(*to), Kind::Array { .. } | Kind::FuncProto { .. });
                let inner = if needs_parens { format!("(*{inner})") } else { format!("*{inner}") };
                self.declare(*to, inner, text);
            }
            Kind::Array { elem, count, .. } => {
                self.declare(*elem, format!("{inner}[{count}]"), text);
            }
            Kind::Volatile(to) => self.qualified("volatile", *to, inner, text),
            Kind::Const(to) => self.qualified("const", *to, inner, text),
            Kind::Restrict(to) => self.qualified("restrict", *to, inner, text),
            Kind::TypeTag(to) | Kind::DeclTag { ty: to, .. } => {
                self.declare(*to, inner, text);
            }
            Kind::Var { ty, .. } => self.declare(*ty, self.btf.name(id).to_owned(), text),
            Kind::Func { proto, .. } => {
                self.declare(*proto, self.btf.name(id).to_owned(), text);
            }
            Kind::FuncProto { ret, params } => {
                let params = params.iter().map(|(name, ty)| self.parameter(name, *ty));
                let params = params.collect::<Vec<_>>().join(", ");
                let params = if params.is_empty() { "void" } else { &params };
                self.declare(*ret, format!("{inner}({params})"), text);
            }
            kind => {
                text.push_str(&self.leaf(id, kind));
                if !inner.is_empty() {
                    text.push(' ');
                    text.push_str(&inner);
                }
            }
        }
    }

    /// `const` before a plain type, after the star of a pointer.
    fn qualified(&mut self, word: &str, to: TypeId, inner: String, text: &mut String) {
        if matches!(self.btf.kind(to), Kind::Ptr(_)) {
            let space = if inner.is_empty() { "" } else { " " };
            self.declare(to, format!("{word}{space}{inner}"), text);
        } else {
            text.push_str(word);
            text.push(' ');
            self.declare(to, inner, text);
        }
    }

    fn parameter(&mut self, name: &str, ty: TypeId) -> String {
        if ty == 0 && name.is_empty() {
            return "...".to_owned();
        }
        let mut text = String::new();
        self.declare(ty, name.to_owned(), &mut text);
        text
    }

    fn leaf(&self, id: TypeId, kind: &Kind) -> String {
        let name = match self.btf.name(id) {
            "" => "{...}",
            name => name,
        };
        match kind {
            Kind::Void => "void".to_owned(),
            Kind::Composite { union: true, .. } | Kind::Fwd { union: true } => {
                format!("union {name}")
            }
            Kind::Composite { .. } | Kind::Fwd { .. } => format!("struct {name}"),
            Kind::Enum { .. } => format!("enum {name}"),
            _ => name.to_owned(),
        }
    }
}

/// Largest number of types in a declaration; longer ones end in `...`, as a cycle of pointers has
/// no end.
const STEPS_MAX: u32 = 64;
/// Longest declaration, in bytes.
const TEXT_MAX: usize = 512;
