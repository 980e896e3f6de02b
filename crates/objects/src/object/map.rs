//! A map as an object: its identity, its users, and the objects that its elements refer to.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use towpath_bpf::Errno;
use towpath_bpf::map::{Keys, Refers, Values};
use towpath_bpf::program::MapType;
use towpath_maps::flags::{BPF_ANY, BPF_EXIST, BPF_F_RDONLY_PROG};
use towpath_maps::{Map, Value, number};
use towpath_xdp::program::Surroundings;

use crate::caller::Caller;
use crate::ids::Lease;
use crate::object::btf::BtfObject;
use crate::object::program::{
    self, ATTACH_XDP_CPUMAP, ATTACH_XDP_DEVMAP, PROG_TYPE_XDP, ProgramObject,
};
use crate::object::{Name, Object};
use crate::world::{UNUSABLE_PROGRAM, World};

/// A map with its id.
#[derive(Debug)]
pub struct MapObject {
    lease: Lease<MapObject>,
    map: Arc<Map>,
    about: About,
    world: Arc<World>,
    /// The programs whose numbers a program array holds: those that were loaded together.
    family: Arc<Surroundings>,
    /// Objects that elements refer to, by key: maps and programs live as long as a slot has them.
    held: Mutex<HashMap<Vec<u8>, Held>>,
    /// Descriptors and pins (`usercnt`).
    users: AtomicUsize,
    /// Properties of the first program that used it, or was put into it.
    owner: Mutex<Option<Owner>>,
}

/// Information about a map beside its definition.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) name: Name,
    /// The SHA-256 of the only program that may use it.
    pub(crate) exclusive: Option<[u8; 32]>,
    /// The types of its keys and values.
    pub(crate) btf: Option<Arc<BtfObject>>,
}

/// Common properties of all programs around a map of programs (`struct bpf_map_owner`), which
/// replace each other at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    kind: u32,
    /// For programs that call each other; a program that redirects to a device has another hook
    /// than the program of the device's entry.
    attach: Option<u32>,
    compiled: bool,
    has_frags: bool,
}

/// A descriptor's or pin's reference to a map. The last one of a program array empties it, or else
/// an array and a program in it would keep each other alive.
#[derive(Debug)]
pub struct MapUse(Arc<MapObject>);

/// The object that an element refers to.
#[derive(Debug)]
pub(crate) enum Held {
    /// A slot of a map of maps.
    Map(Arc<MapObject>),
    /// A slot of a program array, or the program of an entry of a devmap or cpumap.
    Program(Arc<ProgramObject>),
}

impl MapObject {
    pub(crate) fn new(
        lease: Lease<MapObject>,
        map: Arc<Map>,
        about: About,
        world: Arc<World>,
        family: &Arc<Surroundings>,
    ) -> MapObject {
        MapObject {
            lease,
            map,
            about,
            world,
            family: Arc::clone(family),
            held: Mutex::default(),
            users: AtomicUsize::new(0),
            owner: Mutex::default(),
        }
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.lease.id()
    }

    /// Its name, cut to what the kernel keeps.
    pub fn name(&self) -> &Name {
        &self.about.name
    }

    /// The SHA-256 of the only program that may use it, if it is exclusive.
    pub fn exclusive_to(&self) -> Option<[u8; 32]> {
        self.about.exclusive
    }

    /// Whether the programs around it are machine code, once there are any (`owner_jited`).
    pub fn owner_is_compiled(&self) -> Option<bool> {
        let owner = self.owner.lock();
        owner.filter(|_| self.map.kind().values() == Values::Program).map(|owner| owner.compiled)
    }

    /// The types of its keys and values, when it was made with some.
    pub fn btf(&self) -> Option<&Arc<BtfObject>> {
        self.about.btf.as_ref()
    }

    /// The map itself.
    pub fn map(&self) -> &Arc<Map> {
        &self.map
    }

    /// Its flags, without those that belong to a descriptor; programs may only read device maps
    /// (`dev_map_init_map`).
    pub fn flags(&self) -> u32 {
        let of_devices = self.map.kind().values() == Values::Device;
        self.map.flags() | if of_devices { BPF_F_RDONLY_PROG } else { 0 }
    }

    /// Bytes of a value on the user's side (`bpf_map_value_size`): every CPU's, rounded up to 8;
    /// 4 where a value is a descriptor.
    pub fn value_bytes(&self) -> usize {
        self.map.kind().user_value_bytes(self.map.value_size(), self.map.cpus())
    }

    /// Bytes of a key.
    pub(crate) fn key_bytes(&self) -> usize {
        self.map.key_size() as usize
    }

