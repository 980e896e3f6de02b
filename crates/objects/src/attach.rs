//! Programs on devices: the owner of a hook, and the rules for taking it over.
//!
//! Kernel counterpart: `dev_xdp_attach` and `bpf_xdp_link_*` in `net/core/dev.c`. The rules are the
//! same whether a program comes by netlink or by a link. The devices themselves are implemented
//! elsewhere: see [`Devices`].

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use towpath_bpf::Errno;
use towpath_xdp::Program;

use crate::object::link::LinkObject;
use crate::object::program::{
    ATTACH_XDP_CPUMAP, ATTACH_XDP_DEVMAP, PROG_TYPE_DEQUEUE, PROG_TYPE_XDP, ProgramObject,
};
use crate::test_run::{LiveRun, TestRun};

/// The engine's devices, by ifindex.
pub trait Devices: fmt::Debug + Send + Sync {
    /// The device with this ifindex; `None` if there is none.
    fn device(&self, ifindex: u32) -> Option<Device>;

    /// Installs a program in the place of the one before, or of none, so that no frame passes
    /// without one in between; `None` removes it. There is one call at a time.
    ///
    /// # Errors
    ///
    /// Fails with the device's reason for not running the program; the previous one then stays.
    fn install(
        &self,
        ifindex: u32,
        mode: XdpMode,
        program: Option<&Arc<ProgramObject>>,
    ) -> Result<(), Errno>;

    /// Notes that maps may name an XDP program by its id ([`Program::id`]) from now on, those for
    /// entries of devmaps and cpumaps among them, or that nothing names it any more.
    ///
    /// # Errors
    ///
    /// Fails with the devices' reason for not running it.
    fn note_program(&self, _program: &Program, _is_there: bool) -> Result<(), Errno> {
        Ok(())
    }

    /// Makes a test run on a worker of these devices, between the bursts of traffic. Returns the
    /// run unchanged if there is no worker: the caller then makes it at once.
    ///
    /// # Errors
    ///
    /// `EINTR`: the run was stopped before it was complete.
    fn test_run(&self, run: TestRun) -> Result<TestRun, Errno> {
        Ok(run)
    }

    /// Runs a program on frames that then go where it says: out of devices, to other workers, or up
    /// from the device from which they appear to come. Returns the time it took, or `None` if
    /// frames cannot go anywhere here.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: there were no frames. `ENODEV`: the device went away. `EINTR`: it was not complete
    /// in time.
    fn live_run(&self, _run: &LiveRun<'_>) -> Result<Option<Duration>, Errno> {
        Ok(None)
    }
}

/// The properties of a device that matter for attaching.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Device {
    /// Whether it runs programs itself (`ndo_bpf`); otherwise only generic mode is possible.
    pub native: bool,
    /// Whether it runs programs on the card.
    pub offload: bool,
    /// Number of its receive queues (`real_num_rx_queues`).
    pub queues: u32,
    /// The devices above it, all the way up: a bond, a VLAN, a bridge.
    pub uppers: Vec<u32>,
}

/// The place on a device where a program runs (`enum bpf_xdp_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum XdpMode {
    /// Behind the driver, on the packets that the stack gets.
    Generic,
    /// In the driver.
    Native,
    /// On the card.
    Offload,
    /// On the transmit side: a dequeue program chooses the next packet of a queue. No kernel has it
    /// (proposed in 2022).
    Dequeue,
}

/// No devices at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDevices;

/// A change on a device: the attributes of `IFLA_XDP`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XdpRequest {
    /// `IFLA_XDP_FD`: the program; negative for none. Without it nothing is changed.
    pub descriptor: Option<i32>,
    /// `IFLA_XDP_FLAGS`, 0 when absent.
    pub flags: u32,
    /// `IFLA_XDP_EXPECTED_FD`: the program that must be there, negative for none.
    pub expected: Option<i32>,
}

