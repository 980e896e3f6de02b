//! Elements that refer to programs and maps: bpftool's `map update ... value PROG|MAP`.

use towpath_bpf::Errno;
use towpath_bpf::map::Values;
use towpath_maps::Value;

use super::{ApiError, Selector, Session, refused};
use crate::object::{Handle, MapUse, Object};

/// The object that an element refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// A program: a slot of a program array.
    Program(Selector),
    /// A map: a slot of a map of maps.
    Map(Selector),
    /// An entry of a device map or cpumap.
    Target {
        /// The ifindex, or the size of the CPU's queue.
        number: u32,
        /// The program that runs there.
        program: Option<Selector>,
    },
}

impl Session {
    /// Stores an element that refers to a program or a map.
    ///
    /// # Errors
    ///
    /// Fails if no object, or more than one, is selected; also with the answer of
    /// `BPF_MAP_UPDATE_ELEM`; `EINVAL` when the key has another size, or the map no such values.
    pub fn refer(
        &mut self,
        map: &Selector,
        key: &[u8],
        to: &Reference,
        flags: u64,
    ) -> Result<(), ApiError> {
        let referred = match to {
            Reference::Program(program) => Some(Object::Program(self.program(program)?)),
            Reference::Map(inner) => Some(Object::Map(MapUse::new(self.map(inner)?))),
            Reference::Target { program: Some(program), .. } => {
                Some(Object::Program(self.program(program)?))
            }
            Reference::Target { program: None, .. } => None,
        };
        let descriptor = referred.map(|object| self.install(Handle::new(object))).transpose()?;
        let mut value = match to {
            Reference::Target { number, .. } => number.to_ne_bytes().to_vec(),
            Reference::Program(_) | Reference::Map(_) => Vec::new(),
        };
        value.extend(descriptor.iter().flat_map(|number| number.to_ne_bytes()));
        // A target without a program may leave out where one would be.
        if descriptor.is_none() {
            value.resize(value.len().max(self.map(map)?.value_bytes()), 0);
        }
        let result = self.update(map, key, &value.into(), flags);
        descriptor.into_iter().for_each(|descriptor| self.close(descriptor));
        result
    }

    /// Stores a socket's number, for which there is no descriptor, in an `XSKMAP`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such map, with `EINVAL` if it has other values, or with the answer of
    /// `BPF_MAP_UPDATE_ELEM`.
    pub fn set_socket(
        &self,
        map: &Selector,
        key: &[u8],
        number: &Value,
        flags: u64,
    ) -> Result<(), ApiError> {
        let map = self.map(map)?;
        let stored = match map.map().kind().values() {
            Values::Socket => map.map().user().update(key, number, flags),
            _ => Err(Errno::EINVAL),
        };
        stored.map_err(|errno| refused("the element can't be stored", errno))
    }
}
