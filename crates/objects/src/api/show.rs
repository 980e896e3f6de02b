//! `prog show`, `map show`, `link show`: what there is, as values that serialise to JSON.

use std::sync::Arc;

use serde::Serialize;

use super::{ApiError, Selector, Session};
use crate::object::link::LinkObject;
use crate::object::map::MapObject;
use crate::object::program::ProgramObject;
use crate::object::{Name, Object};

/// A program, with the keys of bpftool's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ProgInfo {
    /// Its id.
    pub id: u32,
    /// `xdp`, or a number for types that only load.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name, at most 15 characters.
    pub name: String,
    /// A hash of its instructions, in hexadecimal.
    pub tag: String,
    /// Whether its licence allows GPL-only helpers.
    pub gpl_compatible: bool,
    /// Seconds since the machine was started.
    pub loaded_at: u64,
    /// The user that loaded it.
    pub uid: u32,
    /// Bytes of its instructions.
    pub bytes_xlated: usize,
    /// Whether it runs as machine code.
    pub jited: bool,
    /// Bytes of machine code.
    pub bytes_jited: usize,
    /// Ids of its maps.
    pub map_ids: Vec<u32>,
    /// The id of its types, 0 for none.
    pub btf_id: u32,
    /// Paths of its pins.
    pub pinned: Vec<String>,
}

/// A map, with the keys of bpftool's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MapInfo {
    /// Its id.
    pub id: u32,
    /// Its kind, as bpftool names it.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name, at most 15 characters.
    pub name: String,
    /// `BPF_F_*`
    pub flags: u32,
    /// Bytes of a key.
    pub bytes_key: u32,
    /// Bytes of a value.
    pub bytes_value: u32,
    /// Capacity.
    pub max_entries: u32,
    /// Bytes of memory it takes.
    pub bytes_memlock: u64,
    /// Of maps of programs that have one: whether all of them are machine code.
    pub owner_jited: Option<bool>,
    /// Elements now, for kinds that count.
    pub entries: Option<u64>,
    /// Whether users may not write any more.
    pub frozen: bool,
    /// The id of its types, 0 for none.
    pub btf_id: u32,
    /// Paths of its pins.
    pub pinned: Vec<String>,
}

/// A link, with the keys of bpftool's JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LinkInfo {
    /// Its id.
    pub id: u32,
    /// Always `xdp`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The id of its program.
    pub prog_id: u32,
    /// The device, 0 when it was detached or is gone.
    pub ifindex: u32,
    /// Paths of its pins.
    pub pinned: Vec<String>,
}

impl Session {
    /// All programs, by id.
    pub fn progs(&self) -> Vec<ProgInfo> {
        self.objects.programs.all().iter().map(|program| self.prog_info(program)).collect()
    }

    /// All maps, by id.
    pub fn maps(&self) -> Vec<MapInfo> {
        self.objects.maps.all().iter().map(|map| self.map_info(map)).collect()
    }

    /// All links, by id.
    pub fn links(&self) -> Vec<LinkInfo> {
        self.objects.links.all().iter().map(|link| self.link_info(link)).collect()
    }

    /// The one map that is meant.
    ///
    /// # Errors
    ///
    /// None is, or several are.
    pub fn map(&self, selector: &Selector) -> Result<Arc<MapObject>, ApiError> {
        let pinned = |object| match object {
            Object::Map(map) => Some(Arc::clone(map.object())),
            _ => None,
        };
        let found = match selector {
            Selector::Id(id) => self.objects.maps.get(*id).into_iter().collect(),
            Selector::Pinned(path) => self.pinned(path, pinned),
            Selector::Name(name) => {
                let wanted = Name::cut(name);
                let named = |map: &Arc<MapObject>| *map.name() == wanted;
                self.objects.maps.all().into_iter().filter(named).collect()
            }
            Selector::Tag(_) => Vec::new(),
        };
        one("map", selector, found)
    }

    /// The one program that is meant.
    ///
    /// # Errors
    ///
    /// None is, or several are.
    pub fn program(&self, selector: &Selector) -> Result<Arc<ProgramObject>, ApiError> {
        let pinned = |object| match object {
            Object::Program(program) => Some(program),
            _ => None,
        };
        let all = || self.objects.programs.all().into_iter();
        let found = match selector {
            Selector::Id(id) => self.objects.programs.get(*id).into_iter().collect(),
            Selector::Pinned(path) => self.pinned(path, pinned),
            Selector::Name(name) => {
                let wanted = Name::cut(name);
                all().filter(|program| *program.name() == wanted).collect()
            }
            Selector::Tag(tag) => all().filter(|program| program.tag() == *tag).collect(),
        };
        one("prog", selector, found)
    }