/// The reason why a program isn't attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{message}: {errno}")]
pub struct AttachError {
    /// The answer.
    pub errno: Errno,
    /// The reason, as the kernel gives it beside the number (`extack`).
    pub message: &'static str,
}

/// The programs of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct XdpState {
    /// The id of the generic mode's program, 0 for none.
    pub generic: u32,
    /// The id of the native mode's program, 0 for none.
    pub native: u32,
    /// The id of the card's program, 0 for none.
    pub offload: u32,
    /// The id of the program that takes packets out of queues, 0 for none.
    pub dequeue: u32,
}

/// All devices' programs.
pub(crate) struct Attachments {
    devices: Arc<dyn Devices>,
    /// By ifindex; one change at a time, as under the kernel's `rtnl_lock`.
    hooks: Mutex<HashMap<u32, Hooks>>,
}

/// The programs of one device, by mode.
type Hooks = [Hook; 4];

/// The attached program and its owner.
#[derive(Debug, Clone, Default)]
enum Hook {
    #[default]
    Empty,
    /// Attached by netlink.
    Program(Arc<ProgramObject>),
    /// Held by the link with this id.
    Link { link: u32, program: Arc<ProgramObject> },
}

/// The way of attaching.
pub(crate) enum Attach<'a> {
    /// Netlink: the new program, and the one that must be there.
    Program { new: Option<Arc<ProgramObject>>, expected: Option<Arc<ProgramObject>> },
    /// A link, for its program.
    Link { link: u32, program: &'a Arc<ProgramObject> },
}

impl Attachments {
    pub(crate) fn new(devices: Arc<dyn Devices>) -> Attachments {
        Attachments { devices, hooks: Mutex::default() }
    }

    pub(crate) fn devices(&self) -> &Arc<dyn Devices> {
        &self.devices
    }

    pub(crate) fn has_device(&self, ifindex: u32) -> bool {
        self.devices.device(ifindex).is_some()
    }

    /// `dev_xdp_attach`, for a device that exists.
    pub(crate) fn attach(
        &self,
        ifindex: u32,
        flags: u32,
        attach: &Attach<'_>,
    ) -> Result<(), AttachError> {
        let mut all = self.hooks.lock();
        let device = self.devices.device(ifindex).ok_or(GONE)?;
        let hooks = all.get(&ifindex).cloned().unwrap_or_default();
        check_flags(flags, attach, &hooks)?;
        let mode = XdpMode::of(&device, flags);
        let hook = &hooks[mode as usize];
        if matches!(hook, Hook::Link { .. }) {
            return check_vacant(hook);
        }
        if device.uppers.iter().any(|upper| all.get(upper).is_some_and(|h| programs(h) > 0)) {
            let message = "Cannot attach when an upper device already has a program";
            return refuse(Errno::EEXIST, message);
        }
        let current = hook.program();
        let new = match attach {
            Attach::Link { program, .. } => {
                check_vacant(hook)?;
                Some(*program)
            }
            Attach::Program { new, expected } => {
                if flags & XDP_FLAGS_REPLACE != 0 && !is_same(current, expected.as_ref()) {
                    return refuse(Errno::EEXIST, "Active program does not match expected");
                }
                new.as_ref()
            }
        };
        if let Some(new) = new {
            check_new(new, ifindex, flags, mode, &hooks)?;
        }
        if !is_same(new, current) {
            self.install(&device, ifindex, mode, new)?;
        }
        let hook = match (attach, new) {
            (_, None) => Hook::Empty,
            (Attach::Program { .. }, Some(new)) => Hook::Program(Arc::clone(new)),
            (Attach::Link { link, .. }, Some(new)) => {
                Hook::Link { link: *link, program: Arc::clone(new) }
            }
        };
        all.entry(ifindex).or_default()[mode as usize] = hook;
        drop(all);
        Ok(())
    }

