//! The devices that programs may be attached to.

/// Devices by ifindex: what the engine has.
pub trait Devices: Send + Sync {
    /// Whether there is a device with this ifindex.
    fn has_device(&self, ifindex: u32) -> bool;
}

/// No devices at all.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoDevices;

impl Devices for NoDevices {
    fn has_device(&self, _ifindex: u32) -> bool {
        false
    }
}
