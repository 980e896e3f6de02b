//! The set of all objects, which the kernel keeps in global variables.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use towpath_bpf::btf::{Btf, Kind};
use towpath_bpf::{Env, Errno, MapDef};
use towpath_maps::{Map, MapError};
use towpath_xdp::LoadOptions;
use towpath_xdp::program::Shared;

use crate::attach::{Attachments, Devices, NoDevices};
use crate::bpffs::Bpffs;
use crate::ids::Ids;
use crate::object::Object;
use crate::object::btf::BtfObject;
use crate::object::link::LinkObject;
use crate::object::map::MapObject;
use crate::object::program::ProgramObject;
use crate::world::World;

/// Programs, maps, links and BTF of one engine, with their ids and pins.
#[derive(Debug)]
pub struct Objects {
    pub(crate) maps: Arc<Ids<MapObject>>,
    pub(crate) programs: Arc<Ids<ProgramObject>>,
    pub(crate) btfs: Arc<Ids<BtfObject>>,
    pub(crate) links: Arc<Ids<LinkObject>>,
    pub(crate) attachments: Arc<Attachments>,
    /// The worker that test runs run on, one at a time.
    pub(crate) test_worker: u32,
    test_lock: Mutex<()>,
    pub(crate) bpffs: Bpffs,
    pub(crate) shared: Shared,
    pub(crate) world: Arc<World>,
    pub(crate) env: Arc<Env>,
}

/// Settings of a set of objects. Start from [`Settings::new`].
#[derive(Clone)]
#[non_exhaustive]
pub struct Settings {
    /// Options for loading programs, with the number of workers that run them: the CPUs of per-CPU
    /// maps.
    pub load: LoadOptions,
    /// The kernel that programs are verified against.
    pub env: Arc<Env>,
    /// The devices that programs are attached to.
    pub devices: Arc<dyn Devices>,
    /// The worker that `BPF_PROG_TEST_RUN` runs programs on. No other thread may run as this one,
    /// or per-CPU values would have two writers.
    pub test_worker: u32,
}

impl Settings {
    /// One worker, the built-in kernel types, no devices.
    pub fn new() -> Settings {
        let load = LoadOptions { workers: 1, ..LoadOptions::default() };
        Settings {
            load,
            env: Arc::new(Env::builtin()),
            devices: Arc::new(NoDevices),
            test_worker: 0,
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings::new()
    }
}

impl Objects {
    /// No objects yet.
    pub fn new(settings: &Settings) -> Objects {
        let workers = settings.load.workers.max(1);
        let attachments = Arc::new(Attachments::new(Arc::clone(&settings.devices)));
        Objects {
            maps: Ids::new(),
            programs: Ids::new(),
            btfs: Ids::new(),
            links: Ids::new(),
            attachments: Arc::clone(&attachments),
            test_worker: settings.test_worker.min(workers as u32 - 1),
            test_lock: Mutex::default(),
            bpffs: Bpffs::new(),
            shared: Shared::new(&settings.load),
            world: Arc::new(World::new(attachments, workers as u32)),
            env: Arc::clone(&settings.env),
        }
    }

    /// All existing maps, by id.
    pub fn maps(&self) -> Vec<Arc<Map>> {
        self.maps.all().iter().map(|map| Arc::clone(map.map())).collect()
    }

    /// A map as an object, if it is one.
    pub fn map_object(&self, map: &Arc<Map>) -> Option<Arc<MapObject>> {
        self.maps.all().into_iter().find(|known| Arc::ptr_eq(known.map(), map))
    }

    /// State shared by all programs, so that program arrays can hold any of them: programs for
    /// [`Objects::register_program`] must be loaded within it
    /// ([`Loader::within`](towpath_xdp::program::Loader::within)).
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The number by which programs that come through `BPF_PROG_LOAD` call a kfunc: the id of its
    /// type in the kernel, or a number behind the last of these, if the kernel has no such kfunc.
    pub fn kfunc_id(&self, name: &str) -> Option<u32> {
        let own = || own_kfuncs(&self.env.kernel_btf).position(|kfunc| kfunc == name);
        let in_kernel = self.env.kernel_btf.find_func(name);
        in_kernel.or_else(|| Some((self.env.kernel_btf.len() + own()?) as u32))
    }

    /// The kfunc that has a number.
    pub(crate) fn kfunc_name(&self, id: u32) -> Option<&str> {
        let types = &self.env.kernel_btf;
        match types.get(id) {
            Some(ty) => matches!(ty.kind, Kind::Func { .. }).then_some(&ty.name),
            None => own_kfuncs(types).nth((id as usize).checked_sub(types.len())?),
        }
    }

    pub(crate) fn lock_test_worker(&self) -> MutexGuard<'_, ()> {
        self.test_lock.lock()
    }

    pub(crate) fn create_map(&self, def: &MapDef) -> Result<Arc<Map>, MapError> {
        let world = Arc::clone(&self.world);
        self.shared.create_map(def, &self.env.kernel_btf, world)
    }
}

/// Kfuncs that a kernel with these types lacks.
fn own_kfuncs(types: &Btf) -> impl Iterator<Item = &'static str> {
    let names = towpath_bpf::proto::kfuncs().map(|kfunc| kfunc.name);
    names.filter(|name| types.find_func(name).is_none())
}

/// Operations on the virtual bpffs beside `bpf(2)`.
impl Objects {
    /// `mkdir(2)`
    ///
    /// # Errors
    ///
    /// Fails with the errors of the system call, and with `EPERM` outside of
    /// [`BPFFS_ROOT`](crate::BPFFS_ROOT).
    pub fn create_directory(&self, path: &str) -> Result<(), Errno> {
        self.bpffs.create_directory(path)
    }

    /// `unlink(2)`: ends a pin. An object without other references goes.
    ///
    /// # Errors
    ///
    /// Fails with the errors of the system call, and with `EPERM` outside of
    /// [`BPFFS_ROOT`](crate::BPFFS_ROOT).
    pub fn unlink(&self, path: &str) -> Result<(), Errno> {
        self.bpffs.unlink(path)
    }

    /// `rmdir(2)`
    ///
    /// # Errors
    ///
    /// Fails with the errors of the system call, and with `EPERM` outside of
    /// [`BPFFS_ROOT`](crate::BPFFS_ROOT).
    pub fn remove_directory(&self, path: &str) -> Result<(), Errno> {
        self.bpffs.remove_directory(path)
    }

    /// All pins: absolute paths, by name, and their objects.
    pub fn pins(&self) -> Vec<(String, Object)> {
        self.bpffs.pins()
    }
}
