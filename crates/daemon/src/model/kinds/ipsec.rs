//! `ipsec`: an accelerator for ESP. Frames sent to it arrive at it, encapsulated or decapsulated.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use towpath_document::Problem;
use towpath_ipsec::{Table, TableLimits};
use towpath_ports::ipsec::{EngineKind, Ipsec, Options};

use super::kind::{Kind, OptionDoc, SOCKET_PATH_MAX, doc, options, within};
use super::mac;
use crate::model::state::PortState;

/// Name of the kind of ports that have SAs and policies.
pub(crate) const NAME: &str = "ipsec";

pub(super) static KIND: Kind = Kind::new(
    NAME,
    "encapsulates or decapsulates what is sent to it (ESP), which then arrives at it",
    OPTIONS,
    check,
    open,
);

static OPTIONS: &[OptionDoc] = &[
    doc("queues", "1", "receive queues, over which SAs are spread, 1 to 64"),
    doc("ring", "1024", "most frames that wait in a queue, and most that its engine holds"),
    doc("mac", "made from the name", "Ethernet address of the port"),
    doc(
        "engine",
        "aws-lc",
        "aws-lc; ipsec-mb, which needs libipsec-mb and is faster for AES-CBC with an HMAC; or null: \
         payloads are neither encrypted nor authenticated, for measurements",
    ),
    doc(
        "deliver_refused",
        "false",
        "refused frames arrive with the reason in their metadata, and are not dropped",
    ),
    doc(
        "xfrm",
        "none",
        "absolute path of a socket at which [IKE daemons](ipsec.md#ike-daemons) manage SAs and policies",
    ),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    queues: Option<u32>,
    ring: Option<usize>,
    mac: Option<String>,
    engine: Option<EngineKey>,
    #[serde(default)]
    deliver_refused: bool,
    xfrm: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
enum EngineKey {
    #[serde(rename = "aws-lc")]
    AwsLc,
    #[serde(rename = "ipsec-mb")]
    IpsecMb,
    #[serde(rename = "null")]
    Null,
}

/// Opens the port with the SAs and policies of a table, which may change while the port is open.
pub(crate) fn device(port: &PortState, table: Arc<Table>) -> Result<Ipsec, Problem> {
    Ok(Ipsec::new(parsed(port)?, table))
}

fn parsed(port: &PortState) -> Result<Options, Problem> {
    let keys: Keys = options(&KIND, port)?;
    if let Some(path) = &keys.xfrm
        && !(path.is_absolute() && path.as_os_str().len() <= SOCKET_PATH_MAX)
    {
        let why = format!("expected an absolute path of at most {SOCKET_PATH_MAX} bytes");
        return Err(Problem::new("xfrm", why));
    }
    within("queues", keys.queues, 1..=64, "1 to 64")?;
    within("ring", keys.ring, 1..=RING_MAX, format!("1 to {RING_MAX} frames"))?;
    let defaults = Options::default();
    Ok(Options {
        queues: keys.queues.unwrap_or(defaults.queues),
        ring: keys.ring.unwrap_or(defaults.ring),
        mtu: port.mtu.unwrap_or(defaults.mtu),
        mac: mac::parse_or_make(keys.mac.as_deref(), &port.name)?,
        engine: match keys.engine {
            None | Some(EngineKey::AwsLc) => EngineKind::Direct,
            Some(EngineKey::IpsecMb) => EngineKind::IpsecMb,
            Some(EngineKey::Null) => EngineKind::Null,
        },
        deliver_refused: keys.deliver_refused,
    })
}

fn check(port: &PortState) -> Result<(), Problem> {
    parsed(port).map(drop)
}

fn open(ports: &[&PortState], _patience: Duration) -> super::kind::Opened {
    let table = Arc::new(Table::new(TableLimits::default()));
    Ok(vec![Box::new(device(ports[0], table)?)])
}

/// Path of the socket for IKE daemons, if the port has one.
pub(crate) fn door_path(port: &PortState) -> Option<PathBuf> {
    let path = port.options.get("xfrm").filter(|_| port.kind == NAME)?;
    path.as_str().map(PathBuf::from)
}

const RING_MAX: usize = 65536;
const _: () = assert!(RING_MAX.is_power_of_two(), "rings have masks");
