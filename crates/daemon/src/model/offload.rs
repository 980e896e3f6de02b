//! Guest offload in configuration: the channel and the limits of a port's guest.

use serde::{Deserialize, Serialize};
use towpath_bpf::proto;
use towpath_bpf::suggest;
use towpath_document::Problem;
use towpath_guest::{Endpoint, HELPERS_DEFAULT, Limits, Rules};
use towpath_host::socket::Access;
use utoipa::ToSchema;

use crate::model::access::AccessKeys;

/// The channel by which a port's guest has the host run programs, and the guest's limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OffloadState {
    /// Path of the channel's unix socket (a chardev of the monitor).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The side that listens on the socket.
    pub mode: ChannelMode,
    /// Mode `server`: permissions of the socket in octal digits; defaults to `"0660"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<String>,
    /// Mode `server`: owner of the socket, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_owner: Option<String>,
    /// Mode `server`: group of the socket, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_group: Option<String>,
    /// A vsock instead of a unix socket: the guest's CID and the port to listen on, `"3:5000"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vsock: Option<String>,
    /// Ports that the guest's programs may redirect to, as the guest's ifindexes 1, 2 and so on.
    pub targets: Vec<String>,
    /// Names of helpers that the guest's programs may call. Defaults to helpers that reveal nothing
    /// about the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helpers: Option<Vec<String>>,
    /// Largest number of programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<u64>,
    /// Largest number of instructions of all programs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Largest number of maps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maps: Option<u64>,
    /// Largest capacity in elements of all maps together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// Largest size in bytes of all maps, programs and BTF objects together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Largest number of requests per second; each element of a batch request counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// Instructions that a burst of 64 frames may take; each frame may take 1/64 of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_instructions: Option<u64>,
    /// Microseconds that a burst may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_us: Option<u64>,
    /// Verifier rules for the guest's programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<RulesState>,
}

/// Verifier rules for a guest's programs. Both prevent programs from leaking addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RulesState {
    /// The kernel's rules without those that only help its compiler to mask accesses against
    /// speculation: Towpath's compiler masks every access under either set of rules.
    #[default]
    Masked,
    /// All rules of the kernel for programs without `CAP_PERFMON`.
    Kernel,
}

/// The side that listens on a channel's socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelMode {
    /// The daemon listens.
    #[default]
    Server,
    /// The monitor listens.
    Client,
}

impl OffloadState {
    /// Checks the section.
    ///
    /// # Errors
    ///
    /// Fails with the first key whose value is invalid.
    pub fn check(&self) -> Result<(), Problem> {
        self.endpoint()?;
        self.limits()?;
        if self.burst_instructions == Some(0) {
            let message = "0 instructions: no program could run".to_owned();
            return Err(Problem::new("burst_instructions", message));
        }
        if self.burst_us == Some(0) {
            let message = "0 microseconds: no program could run".to_owned();
            return Err(Problem::new("burst_us", message));
        }
        Ok(())
    }

