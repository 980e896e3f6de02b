//! Arguments that several commands share: the program, and its settings for linking.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use towpath_daemon::globals::parse_hex;
use towpath_daemon::state::MigrateState;

/// The program of an object; not needed if the object has only one.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Program")]
pub(crate) struct Selection {
    /// The program with this name (its C function)
    #[arg(short = 'n', long = "prog-name", visible_alias = "name", value_name = "PROG")]
    pub name: Option<String>,
    /// The program in this ELF section
    #[arg(short, long, value_name = "SEC", conflicts_with = "name")]
    pub section: Option<String>,
}

impl Selection {
    /// Whether any of these options was given.
    pub(crate) fn is_given(&self) -> bool {
        self.name.is_some() || self.section.is_some()
    }
}

/// Settings for linking a program.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Program")]
pub(crate) struct ProgramArgs {
    /// Set a global variable before linking: an integer, true, false, or hex:BYTES
    #[arg(long = "set", value_name = "VAR=VALUE")]
    pub set: Vec<Assignment>,
    /// Set the size of a map that the object leaves to its loader (max_entries 0)
    #[arg(long = "map-size", value_name = "NAME=N")]
    pub map_sizes: Vec<MapSize>,
    /// Kernel types for CO-RE: a BTF file, or "builtin" for the types that ship with Towpath
    /// [default: the running kernel's, else builtin]
    #[arg(long, value_name = "FILE")]
    pub btf: Option<PathBuf>,
}

impl ProgramArgs {
    /// Whether any of these options was given.
    pub(crate) fn is_given(&self) -> bool {
        !self.set.is_empty() || !self.map_sizes.is_empty() || self.btf.is_some()
    }
}

/// `VAR=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// The variable.
    pub name: String,
    /// Its value, not parsed yet.
    pub value: String,
}

impl FromStr for Assignment {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => {
                Ok(Assignment { name: name.trim().to_owned(), value: value.trim().to_owned() })
            }
            _ => Err("expected VAR=VALUE, e.g. limit=100"),
        }
    }
}

/// `PROG` or `PROG=HEX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramCall {
    /// The program, in section `syscall`.
    pub name: String,
    /// Its context.
    pub context: Vec<u8>,
}

impl FromStr for ProgramCall {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, context) = text.split_once('=').unwrap_or((text, ""));
        match parse_hex(context) {
            Some(context) if !name.is_empty() => {
                Ok(ProgramCall { name: name.trim().to_owned(), context })
            }
            _ => Err("expected PROG, or PROG=HEX with the bytes of its context"),
        }
    }
}

/// `NAME=N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MapSize {
    /// The map.
    pub name: String,
    /// Its `max_entries`.
    pub entries: u32,
}

impl FromStr for MapSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('=').and_then(|(name, entries)| {
            let entries = entries.trim().parse().ok()?;
            Some(MapSize { name: name.trim().to_owned(), entries })
        });
        parsed.filter(|it| !it.name.is_empty()).ok_or("expected NAME=N, e.g. cpus_available=64")
    }
}

/// `NAME=ID` or `NAME=PIN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedMap {
    /// The map's name in the object.
    pub name: String,
    /// The id, or the path of a pin, of the existing map.
    pub place: String,
}

impl FromStr for SharedMap {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('=').map(|(name, place)| SharedMap {
            name: name.trim().to_owned(),
            place: place.trim().to_owned(),
        });
        parsed
            .filter(|it| !it.name.is_empty() && !it.place.is_empty())
            .ok_or("expected NAME=ID or NAME=PIN, e.g. flows=7 or flows=/sys/fs/bpf/flows")
    }
}

/// `NAME=copy` or `NAME=drop`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Migration {
    /// The map.
    pub name: String,
    /// Treatment of its entries.
    pub migrate: MigrateState,
}

impl FromStr for Migration {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.split_once('=').and_then(|(name, migrate)| {
            let migrate = match migrate.trim() {
                "copy" => MigrateState::Copy,
                "drop" => MigrateState::Drop,
                _ => return None,
            };
            Some(Migration { name: name.trim().to_owned(), migrate })
        });
        parsed.filter(|it| !it.name.is_empty()).ok_or("expected NAME=copy or NAME=drop")
    }
}

/// `OLD=NEW`: two names of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rename {
    /// The name in the previous program.
    pub old: String,
    /// The name in the new program.
    pub new: String,
}

impl FromStr for Rename {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text
            .split_once('=')
            .map(|(old, new)| Rename { old: old.trim().to_owned(), new: new.trim().to_owned() });
        parsed.filter(|it| !it.old.is_empty() && !it.new.is_empty()).ok_or("expected OLD=NEW")
    }
}
