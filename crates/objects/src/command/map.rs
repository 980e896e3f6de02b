//! `BPF_MAP_CREATE`, `BPF_MAP_FREEZE`.

use std::sync::Arc;

use towpath_bpf::map::Values;
use towpath_bpf::program::MapType;
use towpath_bpf::{Errno, MapDef};
use towpath_maps::Environment as _;
use towpath_maps::flags::BPF_F_NUMA_NODE;

use super::Call;
use super::map_btf::check_types;
use crate::attr::{element, map_create as field};
use crate::object::btf::BtfObject;
use crate::object::map::{About, MapObject, MapUse};
use crate::object::{Handle, Mode, Name, Object};

impl Call<'_> {
    /// `map_create`
    pub(super) fn map_create(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        self.check_map_attr()?;
        let flags = self.u32(field::MAP_FLAGS) & !BPF_F_TOKEN_FD;
        let mode = Mode::from_flags(flags)?;
        self.check_numa_node(flags)?;
        let kind = MapType::from_number(self.u32(field::MAP_TYPE)).ok_or(Errno::EINVAL)?;
        if kind.values() == Values::Events && self.u32(field::MAX_ENTRIES) == 0 {
            // A loader's convention, not the kernel's.
            return Err(Errno::EINVAL);
        }
        let btf = self.map_btf()?;
        let mut def = self.map_def(kind, flags, btf.as_ref());
        let refused = self.describe_inner(&mut def);
        let objects = self.objects;
        let map = objects.create_map(&def).map_err(|error| match refused {
            // The template is looked at after the sizes.
            Err(errno) if error.errno() == Errno::EBADF => errno,
            _ => error.errno(),
        })?;
        self.check_elsewhere(kind)?;
        check_types(&def)?;
        let name = Name::parse(self.attr.array(field::MAP_NAME).ok_or(Errno::EINVAL)?)?;
        let exclusive = self.exclusive_hash()?;
        let about = About { name, exclusive, btf };
        let (world, family) = (objects.world.clone(), objects.shared.surroundings());
        let map = objects.maps.create(|lease| MapObject::new(lease, map, about, world, family))?;
        self.caller.install(Handle { object: Object::Map(MapUse::new(map)), mode })
    }

    /// What is checked before the kind is looked at.
    fn check_map_attr(&self) -> Result<(), Errno> {
        let kind = self.u32(field::MAP_TYPE);
        let [key, value] =
            [field::BTF_KEY_TYPE_ID, field::BTF_VALUE_TYPE_ID].map(|at| self.u32(at));
        if self.u32(field::BTF_VMLINUX_VALUE_TYPE_ID) != 0 || key != 0 && value == 0 {
            // The first is for struct_ops, which has no meaning here.
            return Err(Errno::EINVAL);
        }
        let takes_extra = MapType::from_number(kind).is_some_and(|kind| kind.spec().extra);
        let has_extra = self.u64(field::MAP_EXTRA) != 0;
        if has_extra && !takes_extra { Err(Errno::EINVAL) } else { Ok(()) }
    }

    /// Maps inside of a network card, and rights that come from a token: there are none.
    fn check_elsewhere(&self, kind: MapType) -> Result<(), Errno> {
        if self.u32(field::MAP_FLAGS) & BPF_F_TOKEN_FD != 0 {
            self.caller.handle(self.u32(field::MAP_TOKEN_FD))?;
            return Err(Errno::EINVAL);
        }
        let ifindex = self.u32(field::MAP_IFINDEX);
        match ifindex {
            0 => Ok(()),
            ifindex if kind.spec().offloadable && self.objects.world.has_device(ifindex) => {
                Err(Errno::EOPNOTSUPP)
            }
            _ => Err(Errno::EINVAL),
        }
    }

    /// The hash of the only program that may use the map.
    fn exclusive_hash(&self) -> Result<Option<[u8; HASH_BYTES]>, Errno> {
        let (address, size) =
            (self.u64(field::EXCL_PROG_HASH), self.u32(field::EXCL_PROG_HASH_SIZE));
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

    /// There is one node.
    fn check_numa_node(&self, flags: u32) -> Result<(), Errno> {
        let node = self.u32(field::NUMA_NODE) as i32;
        let named = flags & BPF_F_NUMA_NODE != 0 && node != -1;
        if named && node != 0 { Err(Errno::EINVAL) } else { Ok(()) }
    }

    fn map_def(&self, kind: MapType, flags: u32, btf: Option<&Arc<BtfObject>>) -> MapDef {
        let [key, value, entries] =
            [field::KEY_SIZE, field::VALUE_SIZE, field::MAX_ENTRIES].map(|at| self.u32(at));
        let mut def = MapDef::new("", kind, key, value, entries);
        def.flags = flags;
        def.map_extra = self.u64(field::MAP_EXTRA);
        if let Some(btf) = btf {
            def.btf = Some(Arc::clone(btf.types()));
            def.key_type = self.u32(field::BTF_KEY_TYPE_ID);
            def.value_type = self.u32(field::BTF_VALUE_TYPE_ID);
        }
        def
    }

    /// The template of a map of maps (`bpf_map_meta_alloc`).
    fn describe_inner(&self, def: &mut MapDef) -> Result<(), Errno> {
        if def.kind.values() != Values::Map {
            return Ok(());
        }
        let handle = self.caller.handle(self.u32(field::INNER_MAP_FD))?;
        def.inner = Some(Box::new(handle.map()?.map().def().clone()));
        Ok(())
    }

    /// `map_freeze`
    pub(super) fn map_freeze(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(element::MAP_FD + 4)?;
        let handle = self.caller.handle(self.u32(element::MAP_FD))?;
        let map = handle.map()?.map();
        if !map.fields().is_empty() {
            return Err(Errno::ENOTSUPP);
        }
        if !handle.mode.may_write() || map.is_frozen() {
            return Err(Errno::EPERM);
        }
        map.freeze()?;
        Ok(0)
    }
}

/// Rights come from a token.
const BPF_F_TOKEN_FD: u32 = 1 << 16;
/// Bytes of a SHA-256.
const HASH_BYTES: usize = 32;
