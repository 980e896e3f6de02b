//! A shadow netdev: an interface of the host that represents a port.
//!
//! The host's tools see the port as a tap with its name: `ip link`, ethtool, and an ifindex that
//! programs and the host's routes agree on. With [`Options::stack`] it also carries frames: frames
//! that programs pass go into the host's stack, and frames that the host sends leave by the port.

use std::sync::Arc;

use towpath_engine::{Engine, PortId, PortOptions, UpperName};

use crate::host::{self, Interface};
use crate::tap::{self, Tap};

/// Options of a shadow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The network namespace it is in: a name that `ip netns` knows, or a path. In a namespace
    /// other than the process's, its ifindex is not valid for the port.
    pub netns: Option<String>,
    /// The interface's name; by default the port's.
    pub name: Option<String>,
    /// Connects the port to the host's stack. Without it the host only sees the port, and the
    /// kernel drops frames sent to the interface.
    pub stack: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { netns: None, name: None, stack: true }
    }
}

/// A port's shadow. The interface is removed when this is dropped and, with [`Options::stack`],
/// [`Shadow::remove`] has removed the tap's port; at the latest when the process ends.
#[derive(Debug)]
pub struct Shadow {
    port: PortId,
    way: Way,
    interface: Interface,
}

/// How the tap is used, and by which owner.
#[derive(Debug)]
enum Way {
    /// The engine owns the tap, as a port.
    Stack(PortId),
    /// This shadow owns the tap; `before` is the port's ifindex before.
    Alone { _tap: Tap, before: u32 },
}

/// Reasons why a shadow cannot be made.
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
    /// The engine refused a change.
    #[error(transparent)]
    Engine(#[from] towpath_engine::Error),
}

impl Shadow {
    /// Makes a shadow for a port: a tap with its name, or another one, with its MTU and address,
    /// whose ifindex the port gets. With [`Options::stack`] the tap is a port, too, called `NAME~`:
    /// each is the other's upper, and the port's previous upper is discarded.
    ///
    /// # Errors
    ///
    /// Fails if the port's name is not valid for an interface, the interface exists already and is
    /// not a tap, privileges are missing, or the engine has no such port. Then nothing is changed.
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

    /// Sets the interface to the port's present MTU and state. Control code calls it after changes
    /// of the port.
    ///
    /// # Errors
    ///
    /// Fails if the interface is gone, or refuses the MTU.
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

    /// The tap's port, with [`Options::stack`].
    pub fn tap(&self) -> Option<PortId> {
        match self.way {
            Way::Stack(tap) => Some(tap),
            Way::Alone { .. } => None,
        }
    }

    /// Removes the shadow. The port gets its previous ifindex back, and has no upper if that was
    /// the shadow. Must be called before the port itself is removed.
    ///
    /// # Errors
    ///
    /// Fails if another port has the tap's port as its upper.
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

/// Adds the tap as a port, and makes each the other's upper.
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
