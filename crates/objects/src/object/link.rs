//! A link: the ownership of a device's hook, as an object.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::attach::Attachments;
use crate::ids::Lease;
use crate::object::program::ProgramObject;

/// A link with its id. The program is detached with the last reference to it.
#[derive(Debug)]
pub struct LinkObject {
    lease: Lease<LinkObject>,
    attachments: Arc<Attachments>,
    /// The mode flags with which it was attached.
    flags: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    program: Arc<ProgramObject>,
    /// `None` if it was detached, or the device is gone.
    ifindex: Option<u32>,
}

impl LinkObject {
    /// A link that holds nothing yet.
    pub(crate) fn new(
        lease: Lease<LinkObject>,
        attachments: Arc<Attachments>,
        flags: u32,
        program: Arc<ProgramObject>,
    ) -> LinkObject {
        let state = Mutex::new(State { program, ifindex: None });
        LinkObject { lease, attachments, flags, state }
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.lease.id()
    }

    /// Its program.
    pub fn program(&self) -> Arc<ProgramObject> {
        Arc::clone(&self.state.lock().program)
    }

    /// The device whose hook it holds.
    pub fn ifindex(&self) -> Option<u32> {
        self.state.lock().ifindex
    }

    /// Lets the device go (`BPF_LINK_DETACH`); the link stays.
    pub fn detach(&self) {
        self.attachments.release(self);
    }

    /// The flags it was made with.
    pub(crate) fn flags(&self) -> u32 {
        self.flags
    }

    pub(crate) fn set_device(&self, ifindex: u32) {
        self.state.lock().ifindex = Some(ifindex);
    }

    pub(crate) fn take_device(&self) -> Option<u32> {
        self.state.lock().ifindex.take()
    }

    pub(crate) fn set_program(&self, program: Arc<ProgramObject>) {
        let old = std::mem::replace(&mut self.state.lock().program, program);
        drop(old);
    }
}

impl Drop for LinkObject {
    fn drop(&mut self) {
        self.attachments.release(self);
    }
}