    /// Whether a program may run on a device beside others of the same owner, which joins them to
    /// one (as libxdp's dispatcher does): no other owner may have a hook in these modes. A program
    /// that takes another one's place (`is_new` is false) has the hook already.
    pub(crate) fn check_joined(
        &self,
        new: &ProgramObject,
        ifindex: u32,
        modes: &[XdpMode],
        is_new: bool,
    ) -> Result<(), AttachError> {
        check_bound(new, ifindex)?;
        let all = self.hooks.lock();
        let Some(hooks) = all.get(&ifindex).filter(|_| is_new) else { return Ok(()) };
        modes.iter().try_for_each(|mode| check_vacant(&hooks[*mode as usize]))
    }

    fn install(
        &self,
        device: &Device,
        ifindex: u32,
        mode: XdpMode,
        program: Option<&Arc<ProgramObject>>,
    ) -> Result<(), AttachError> {
        let possible = match mode {
            XdpMode::Generic => true,
            // A device that runs programs on arriving frames also sends redirected ones.
            XdpMode::Native | XdpMode::Dequeue => device.native,
            XdpMode::Offload => device.offload,
        };
        if !possible {
            let message = "Underlying driver does not support XDP in native mode";
            return refuse(Errno::EOPNOTSUPP, message);
        }
        let message = "The device can't run the program";
        self.devices.install(ifindex, mode, program).map_err(|errno| AttachError { errno, message })
    }

    /// `bpf_xdp_link_update`
    pub(crate) fn update(
        &self,
        link: &LinkObject,
        new: &Arc<ProgramObject>,
        expected: Option<&Arc<ProgramObject>>,
    ) -> Result<(), Errno> {
        let mut all = self.hooks.lock();
        let ifindex = link.ifindex().ok_or(Errno::ENOLINK)?;
        let old = link.program();
        if expected.is_some_and(|expected| !Arc::ptr_eq(expected, &old)) {
            return Err(Errno::EPERM);
        }
        let alike =
            old.kind() == new.kind() && old.expected_attach_type() == new.expected_attach_type();
        if !alike {
            return Err(Errno::EINVAL);
        }
        if Arc::ptr_eq(&old, new) {
            return Ok(());
        }
        let device = self.devices.device(ifindex).ok_or(Errno::ENOLINK)?;
        let mode = XdpMode::of(&device, link.flags());
        self.install(&device, ifindex, mode, Some(new)).map_err(|error| error.errno)?;
        let program = Arc::clone(new);
        all.entry(ifindex).or_default()[mode as usize] = Hook::Link { link: link.id(), program };
        link.set_program(Arc::clone(new));
        drop(all);
        Ok(())
    }

    /// `bpf_xdp_link_release`: a link lets its device go.
    pub(crate) fn release(&self, link: &LinkObject) {
        let mut all = self.hooks.lock();
        let Some(ifindex) = link.take_device() else { return };
        let Some(hooks) = all.get_mut(&ifindex) else { return };
        let modes = [XdpMode::Generic, XdpMode::Native, XdpMode::Offload, XdpMode::Dequeue];
        for mode in modes {
            let hook = &mut hooks[mode as usize];
            if matches!(hook, Hook::Link { link: holder, .. } if *holder == link.id()) {
                // Taking a program away can't fail.
                let _removed = self.devices.install(ifindex, mode, None);
                let gone = std::mem::take(hook);
                drop(all);
                drop(gone);
                return;
            }
        }
    }

    /// `dev_xdp_uninstall`: a device is gone, and its programs with it. Returns the ids of the
    /// links that now hold nothing.
    pub(crate) fn forget_device(&self, ifindex: u32) -> Vec<u32> {
        let hooks = self.hooks.lock().remove(&ifindex).unwrap_or_default();
        let links = hooks.iter().filter_map(|hook| match hook {
            Hook::Link { link, .. } => Some(*link),
            _ => None,
        });
        links.collect()
    }

