//! `BPF_LINK_CREATE`, `BPF_LINK_UPDATE`, `BPF_LINK_DETACH`; and the netlink way to the same hook.

use std::sync::Arc;

use towpath_bpf::Errno;

use super::Call;
use crate::attach::{
    Attach, AttachError, GONE, XDP_FLAGS_REPLACE, XdpRequest, XdpState, check_request, check_type,
};
use crate::attr::{link_create, link_detach, link_update};
use crate::caller::Caller;
use crate::object::link::LinkObject;
use crate::object::program::{ATTACH_XDP, ProgramObject};
use crate::object::{Handle, Object};
use crate::objects::Objects;

impl Call<'_> {
    /// `link_create`, `bpf_xdp_link_attach`
    pub(super) fn link_create(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(link_create::END)?;
        let handle = self.caller.handle(self.u32(link_create::PROG_FD))?;
        let program = handle.program()?;
        let flags = self.u32(link_create::FLAGS);
        check_type(program, flags)?;
        if self.u32(link_create::ATTACH_TYPE) != ATTACH_XDP {
            return Err(Errno::EINVAL);
        }
        let ifindex = self.u32(link_create::TARGET_IFINDEX);
        let attachments = &self.objects.attachments;
        if !attachments.has_device(ifindex) {
            return Err(Errno::EINVAL);
        }
        let make =
            |lease| LinkObject::new(lease, Arc::clone(attachments), flags, Arc::clone(program));
        let link = self.objects.links.create(make)?;
        let attach = Attach::Link { link: link.id(), program };
        attachments.attach(ifindex, flags, &attach).map_err(|error| error.errno)?;
        link.set_device(ifindex);
        self.caller.install(Handle::new(Object::Link(link)))
    }

    /// `link_update`
    pub(super) fn link_update(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(link_update::END)?;
        let flags = self.u32(link_update::FLAGS);
        if flags & !BPF_F_REPLACE != 0 {
            return Err(Errno::EINVAL);
        }
        let link = self.caller.handle(self.u32(link_update::LINK_FD))?;
        let link = link.link()?;
        let new = self.caller.handle(self.u32(link_update::NEW_PROG_FD))?;
        let new = new.program()?;
        let old_descriptor = self.u32(link_update::OLD_PROG_FD);
        let old = if flags & BPF_F_REPLACE != 0 {
            Some(Arc::clone(self.caller.handle(old_descriptor)?.program()?))
        } else if old_descriptor != 0 {
            return Err(Errno::EINVAL);
        } else {
            None
        };
        self.objects.attachments.update(link, new, old.as_ref())?;
        Ok(0)
    }

    /// `link_detach`
    pub(super) fn link_detach(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(link_detach::END)?;
        let link = self.caller.handle(self.u32(link_detach::LINK_FD))?;
        link.link()?.detach();
        Ok(0)
    }
}

/// Entry points for netlink.
impl Objects {
    /// `RTM_SETLINK` with `IFLA_XDP`: attaches, replaces or detaches a program by descriptor. The
    /// rules and their order are the kernel's.
    ///
    /// # Errors
    ///
    /// `ENODEV`: no such device. `EBUSY`: a link has the hook, or something is there that must not.
    /// `EEXIST`: another program than expected, another mode, or a device above has one.
    /// `EOPNOTSUPP`: no such mode here. `EINVAL`, `EBADF`: the request makes no sense.
    pub fn set_xdp(
        &self,
        caller: &dyn Caller,
        ifindex: u32,
        request: &XdpRequest,
    ) -> Result<(), AttachError> {
        if !self.attachments.has_device(ifindex) {
            return Err(GONE);
        }
        if !check_request(request)? {
            return Ok(());
        }
        let new = program(caller, request.descriptor, request.flags)?;
        let replaces = request.flags & XDP_FLAGS_REPLACE != 0;
        let expected = request.expected.filter(|_| replaces);
        let expected = program(caller, expected, request.flags)?;
        self.attachments.attach(ifindex, request.flags, &Attach::Program { new, expected })
    }

    /// The programs of a device, as `RTM_GETLINK` shows them in `IFLA_XDP`; `None` when there is no
    /// such device.
    pub fn xdp(&self, ifindex: u32) -> Option<XdpState> {
        let exists = self.attachments.has_device(ifindex);
        exists.then(|| self.attachments.state(ifindex))
    }

    /// Notes that a device is gone: its programs are released, its links stay and hold nothing,
    /// entries of device maps that lead to it are removed, and programs bound to it are bound to no
    /// device.
    pub fn device_removed(&self, ifindex: u32) {
        for id in self.attachments.forget_device(ifindex) {
            if let Some(link) = self.links.get(id) {
                link.take_device();
            }
        }
        for map in self.maps.all() {
            map.forget_device(ifindex);
        }
        for program in self.programs.all() {
            program.forget_device(ifindex);
        }
    }
}

/// The program of a descriptor, `None` for a negative one.
fn program(
    caller: &dyn Caller,
    descriptor: Option<i32>,
    flags: u32,
) -> Result<Option<Arc<ProgramObject>>, AttachError> {
    let Some(descriptor) = descriptor.and_then(|number| u32::try_from(number).ok()) else {
        return Ok(None);
    };
    let find = || {
        let handle = caller.handle(descriptor)?;
        let program = Arc::clone(handle.program()?);
        check_type(&program, flags)?;
        Ok(program)
    };
    let message = "the descriptor is of no program that this mode takes";
    find().map(Some).map_err(|errno| AttachError { errno, message })
}

/// Only in place of the program that is expected.
const BPF_F_REPLACE: u32 = 4;
