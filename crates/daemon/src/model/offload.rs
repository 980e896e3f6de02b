//! Guest offload as configuration knows it: what a port's guest may have its host run.

use serde::{Deserialize, Serialize};
use towpath_bpf::proto;
use towpath_bpf::suggest;
use towpath_document::Problem;
use towpath_guest::{Endpoint, HELPERS_DEFAULT, Limits, Rules};
use towpath_host::socket::Access;
use utoipa::ToSchema;

use crate::model::access::AccessKeys;

/// The channel by which a port's guest asks its host to run programs, and what it may have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OffloadState {
    /// The socket of the guest's channel (a chardev of the monitor).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Who listens there.
    pub mode: ChannelMode,
    /// Where we listen: permissions of the socket in octal digits, `"0660"` when not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<String>,
    /// Where we listen: the user that the socket belongs to, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_owner: Option<String>,
    /// Where we listen: the group that the socket belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_group: Option<String>,
    /// The guest's virtio sockets instead: its CID and the port at which we listen, `"3:5000"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vsock: Option<String>,
    /// Ports that its programs may redirect to: the guest's ifindexes 1, 2 and so on.
    pub targets: Vec<String>,
    /// Helpers that its programs may call, by name; those that tell nothing of the host when not
    /// given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub helpers: Option<Vec<String>>,
    /// Programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub programs: Option<u64>,
    /// Instructions of all programs together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instructions: Option<u64>,
    /// Maps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maps: Option<u64>,
    /// Elements that all maps together have room for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// Bytes of maps, programs and types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Requests a second, and elements of requests for many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operations: Option<u64>,
    /// Instructions that a burst of 64 frames may take; each frame has its part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_instructions: Option<u64>,
    /// Microseconds that a burst may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_us: Option<u64>,
    /// By which rules its programs are verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rules: Option<RulesState>,
}

/// By which rules a guest's programs are verified; by both no address leaves them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RulesState {
    /// Without those that only serve the kernel's compiler to mask accesses against speculation:
    /// ours masks every access, by either rules.
    #[default]
    Masked,
    /// All that the kernel has for programs without `CAP_PERFMON`.
    Kernel,
}

/// Who listens at a channel's socket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelMode {
    /// We do.
    #[default]
    Server,
    /// The monitor does.
    Client,
}

impl OffloadState {
    /// Finds what is wrong.
    ///
    /// # Errors
    ///
    /// The first key that is wrong.
    pub fn check(&self) -> Result<(), Problem> {
        self.endpoint()?;
        self.limits()?;
        if self.burst_instructions == Some(0) {
            let message = "a program needs some to be run".to_owned();
            return Err(Problem::new("burst_instructions", message));
        }
        if self.burst_us == Some(0) {
            let message = "a program needs some time to be run".to_owned();
            return Err(Problem::new("burst_us", message));
        }
        Ok(())
    }

    /// Where the guest's agent is.
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

    /// What the guest may have.
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

    /// The ports that its programs may redirect to, by the guest's numbers.
    pub(crate) fn numbered_targets(&self) -> Vec<(u32, String)> {
        (1..).zip(self.targets.iter().cloned()).collect()
    }
}

/// The number of a helper, by its name with or without `bpf_`.
fn helper(name: &str) -> Result<u32, Problem> {
    let plain = |name: &str| name.trim_start_matches("bpf_").to_owned();
    let found = proto::helpers().find(|helper| plain(helper.name) == plain(name));
    found.map(|helper| helper.id).ok_or_else(|| {
        let hint = suggest::among(name, proto::helpers().map(|helper| helper.name));
        Problem::new("helpers", format!("there is no helper \"{name}\"{hint}"))
    })
}

/// `sockaddr_un.sun_path` has 108, with a zero behind.
const PATH_BYTES_MAX: usize = 107;
const _: () = assert!(PATH_BYTES_MAX < 108, "sun_path ends with a zero");
/// 0 to 2 are the hypervisor, the local machine and the host.
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
