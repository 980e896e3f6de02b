//! The choice of ports to be tried.

use std::rc::Rc;

use towpath_bpf::suggest;

use crate::Subject;
use crate::kinds::{Kind, Lab, Port};
use crate::netdev::Netdev;

/// One port, as a command line names it: `KIND`, `KIND+software`, `KIND:NEAR/FAR`, `kernel`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    what: What,
    has_software_hints: bool,
    /// The port's interface, and the one at the other end.
    interfaces: Option<[String; 2]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Kind(Kind),
    Kernel,
}

/// The name is not that of a port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChoiceError {
    /// There is no such kind.
    #[error("no such kind of port{0}")]
    Kind(String),
    /// One interface, or none, where two are needed.
    #[error("two interfaces are needed, as in afxdp:eth0/eth1")]
    Interfaces,
    /// Interfaces were named for a kind that is over none.
    #[error("it is over no interface")]
    NoInterface,
}

impl Choice {
    /// Every kind, with hints in software in one case, and the kernel.
    pub fn all() -> Vec<Choice> {
        let choice = |what| Choice { what, has_software_hints: false, interfaces: None };
        let mut all: Vec<Choice> = Kind::ALL.iter().map(|&kind| choice(What::Kind(kind))).collect();
        let generator = choice(What::Kind(Kind::Generator));
        all.push(Choice { has_software_hints: true, ..generator });
        all.push(choice(What::Kernel));
        all
    }

    /// The choice of a name.
    ///
    /// # Errors
    ///
    /// Fails if the name is not that of a port.
    pub fn parse(text: &str) -> Result<Choice, ChoiceError> {
        let (name, interfaces) = match text.split_once(':') {
            None => (text, None),
            Some((name, interfaces)) => match interfaces.split_once('/') {
                Some((near, far)) if !near.is_empty() && !far.is_empty() => {
                    (name, Some([near.to_owned(), far.to_owned()]))
                }
                _ => return Err(ChoiceError::Interfaces),
            },
        };
        let (name, has_software_hints) = match name.strip_suffix("+software") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let what = match Kind::ALL.iter().find(|kind| kind.name() == name) {
            Some(&kind) => What::Kind(kind),
            None if name == KERNEL && !has_software_hints => What::Kernel,
            None => {
                let known = Kind::ALL.iter().map(|kind| kind.name()).chain([KERNEL]);
                return Err(ChoiceError::Kind(suggest::among(name, known).to_string()));
            }
        };
        let takes_interfaces = match what {
            What::Kind(kind) => kind.takes_interfaces(),
            What::Kernel => true,
        };
        if interfaces.is_some() && !takes_interfaces {
            return Err(ChoiceError::NoInterface);
        }
        Ok(Choice { what, has_software_hints, interfaces })
    }

    /// The kind's name.
    pub fn name(&self) -> &'static str {
        match self.what {
            What::Kind(kind) => kind.name(),
            What::Kernel => KERNEL,
        }
    }

    /// Whether it is over an interface, which takes root.
    pub fn needs_root(&self) -> bool {
        match self.what {
            What::Kind(kind) => kind.needs_root(),
            What::Kernel => true,
        }
    }

    /// Whether an interface is made for it.
    pub fn makes_interface(&self) -> bool {
        self.needs_root() && self.interfaces.is_none()
    }

    /// The port.
    pub fn subject(self, lab: &Rc<Lab>) -> Box<dyn Subject> {
        let Choice { what, has_software_hints, interfaces } = self;
        let lab = Rc::clone(lab);
        match what {
            What::Kind(kind) => Box::new(Port { kind, has_software_hints, interfaces, lab }),
            What::Kernel => Box::new(Netdev { interfaces, lab }),
        }
    }
}

/// The name of the kernel's own devices.
const KERNEL: &str = "kernel";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_named_by_kind_and_interfaces() {
        for name in ["pair", "tap+software", "afxdp+driver", "afxdp+driver+software", "kernel"] {
            assert!(Choice::parse(name).is_ok(), "{name}");
        }
        let wired = Choice::parse("packet:eth0/eth1").expect("a good name");
        assert_eq!(wired.interfaces, Some(["eth0".to_owned(), "eth1".to_owned()]));
        assert!(!wired.makes_interface() && wired.needs_root());
        let why = |name: &str| Choice::parse(name).expect_err("a bad name").to_string();
        assert!(why("pear").contains("did you mean \"pair\"") || why("pear").contains("pair"));
        assert!(why("packet:eth0").contains("two interfaces"));
        assert!(why("pair:a/b").contains("no interface"));
        assert!(why("kernel+software").contains("no such kind"));
    }
}
