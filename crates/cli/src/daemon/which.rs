//! Choosing a program, map or link in bpftool's words: `id 7`, `name NAME`, or just `7` or `NAME`.

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

/// The one that is meant.
pub(super) fn only<T>(mut found: Vec<T>, what: &str, which: &Which) -> Result<T, CliError> {
    match (found.len(), found.pop()) {
        (1, Some(it)) => Ok(it),
        (0, _) => Err(CliError::Usage(format!("no {what} with {}", which.text()))),
        (count, _) => {
            let text = which.text();
            Err(CliError::Usage(format!("{count} {what}s with {text}: choose one by id")))
        }
    }
}
