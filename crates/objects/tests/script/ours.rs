//! Our side.

use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_objects::{BPFFS_ROOT, Caller as _, Devices, Objects, Process, Settings};

use crate::side::{Memory, Side};

/// A set of objects, and the process that uses it.
pub(crate) struct Ours {
    objects: Objects,
    process: Process,
}

impl Ours {
    pub(crate) fn new() -> Ours {
        let mut settings = Settings::new();
        settings.load.workers = cpus();
        settings.devices = Arc::new(Loopback);
        Ours { objects: Objects::new(&settings), process: Process::new(0) }
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

    fn device(&mut self, _arguments: &[&str]) -> Result<u32, Errno> {
        Err(Errno::ENODEV)
    }
}

/// The one device that every network namespace has.
struct Loopback;

impl Devices for Loopback {
    fn has_device(&self, ifindex: u32) -> bool {
        ifindex == 1
    }
}

/// As many as the kernel may have: its per-CPU values are as long.
fn cpus() -> usize {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse().ok());
    last.map_or(1, |last: usize| last + 1)
}