    /// Whether a look-up only asks if a value is in it.
    pub(crate) fn is_asked(&self) -> bool {
        self.map.kind().values() == Values::Members
    }

    /// Whether it is a queue or a stack, without keys.
    pub(crate) fn is_queue(&self) -> bool {
        self.map.kind().values() == Values::Queued
    }

    /// Whether a bloom filter may hold a value; `ENOENT` when it doesn't.
    pub(crate) fn contains(&self, value: &[u8]) -> Result<(), Errno> {
        if self.map.user().contains(value)? { Ok(()) } else { Err(Errno::ENOENT) }
    }

    /// The value at a key (`bpf_map_copy_value`): ids in place of what elements refer to.
    pub(crate) fn lookup(&self, key: &[u8], flags: u64) -> Result<Value, Errno> {
        match self.map.kind().values().refers() {
            Some(Refers::Map | Refers::Program) => {
                let held = self.held.lock();
                let id = held.get(key).ok_or(Errno::ENOENT)?.id();
                Ok(Value::One(id.to_ne_bytes().to_vec()))
            }
            Some(Refers::Device | Refers::Cpu) => {
                let held = self.held.lock();
                let mut value = self.map.user().lookup(key, flags)?.bytes().to_vec();
                if let Some(program) = value.get_mut(4..8) {
                    let id = held.get(key).map_or(0, Held::id);
                    program.copy_from_slice(&id.to_ne_bytes());
                }
                Ok(Value::One(value))
            }
            Some(Refers::Socket) | None => self.map.user().lookup(key, flags),
        }
    }

    /// Stores a value (`bpf_map_update_value`); descriptors in it are the caller's.
    pub(crate) fn update(
        &self,
        caller: &dyn Caller,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), Errno> {
        match self.map.kind().values().refers() {
            Some(Refers::Map) => self.insert_map(caller, key, number(value), flags),
            Some(Refers::Program) => self.insert_program(caller, key, number(value), flags),
            Some(Refers::Device | Refers::Cpu) => self.insert_target(caller, key, value, flags),
            Some(Refers::Socket) => self.insert_socket(caller, key, number(value), flags),
            None => self.map.user().update(key, &self.split(value), flags),
        }
    }

    /// Removes an element.
    pub(crate) fn delete(&self, key: &[u8]) -> Result<(), Errno> {
        self.change_held(|held| {
            self.map.user().delete(key)?;
            Ok(held.remove(key))
        })
    }

    /// Removes an element, with the objects that it keeps alive; an element of an array gets its
    /// initial value. Nothing happens if there is none.
    ///
    /// # Errors
    ///
    /// Fails with `EPERM` if the map is frozen, or only programs may write to it.
    pub fn clear(&self, key: &[u8]) -> Result<(), Errno> {
        match self.delete(key) {
            Err(Errno::ENOENT) => Ok(()),
            Err(Errno::EINVAL) => {
                let zeros = vec![0; self.value_bytes()];
                self.map.user().update(key, &self.split(&zeros), 0)
            }
            other => other,
        }
    }

    /// Removes an element and returns its value.
    pub(crate) fn lookup_and_delete(&self, key: &[u8], flags: u64) -> Result<Value, Errno> {
        self.map.user().lookup_and_delete(key, flags)
    }

    /// The key after `key`, or the first.
    pub(crate) fn next_key(&self, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        self.map.user().next_key(key)
    }

    /// `bpf_fd_array_map_update_elem` and `bpf_fd_htab_map_update_elem` of maps of maps.
    fn insert_map(
        &self,
        caller: &dyn Caller,
        key: &[u8],
        descriptor: u32,
        flags: u64,
    ) -> Result<(), Errno> {
        self.check_slot(key, flags)?;
        let handle = caller.handle(descriptor)?;
        let inner = Arc::clone(&handle.map()?.0);
        self.change_held(|held| {
            self.map.insert_inner(key, &inner.map, flags)?;
            Ok(held.insert(key.to_vec(), Held::Map(inner)))
        })
    }

    /// `bpf_fd_array_map_update_elem` of program arrays.
    fn insert_program(
        &self,
        caller: &dyn Caller,
        key: &[u8],
        descriptor: u32,
        flags: u64,
    ) -> Result<(), Errno> {
        self.check_slot(key, flags)?;
        let handle = caller.handle(descriptor)?;
        let program = Arc::clone(handle.program()?);
        self.admit_element(&program)?;
        if !Arc::ptr_eq(program.program().surroundings(), &self.family) {
            return Err(Errno::EINVAL);
        }
        self.change_held(|held| {
            self.map.set_program(number(key), program.id())?;
            Ok(held.insert(key.to_vec(), Held::Program(program)))
        })
    }