    /// The ids of a device's programs.
    pub(crate) fn state(&self, ifindex: u32) -> XdpState {
        let hooks = self.hooks.lock().get(&ifindex).cloned().unwrap_or_default();
        let [generic, native, offload, dequeue] =
            hooks.map(|hook| hook.program().map_or(0, |program| program.id()));
        XdpState { generic, native, offload, dequeue }
    }
}

impl Hook {
    fn program(&self) -> Option<&Arc<ProgramObject>> {
        match self {
            Hook::Empty => None,
            Hook::Program(program) | Hook::Link { program, .. } => Some(program),
        }
    }
}

impl XdpMode {
    /// `dev_xdp_mode`
    pub(crate) fn of(device: &Device, flags: u32) -> XdpMode {
        match flags {
            flags if flags & XDP_FLAGS_DEQUEUE_MODE != 0 => XdpMode::Dequeue,
            flags if flags & XDP_FLAGS_HW_MODE != 0 => XdpMode::Offload,
            flags if flags & XDP_FLAGS_DRV_MODE != 0 => XdpMode::Native,
            flags if flags & XDP_FLAGS_SKB_MODE != 0 => XdpMode::Generic,
            _ if device.native => XdpMode::Native,
            _ => XdpMode::Generic,
        }
    }
}

/// Checks that are independent of the device.
fn check_flags(flags: u32, attach: &Attach<'_>, hooks: &Hooks) -> Result<(), AttachError> {
    let modes = (flags & XDP_FLAGS_MODES).count_ones();
    if matches!(attach, Attach::Link { .. }) && flags & !XDP_FLAGS_MODES != 0 {
        return refuse(Errno::EINVAL, "Invalid XDP flags for BPF link attachment");
    }
    if modes > 1 {
        return refuse(Errno::EINVAL, "Only one XDP mode flag can be set");
    }
    if flags & XDP_FLAGS_DEQUEUE_MODE != 0 && flags & XDP_FLAGS_UPDATE_IF_NOEXIST != 0 {
        return refuse(Errno::EINVAL, "XDP_FLAGS_DEQUEUE_MODE goes with XDP_FLAGS_REPLACE only");
    }
    if modes == 0 && programs(hooks) > 1 {
        let message = "More than one program loaded, unset mode is ambiguous";
        return refuse(Errno::EINVAL, message);
    }
    let expects = matches!(attach, Attach::Program { expected: Some(_), .. });
    if expects && flags & XDP_FLAGS_REPLACE == 0 {
        return refuse(Errno::EINVAL, "XDP_FLAGS_REPLACE is not specified");
    }
    Ok(())
}

/// Checks if a program fits a mode.
fn check_new(
    new: &ProgramObject,
    ifindex: u32,
    flags: u32,
    mode: XdpMode,
    hooks: &Hooks,
) -> Result<(), AttachError> {
    let taken = |mode: XdpMode| hooks[mode as usize].program().is_some();
    if flags & XDP_FLAGS_UPDATE_IF_NOEXIST != 0 && taken(mode) {
        return refuse(Errno::EBUSY, "XDP program already attached");
    }
    let other = match mode {
        XdpMode::Generic => taken(XdpMode::Native),
        XdpMode::Native => taken(XdpMode::Generic),
        XdpMode::Offload | XdpMode::Dequeue => false,
    };
    if other {
        let message = "Native and generic XDP can't be active at the same time";
        return refuse(Errno::EEXIST, message);
    }
    check_bound(new, ifindex)?;
    if new.bound_to().is_some() && mode == XdpMode::Generic {
        return refuse(Errno::EINVAL, "Can't attach device-bound programs in generic mode");
    }
    match new.expected_attach_type() {
        ATTACH_XDP_DEVMAP => {
            refuse(Errno::EINVAL, "BPF_XDP_DEVMAP programs can not be attached to a device")
        }
        ATTACH_XDP_CPUMAP => {
            refuse(Errno::EINVAL, "BPF_XDP_CPUMAP programs can not be attached to a device")
        }
        _ => Ok(()),
    }
}

