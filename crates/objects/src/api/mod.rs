//! The objects for Rust programs: the verbs of `prog`, `map` and `link`, with results that
//! serialise to JSON.
//!
//! There are no rules of its own: a [`Session`] makes the calls that [`Objects::bpf`] makes,
//! without the bytes of an attribute in between.

mod refer;
mod register;
mod run;
mod show;
mod walk;

use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_bpf::program::MapType;
use towpath_maps::Value;

use crate::attach::{AttachError, XdpRequest};
use crate::caller::{Caller as _, Process};
use crate::command::map::MapRequest;
use crate::object::map::flatten;
use crate::object::{Handle, MapUse, Name, Object, Tag};
use crate::objects::Objects;

pub use refer::Reference;
pub use run::{Run, RunResult};
pub use walk::Walk;

/// The reason why a verb failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// Nothing matches the selector.
    #[error("there is no {kind} {selector}; `towpath {kind} show` lists existing ones")]
    NotFound {
        /// `prog`, `map` or `link`.
        kind: &'static str,
        /// The selector, as it was given.
        selector: String,
    },
    /// Several objects match, and one is needed.
    #[error("{selector} names {count} objects of kind {kind}; select one by id")]
    Ambiguous {
        /// `prog`, `map` or `link`.
        kind: &'static str,
        /// The selector, as it was given.
        selector: String,
        /// Number of matching objects.
        count: usize,
    },
    /// The command was refused.
    #[error("{what}: {errno}")]
    Refused {
        /// The attempted operation.
        what: &'static str,
        /// The answer of `bpf(cmd, attr)`.
        errno: Errno,
    },
    /// A program can't be attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

impl ApiError {
    /// The error number.
    pub fn errno(&self) -> Errno {
        match self {
            ApiError::NotFound { .. } => Errno::ENOENT,
            ApiError::Ambiguous { .. } => Errno::EINVAL,
            ApiError::Refused { errno, .. } => *errno,
            ApiError::Attach(error) => error.errno,
        }
    }
}

/// A selector of an object, in bpftool's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// By id.
    Id(u32),
    /// By name; a longer one is cut as the kernel does.
    Name(String),
    /// A program by its tag.
    Tag(Tag),
    /// By the path of a pin.
    Pinned(String),
}

/// A key and its value.
pub type Entry = (Vec<u8>, Value);