    /// `dev_map_update_elem`, `cpu_map_update_elem`: the map checks the value in the kernel's
    /// order, and sees a number that the engine knows in place of a descriptor.
    fn insert_target(
        &self,
        caller: &dyn Caller,
        key: &[u8],
        value: &[u8],
        flags: u64,
    ) -> Result<(), Errno> {
        let mut value = value.to_vec();
        let named = value.get(4..).map(number).filter(|&named| named as i32 > 0);
        let program = named.map(|descriptor| self.target_program(caller, descriptor));
        if let (Some(place), Some(program)) = (value.get_mut(4..8), &program) {
            let id = program.as_ref().map_or(UNUSABLE_PROGRAM, |program| program.id());
            place.copy_from_slice(&id.to_ne_bytes());
        }
        self.change_held(|held| {
            self.map.user().update(key, &Value::from(value), flags)?;
            Ok(match program {
                // A queue of no size removes an entry, whatever program comes with it.
                Some(Ok(program)) if self.map.target(number(key)).is_some() => {
                    held.insert(key.to_vec(), Held::Program(program))
                }
                _ => held.remove(key),
            })
        })
    }

    /// Keeps programs alive that elements name already: those of an object file whose loader filled
    /// its maps.
    pub fn keep_named(&self, programs: &[Arc<ProgramObject>]) {
        let named: Vec<(u32, u32)> = match self.map.kind().values() {
            Values::Program => {
                let slots = 0..self.map.max_entries();
                slots.filter_map(|slot| Some((slot, self.map.program(slot)?))).collect()
            }
            Values::Device | Values::Cpu => {
                let targets = self.map.targets().into_iter();
                targets.map(|(key, target)| (key, target.id)).collect()
            }
            _ => Vec::new(),
        };
        let program = |id| programs.iter().find(|program| program.id() == id);
        let named = named.into_iter().filter_map(|(key, id)| Some((key, program(id)?)));
        let mut held = self.held.lock();
        held.extend(named.map(|(key, program)| {
            (key.to_ne_bytes().to_vec(), Held::Program(Arc::clone(program)))
        }));
    }

    /// Puts into empty slots of this program array what slots of another one hold, but for
    /// programs that `is_left`.
    pub fn take_over_programs(&self, from: &MapObject, is_left: impl Fn(&ProgramObject) -> bool) {
        let of_slot = |(key, held): (&Vec<u8>, &Held)| match held {
            Held::Program(program) if !is_left(program) => Some((key.clone(), Arc::clone(program))),
            _ => None,
        };
        let taken: Vec<_> = from.held.lock().iter().filter_map(of_slot).collect();
        for (key, program) in taken {
            let is_empty = self.map.program(number(&key)).is_none();
            if is_empty && self.admit_element(&program).is_ok() {
                // A slot that this array doesn't have is no longer asked for.
                let _stored = self.change_held(|held| {
                    self.map.set_program(number(&key), program.id())?;
                    Ok(held.insert(key, Held::Program(program)))
                });
            }
        }
    }

    /// The program that entries of this map may have.
    fn target_program(
        &self,
        caller: &dyn Caller,
        descriptor: u32,
    ) -> Result<Arc<ProgramObject>, Errno> {
        let handle = caller.handle(descriptor)?;
        let program = handle.program()?;
        let is_cpumap = self.map.kind().values() == Values::Cpu;
        let attach = if is_cpumap { ATTACH_XDP_CPUMAP } else { ATTACH_XDP_DEVMAP };
        let fits = program.kind() == PROG_TYPE_XDP && program.expected_attach_type() == attach;
        if !fits {
            return Err(Errno::EINVAL);
        }
        self.admit_element(program)?;
        Ok(Arc::clone(program))
    }

    /// Removes the entries that lead to a device (`dev_map_notification`).
    pub(crate) fn forget_device(&self, ifindex: u32) {
        if self.map.kind().values() != Values::Device {
            return;
        }
        for (key, target) in self.map.targets() {
            if target.number == ifindex {
                // It may be gone already.
                let _removed = self.delete(&key.to_ne_bytes());
            }
        }
    }

    /// Whether a program may be in this map (`bpf_prog_map_compatible`): a program that is bound to
    /// a device is refused, because the map does not determine the device.
    fn admit_element(&self, program: &ProgramObject) -> Result<(), Errno> {
        match program.bound_to() {
            Some(_) => Err(Errno::EINVAL),
            None => self.admit(program.program(), program.about()),
        }
    }

