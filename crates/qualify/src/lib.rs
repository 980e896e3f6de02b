//! Qualification of ports: each feature of the kernel's netdev matrix, and each further duty of an
//! XDP device, is tried with packets, and compared with the features that the port advertises.
//!
//! A [`Subject`] is set up again for each feature, with a peer at the other end of its wire
//! ([`far::Far`]). The device's own work is checked at the device itself, so that nothing in
//! between makes up for it; the use of its frames by programs is checked through an engine.

#![forbid(unsafe_code)]

mod checks;
mod choice;
pub mod far;
pub mod kinds;
mod line;
pub mod netdev;
mod packets;
mod page;
mod programs;
mod socket;

use std::io;
use std::time::Duration;

use serde::Serialize;
use towpath_engine::port::{Device, Features};

pub use choice::{Choice, ChoiceError};
pub use far::Far;
pub use page::page;

macro_rules! features {
    ($($id:ident = $name:literal, $text:literal;)*) => {
        /// A feature that a port may have.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Feature { $(#[doc = $text] $id,)* }

        impl Feature {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Feature] = &[$(Feature::$id,)*];

            /// Its name in the table: the kernel's word where it has one.
            pub const fn name(self) -> &'static str {
                match self { $(Feature::$id => $name,)* }
            }

            /// The meaning of the feature.
            pub const fn text(self) -> &'static str {
                match self { $(Feature::$id => $text,)* }
            }
        }
    };
}

features! {
    Basic = "BASIC", "Programs drop, pass and send back received frames.";
    Redirect = "REDIRECT", "Programs redirect received frames.";
    NdoXmit = "NDO_XMIT", "Frames redirected to the port leave.";
    RxSg = "RX_SG", "Frames of several buffers arrive.";
    NdoXmitSg = "NDO_XMIT_SG", "Frames of several buffers leave.";
    Xsk = "XSK", "AF_XDP sockets receive from the port and send by it.";
    XskZerocopy = "XSK_ZEROCOPY", "The port receives into an application's memory.";
    RxTimestamp = "RX_TIMESTAMP", "The port reports receive timestamps.";
    RxHash = "RX_HASH", "The port reports a hash, one for each flow.";
    RxVlanTag = "RX_VLAN_TAG", "The port removes VLAN tags and reports them.";
    RxChecksum = "RX_CHECKSUM", "The port reports that a checksum was right.";
    TxTimestamp = "TX_TIMESTAMP", "Sockets and programs get the time when a packet was sent.";
    TxChecksum = "TX_CHECKSUM", "The port completes checksums, or hands the work on.";
    TxLaunchTime = "TX_LAUNCH_TIME", "The port does not send before the launch time.";
    Headroom = "HEADROOM", "Programs have 216 bytes in front of a packet.";
    Tailroom = "TAILROOM", "Programs have the rest of a page after a packet.";
    Metadata = "METADATA", "216 bytes of metadata stay in front of a packet.";
    Mtu = "MTU", "Frames of its MTU pass in both directions; longer ones are refused.";
    Linear = "LINEAR", "Programs without frags support see long frames as a whole.";
    RxCsumPartial = "RX_CSUM_PARTIAL", "An incomplete checksum arrives with this mark.";
    RxTso = "RX_TSO", "Large packets arrive whole.";
    TxTso = "TX_TSO", "The port segments large TCP packets, or hands them on.";
    TxUso = "TX_USO", "The port segments large UDP packets, or hands them on.";
}

/// The results for one feature of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The feature.
    pub feature: Feature,
    /// Whether the port advertises it.
    pub is_advertised: bool,
    /// The outcome of trying it.
    pub outcome: Outcome,
    /// Why the first try failed, if the second one did not.
    pub first_failure: Option<String>,
}

/// The outcome of trying a feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It does what the feature means.
    Works,
    /// It does not work, for this reason.
    Fails(String),
    /// It was not tried, for this reason: it has no meaning here, or there is no way to find out.
    Untried(String),
}

/// The comparison of a feature's outcome with the port's advertisement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Advertised, and works.
    Works,
    /// Advertised, and does not work.
    Fails,
    /// Works, and is not advertised.
    Unadvertised,
    /// Neither advertised nor working.
    No,
    /// Not tried.
    Untried,
}

impl Row {
    /// The verdict, from the advertisement and the outcome.
    pub fn verdict(&self) -> Verdict {
        match (&self.outcome, self.is_advertised) {
            (Outcome::Works, true) => Verdict::Works,
            (Outcome::Works, false) => Verdict::Unadvertised,
            (Outcome::Fails(_), true) => Verdict::Fails,
            (Outcome::Fails(_), false) => Verdict::No,
            (Outcome::Untried(_), _) => Verdict::Untried,
        }
    }