/// A link takes no hook away from another owner.
fn check_vacant(hook: &Hook) -> Result<(), AttachError> {
    match hook {
        Hook::Empty => Ok(()),
        Hook::Link { .. } => refuse(Errno::EBUSY, "Can't replace active BPF XDP link"),
        Hook::Program(_) => refuse(Errno::EBUSY, "Can't replace active XDP program with BPF link"),
    }
}

/// A program that is bound to a device runs on no other one.
fn check_bound(new: &ProgramObject, ifindex: u32) -> Result<(), AttachError> {
    match new.bound_to() {
        Some(device) if device != ifindex => {
            refuse(Errno::EINVAL, "Program bound to different device")
        }
        _ => Ok(()),
    }
}

/// The netlink parser's rules (`do_setlink`); returns whether there is something to do.
pub(crate) fn check_request(request: &XdpRequest) -> Result<bool, AttachError> {
    if request.flags & !XDP_FLAGS_MASK != 0 {
        return refuse(Errno::EINVAL, "unknown XDP flag");
    }
    if (request.flags & XDP_FLAGS_MODES).count_ones() > 1 {
        return refuse(Errno::EINVAL, "Only one XDP mode flag can be set");
    }
    let replaces = request.flags & XDP_FLAGS_REPLACE != 0;
    if request.descriptor.is_some() && replaces && request.expected.is_none() {
        return refuse(Errno::EINVAL, "XDP_FLAGS_REPLACE without IFLA_XDP_EXPECTED_FD");
    }
    Ok(request.descriptor.is_some())
}

/// Whether a program may be attached to devices at all, in the mode that these flags say
/// (`bpf_prog_get_type_dev`).
pub(crate) fn check_type(program: &ProgramObject, flags: u32) -> Result<(), Errno> {
    let is_dequeue = flags & XDP_FLAGS_DEQUEUE_MODE != 0;
    let wanted = if is_dequeue { PROG_TYPE_DEQUEUE } else { PROG_TYPE_XDP };
    if program.kind() == wanted { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Number of programs that run on arriving frames.
fn programs(hooks: &Hooks) -> usize {
    let [others @ .., _dequeue] = hooks;
    others.iter().filter(|hook| hook.program().is_some()).count()
}

fn is_same(a: Option<&Arc<ProgramObject>>, b: Option<&Arc<ProgramObject>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

fn refuse<T>(errno: Errno, message: &'static str) -> Result<T, AttachError> {
    Err(AttachError { errno, message })
}

impl Devices for NoDevices {
    fn device(&self, _ifindex: u32) -> Option<Device> {
        None
    }

    fn install(
        &self,
        _ifindex: u32,
        _mode: XdpMode,
        _program: Option<&Arc<ProgramObject>>,
    ) -> Result<(), Errno> {
        Err(Errno::ENODEV)
    }
}

impl fmt::Debug for Attachments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachments").finish_non_exhaustive()
    }
}

/// The device is not there.
pub(crate) const GONE: AttachError =
    AttachError { errno: Errno::ENODEV, message: "there is no such device" };
const XDP_FLAGS_UPDATE_IF_NOEXIST: u32 = 1;
const XDP_FLAGS_SKB_MODE: u32 = 2;
const XDP_FLAGS_DRV_MODE: u32 = 4;
const XDP_FLAGS_HW_MODE: u32 = 8;
pub(crate) const XDP_FLAGS_REPLACE: u32 = 16;
/// As proposed: the program is one that takes packets out of queues.
const XDP_FLAGS_DEQUEUE_MODE: u32 = 32;
const XDP_FLAGS_MODES: u32 =
    XDP_FLAGS_SKB_MODE | XDP_FLAGS_DRV_MODE | XDP_FLAGS_HW_MODE | XDP_FLAGS_DEQUEUE_MODE;
const XDP_FLAGS_MASK: u32 = XDP_FLAGS_MODES | XDP_FLAGS_REPLACE | XDP_FLAGS_UPDATE_IF_NOEXIST;
