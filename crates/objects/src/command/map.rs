//! `BPF_MAP_CREATE`, `BPF_MAP_FREEZE`.

use std::sync::Arc;

use towpath_bpf::map::Values;
use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};
use towpath_maps::Environment as _;
use towpath_maps::flags::BPF_F_NUMA_NODE;

use super::map_btf::check_types;
use super::{BPF_F_TOKEN_FD, Call};
use crate::attr::{Attr, NAME_BYTES, map_create as field};
use crate::caller::Caller;
use crate::object::btf::BtfObject;
use crate::object::map::{About, MapObject, MapUse};
use crate::object::{Handle, Mode, Name, Object};
use crate::objects::Objects;

/// Definition of a new map: the fields of `BPF_MAP_CREATE`.
#[derive(Debug, Clone, Copy, Default)]
pub struct MapRequest {
    /// `map_type`
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// Capacity.
    pub max_entries: u32,
    /// `BPF_F_*`
    pub flags: u32,
    /// Its name, a zero behind.
    pub name: [u8; NAME_BYTES],
    /// `map_extra`
    pub extra: u64,
    /// Descriptor of the template of a map of maps.
    pub inner_map: u32,
    pub(crate) numa_node: u32,
    pub(crate) ifindex: u32,
    /// Descriptor of the types.
    pub btf: u32,
    /// The type of a key in those, 0 for none.
    pub key_type: u32,
    /// The type of a value.
    pub value_type: u32,
    pub(crate) kernel_value_type: u32,
    pub(crate) token: u32,
    /// Address and size of the hash of the only program that may use it.
    pub(crate) exclusive: (u64, u32),
}

impl MapRequest {
    fn of(attr: &Attr) -> Result<MapRequest, Errno> {
        Ok(MapRequest {
            kind: attr.u32(field::MAP_TYPE),
            key_size: attr.u32(field::KEY_SIZE),
            value_size: attr.u32(field::VALUE_SIZE),
            max_entries: attr.u32(field::MAX_ENTRIES),
            flags: attr.u32(field::MAP_FLAGS),
            name: attr.array(field::MAP_NAME).ok_or(Errno::EINVAL)?,
            extra: attr.u64(field::MAP_EXTRA),
            inner_map: attr.u32(field::INNER_MAP_FD),
            numa_node: attr.u32(field::NUMA_NODE),
            ifindex: attr.u32(field::MAP_IFINDEX),
            btf: attr.u32(field::BTF_FD),
            key_type: attr.u32(field::BTF_KEY_TYPE_ID),
            value_type: attr.u32(field::BTF_VALUE_TYPE_ID),
            kernel_value_type: attr.u32(field::BTF_VMLINUX_VALUE_TYPE_ID),
            token: attr.u32(field::MAP_TOKEN_FD),
            exclusive: (attr.u64(field::EXCL_PROG_HASH), attr.u32(field::EXCL_PROG_HASH_SIZE)),
        })
    }
}

impl Call<'_> {
    /// `map_create`
    pub(super) fn map_create(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let request = MapRequest::of(self.attr)?;
        let handle = self.objects.make_map(self.caller, &request)?;
        self.caller.install(handle)
    }
}

impl Objects {
    /// Makes a map: `BPF_MAP_CREATE`, typed.
    ///
    /// # Errors
    ///
    /// Fails with the errors of `bpf(2)`, in the kernel's order.
    pub fn make_map(&self, caller: &dyn Caller, request: &MapRequest) -> Result<Handle, Errno> {
        let making = Making { objects: self, caller, request };
        making.make()
    }
}

/// A map that is being made.
struct Making<'a> {
    objects: &'a Objects,
    caller: &'a dyn Caller,
    request: &'a MapRequest,
}

