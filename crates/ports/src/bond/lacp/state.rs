//! Visible state: the machines' states, in the words of `/proc/net/bonding`.

use super::pdu::PortInfo;

/// Receive machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Receive {
    /// No link.
    #[default]
    PortDisabled,
    /// No LACPDU was heard for a timeout: three seconds are left.
    Expired,
    /// Half duplex: the link cannot be aggregated.
    LacpDisabled,
    /// No partner was heard, so a default one is assumed.
    Defaulted,
    /// The partner is heard.
    Current,
}

impl Receive {
    /// The state's name.
    pub fn name(self) -> &'static str {
        match self {
            Receive::PortDisabled => "port_disabled",
            Receive::Expired => "expired",
            Receive::LacpDisabled => "lacp_disabled",
            Receive::Defaulted => "defaulted",
            Receive::Current => "current",
        }
    }
}

/// Periodic transmission machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Periodic {
    /// Nothing is sent.
    #[default]
    None,
    /// A LACPDU every second, as the partner requests.
    Fast,
    /// A LACPDU every 30 seconds.
    Slow,
    /// A LACPDU is sent now.
    Transmit,
}

impl Periodic {
    /// The state's name.
    pub fn name(self) -> &'static str {
        match self {
            Periodic::None => "no_periodic",
            Periodic::Fast => "fast_periodic",
            Periodic::Slow => "slow_periodic",
            Periodic::Transmit => "periodic_tx",
        }
    }
}

/// Mux machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mux {
    /// In no aggregate.
    #[default]
    Detached,
    /// Waits for others to join.
    Waiting,
    /// In an aggregate, not yet used.
    Attached,
    /// Accepts frames; waits for the partner to do so.
    Collecting,
    /// Accepts and sends frames (independent control).
    Distributing,
    /// Accepts and sends frames (coupled control).
    CollectingDistributing,
}

impl Mux {
    /// The state's name.
    pub fn name(self) -> &'static str {
        match self {
            Mux::Detached => "detached",
            Mux::Waiting => "waiting",
            Mux::Attached => "attached",
            Mux::Collecting => "collecting",
            Mux::Distributing => "distributing",
            Mux::CollectingDistributing => "collecting_distributing",
        }
    }
}

/// Churn detection machine: whether an end of the link got into an aggregate in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Churn {
    /// The time is not over.
    #[default]
    Monitoring,
    /// The end did not get into an aggregate in time.
    Churned,
    /// The end got into an aggregate.
    None,
}

impl Churn {
    /// The kernel's name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Churn::Monitoring => "monitoring",
            Churn::Churned => "churned",
            Churn::None => "none",
        }
    }
}

/// Counted frames of one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// LACPDUs sent.
    pub lacpdu_tx: u64,
    /// LACPDUs received, also those that could not be used.
    pub lacpdu_rx: u64,
    /// LACPDUs that came from this system itself.
    pub loopback_rx: u64,
    /// Markers received; each is answered.
    pub marker_rx: u64,
    /// Markers' responses sent.
    pub marker_response_tx: u64,
    /// Marker responses received, although this side sends no markers.
    pub marker_response_rx: u64,
    /// Markers of a type that is not defined.
    pub marker_unknown_rx: u64,
}

/// The present state of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberState {
    /// The caller's number of the member.
    pub member: u32,
    /// Id of the aggregator that it is in.
    pub aggregator: Option<u16>,
    /// Information about this end.
    pub actor: PortInfo,
    /// Information about the other end.
    pub partner: PortInfo,
    /// Receive machine.
    pub receive: Receive,
    /// Periodic transmission machine.
    pub periodic: Periodic,
    /// Mux machine.
    pub mux: Mux,
    /// Whether this end got in sync in time.
    pub actor_churn: Churn,
    /// Number of times it did not.
    pub actor_churned: u32,
    /// Whether the other end got in sync in time.
    pub partner_churn: Churn,
    /// Number of times it did not.
    pub partner_churned: u32,
    /// Frames that arrive here are the bond's.
    pub collecting: bool,
    /// The bond's frames may leave here.
    pub distributing: bool,
    /// Control frames.
    pub stats: Stats,
}

/// The present state of the aggregate in use: "Active Aggregator Info".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AggregatorState {
    /// Its id, counted from 1 in the order in which members joined the bond.
    pub id: u16,
    /// Members in it whose link is up.
    pub ports: usize,
    /// Key of its ports.
    pub actor_key: u16,
    /// Key of the partner's ports.
    pub partner_key: u16,
    /// MAC address of the partner; zero when there is none.
    pub partner: [u8; 6],
}

/// A change of state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Another aggregator is in use, or none.
    Aggregator(Option<u16>),
    /// The bond has a carrier, or lost it.
    Carrier(bool),
    /// A member's permissions changed.
    Member {
        /// The caller's number of the member.
        member: u32,
        /// Frames that arrive there are the bond's.
        collecting: bool,
        /// The bond's frames may leave there.
        distributing: bool,
    },
    /// A member hears this system itself: two members are connected to each other.
    Loopback {
        /// The caller's number of the member.
        member: u32,
    },
}
