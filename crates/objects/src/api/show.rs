//! `prog show`, `map show`, `link show`: all objects, and the one that a selector means.

use std::sync::Arc;

use super::{ApiError, Selector, Session};
use crate::object::link::LinkObject;
use crate::object::map::MapObject;
use crate::object::program::ProgramObject;
use crate::object::{Name, Object};

impl Session {
    /// All programs, by id.
    pub fn progs(&self) -> Vec<Arc<ProgramObject>> {
        self.objects.programs.all()
    }

    /// All maps, by id.
    pub fn maps(&self) -> Vec<Arc<MapObject>> {
        self.objects.maps.all()
    }

    /// All links, by id.
    pub fn links(&self) -> Vec<Arc<LinkObject>> {
        self.objects.links.all()
    }

    /// Paths of the pins of an object, for which `is` returns true.
    pub fn paths(&self, is: impl Fn(&Object) -> bool) -> Vec<String> {
        let pins = self.objects.pins().into_iter();
        pins.filter(|(_, object)| is(object)).map(|(path, _)| path).collect()
    }

    /// The map that a selector means.
    ///
    /// # Errors
    ///
    /// Fails if no object matches, or several do.
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

    /// The program that a selector means.
    ///
    /// # Errors
    ///
    /// Fails if no object matches, or several do.
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

    /// The link that a selector means; links have no names.
    ///
    /// # Errors
    ///
    /// Fails if no link matches.
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