    /// The verdict in the words of tables.
    pub fn word(&self) -> &'static str {
        match self.verdict() {
            Verdict::Works => "works",
            Verdict::Fails => "FAILS",
            Verdict::Unadvertised => "works, not said",
            Verdict::No => "no",
            Verdict::Untried => "-",
        }
    }

    /// The reason why it does not work, or was not tried.
    pub fn note(&self) -> &str {
        match &self.outcome {
            Outcome::Works => "",
            Outcome::Fails(why) | Outcome::Untried(why) => why,
        }
    }
}

/// All features of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The port.
    pub port: String,
    /// One row for each feature, in the order of [`Feature::ALL`].
    pub rows: Vec<Row>,
}

impl Report {
    /// Whether everything that is advertised works.
    pub fn is_good(&self) -> bool {
        self.rows.iter().all(|row| row.verdict() != Verdict::Fails)
    }
}

/// A port to be tried.
pub trait Subject {
    /// Its name in the table.
    fn name(&self) -> String;

    /// The features that it advertises.
    ///
    /// # Errors
    ///
    /// Fails if the port cannot be set up.
    fn advertised(&self) -> io::Result<Vec<Feature>>;

    /// Tries a feature, with a port that is made for it.
    ///
    /// # Errors
    ///
    /// Fails if the port cannot be set up.
    fn try_feature(&self, feature: Feature) -> io::Result<Outcome>;
}

/// A device of Towpath, with the peer at its other end.
pub struct Setup {
    /// The port.
    pub device: Box<dyn Device>,
    /// The other end of its wire.
    pub far: Far,
}

/// The purpose that a device is set up for.
#[derive(Debug, Clone)]
pub struct Purpose {
    /// Largest payload it is to take, where that can be chosen.
    pub mtu: u32,
    /// Frames to arrive, for devices without a peer at the other end.
    pub arrivals: Vec<Vec<u8>>,
}

/// A maker of devices of ours.
pub trait Maker {
    /// Its name in the table.
    fn name(&self) -> String;

    /// Makes a device.
    ///
    /// # Errors
    ///
    /// Fails if the device cannot be made here.
    fn make(&self, purpose: &Purpose) -> io::Result<Setup>;
}

impl<M: Maker> Subject for M {
    fn name(&self) -> String {
        Maker::name(self)
    }

    fn advertised(&self) -> io::Result<Vec<Feature>> {
        let Setup { device, .. } = self.make(&Purpose::usual())?;
        Ok(Feature::ALL.iter().copied().filter(|&feature| says(&*device, feature)).collect())
    }

    fn try_feature(&self, feature: Feature) -> io::Result<Outcome> {
        checks::try_feature(self, feature)
    }
}

impl Purpose {
    /// An Ethernet's MTU.
    pub(crate) fn usual() -> Purpose {
        Purpose { mtu: 1500, arrivals: Vec::new() }
    }
}

/// Whether a device of ours advertises a feature. Every device that receives must provide room
/// around packets and the kernel's basic features.
fn says(device: &dyn Device, feature: Feature) -> bool {
    let receives = device.queues() > 0;
    let Features { rx_frags, tx_frags, tx_checksum, tx_tso, tx_uso, zero_copy, .. } =
        device.features();
    let Features { rx_hints, rx_offloads, .. } = device.features();
    match feature {
        Feature::Basic | Feature::Redirect | Feature::Xsk => receives,
        Feature::Headroom | Feature::Tailroom | Feature::Metadata => receives,
        Feature::NdoXmit | Feature::TxTimestamp | Feature::Mtu => true,
        // The engine waits, whatever the port.
        Feature::TxLaunchTime => true,
        Feature::RxSg | Feature::Linear => receives && rx_frags,
        Feature::NdoXmitSg => tx_frags,
        Feature::XskZerocopy => zero_copy,
        Feature::RxTimestamp => rx_hints.timestamp,
        Feature::RxHash => rx_hints.hash,
        Feature::RxVlanTag => rx_hints.vlan_tag,
        Feature::RxChecksum => rx_hints.checksum,
        Feature::TxChecksum => tx_checksum,
        Feature::RxCsumPartial | Feature::RxTso => rx_offloads,
        Feature::TxTso => tx_tso,
        Feature::TxUso => tx_uso,
    }
}

/// Tries all features of a port. On a busy machine frames may be late: a feature that fails is
/// tried again.
///
/// # Errors
///
/// Fails if the port cannot be set up.
pub fn qualify(subject: &dyn Subject) -> io::Result<Report> {
    let advertised = subject.advertised()?;
    let row = |&feature| {
        let is_advertised = advertised.contains(&feature);
        let (outcome, first_failure) = match subject.try_feature(feature)? {
            Outcome::Fails(why) => match subject.try_feature(feature)? {
                Outcome::Fails(why) => (Outcome::Fails(why), None),
                outcome => (outcome, Some(why)),
            },
            outcome => (outcome, None),
        };
        Ok(Row { feature, is_advertised, outcome, first_failure })
    };
    let rows = Feature::ALL.iter().map(row).collect::<io::Result<_>>()?;
    Ok(Report { port: subject.name(), rows })
}

/// The time that frames may be under way.
const PATIENCE: Duration = Duration::from_millis(500);
