//! A shadow netdev: an interface of the host that stands for a port.
//!
//! The host's tools see the port as a tap of its name: `ip link`, ethtool, an ifindex that programs
//! and the host's routes agree on. With [`Options::stack`] it is a way as well: frames that
//! programs pass go into the host's stack, and what the host sends leaves by the port.

use std::sync::Arc;

use towpath_engine::{Engine, PortId, PortOptions, UpperName};

use crate::host::{self, Interface};
use crate::tap::{self, Tap};

/// How a shadow is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The network namespace it is in: a name that `ip netns` knows, or a path. In another one than
    /// the process's its ifindex means nothing here.
    pub netns: Option<String>,
    /// The interface's name; the port's when not given.
    pub name: Option<String>,
    /// Joins the port to the host's stack. Without it the host sees the port, and what it sends is
    /// dropped by the kernel.
    pub stack: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { netns: None, name: None, stack: true }
    }
}

/// A port's shadow. The interface goes when this is dropped and, with [`Options::stack`], the port
/// that [`Shadow::remove`] takes away; at the latest with the process.
#[derive(Debug)]
pub struct Shadow {
    port: PortId,
    way: Way,
    interface: Interface,
}

/// The owner of the tap.
#[derive(Debug)]
enum Way {
    /// The engine: it is a port itself.
    Stack(PortId),
    /// We do; the port had this ifindex before.
    Alone { _tap: Tap, before: u32 },
}

/// Why a port has no shadow.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The tap cannot be made.
    #[error("a shadow for port {port}")]
    Tap {
        /// The port.
        port: String,
        /// The error.
        source: crate::Error,
    },
    /// The engine refuses.
    #[error(transparent)]
    Engine(#[from] towpath_engine::Error),
}

impl Shadow {
    /// Makes a shadow for a port: a tap of its name, or of another, with its MTU and address, whose
    /// ifindex the port gets. With [`Options::stack`] the tap is a port too, called `NAME~`: each
    /// is the other's upper, and the port's upper from before is forgotten.
    ///
    /// # Errors
    ///
    /// The port's name is none for an interface, the interface exists already and is no tap,
    /// privileges are missing, or the engine has no such port. Then nothing is changed.
    pub fn add(engine: &Engine, port: PortId, options: &Options) -> Result<Shadow, Error> {
        let about = engine.read(|_, snapshot| {
            let slot = snapshot.port(port)?;
            Some((Arc::clone(&slot.name), slot.mtu, slot.opened.device.mac(), slot.ifindex))
        });
        let Some((name, mtu, mac, before)) = about else {
            return Err(towpath_engine::Error::NoPortId(port.0).into());
        };
        let failed = |source| Error::Tap { port: name.to_string(), source };
        let interface = options.name.as_deref().unwrap_or(&name);
        let is_usable = mac != [0; 6] && mac[0] & 1 == 0;
        let tap_options = tap::Options {
            mtu,
            mac: is_usable.then_some(mac),
            netns: options.netns.clone(),
            ..tap::Options::new(interface)
        };
        let tap = Tap::new(&tap_options).map_err(failed)?;
        let open =
            || Interface::new(interface).map_err(crate::error::failed(&name, "opening a socket"));
        let handle = host::within(options.netns.as_deref(), open).map_err(failed)?;
        let way = match options.stack {
            true => join(engine, port, &name, tap)?,
            false => stand_alone(engine, port, tap, before)?,
        };
        let shadow = Shadow { port, way, interface: handle };
        if let Err(source) = shadow.follow(engine) {
            shadow.remove(engine)?;
            return Err(failed(source));
        }
        Ok(shadow)
    }

    /// Gives the interface the MTU and state that the port has now. Control code calls it when it
    /// has changed the port.
    ///
    /// # Errors
    ///
    /// The interface is gone, or refuses the MTU.
    pub fn follow(&self, engine: &Engine) -> Result<(), crate::Error> {
        let about = engine.read(|_, snapshot| {
            snapshot.port(self.port).map(|slot| (Arc::clone(&slot.name), slot.mtu, slot.up))
        });
        let Some((name, mtu, up)) = about else { return Ok(()) };
        let failed = |step| crate::error::failed(&name, step);
        self.interface.set_mtu(mtu).map_err(failed("setting its MTU"))?;
        self.interface.set_state(up).map_err(failed("setting it up or down"))?;
        if let Way::Stack(tap) = self.way {
            // A port that is gone needs no state.
            let _gone = engine.change(|config| config.set_mtu(tap, Some(mtu)));
        }
        Ok(())
    }

    /// The tap's port, when frames go through it.
    pub fn tap(&self) -> Option<PortId> {
        match self.way {
            Way::Stack(tap) => Some(tap),
            Way::Alone { .. } => None,
        }
    }

    /// Takes the shadow away. The port gets its number back, and has no upper if that was the
    /// shadow. Must come before the port itself is removed.
    ///
    /// # Errors
    ///
    /// Another port has the tap's port as its upper.
    pub fn remove(self, engine: &Engine) -> Result<(), towpath_engine::Error> {
        let port = self.port;
        match self.way {
            Way::Alone { before, .. } => {
                engine.change(|config| config.set_ifindex(port, before)).map(drop)
            }
            Way::Stack(tap) => engine.change(|config| {
                let name = config.name(tap)?.to_owned();
                config.swap_ifindexes(port, tap)?;
                if *config.upper(port)? == UpperName::Named(name) {
                    config.set_upper(port, UpperName::None)?;
                }
                config.set_upper(tap, UpperName::None)?;
                config.remove_port(tap)
            }),
        }
    }
}

/// The tap as a port, and both as each other's uppers.
fn join(engine: &Engine, port: PortId, name: &str, tap: Tap) -> Result<Way, Error> {
    let above = format!("{name}~");
    let tap = engine.add_port(PortOptions::new(&above), Box::new(tap))?;
    let joined = engine.change(|config| {
        config.swap_ifindexes(port, tap)?;
        config.set_upper(port, UpperName::Named(above))?;
        config.set_upper(tap, UpperName::Named(name.to_owned()))
    });
    if let Err(error) = joined {
        engine.remove_port(tap)?;
        return Err(error.into());
    }
    Ok(Way::Stack(tap))
}

fn stand_alone(engine: &Engine, port: PortId, tap: Tap, before: u32) -> Result<Way, Error> {
    if let Some(ifindex) = towpath_engine::port::Device::ifindex(&tap) {
        engine.change(|config| config.set_ifindex(port, ifindex))?;
    }
    Ok(Way::Alone { _tap: tap, before })
}
