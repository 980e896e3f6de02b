//! Our side.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use towpath_bpf::Errno;
use towpath_bpf::btf::Btf;
use towpath_objects::{
    BPFFS_ROOT, Caller as _, Device, Devices, Objects, Process, ProgramObject, Settings, XdpMode,
    XdpRequest,
};

use crate::side::{Memory, Side, Xdp};

/// A set of objects, and the process that uses it.
pub(crate) struct Ours {
    objects: Objects,
    process: Process,
    devices: Arc<Ports>,
    types: Arc<Btf>,
}

impl Ours {
    pub(crate) fn new() -> Ours {
        let mut settings = Settings::new();
        settings.load.workers = cpus();
        let all = Mutex::new(HashMap::from([(1, Device { queues: 1, ..Device::default() })]));
        let devices = Arc::new(Ports { all });
        settings.devices = devices.clone();
        let types = Arc::clone(&settings.env.kernel_btf);
        Ours { objects: Objects::new(&settings), process: Process::new(0), devices, types }
    }
}

impl Side for Ours {
    fn start(&self) -> u64 {
        1 << 32
    }

    fn call(
        &mut self,
        command: u32,
        attr: u64,
        size: u32,
        memory: &mut Memory,
    ) -> Result<u32, Errno> {
        // As much as the kernel's side has.
        let mut bytes = memory.bytes.clone();
        bytes.resize(1 << 20, 0);
        self.process.unmap();
        self.process.map_at(memory.start, bytes);
        let result = self.objects.bpf(&mut self.process, command, attr, size);
        let after = self.process.bytes(memory.start).unwrap_or_default();
        let len = memory.bytes.len();
        memory.bytes.copy_from_slice(&after[..len]);
        result
    }

    fn settle(&self) {}

    fn close(&mut self, descriptor: u32) -> Result<(), Errno> {
        self.process.close(descriptor)
    }

    fn duplicate(&mut self, descriptor: u32) -> Result<u32, Errno> {
        let handle = self.process.handle(descriptor)?;
        self.process.install(handle)
    }

    fn types(&self) -> Arc<Btf> {
        Arc::clone(&self.types)
    }

    fn bpffs(&self) -> String {
        BPFFS_ROOT.to_owned()
    }

    fn change_path(&mut self, what: &str, path: &str) -> Result<(), Errno> {
        match what {
            "mkdir" => self.objects.create_directory(path),
            "rmdir" => self.objects.remove_directory(path),
            _ => self.objects.unlink(path),
        }
    }

    fn add_device(&mut self, below: Option<u32>) -> Result<u32, Errno> {
        let mut all = self.devices.all.lock();
        let ifindex = all.keys().max().map_or(1, |last| last + 1);
        all.insert(ifindex, Device { native: below.is_none(), queues: 1, ..Device::default() });
        if let Some(below) = below.and_then(|below| all.get_mut(&below)) {
            below.uppers.push(ifindex);
        }
        Ok(ifindex)
    }

    fn remove_device(&mut self, ifindex: u32) -> Result<(), Errno> {
        self.devices.all.lock().remove(&ifindex).ok_or(Errno::ENODEV)?;
        self.objects.device_removed(ifindex);
        Ok(())
    }

    fn set_xdp(&mut self, ifindex: u32, xdp: &Xdp) -> Result<(), Errno> {
        let &Xdp { descriptor, flags, expected } = xdp;
        let request = XdpRequest { descriptor, flags: flags.unwrap_or(0), expected };
        self.objects.set_xdp(&self.process, ifindex, &request).map_err(|error| error.errno)
    }

    fn xdp(&mut self, ifindex: u32) -> Result<[u32; 2], Errno> {
        let state = self.objects.xdp(ifindex).ok_or(Errno::ENODEV)?;
        Ok([state.generic, state.native])
    }
}

/// Devices that take every program. The first one is the loopback device, which runs none itself.
#[derive(Debug)]
struct Ports {
    all: Mutex<HashMap<u32, Device>>,
}

impl Devices for Ports {
    fn device(&self, ifindex: u32) -> Option<Device> {
        self.all.lock().get(&ifindex).cloned()
    }

    fn install(
        &self,
        ifindex: u32,
        _mode: XdpMode,
        _program: Option<&Arc<ProgramObject>>,
    ) -> Result<(), Errno> {
        if self.all.lock().contains_key(&ifindex) { Ok(()) } else { Err(Errno::ENODEV) }
    }
}

/// As many as the kernel may have: its per-CPU values are as long.
fn cpus() -> usize {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse().ok());
    last.map_or(1, |last: usize| last + 1)
}
