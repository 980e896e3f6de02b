//! The running kernel's XFRM, in a network namespace of its own.

use std::process::Command;

use netlink_sys::protocols::NETLINK_XFRM;
use netlink_sys::{Socket, SocketAddr};
use towpath_host::namespace;

use crate::requests::{Answer, answers};

/// A socket in a namespace that ends with it.
pub(crate) struct Kernel {
    socket: Socket,
    name: String,
}

impl Kernel {
    /// None if that cannot be made here.
    pub(crate) fn in_a_namespace() -> Option<Kernel> {
        let name = format!("towpath-xfrm-{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).status();
        if !made.is_ok_and(|status| status.success()) {
            return None;
        }
        let file = namespace::open(&name).ok()?;
        // The socket stays in the namespace of the thread that made it.
        let socket = std::thread::spawn(move || {
            namespace::enter(&file)?;
            let mut socket = Socket::new(NETLINK_XFRM)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            std::io::Result::Ok(socket)
        });
        let socket = socket.join().ok()?.ok();
        match socket {
            Some(socket) => Some(Kernel { socket, name }),
            None => {
                remove(&name);
                None
            }
        }
    }

    /// All answers to a datagram.
    pub(crate) fn ask(&mut self, datagram: &[u8]) -> Vec<Answer> {
        self.socket.send(datagram, 0).expect("the kernel takes it");
        let mut all = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full().expect("the kernel answers");
            let part = answers(&bytes);
            let is_end = part.iter().any(Answer::ends);
            all.extend(part);
            if is_end {
                return all;
            }
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

fn remove(name: &str) {
    let _gone = Command::new("ip").args(["netns", "del", name]).status();
}