    /// The address of the guest's agent.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, Problem> {
        match (&self.path, &self.vsock) {
            (Some(path), None) if (1..=PATH_BYTES_MAX).contains(&path.len()) => {
                Ok(match self.mode {
                    ChannelMode::Server => Endpoint::Listen(path.into(), self.access()?),
                    ChannelMode::Client => Endpoint::Connect(path.into()),
                })
            }
            (Some(path), None) => {
                let message = format!("1 to {PATH_BYTES_MAX} bytes, not {}", path.len());
                Err(Problem::new("path", message))
            }
            (None, Some(vsock)) => {
                let parts = vsock.split_once(':');
                let numbers = parts.and_then(|(cid, port)| {
                    Some((cid.parse::<u32>().ok()?, port.parse::<u32>().ok()?))
                });
                match numbers {
                    Some((cid, port)) if cid >= CID_MIN => Ok(Endpoint::Vsock { cid, port }),
                    _ => {
                        let message = format!(
                            "\"{vsock}\" is not CID:PORT of a guest, whose CID is {CID_MIN} or more"
                        );
                        Err(Problem::new("vsock", message))
                    }
                }
            }
            (None, None) | (Some(_), Some(_)) => {
                let message = "either path or vsock says where the guest's channel is".to_owned();
                Err(Problem::new("path", message))
            }
        }
    }

    fn access(&self) -> Result<Access, Problem> {
        let keys = AccessKeys {
            mode: self.socket_mode.as_deref(),
            owner: self.socket_owner.as_deref(),
            group: self.socket_group.as_deref(),
        };
        keys.parse()
    }

    /// The guest's limits.
    pub(crate) fn limits(&self) -> Result<Limits, Problem> {
        let helpers = match &self.helpers {
            None => HELPERS_DEFAULT.to_vec(),
            Some(names) => names.iter().map(|name| helper(name)).collect::<Result<_, _>>()?,
        };
        let usual = Limits::default();
        Ok(Limits {
            programs: self.programs.unwrap_or(usual.programs),
            instructions: self.instructions.unwrap_or(usual.instructions),
            maps: self.maps.unwrap_or(usual.maps),
            entries: self.entries.unwrap_or(usual.entries),
            bytes: self.bytes.unwrap_or(usual.bytes),
            operations: self.operations.unwrap_or(usual.operations),
            burst_instructions: self.burst_instructions.unwrap_or(usual.burst_instructions),
            burst_us: self.burst_us.unwrap_or(usual.burst_us),
            helpers,
            rules: match self.rules.unwrap_or_default() {
                RulesState::Masked => Rules::Masked,
                RulesState::Kernel => Rules::Kernel,
            },
        })
    }

    /// The ports that the guest's programs may redirect to, by the guest's ifindexes.
    pub(crate) fn numbered_targets(&self) -> Vec<(u32, String)> {
        (1..).zip(self.targets.iter().cloned()).collect()
    }
}

/// The number of a helper by its name, with or without `bpf_`.
fn helper(name: &str) -> Result<u32, Problem> {
    let plain = |name: &str| name.trim_start_matches("bpf_").to_owned();
    let found = proto::helpers().find(|helper| plain(helper.name) == plain(name));
    found.map(|helper| helper.id).ok_or_else(|| {
        let hint = suggest::among(name, proto::helpers().map(|helper| helper.name));
        Problem::new("helpers", format!("there is no helper \"{name}\"{hint}"))
    })
}

/// Longest path of a socket: `sockaddr_un.sun_path` has 108 bytes, with a NUL at the end.
const PATH_BYTES_MAX: usize = 107;
const _: () = assert!(PATH_BYTES_MAX < 108, "sun_path ends with a zero");
/// The smallest CID of a guest: 0 to 2 are the hypervisor, the local machine and the host.
const CID_MIN: u32 = 3;
const _: () = assert!(CID_MIN > 2, "VMADDR_CID_HOST is the last reserved one");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named_by_its_key() {
        let path = || OffloadState { path: Some("/run/vm0".into()), ..OffloadState::default() };
        assert!(path().check().is_ok());
        let wrong = |state: OffloadState| state.check().expect_err("it is wrong").path;
        assert_eq!(wrong(OffloadState::default()), "path");
        assert_eq!(wrong(OffloadState { vsock: Some("3:1".into()), ..path() }), "path");
        let vsock = |text: &str| {
            wrong(OffloadState { vsock: Some(text.into()), ..OffloadState::default() })
        };
        assert_eq!((vsock("2:1"), vsock("x")), ("vsock".into(), "vsock".into()));
        let helpers = Some(vec!["map_lookup_elem".to_owned(), "bpf_fib_lookup".to_owned()]);
        let state = OffloadState { helpers, ..path() };
        assert_eq!(state.limits().expect("they exist").helpers, [1, 69]);
        let helpers = Some(vec!["fib_look".to_owned()]);
        assert_eq!(wrong(OffloadState { helpers, ..path() }), "helpers");
        assert_eq!(
            wrong(OffloadState { burst_instructions: Some(0), ..path() }),
            "burst_instructions"
        );
    }
}
