//! Choosing a program, map or link in bpftool's words: `id 7`, `name NAME`, or just `7` or `NAME`.

use towpath_daemon::api::types::{LinkView, MapView};

use crate::error::CliError;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Which {
    /// All there are.
    All,
    /// By number.
    Id(u32),
    /// By name.
    Name(String),
    /// By the hash of its instructions.
    Tag(String),
    /// By the path of a pin.
    Pinned(String),
}

impl Which {
    /// Understands the words.
    pub(super) fn parse(words: &[String]) -> Result<Which, CliError> {
        let wrong = |said: &str| {
            CliError::Usage(format!("{said}: expected id N, name NAME, tag TAG or pinned PATH"))
        };
        match words {
            [] => Ok(Which::All),
            [one] => Ok(one.parse().map_or_else(|_no_number| Which::Name(one.clone()), Which::Id)),
            [word, id] if word == "id" => id.parse().map(Which::Id).map_err(|_no_number| wrong(id)),
            [word, name] if word == "name" => Ok(Which::Name(name.clone())),
            [word, tag] if word == "tag" => Ok(Which::Tag(tag.clone())),
            [word, path] if word == "pinned" => Ok(Which::Pinned(path.clone())),
            [word, ..] => Err(wrong(word)),
        }
    }

    /// Whether something of this id, name and tag is meant.
    pub(super) fn fits(&self, id: u32, name: &str, tag: &str, pinned: &[String]) -> bool {
        match self {
            Which::All => true,
            Which::Id(wanted) => *wanted == id,
            Which::Name(wanted) => wanted == name || wanted.get(..NAME_MAX) == Some(name),
            Which::Tag(wanted) => wanted == tag,
            Which::Pinned(wanted) => {
                let is = |path: &String| path == wanted || path.strip_prefix(ROOT) == Some(wanted);
                pinned.iter().any(is)
            }
        }
    }

    /// Whether this name is meant: of a function, whose program's name is cut short.
    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self, Which::Name(wanted) if wanted == name)
    }

    /// For messages.
    pub(super) fn text(&self) -> String {
        match self {
            Which::All => "any".to_owned(),
            Which::Id(id) => format!("id {id}"),
            Which::Name(name) => format!("name {name}"),
            Which::Tag(tag) => format!("tag {tag}"),
            Which::Pinned(path) => format!("pinned {path}"),
        }
    }
}

/// Whether it is one that says by what something is chosen.
pub(crate) fn is_word(word: &str) -> bool {
    ["id", "name", "tag", "pinned"].contains(&word)
}

/// Longest name that the kernel keeps: what is longer means what is left of it.
const NAME_MAX: usize = 15;
/// Where relative paths of pins begin.
const ROOT: &str = "/sys/fs/bpf/";

/// The one that is meant. Where several are, `label` says of each its id and what tells it apart.
pub(super) fn only<T>(
    mut found: Vec<T>,
    what: &str,
    which: &Which,
    label: impl Fn(&T) -> String,
) -> Result<T, CliError> {
    let text = which.text();
    match found.len() {
        0 => Err(CliError::Usage(format!("no {what} with {text}"))),
        1 => Ok(found.remove(0)),
        count => {
            let mut labels: Vec<String> = found.iter().take(LISTED_MAX).map(label).collect();
            if count > LISTED_MAX {
                labels.push("...".to_owned());
            }
            let labels = labels.join(", ");
            Err(CliError::Usage(format!("{count} {what}s with {text}, choose one by id: {labels}")))
        }
    }
}

/// What tells a link apart from others.
pub(super) fn label_of_link(link: &LinkView) -> String {
    format!("id {} ({}, {}, program {})", link.id, link.port, link.hook, link.prog_id)
}

/// What tells a map apart from others: whose it is, and where that runs.
pub(super) fn label_of_map(map: &MapView, links: &[LinkView]) -> String {
    let user = |id: &u32| {
        let here: Vec<&LinkView> = links.iter().filter(|link| link.prog_id == *id).collect();
        let ports: Vec<&str> = here.iter().map(|link| link.port.as_str()).collect();
        match here.first() {
            Some(link) => format!("of {} on {}, program {id}", link.name, ports.join(", ")),
            None => format!("of program {id}, on no port"),
        }
    };
    let mut words = vec![map.r#type.clone()];
    words.extend(map.prog_ids.iter().map(user));
    words.extend(map.pinned.first().map(|path| format!("pinned {path}")));
    format!("id {} ({})", map.id, words.join(", "))
}

/// More than a person compares.
const LISTED_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_each_is_told_with_its_id() {
        let which = Which::Name("pass".to_owned());
        let choose = |found: Vec<u32>| only(found, "program", &which, |id| format!("id {id}"));
        assert_eq!(choose(vec![7]).expect("one"), 7);
        let said = |found| choose(found).expect_err("not one").to_string();
        assert_eq!(said(vec![]), "no program with name pass");
        let two = "2 programs with name pass, choose one by id: id 7, id 9";
        assert_eq!(said(vec![7, 9]), two);
        assert!(said((0..20).collect()).ends_with("id 7, ..."));
    }
}
