//! The running kernel's side.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use towpath_bpf::Errno;
use towpath_bpf::btf::Btf;
use towpath_kernel::{Area, Reply};

use crate::netlink;
use crate::side::{Memory, Side, Xdp};

/// The kernel, with a bpffs of our own.
pub(crate) struct Kernel {
    area: Area,
    descriptors: HashMap<u32, OwnedFd>,
    bpffs: PathBuf,
    devices: u32,
    types: Arc<Btf>,
}

impl Kernel {
    /// The kernel's side, or the reason why it can't be used.
    pub(crate) fn open() -> Result<Kernel, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let kernel = towpath_kernel::Kernel::open().map_err(|why| why.to_string())?;
        let types = Arc::clone(kernel.btf());
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("objects-bpffs-{}-{number}", std::process::id());
        let bpffs = std::env::temp_dir().join(name);
        fs::create_dir(&bpffs).map_err(|error| error.to_string())?;
        let mount = Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&bpffs).status();
        if !mount.is_ok_and(|status| status.success()) {
            let _ = fs::remove_dir(&bpffs);
            return Err("no bpffs can be mounted".to_owned());
        }
        let area = Area::new().map_err(|errno| errno.to_string())?;
        // A thread's own: nothing of it stays.
        towpath_kernel::isolate_network().map_err(|errno| errno.to_string())?;
        Ok(Kernel { area, descriptors: HashMap::new(), bpffs, devices: 0, types })
    }
}

impl Side for Kernel {
    fn start(&self) -> u64 {
        self.area.address()
    }

    fn call(
        &mut self,
        command: u32,
        attr: u64,
        size: u32,
        memory: &mut Memory,
    ) -> Result<u32, Errno> {
        let area = self.area.bytes_mut();
        area.fill(0);
        area[..memory.bytes.len()].copy_from_slice(&memory.bytes);
        let reply = self.area.call(command, attr, size);
        let len = memory.bytes.len();
        memory.bytes.copy_from_slice(&self.area.bytes()[..len]);
        Ok(match reply? {
            Reply::Number(number) => number,
            Reply::Descriptor(descriptor) => {
                let number = descriptor.as_raw_fd() as u32;
                self.descriptors.insert(number, descriptor);
                number
            }
        })
    }

    fn settle(&self) {
        // Programs give up their maps after a grace period, in a work queue.
        std::thread::sleep(Duration::from_millis(100));
    }

    fn close(&mut self, descriptor: u32) -> Result<(), Errno> {
        self.descriptors.remove(&descriptor).map(drop).ok_or(Errno::EBADF)
    }

    fn duplicate(&mut self, descriptor: u32) -> Result<u32, Errno> {
        let copy = self.descriptors.get(&descriptor).ok_or(Errno::EBADF)?.try_clone();
        let copy = copy.map_err(|error| Errno(error.raw_os_error().unwrap_or(0)))?;
        let number = copy.as_raw_fd() as u32;
        self.descriptors.insert(number, copy);
        Ok(number)
    }

    fn types(&self) -> Arc<Btf> {
        Arc::clone(&self.types)
    }

    fn bpffs(&self) -> String {
        self.bpffs.display().to_string()
    }

    fn change_path(&mut self, what: &str, path: &str) -> Result<(), Errno> {
        let result = match what {
            "mkdir" => fs::create_dir(path),
            "rmdir" => fs::remove_dir(path),
            _ => fs::remove_file(path),
        };
        result.map_err(|error| Errno(error.raw_os_error().unwrap_or(0)))
    }

    fn add_device(&mut self, below: Option<u32>) -> Result<u32, Errno> {
        self.devices += 1;
        let name = format!("objects{}", self.devices);
        let below = below.map(|ifindex| format!("if{ifindex}"));
        let mut arguments = vec!["link", "add"];
        match &below {
            Some(below) => arguments.extend(["link", below, "name", &name, "type", "macvlan"]),
            None => arguments.extend([&name, "type", "veth"]),
        }
        ip(&arguments)?;
        let ifindex = netlink::index_of(&name)?;
        // So that a number leads to it.
        let alias = format!("if{ifindex}");
        ip(&["link", "property", "add", "dev", &name, "altname", &alias])?;
        Ok(ifindex)
    }

    fn remove_device(&mut self, ifindex: u32) -> Result<(), Errno> {
        ip(&["link", "del", &format!("if{ifindex}")])
    }

    fn set_xdp(&mut self, ifindex: u32, xdp: &Xdp) -> Result<(), Errno> {
        netlink::set_xdp(ifindex, xdp)
    }

    fn xdp(&mut self, ifindex: u32) -> Result<[u32; 2], Errno> {
        netlink::xdp(ifindex)
    }
}

fn ip(arguments: &[&str]) -> Result<(), Errno> {
    let status = Command::new("ip").args(arguments).status();
    if status.is_ok_and(|status| status.success()) { Ok(()) } else { Err(Errno::ENODEV) }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.descriptors.clear();
        let _ = Command::new("umount").arg("-l").arg(&self.bpffs).status();
        let _ = fs::remove_dir(&self.bpffs);
    }
}