impl Making<'_> {
    fn make(&self) -> Result<Handle, Errno> {
        let request = self.request;
        self.check_request()?;
        let flags = request.flags & !BPF_F_TOKEN_FD;
        let mode = Mode::from_flags(flags)?;
        self.check_numa_node(flags)?;
        let kind = MapType::from_number(request.kind).ok_or(Errno::EINVAL)?;
        if kind.values() == Values::Events && request.max_entries == 0 {
            // A loader's convention, not the kernel's.
            return Err(Errno::EINVAL);
        }
        let btf = self.btf()?;
        let mut def = self.definition(kind, flags, btf.as_ref());
        let refused = self.describe_inner(&mut def);
        let objects = self.objects;
        let map = objects.create_map(&def).map_err(|error| match refused {
            // The template is looked at after the sizes.
            Err(errno) if error.errno() == Errno::EBADF => errno,
            _ => error.errno(),
        })?;
        self.check_elsewhere(kind)?;
        check_types(&def)?;
        let name = Name::parse(request.name)?;
        let exclusive = self.exclusive_hash()?;
        let about = About { name, exclusive, btf };
        let (world, family) = (objects.world.clone(), objects.shared.surroundings());
        let map = objects.maps.create(|lease| MapObject::new(lease, map, about, world, family))?;
        Ok(Handle { object: Object::Map(MapUse::new(map)), mode })
    }

    /// The types of the map.
    fn btf(&self) -> Result<Option<Arc<BtfObject>>, Errno> {
        if self.request.key_type == 0 && self.request.value_type == 0 {
            return Ok(None);
        }
        let handle = self.caller.handle(self.request.btf)?;
        Ok(Some(Arc::clone(handle.btf()?)))
    }

    /// Makes the checks that come before those of the kind.
    fn check_request(&self) -> Result<(), Errno> {
        let request = self.request;
        let untyped_value = request.key_type != 0 && request.value_type == 0;
        if request.kernel_value_type != 0 || untyped_value {
            // The first is for struct_ops, which has no meaning here.
            return Err(Errno::EINVAL);
        }
        let takes_extra = MapType::from_number(request.kind).is_some_and(|it| it.spec().extra);
        if request.extra != 0 && !takes_extra { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// Refuses maps inside of a network card, and rights that come from a token: there are none.
    fn check_elsewhere(&self, kind: MapType) -> Result<(), Errno> {
        if self.request.flags & BPF_F_TOKEN_FD != 0 {
            self.caller.handle(self.request.token)?;
            return Err(Errno::EINVAL);
        }
        match self.request.ifindex {
            0 => Ok(()),
            ifindex if kind.spec().offloadable && self.objects.world.has_device(ifindex) => {
                Err(Errno::EOPNOTSUPP)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// The hash of the only program that may use the map.
    fn exclusive_hash(&self) -> Result<Option<[u8; HASH_BYTES]>, Errno> {
        let (address, size) = self.request.exclusive;
        if address == 0 {
            return if size == 0 { Ok(None) } else { Err(Errno::EINVAL) };
        }
        if size as usize != HASH_BYTES {
            return Err(Errno::EINVAL);
        }
        let mut hash = [0; HASH_BYTES];
        self.caller.read(address, &mut hash)?;
        Ok(Some(hash))
    }

    /// Checks the NUMA node: there is only one.
    fn check_numa_node(&self, flags: u32) -> Result<(), Errno> {
        let node = self.request.numa_node as i32;
        let named = flags & BPF_F_NUMA_NODE != 0 && node != -1;
        if named && node != 0 { Err(Errno::EINVAL) } else { Ok(()) }
    }

    fn definition(&self, kind: MapType, flags: u32, btf: Option<&Arc<BtfObject>>) -> MapDef {
        let request = self.request;
        let (key, value) = (request.key_size, request.value_size);
        let mut def = MapDef::new("", kind, key, value, request.max_entries);
        def.flags = flags;
        def.map_extra = request.extra;
        if let Some(btf) = btf {
            def.btf = Some(Arc::clone(btf.types()));
            (def.key_type, def.value_type) = (request.key_type, request.value_type);
        }
        def
    }

    /// The template of a map of maps (`bpf_map_meta_alloc`).
    fn describe_inner(&self, def: &mut MapDef) -> Result<(), Errno> {
        if def.kind.values() != Values::Map {
            return Ok(());
        }
        let handle = self.caller.handle(self.request.inner_map)?;
        def.inner = Some(Box::new(handle.map()?.map().def().clone()));
        Ok(())
    }
}

/// Bytes of a SHA-256.
const HASH_BYTES: usize = 32;