    /// Whether a program may use this map (`__bpf_prog_map_compatible`); the first one decides what
    /// the others must be like.
    pub(crate) fn admit(
        &self,
        program: &towpath_xdp::Program,
        about: &program::About,
    ) -> Result<(), Errno> {
        let has_programs =
            matches!(self.map.kind(), MapType::ProgArray | MapType::Devmap | MapType::Cpumap);
        if !has_programs {
            return Ok(());
        }
        let new = Owner {
            kind: about.kind,
            attach: Some(about.attach).filter(|_| self.map.kind().values() == Values::Program),
            compiled: program.machine_code().is_some(),
            has_frags: program.has_frags(),
        };
        let mut owner = self.owner.lock();
        if *owner.get_or_insert(new) == new { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// `xsk_map_update_elem`
    fn insert_socket(
        &self,
        caller: &dyn Caller,
        key: &[u8],
        descriptor: u32,
        flags: u64,
    ) -> Result<(), Errno> {
        if flags > BPF_EXIST {
            return Err(Errno::EINVAL);
        }
        if number(key) >= self.map.max_entries() {
            return Err(Errno::E2BIG);
        }
        let ticket = self.world.ticket(caller.socket(descriptor)?);
        let value = Value::from(&ticket.to_ne_bytes()[..]);
        let result = self.map.user().update(key, &value, flags);
        self.world.redeem(ticket);
        result
    }

    /// Checks of arrays of descriptors before the descriptor.
    fn check_slot(&self, key: &[u8], flags: u64) -> Result<(), Errno> {
        if self.map.kind().keys() != Keys::Index {
            return Ok(());
        }
        if flags != BPF_ANY {
            return Err(Errno::EINVAL);
        }
        if number(key) < self.map.max_entries() { Ok(()) } else { Err(Errno::E2BIG) }
    }

    /// Changes the map together with what its elements keep alive. The object that an element kept
    /// before, which `change` returns, is dropped after the lock is released: it may be the last
    /// reference to a map with elements of its own.
    fn change_held(
        &self,
        change: impl FnOnce(&mut HashMap<Vec<u8>, Held>) -> Result<Option<Held>, Errno>,
    ) -> Result<(), Errno> {
        let gone = change(&mut self.held.lock())?;
        drop(gone);
        Ok(())
    }

    fn split(&self, bytes: &[u8]) -> Value {
        if !self.map.is_percpu() {
            return Value::from(bytes);
        }
        let size = self.map.value_size() as usize;
        let cpu = |chunk: &[u8]| chunk[..size].to_vec();
        Value::PerCpu(bytes.chunks_exact(size.next_multiple_of(8)).map(cpu).collect())
    }
}

impl MapUse {
    /// Notes one more user.
    pub fn new(map: Arc<MapObject>) -> MapUse {
        map.users.fetch_add(1, Ordering::Relaxed);
        MapUse(map)
    }

    /// The map.
    pub fn object(&self) -> &Arc<MapObject> {
        &self.0
    }
}

impl Deref for MapUse {
    type Target = MapObject;

    fn deref(&self) -> &MapObject {
        &self.0
    }
}

impl Clone for MapUse {
    fn clone(&self) -> MapUse {
        MapUse::new(Arc::clone(&self.0))
    }
}

impl Drop for MapUse {
    fn drop(&mut self) {
        let users = self.0.users.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(users > 0, "each use was counted when it began");
        let last = users == 1;
        if last && self.0.map.kind().values() == Values::Program {
            let held = std::mem::take(&mut *self.0.held.lock());
            for key in held.keys() {
                // The slot is there: it was filled.
                let _emptied = self.0.map.user().delete(key);
            }
        }
    }
}

impl Held {
    /// The id that user space sees.
    fn id(&self) -> u32 {
        match self {
            Held::Map(map) => map.id(),
            Held::Program(program) => program.id(),
        }
    }
}

/// One value, or all CPUs', as user space has them in memory.
pub fn flatten(value: &Value) -> Vec<u8> {
    match value {
        Value::One(bytes) => bytes.clone(),
        Value::PerCpu(all) => {
            let mut bytes = Vec::new();
            for value in all {
                bytes.extend_from_slice(value);
                bytes.resize(bytes.len().next_multiple_of(8), 0);
            }
            bytes
        }
    }
}

impl TryFrom<Object> for MapUse {
    type Error = Object;

    /// The use of a map; anything else is given back.
    fn try_from(object: Object) -> Result<MapUse, Object> {
        match object {
            Object::Map(map) => Ok(map),
            other => Err(other),
        }
    }
}

impl From<MapUse> for Object {
    fn from(map: MapUse) -> Object {
        Object::Map(map)
    }
}
