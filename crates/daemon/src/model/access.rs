//! Access to a socket as configured: permissions in octal digits, owner and group by name or
//! number.

use nix::unistd::{Group, User};
use towpath_host::socket::Access;

use towpath_document::Problem;

/// Keys of a socket for other users, as written in configuration.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct AccessKeys<'a> {
    /// `socket_mode`
    pub(crate) mode: Option<&'a str>,
    /// `socket_owner`
    pub(crate) owner: Option<&'a str>,
    /// `socket_group`
    pub(crate) group: Option<&'a str>,
}

impl AccessKeys<'_> {
    /// Parses the mode and resolves the names of user and group.
    ///
    /// # Errors
    ///
    /// Fails if the mode is not an octal number up to 777, or if the user or group does not exist.
    pub(crate) fn parse(self) -> Result<Access, Problem> {
        let mode = self
            .mode
            .map(|text| parse_mode(text).map_err(|message| Problem::new("socket_mode", message)));
        let owner = self
            .owner
            .map(|name| find_user(name).map_err(|message| Problem::new("socket_owner", message)));
        let group = self
            .group
            .map(|name| find_group(name).map_err(|message| Problem::new("socket_group", message)));
        Ok(Access {
            mode: mode.transpose()?.unwrap_or(Access::default().mode),
            owner: owner.transpose()?,
            group: group.transpose()?,
        })
    }
}

/// Parses permission bits written in octal, up to 777, with or without a leading `0o`.
pub(crate) fn parse_mode(text: &str) -> Result<u32, String> {
    let bits = u32::from_str_radix(text.trim_start_matches("0o"), 8).ok();
    bits.filter(|&bits| bits <= 0o777)
        .ok_or_else(|| format!("\"{text}\" is not a mode: octal digits, like \"0660\""))
}

/// Resolves a group name or a decimal gid to a gid.
pub(crate) fn find_group(name: &str) -> Result<u32, String> {
    let known = || Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    let found = name.parse().ok().or_else(known);
    found.ok_or_else(|| format!("there is no group \"{name}\": `groupadd {name}` makes it"))
}

/// Resolves a user name or a decimal uid to a uid.
fn find_user(name: &str) -> Result<u32, String> {
    let known = || User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    let found = name.parse().ok().or_else(known);
    found.ok_or_else(|| format!("there is no user \"{name}\": `useradd {name}` makes one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_understood() {
        let keys = AccessKeys { mode: Some("0o600"), owner: Some("root"), group: Some("0") };
        let said = keys.parse().expect("they are right");
        assert_eq!(said, Access { mode: 0o600, owner: Some(0), group: Some(0) });
        assert_eq!(AccessKeys::default().parse().expect("none"), Access::default());
        for (keys, key) in [
            (AccessKeys { mode: Some("rw"), ..AccessKeys::default() }, "socket_mode"),
            (AccessKeys { mode: Some("1777"), ..AccessKeys::default() }, "socket_mode"),
            (AccessKeys { owner: Some("no such"), ..AccessKeys::default() }, "socket_owner"),
            (AccessKeys { group: Some("no such"), ..AccessKeys::default() }, "socket_group"),
        ] {
            let problem = keys.parse().expect_err(key).to_string();
            assert!(problem.contains(key), "{problem}");
        }
    }
}