/// A user of a set of objects.
///
/// ```
/// use std::sync::Arc;
/// use towpath_objects::{Objects, Selector, Session, Settings};
///
/// let objects = Arc::new(Objects::new(&Settings::new()));
/// let mut session = Session::new(&objects, 0);
/// let id = session.create_map("hits", "hash", 4, 8, 16, 0)?;
/// session.update(&Selector::Id(id), &[1, 0, 0, 0], &7u64.to_ne_bytes()[..].into(), 0)?;
/// let entries = session.dump(&Selector::Name("hits".into()), usize::MAX)?;
/// assert_eq!(entries, [(vec![1, 0, 0, 0], 7u64.to_ne_bytes()[..].into())]);
/// session.pin(&Selector::Id(id), "/sys/fs/bpf/hits")?;
/// assert_eq!(session.paths(|_| true), ["/sys/fs/bpf/hits"]);
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

    /// Creates a map and returns its id. The map lives as long as the session, unless it is pinned.
    ///
    /// # Errors
    ///
    /// Fails with the answer of `BPF_MAP_CREATE`, or `EINVAL` for an unknown kind.
    pub fn create_map(
        &mut self,
        name: &str,
        kind: &str,
        key_size: u32,
        value_size: u32,
        max_entries: u32,
        flags: u32,
    ) -> Result<u32, ApiError> {
        let kind = MapType::from_name(kind).map_or(u32::MAX, |kind| kind as u32);
        let name = Name::cut(name).bytes();
        let request = MapRequest {
            kind,
            key_size,
            value_size,
            max_entries,
            flags,
            name,
            ..MapRequest::default()
        };
        let made = self.objects.make_map(&self.process, &request);
        let handle = made.map_err(|errno| refused("the map can't be created", errno))?;
        let id = handle.map().map_or(0, |map| map.id());
        self.install(handle)?;
        Ok(id)
    }

    /// The value at a key.
    ///
    /// # Errors
    ///
    /// Fails with the answer of `BPF_MAP_LOOKUP_ELEM`, or `EINVAL` if the key has another size.
    pub fn lookup(&self, map: &Selector, key: &[u8]) -> Result<Value, ApiError> {
        let found = self.open_map(map)?.lookup(&exactly(key), &exactly(&[]), 0);
        let found = found.map_err(|errno| refused("the element can't be read", errno))?;
        Ok(found.unwrap_or(Value::One(Vec::new())))
    }

    /// Stores a value. Kinds without keys push.
    ///
    /// # Errors
    ///
    /// Fails with the answer of `BPF_MAP_UPDATE_ELEM`, or `EINVAL` if key or value have another
    /// size.
    pub fn update(
        &self,
        map: &Selector,
        key: &[u8],
        value: &Value,
        flags: u64,
    ) -> Result<(), ApiError> {
        let (handle, value) = (self.open_map(map)?, flatten(value));
        let stored = handle.update(&self.process, &exactly(key), &exactly(&value), flags);
        stored.map_err(|errno| refused("the element can't be stored", errno))
    }

    /// Removes an element.
    ///
    /// # Errors
    ///
    /// Fails with the answer of `BPF_MAP_DELETE_ELEM`, or `EINVAL` if the key has another size.
    pub fn delete(&self, map: &Selector, key: &[u8]) -> Result<(), ApiError> {
        let deleted = self.open_map(map)?.delete(&exactly(key));
        deleted.map_err(|errno| refused("the element can't be removed", errno))
    }

    /// The key behind a key, or the first.
    ///
    /// # Errors
    ///
    /// Fails with the answer of `BPF_MAP_GET_NEXT_KEY`, which is `ENOENT` behind the last.
    pub fn next_key(&self, map: &Selector, key: Option<&[u8]>) -> Result<Vec<u8>, ApiError> {
        let handle = self.open_map(map)?;
        let next = match key {
            None => handle.next_key(None),
            Some(key) => handle.next_key(Some(&exactly(key))),
        };
        next.map_err(|errno| refused("there is no next key", errno))
    }

    /// Takes an element out; for queues and stacks, the next one, with an empty key.
    ///
    /// # Errors
    ///
    /// Fails with the answer of `BPF_MAP_LOOKUP_AND_DELETE_ELEM`.
    pub fn lookup_and_delete(&self, map: &Selector, key: &[u8]) -> Result<Value, ApiError> {
        let taken = self.open_map(map)?.lookup_and_delete(&exactly(key), 0);
        taken.map_err(|errno| refused("the element can't be taken out", errno))
    }

    /// Elements in the order of keys, `most` of them at most; those without a value (empty slots)
    /// are left out.
    ///
    /// # Errors
    ///
    /// Fails with the answer of `BPF_MAP_GET_NEXT_KEY` for kinds without keys.
    pub fn dump(&self, map: &Selector, most: usize) -> Result<Vec<Entry>, ApiError> {
        // A limit, because elements may be stored all the time.
        let most = most.min(self.map(map)?.map().max_entries() as usize);
        let walk = self.walk(map, None)?.take(most);
        walk.filter_map(|step| step.map(|(key, value)| Some((key, value?))).transpose()).collect()
    }

    /// A walk over a map's elements, from the one behind a key on, or from the first.
    ///
    /// # Errors
    ///
    /// Fails if there is no such map.
    pub fn walk(&self, map: &Selector, after: Option<Vec<u8>>) -> Result<Walk, ApiError> {
        Ok(Walk::new(self.open_map(map)?, after))
    }

    /// Gives an object a name in the virtual bpffs, which keeps it alive.
    ///
    /// # Errors
    ///
    /// Fails with the answer of `BPF_OBJ_PIN`. A selector of a pin, id or name is looked up among
    /// maps, then programs, then links.
    pub fn pin(&mut self, object: &Selector, path: &str) -> Result<(), ApiError> {
        let pinned = self.objects.pin(path, self.object(object)?);
        pinned.map_err(|errno| refused("the object can't be pinned", errno))
    }

    /// Removes a pin.
    ///
    /// # Errors
    ///
    /// Fails with `ENOENT`, or `EPERM` outside of the virtual bpffs.
    pub fn unpin(&mut self, path: &str) -> Result<(), ApiError> {
        self.objects.unlink(path).map_err(|errno| refused("the pin can't be removed", errno))
    }

    /// Attaches a program as `ip link set dev ... xdp` does, or (`None`) detaches it.
    ///
    /// # Errors
    ///
    /// Fails with the errors of [`Objects::set_xdp`].
    pub fn set_xdp(
        &mut self,
        ifindex: u32,
        program: Option<&Selector>,
        flags: u32,
    ) -> Result<(), ApiError> {
        let descriptor = match program {
            Some(selector) => {
                let program = self.program(selector)?;
                Some(self.install(Handle::new(Object::Program(program)))?)
            }
            None => None,
        };
        let number = descriptor.map_or(-1, |number| number as i32);
        let request = XdpRequest { descriptor: Some(number), flags, expected: None };
        let result = self.objects.set_xdp(&self.process, ifindex, &request);
        descriptor.into_iter().for_each(|descriptor| self.close(descriptor));
        Ok(result?)
    }

    /// The object of a selector: a map, or else a program, or else a link.
    fn object(&self, selector: &Selector) -> Result<Object, ApiError> {
        match self.map(selector) {
            Ok(map) => return Ok(Object::Map(MapUse::new(map))),
            Err(ApiError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        match self.program(selector) {
            Ok(program) => Ok(Object::Program(program)),
            Err(ApiError::NotFound { .. }) => Ok(Object::Link(self.link(selector)?)),
            Err(error) => Err(error),
        }
    }

    fn open_map(&self, selector: &Selector) -> Result<Handle, ApiError> {
        Ok(Handle::new(Object::Map(MapUse::new(self.map(selector)?))))
    }

    fn install(&mut self, handle: Handle) -> Result<u32, ApiError> {
        let installed = self.process.install(handle);
        installed.map_err(|errno| refused("no descriptor is left", errno))
    }

    fn close(&mut self, descriptor: u32) {
        // It was opened by the verb that closes it.
        let _closed = self.process.close(descriptor);
    }
}

/// Gives `bytes` when as many are asked for; `EINVAL` otherwise.
pub fn exactly(bytes: &[u8]) -> impl Fn(usize) -> Result<Vec<u8>, Errno> {
    move |size| if bytes.len() == size { Ok(bytes.to_vec()) } else { Err(Errno::EINVAL) }
}

fn refused(what: &'static str, errno: Errno) -> ApiError {
    ApiError::Refused { what, errno }
}
