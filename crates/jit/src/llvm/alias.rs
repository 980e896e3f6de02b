//! Alias classes in LLVM's form: one scope for each class, and with each access the scopes that it
//! cannot overlap (`!alias.scope`, `!noalias`).

use std::fmt::Write;

use crate::xir::Alias;

/// The classes a module uses so far, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Scopes {
    classes: Vec<Alias>,
}

/// First metadata node for scopes; lower numbers have other uses.
const FIRST_NODE: usize = 10;
/// Number of nodes of a class: its scope, the list of just this scope, the list of all scopes that
/// it cannot overlap.
const NODES: usize = 3;

impl Scopes {
    /// Text to append to an access of this class.
    pub(super) fn suffix(&mut self, class: Alias) -> String {
        let known = self.classes.iter().position(|&other| other == class);
        let index = known.unwrap_or_else(|| {
            self.classes.push(class);
            self.classes.len() - 1
        });
        let node = FIRST_NODE + NODES * index;
        format!(", !alias.scope !{}, !noalias !{}", node + 1, node + 2)
    }

    /// Writes the metadata that the suffixes refer to.
    pub(super) fn write(&self, out: &mut String) {
        let node = |index: usize| FIRST_NODE + NODES * index;
        line(out, &format!("!{FIRST_DOMAIN} = distinct !{{!{FIRST_DOMAIN}, !\"towpath\"}}"));
        for (index, &class) in self.classes.iter().enumerate() {
            let scope = node(index);
            let name = format!("{class:?}").to_ascii_lowercase();
            let apart: Vec<String> = (0..self.classes.len())
                .filter(|&other| are_apart(class, self.classes[other]))
                .map(|other| format!("!{}", node(other)))
                .collect();
            line(out, &format!("!{scope} = distinct !{{!{scope}, !{FIRST_DOMAIN}, !\"{name}\"}}"));
            line(out, &format!("!{} = !{{!{scope}}}", scope + 1));
            line(out, &format!("!{} = !{{{}}}", scope + 2, apart.join(", ")));
        }
    }
}

/// The domain of all scopes.
const FIRST_DOMAIN: usize = 2;

fn line(out: &mut String, text: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

/// Whether accesses of two classes never overlap: [`Alias`] in one function.
fn are_apart(a: Alias, b: Alias) -> bool {
    let is_private = |class| matches!(class, Alias::Ctx | Alias::MapMeta(_));
    match (a, b) {
        (a, b) if a == b => false,
        (Alias::Other, other) | (other, Alias::Other) => is_private(other),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_overlaps_with_all_a_program_has_pointers_to() {
        for class in [Alias::Packet, Alias::Stack, Alias::Map(1), Alias::Other] {
            assert!(!are_apart(Alias::Other, class), "{class:?}");
        }
        for class in [Alias::Ctx, Alias::MapMeta(1)] {
            assert!(are_apart(Alias::Other, class), "{class:?}");
        }
        assert!(are_apart(Alias::Map(1), Alias::Map(2)));
        assert!(!are_apart(Alias::Map(1), Alias::Map(1)));
    }

    #[test]
    fn each_class_is_numbered_once() {
        let mut scopes = Scopes::default();
        let packet = scopes.suffix(Alias::Packet);
        assert_ne!(packet, scopes.suffix(Alias::Stack));
        assert_eq!(packet, scopes.suffix(Alias::Packet));
        let mut text = String::new();
        scopes.write(&mut text);
        assert!(text.contains("!12 = !{!13}"), "{text}");
    }
}
