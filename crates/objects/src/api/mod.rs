//! The objects as a Rust program wants them: the verbs of `prog`, `map` and `link`, with results
//! that serialise to JSON.
//!
//! No rules of its own: a [`Session`] is a caller of [`Objects::bpf`] with memory and descriptors
//! in this process.

mod call;
mod refer;
mod register;
mod run;
mod show;

use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_bpf::program::MapType;

use crate::attach::{AttachError, XdpRequest};
use crate::attr::{element, id as id_field, obj};
use crate::caller::Process;
use crate::command::Command;
use crate::object::map::{MapObject, MapUse};
use crate::object::{Handle, Name, Object, Tag};
use crate::objects::Objects;
use call::{Arg, Request};

pub use refer::Reference;
pub use run::{Run, RunResult};
pub use show::{LinkInfo, MapInfo, ProgInfo};

/// Why a verb failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// Nothing answers to the selector.
    #[error("there is no {kind} {selector}; `towpath {kind} show` lists what there is")]
    NotFound {
        /// `prog`, `map` or `link`.
        kind: &'static str,
        /// As it was given.
        selector: String,
    },
    /// Several do, and one is needed.
    #[error("{selector} names {count} objects of kind {kind}; select one by id")]
    Ambiguous {
        /// `prog`, `map` or `link`.
        kind: &'static str,
        /// As it was given.
        selector: String,
        /// How many.
        count: usize,
    },
    /// The command was refused.
    #[error("{what}: {errno}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// The answer of `bpf(cmd, attr)`.
        errno: Errno,
    },
    /// A program can't be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl ApiError {
    /// The error number, as far as there is one.
    pub fn errno(&self) -> Errno {
        match self {
            ApiError::NotFound { .. } => Errno::ENOENT,
            ApiError::Ambiguous { .. } => Errno::EINVAL,
            ApiError::Refused { errno, .. } => *errno,
            ApiError::Attach(error) => error.errno,
        }
    }
}

/// Which object is meant: bpftool's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// By id.
    Id(u32),
    /// By name; of a longer one counts what the kernel keeps.
    Name(String),
    /// A program by its tag.
    Tag(Tag),
    /// By the path of a pin.
    Pinned(String),
}

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

/// A user of a set of objects.
///
/// ```
/// use std::sync::Arc;
/// use towpath_objects::{Objects, Selector, Session, Settings};
///
/// let objects = Arc::new(Objects::new(&Settings::new()));
/// let mut session = Session::new(&objects, 0);
/// let id = session.create_map("hits", "hash", 4, 8, 16, 0)?;
/// session.update(&Selector::Id(id), &[1, 0, 0, 0], &7u64.to_ne_bytes(), 0)?;
/// let entries = session.dump(&Selector::Name("hits".into()))?;
/// assert_eq!(entries, [(vec![1, 0, 0, 0], 7u64.to_ne_bytes().to_vec())]);
/// session.pin(&Selector::Id(id), "/sys/fs/bpf/hits")?;
/// assert_eq!(session.maps()[0].pinned, ["/sys/fs/bpf/hits"]);
/// # Ok::<(), towpath_objects::ApiError>(())
/// ```
#[derive(Debug)]
pub struct Session {
    objects: Arc<Objects>,
    process: Process,
}

impl Session {
    /// A session of a user.
    pub fn new(objects: &Arc<Objects>, uid: u32) -> Session {
        Session { objects: Arc::clone(objects), process: Process::new(uid) }
    }

    /// The objects.
    pub fn objects(&self) -> &Arc<Objects> {
        &self.objects
    }

