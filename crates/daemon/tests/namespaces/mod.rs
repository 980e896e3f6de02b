//! The host's interfaces that a daemon is on.

use std::process::Command;

/// Two network namespaces of the host's, which go with this.
pub(crate) struct Namespaces {
    pub(crate) near: String,
    pub(crate) far: String,
}

impl Namespaces {
    /// None where that cannot be.
    pub(crate) fn new(test: &str) -> Option<Namespaces> {
        if !rustix::process::geteuid().is_root() || !std::fs::exists("/dev/net/tun").ok()? {
            return None;
        }
        let name = |end: &str| format!("towpath-{test}-{end}-{}", std::process::id());
        let namespaces = Namespaces { near: name("near"), far: name("far") };
        for name in [&namespaces.near, &namespaces.far] {
            ip(&["netns", "add", name]);
        }
        Some(namespaces)
    }

    /// `ip` in the near one.
    pub(crate) fn ip(&self, arguments: &str) {
        let words: Vec<&str> = arguments.split_whitespace().collect();
        ip(&[&["-n", &self.near], &words[..]].concat());
    }

    /// A wire from here to the other namespace, with these keys for both ends.
    pub(crate) fn wire(&self, near: &str, far: &str, keys: &str) {
        let to = &self.far;
        self.ip(&format!("link add {near} {keys} type veth peer name {far} netns {to} {keys}"));
        ip(&["-n", to, "link", "set", far, "up"]);
        self.ip(&format!("link set {near} up"));
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            ip(&["netns", "del", name]);
        }
    }
}

pub(crate) fn ip(arguments: &[&str]) {
    let done = Command::new("ip").args(arguments).output().expect("iproute2 is installed");
    assert!(done.status.success(), "ip {arguments:?}: {done:?}");
}