    /// The one link that is meant; links have no names.
    ///
    /// # Errors
    ///
    /// None is.
    pub fn link(&self, selector: &Selector) -> Result<Arc<LinkObject>, ApiError> {
        let pinned = |object| match object {
            Object::Link(link) => Some(link),
            _ => None,
        };
        let found = match selector {
            Selector::Id(id) => self.objects.links.get(*id).into_iter().collect(),
            Selector::Pinned(path) => self.pinned(path, pinned),
            Selector::Name(_) | Selector::Tag(_) => Vec::new(),
        };
        one("link", selector, found)
    }

    /// What is known of a program.
    pub fn prog_info(&self, program: &Arc<ProgramObject>) -> ProgInfo {
        let code = program.program().machine_code().map_or(0, |code| code.code().0.len());
        ProgInfo {
            id: program.id(),
            kind: match program.kind() {
                crate::object::program::PROG_TYPE_XDP => "xdp".to_owned(),
                crate::object::program::PROG_TYPE_DEQUEUE => "dequeue".to_owned(),
                kind => kind.to_string(),
            },
            name: program.name().to_string(),
            tag: program.tag().to_string(),
            gpl_compatible: program.is_gpl_compatible(),
            loaded_at: program.load_time().as_secs(),
            uid: program.uid(),
            bytes_xlated: program.about().insns.len() * 8,
            jited: code > 0,
            bytes_jited: code,
            map_ids: program.maps().iter().map(|map| map.id()).collect(),
            btf_id: program.btf().map_or(0, |btf| btf.id()),
            pinned: self.paths(
                |object| matches!(object, Object::Program(pinned) if Arc::ptr_eq(pinned, program)),
            ),
        }
    }

    /// What is known of a map.
    pub fn map_info(&self, map: &Arc<MapObject>) -> MapInfo {
        let def = map.map().def();
        MapInfo {
            id: map.id(),
            kind: def.kind.name().to_owned(),
            name: map.name().to_string(),
            flags: map.flags(),
            bytes_key: def.key_size,
            bytes_value: def.value_size,
            max_entries: def.max_entries,
            bytes_memlock: map.map().memory_bytes(),
            owner_jited: map.owner_is_compiled(),
            entries: map.map().count(),
            frozen: map.map().is_frozen(),
            btf_id: map.btf().map_or(0, |btf| btf.id()),
            pinned: self.paths(
                |object| matches!(object, Object::Map(pinned) if Arc::ptr_eq(pinned.object(), map)),
            ),
        }
    }

    /// What is known of a link.
    pub fn link_info(&self, link: &Arc<LinkObject>) -> LinkInfo {
        LinkInfo {
            id: link.id(),
            kind: "xdp",
            prog_id: link.program().id(),
            ifindex: link.ifindex().unwrap_or(0),
            pinned: self.paths(
                |object| matches!(object, Object::Link(pinned) if Arc::ptr_eq(pinned, link)),
            ),
        }
    }

    fn paths(&self, is: impl Fn(&Object) -> bool) -> Vec<String> {
        let pins = self.objects.pins().into_iter();
        pins.filter(|(_, object)| is(object)).map(|(path, _)| path).collect()
    }

    fn pinned<T>(&self, path: &str, kind: impl Fn(Object) -> Option<T>) -> Vec<T> {
        self.objects.bpffs.open(path).ok().and_then(kind).into_iter().collect()
    }
}

fn one<T>(kind: &'static str, selector: &Selector, found: Vec<T>) -> Result<T, ApiError> {
    let count = found.len();
    let mut found = found.into_iter();
    match (found.next(), count) {
        (Some(object), 1) => Ok(object),
        (None, _) => Err(ApiError::NotFound { kind, selector: selector.to_string() }),
        _ => Err(ApiError::Ambiguous { kind, selector: selector.to_string(), count }),
    }
}

impl std::fmt::Display for Selector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Selector::Id(id) => write!(f, "id {id}"),
            Selector::Name(name) => write!(f, "name {name}"),
            Selector::Tag(tag) => write!(f, "tag {tag}"),
            Selector::Pinned(path) => write!(f, "pinned {path}"),
        }
    }
}