    /// Creates a map; it lives as long as the session, unless it is pinned. Its id.
    ///
    /// # Errors
    ///
    /// The answer of `BPF_MAP_CREATE`; `EINVAL` for an unknown kind.
    pub fn create_map(
        &mut self,
        name: &str,
        kind: &str,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
    ) -> Result<u32, ApiError> {
        use crate::attr::map_create as field;
        let kind = MapType::from_name(kind).map_or(u32::MAX, |kind| kind as u32);
        let request = Request::new(Command::MapCreate)
            .number(field::MAP_TYPE, kind)
            .number(field::KEY_SIZE, key_size)
            .number(field::VALUE_SIZE, value_size)
            .number(field::MAX_ENTRIES, max_entries)
            .number(field::MAP_FLAGS, flags)
            .bytes(field::MAP_NAME, &Name::cut(name).bytes());
        let descriptor = self.call("the map can't be created", request)?.number;
        let handle = self.handle(descriptor)?;
        match handle.object {
            Object::Map(map) => Ok(map.id()),
            _ => Ok(0),
        }
    }

    /// The value at a key: per-CPU values one after another.
    ///
    /// # Errors
    ///
    /// The answer of `BPF_MAP_LOOKUP_ELEM`.
    pub fn lookup(&mut self, map: &Selector, key: &[u8]) -> Result<Vec<u8>, ApiError> {
        self.with_map(map, |session, descriptor, map| session.lookup_in(descriptor, map, key))
    }

    /// Stores a value.
    ///
    /// # Errors
    ///
    /// The answer of `BPF_MAP_UPDATE_ELEM`; `EINVAL` when key or value have another size.
    pub fn update(
        &mut self,
        map: &Selector,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), ApiError> {
        self.with_map(map, |session, descriptor, map| {
            session.update_in(descriptor, map, key, value, flags)
        })
    }

    /// Removes an element.
    ///
    /// # Errors
    ///
    /// The answer of `BPF_MAP_DELETE_ELEM`; `EINVAL` when the key has another size.
    pub fn delete(&mut self, map: &Selector, key: &[u8]) -> Result<(), ApiError> {
        self.with_map(map, |session, descriptor, map| {
            session.check_sizes(map, key, None)?;
            let request = Request::new(Command::MapDeleteElem)
                .number(element::MAP_FD, descriptor)
                .arg(element::KEY, Arg::In(key));
            session.call("the element can't be removed", request).map(drop)
        })
    }

    /// All elements, in the order of keys; those without a value (empty slots) are left out.
    ///
    /// # Errors
    ///
    /// The answer of `BPF_MAP_GET_NEXT_KEY` for kinds without keys.
    pub fn dump(&mut self, map: &Selector) -> Result<Vec<Entry>, ApiError> {
        self.with_map(map, |session, descriptor, map| {
            let mut entries = Vec::new();
            let mut last: Option<Vec<u8>> = None;
            for _ in 0..map.map().max_entries() {
                let request = Request::new(Command::MapGetNextKey)
                    .number(element::MAP_FD, descriptor)
                    .arg(element::KEY, last.as_deref().map_or(Arg::Null, Arg::In))
                    .arg(element::VALUE, Arg::Out(map.map().key_size() as usize));
                let key = match session.call("the map can't be walked", request) {
                    Ok(reply) => reply.output(),
                    Err(error) if error.errno() == Errno::ENOENT => break,
                    Err(error) => return Err(error),
                };
                if let Ok(value) = session.lookup_in(descriptor, map, &key) {
                    entries.push((key.clone(), value));
                }
                last = Some(key);
            }
            Ok(entries)
        })
    }

    /// Gives an object a name in the virtual bpffs, which keeps it.
    ///
    /// # Errors
    ///
    /// The answer of `BPF_OBJ_PIN`. A selector of a pin, id or name is looked up among maps, then
    /// programs, then links.
    pub fn pin(&mut self, object: &Selector, path: &str) -> Result<(), ApiError> {
        let descriptor = self.open(object)?;
        let text = [path.as_bytes(), &[0]].concat();
        let request = Request::new(Command::ObjPin)
            .number(obj::BPF_FD, descriptor)
            .arg(obj::PATHNAME, Arg::In(&text));
        let result = self.call("the object can't be pinned", request).map(drop);
        self.close(descriptor);
        result
    }

    /// Ends a pin.
    ///
    /// # Errors
    ///
    /// `ENOENT`; `EPERM` outside of the virtual bpffs.
    pub fn unpin(&mut self, path: &str) -> Result<(), ApiError> {
        let what = "the pin can't be removed";
        self.objects.unlink(path).map_err(|errno| ApiError::Refused { what, errno })
    }

