//! A program as an object: its identity and what it refers to.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};
use towpath_bpf::{Errno, Insn};
use towpath_xdp::Program;
use towpath_xdp::program::Shared;

use crate::attach::Devices;
use crate::ids::Lease;
use crate::object::btf::BtfObject;
use crate::object::map::MapObject;
use crate::object::{Name, Tag};

/// A loaded program with its id.
#[derive(Debug)]
pub struct ProgramObject {
    lease: Lease<ProgramObject>,
    program: Program,
    shared: Shared,
    about: About,
    /// The maps used since the program was loaded, or bound later; each lives as long as the
    /// program.
    maps: Mutex<Vec<Arc<MapObject>>>,
    /// The device it is bound to; 0 when that is gone.
    device: AtomicU32,
    /// The devices that know the program, and are told when it is freed.
    known_to: OnceLock<Arc<dyn Devices>>,
}

/// Information about a program beside its code.
#[derive(Debug, Clone)]
pub(crate) struct About {
    /// `BPF_PROG_TYPE_*`
    pub(crate) kind: u32,
    /// `expected_attach_type`, as it was given.
    pub(crate) attach: u32,
    pub(crate) name: Name,
    pub(crate) tag: Tag,
    pub(crate) uid: u32,
    pub(crate) load_time: Duration,
    pub(crate) is_gpl: bool,
    pub(crate) btf: Option<Arc<BtfObject>>,
    /// `struct bpf_func_info` and `struct bpf_line_info` records, as they were given.
    pub(crate) functions: Vec<u8>,
    pub(crate) lines: Vec<u8>,
    /// Instructions with the ids of maps in place of descriptors.
    pub(crate) insns: Vec<Insn>,
    /// The device it was loaded for (`prog_ifindex`), if it was.
    pub(crate) bound_to: Option<u32>,
}

impl ProgramObject {
    pub(crate) fn new(
        lease: Lease<ProgramObject>,
        program: Program,
        shared: Shared,
        about: About,
        maps: Vec<Arc<MapObject>>,
    ) -> ProgramObject {
        let device = AtomicU32::new(about.bound_to.unwrap_or(0));
        let maps = Mutex::new(maps);
        ProgramObject { lease, program, shared, about, maps, device, known_to: OnceLock::new() }
    }

    /// Makes the program known to devices for as long as it lives, if they run programs of its
    /// type.
    ///
    /// # Errors
    ///
    /// Fails with the devices' reason for not running it.
    pub(crate) fn tell(&self, devices: &Arc<dyn Devices>) -> Result<(), Errno> {
        if self.about.kind == PROG_TYPE_XDP {
            devices.note_program(&self.program, true)?;
            let _once = self.known_to.set(Arc::clone(devices));
        }
        Ok(())
    }

    /// Its id, which is [`Program::id`] too.
    pub fn id(&self) -> u32 {
        self.lease.id()
    }

    /// Its name, cut to what the kernel keeps.
    pub fn name(&self) -> &Name {
        &self.about.name
    }

    /// A hash of its instructions.
    pub fn tag(&self) -> Tag {
        self.about.tag
    }

    /// `BPF_PROG_TYPE_*`; only programs of type XDP can be attached and run, those that take
    /// packets out of queues attached, and those that users call run.
    pub fn kind(&self) -> u32 {
        self.about.kind
    }

    /// Its type as bpftool names it; a number for types that only load.
    pub fn kind_name(&self) -> String {
        match self.about.kind {
            PROG_TYPE_XDP => "xdp".to_owned(),
            PROG_TYPE_SYSCALL => "syscall".to_owned(),
            PROG_TYPE_DEQUEUE => "dequeue".to_owned(),
            kind => kind.to_string(),
        }
    }

    /// Bytes of its instructions.
    pub fn bytes_xlated(&self) -> usize {
        self.about.insns.len() * 8
    }

    /// `expected_attach_type`, as it was given.
    pub fn expected_attach_type(&self) -> u32 {
        self.about.attach
    }

    /// The user that loaded it.
    pub fn uid(&self) -> u32 {
        self.about.uid
    }

    /// The time at which it was loaded, since the machine was started.
    pub fn load_time(&self) -> Duration {
        self.about.load_time
    }

    /// Whether its licence allows GPL-only helpers.
    pub fn is_gpl_compatible(&self) -> bool {
        self.about.is_gpl
    }

    /// Its types, when it came with some.
    pub fn btf(&self) -> Option<&Arc<BtfObject>> {
        self.about.btf.as_ref()
    }

    /// The program itself.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The maps it uses, and those that were bound to it.
    pub fn maps(&self) -> Vec<Arc<MapObject>> {
        self.maps.lock().clone()
    }

    /// The ifindex of the device that it is bound to (`BPF_F_XDP_DEV_BOUND_ONLY`): it runs there
    /// and nowhere else. A program whose device is gone is bound to 0.
    pub fn bound_to(&self) -> Option<u32> {
        self.about.bound_to.map(|_was| self.device.load(Ordering::Acquire))
    }

    /// The device with this ifindex is gone.
    pub(crate) fn forget_device(&self, ifindex: u32) {
        // Only the one it is bound to; it never gets another.
        let (bound, free) = (Ordering::AcqRel, Ordering::Relaxed);
        let _other = self.device.compare_exchange(ifindex, 0, bound, free);
    }

    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// Makes a map live as long as the program (`BPF_PROG_BIND_MAP`).
    pub(crate) fn bind(&self, map: Arc<MapObject>) {
        let mut maps = self.maps.lock();
        if !maps.iter().any(|known| known.id() == map.id()) {
            maps.push(map);
        }
    }
}

impl Drop for ProgramObject {
    fn drop(&mut self) {
        if let Some(devices) = self.known_to.get() {
            // Taking one away can't fail.
            let _removed = devices.note_program(&self.program, false);
        }
        self.shared.forget(&self.program);
    }
}

/// The time as objects note it (`ktime_get_boottime_ns`).
pub(crate) fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// `BPF_PROG_TYPE_XDP`
pub(crate) const PROG_TYPE_XDP: u32 = 6;
/// `BPF_PROG_TYPE_SYSCALL`
pub(crate) const PROG_TYPE_SYSCALL: u32 = 31;
/// `BPF_PROG_TYPE_DEQUEUE`, which no kernel has: a number of our own, far from the kernel's next.
pub(crate) const PROG_TYPE_DEQUEUE: u32 = 1024;
/// `BPF_XDP`
pub(crate) const ATTACH_XDP: u32 = 37;
/// `BPF_XDP_DEVMAP`
pub(crate) const ATTACH_XDP_DEVMAP: u32 = 33;
/// `BPF_XDP_CPUMAP`
pub(crate) const ATTACH_XDP_CPUMAP: u32 = 35;