    /// Attaches a program as `ip link set dev ... xdp` does, or (`None`) takes it away.
    ///
    /// # Errors
    ///
    /// Those of [`Objects::set_xdp`].
    pub fn set_xdp(
        &mut self,
        ifindex: u32,
        program: Option<&Selector>,
        flags: u32,
    ) -> Result<(), ApiError> {
        let descriptor = match program {
            Some(selector) => {
                let program = self.program(selector)?;
                Some(self.install(Object::Program(program))?)
            }
            None => None,
        };
        let number = descriptor.map_or(-1, |number| number as i32);
        let request = XdpRequest { descriptor: Some(number), flags, expected: None };
        let result = self.objects.set_xdp(&self.process, ifindex, &request);
        descriptor.into_iter().for_each(|descriptor| self.close(descriptor));
        Ok(result?)
    }

    fn update_in(
        &mut self,
        descriptor: u32,
        map: &MapObject,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), ApiError> {
        self.check_sizes(map, key, Some(value))?;
        let request = Request::new(Command::MapUpdateElem)
            .number(element::MAP_FD, descriptor)
            .long(element::FLAGS, flags)
            .arg(element::KEY, Arg::In(key))
            .arg(element::VALUE, Arg::In(value));
        self.call("the element can't be stored", request).map(drop)
    }

    fn lookup_in(
        &mut self,
        descriptor: u32,
        map: &MapObject,
        key: &[u8],
    ) -> Result<Vec<u8>, ApiError> {
        self.check_sizes(map, key, None)?;
        let request = Request::new(Command::MapLookupElem)
            .number(element::MAP_FD, descriptor)
            .arg(element::KEY, if key.is_empty() { Arg::Null } else { Arg::In(key) })
            .arg(element::VALUE, Arg::Out(map.value_bytes()));
        Ok(self.call("the element can't be read", request)?.output())
    }

    /// What the caller's memory would have to hold: here it can be told before.
    fn check_sizes(
        &self,
        map: &MapObject,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), ApiError> {
        let fits = key.len() == map.map().key_size() as usize
            && value.is_none_or(|value| value.len() == map.value_bytes());
        let what = "key or value have another size";
        if fits { Ok(()) } else { Err(ApiError::Refused { what, errno: Errno::EINVAL }) }
    }

    /// A descriptor of any object.
    fn open(&mut self, selector: &Selector) -> Result<u32, ApiError> {
        let object = match self.map(selector) {
            Ok(map) => Object::Map(MapUse::new(map)),
            Err(ApiError::NotFound { .. }) => match self.program(selector) {
                Ok(program) => Object::Program(program),
                Err(ApiError::NotFound { .. }) => Object::Link(self.link(selector)?),
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        self.install(object)
    }

    fn with_map<T>(
        &mut self,
        selector: &Selector,
        use_it: impl FnOnce(&mut Self, u32, &MapObject) -> Result<T, ApiError>,
    ) -> Result<T, ApiError> {
        let map = self.map(selector)?;
        let request = Request::new(Command::MapGetFdById).number(id_field::START_ID, map.id());
        let descriptor = self.call("the map can't be opened", request)?.number;
        let result = use_it(self, descriptor, &map);
        self.close(descriptor);
        result
    }
}

impl Session {
    fn install(&mut self, object: Object) -> Result<u32, ApiError> {
        use crate::caller::Caller as _;
        let what = "no descriptor is left";
        let handle = Handle::new(object);
        self.process.install(handle).map_err(|errno| ApiError::Refused { what, errno })
    }

    fn handle(&self, descriptor: u32) -> Result<Handle, ApiError> {
        use crate::caller::Caller as _;
        let what = "the descriptor isn't open";
        self.process.handle(descriptor).map_err(|errno| ApiError::Refused { what, errno })
    }

    fn close(&mut self, descriptor: u32) {
        // It was opened by the verb that closes it.
        let _closed = self.process.close(descriptor);
    }
}
