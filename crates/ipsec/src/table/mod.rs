//! The table of SAs and policies, for lookups while they are added and removed.

mod classifier;
mod router;
mod selector;

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustc_hash::FxBuildHasher;

use crate::esp::Esp;
use crate::refusal::Refusal;
use crate::sa::{Config, ConfigError, Direction, Events, Sa};
use classifier::Classifier;
pub use router::{Router, Unrouted};
pub(crate) use selector::number;
pub use selector::{Flow, Prefix, Selector};

/// SAs, found by number, by SPI and by policy.
///
/// Workers look SAs up in a [`View`], one for each burst. Changes block views only briefly: they
/// allocate nothing that grows with the table.
#[derive(Debug)]
pub struct Table {
    contents: RwLock<Contents>,
    limits: TableLimits,
    /// Number of changes so far.
    changes: AtomicU64,
}

/// Maximum sizes of a [`Table`].
#[derive(Debug, Clone, Copy)]
pub struct TableLimits {
    /// Maximum number of SAs.
    pub sas: usize,
    /// Maximum number of policies.
    pub policies: usize,
}

impl Default for TableLimits {
    fn default() -> TableLimits {
        TableLimits { sas: 16_384, policies: 16_384 }
    }
}

/// A policy: the action for outgoing packets that match a selector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// The packets to which the policy applies.
    pub selector: Selector,
    /// If several policies match a packet, the lowest number wins.
    pub priority: u32,
    /// The action.
    pub action: Action,
}

/// The action of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Encapsulate the packet with the newest usable outbound SA that has this reqid.
    Protect(u32),
    /// Encapsulate the packet with the outbound SA that has this reqid and this SPI, and with no
    /// other. An SA can then be added before the peer expects its packets.
    ProtectBy {
        /// The reqid.
        reqid: u32,
        /// The SPI.
        spi: u32,
    },
    /// Let the packet through unprotected.
    Bypass,
    /// Drop the packet.
    Discard,
}

/// A packet whose policy has no SA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The reqid of the policy.
    pub reqid: u32,
    /// The packet's flow.
    pub flow: Flow,
}

/// The decision for a packet to send.
#[derive(Debug)]
pub enum Outbound<'a> {
    /// The packet is encapsulated with this SA.
    Protect(&'a Arc<Sa>),
    /// The packet passes unprotected.
    Bypass,
}

#[derive(Debug, Default)]
struct Contents {
    by_id: HashMap<u32, Arc<Sa>, FxBuildHasher>,
    inbound: HashMap<(u128, u32, bool), Arc<Sa>, FxBuildHasher>,
    /// Outbound SAs of a reqid, the newest last.
    outbound: HashMap<u32, Vec<Arc<Sa>>, FxBuildHasher>,
    /// Outbound SAs of an SPI and destination, the newest last.
    outbound_by_spi: HashMap<(u128, u32, bool), Vec<Arc<Sa>>, FxBuildHasher>,
    /// Number of inbound SAs with UDP encapsulation.
    inbound_udp: usize,
    policies: Classifier,
    /// The first packet without an SA of each reqid; no more than [`WANTED_MAX`].
    wanted: Mutex<Vec<Wanted>>,
    last_id: u32,
}

/// Reasons for refusing a change of a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The description of the SA is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another inbound SA has the same SPI and destination.
    #[error("there is an inbound SA with SPI {spi:#x} for {destination}")]
    SpiInUse {
        /// The SPI.
        spi: u32,
        /// The outer destination.
        destination: IpAddr,
    },
    /// The table has the maximum number of SAs.
    #[error("the table is full: it has {0} SAs")]
    Full(usize),
    /// The table has the maximum number of policies.
    #[error("the table is full: it has {0} policies")]
    PoliciesFull(usize),
    /// The selector of a policy or SA is invalid.
    #[error("the selector's prefixes have different families, or are longer than an address")]
    Selector,
    /// Another policy has the same selector and priority.
    #[error("there is already a policy with this selector and priority {0}")]
    PolicyExists(u32),
}

impl Table {
    /// An empty table.
    pub fn new(limits: TableLimits) -> Table {
        let mut contents = Contents::default();
        contents.by_id.reserve(limits.sas);
        contents.inbound.reserve(limits.sas);
        contents.outbound.reserve(limits.sas);
        contents.outbound_by_spi.reserve(limits.sas);
        Table { contents: RwLock::new(contents), limits, changes: AtomicU64::new(0) }
    }

    /// Adds an SA and gives it a number. The SA can be used at once. Older SAs of the same peer
    /// stay usable until they are removed. `now` is in seconds.
    ///
    /// # Errors
    ///
    /// Fails if the SA is invalid, if its SPI is taken, or if the table is full.
    pub fn add(&self, config: Config, now: u64) -> Result<Arc<Sa>, TableError> {
        self.put(config, None, now)
    }

    /// Adds an SA in the place of the one with number `old`, which is removed in the same moment.
    /// Both may have the same SPI.
    ///
    /// # Errors
    ///
    /// Fails for the same reasons as [`Table::add`]. The old SA stays then.
    pub fn replace(&self, old: u32, config: Config, now: u64) -> Result<Arc<Sa>, TableError> {
        self.put(config, Some(old), now)
    }

    fn put(&self, config: Config, old: Option<u32>, now: u64) -> Result<Arc<Sa>, TableError> {
        config.check()?;
        if config.selector.is_some_and(|selector| !selector.is_valid()) {
            return Err(TableError::Selector);
        }
        let id = self.contents.write().next_id();
        // The keys are prepared without the lock.
        let sa = Arc::new(Sa::new(id, config, now)?);
        let mut contents = self.change();
        let old = old.filter(|old| contents.by_id.contains_key(old));
        if contents.by_id.len() - usize::from(old.is_some()) >= self.limits.sas {
            return Err(TableError::Full(contents.by_id.len()));
        }
        if sa.direction == Direction::Inbound
            && let Some(other) = contents.inbound.get(&key_of(sa.spi, sa.destination))
            && Some(other.id) != old
        {
            return Err(TableError::SpiInUse { spi: sa.spi, destination: sa.destination });
        }
        if let Some(old) = old {
            contents.remove(old);
        }
        contents.insert(&sa);
        Ok(sa)
    }

    /// Removes an SA. The SA's packets that are in an engine are still completed.
    pub fn remove(&self, id: u32) -> Option<Arc<Sa>> {
        self.change().remove(id)
    }

    /// Removes all SAs, and returns them.
    pub fn flush(&self) -> Vec<Arc<Sa>> {
        let mut contents = self.change();
        contents.inbound.clear();
        contents.inbound_udp = 0;
        contents.outbound.clear();
        contents.outbound_by_spi.clear();
        contents.by_id.drain().map(|(_, sa)| sa).collect()
    }

    /// Adds a policy.
    ///
    /// # Errors
    ///
    /// Fails if the selector is invalid, if there is a policy with the same selector and priority,
    /// or if the table is full.
    pub fn add_policy(&self, policy: Policy) -> Result<(), TableError> {
        self.replace_policies(&[], &[policy])
    }

    /// Replaces policies at one moment: no packet sees a part of the change.
    ///
    /// # Errors
    ///
    /// Fails as [`Table::add_policy`] for a policy of `new`; then nothing changes.
    pub fn replace_policies(&self, old: &[Policy], new: &[Policy]) -> Result<(), TableError> {
        if new.iter().any(|policy| !policy.selector.is_valid()) {
            return Err(TableError::Selector);
        }
        let mut contents = self.change();
        let policies = &mut contents.policies;
        let removed: Vec<Policy> =
            old.iter().filter_map(|policy| policies.remove(policy)).collect();
        let most = self.limits.policies;
        let mut add = |policy: &Policy| match policies.len() {
            len if len >= most => Err(TableError::PoliciesFull(len)),
            _ => policies.add(*policy),
        };
        let Some((at, error)) =
            new.iter().enumerate().find_map(|(at, policy)| Some((at, add(policy).err()?)))
        else {
            return Ok(());
        };
        for policy in &new[..at] {
            policies.remove(policy);
        }
        // There was room for these before.
        removed.into_iter().try_for_each(|policy| policies.add(policy))?;
        Err(error)
    }

    /// Packets whose policy had no SA since the last call: one of each reqid.
    pub fn take_wanted(&self) -> Vec<Wanted> {
        std::mem::take(&mut *self.contents.read().wanted.lock())
    }

    /// Removes the policy that has the selector and priority of `policy`.
    pub fn remove_policy(&self, policy: &Policy) -> Option<Policy> {
        self.change().policies.remove(policy)
    }

    /// All policies, ordered by priority number.
    pub fn policies(&self) -> Vec<Policy> {
        let mut policies: Vec<Policy> = self.contents.read().policies.iter().copied().collect();
        policies.sort_by_key(|policy| policy.priority);
        policies
    }

    /// All SAs, ordered by number.
    pub fn list(&self) -> Vec<Arc<Sa>> {
        let mut sas: Vec<Arc<Sa>> = self.contents.read().by_id.values().map(Arc::clone).collect();
        sas.sort_by_key(|sa| sa.id);
        sas
    }

    /// The number of SAs, and the number of policies.
    pub fn counts(&self) -> (usize, usize) {
        let contents = self.contents.read();
        (contents.by_id.len(), contents.policies.len())
    }

    /// Checks all time limits, and returns the SAs with events since the last call.
    pub fn expire(&self, now: u64) -> Vec<(Arc<Sa>, Events)> {
        let sas = self.list().into_iter();
        let events = sas.map(|sa| {
            sa.expire(now);
            let events = sa.take_events();
            (sa, events)
        });
        events.filter(|(_, events)| !events.is_empty()).collect()
    }

    /// The number of changes so far: results of look-ups are the same as long as it is.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Locks the contents for a change.
    fn change(&self) -> RwLockWriteGuard<'_, Contents> {
        let contents = self.contents.write();
        self.changes.fetch_add(1, Ordering::Release);
        contents
    }

    /// A view of the table, for the lookups of a burst. Changes wait until it is dropped.
    #[inline]
    pub fn read(&self) -> View<'_> {
        View(self.contents.read())
    }
}

impl Contents {
    fn insert(&mut self, sa: &Arc<Sa>) {
        match sa.direction {
            Direction::Inbound => {
                self.inbound.insert(key_of(sa.spi, sa.destination), Arc::clone(sa));
                self.inbound_udp += usize::from(sa.encapsulation.is_some());
            }
            Direction::Outbound => {
                self.outbound.entry(sa.reqid).or_default().push(Arc::clone(sa));
                let key = key_of(sa.spi, sa.destination);
                self.outbound_by_spi.entry(key).or_default().push(Arc::clone(sa));
            }
        }
        self.by_id.insert(sa.id, Arc::clone(sa));
    }

    fn remove(&mut self, id: u32) -> Option<Arc<Sa>> {
        let sa = self.by_id.remove(&id)?;
        match sa.direction {
            Direction::Inbound => {
                self.inbound.remove(&key_of(sa.spi, sa.destination));
                self.inbound_udp -= usize::from(sa.encapsulation.is_some());
            }
            Direction::Outbound => {
                take_out(&mut self.outbound, &sa.reqid, id);
                take_out(&mut self.outbound_by_spi, &key_of(sa.spi, sa.destination), id);
            }
        }
        Some(sa)
    }

    /// A number that no SA has. Numbers are used again only after all others were used.
    fn next_id(&mut self) -> u32 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if self.last_id != 0 && !self.by_id.contains_key(&self.last_id) {
                return self.last_id;
            }
        }
    }

    /// Notes that a packet has no SA, unless others note one now.
    #[cold]
    fn note_wanted(&self, wanted: Wanted) {
        if let Some(mut list) = self.wanted.try_lock()
            && list.len() < WANTED_MAX
            && list.iter().all(|other| other.reqid != wanted.reqid)
        {
            list.push(wanted);
        }
    }
}

/// A [`Table`], locked against changes.
#[derive(Debug)]
pub struct View<'a>(RwLockReadGuard<'a, Contents>);

impl View<'_> {
    /// The SA with this number.
    #[inline]
    pub fn by_id(&self, id: u32) -> Option<&Arc<Sa>> {
        self.0.by_id.get(&id)
    }

    /// The inbound SA of a received packet.
    ///
    /// # Errors
    ///
    /// [`Refusal::UnknownSpi`] if no SA has the SPI and outer destination of the packet.
    #[inline]
    pub fn inbound(&self, esp: &Esp) -> Result<&Arc<Sa>, Refusal> {
        self.0.inbound.get(&esp.key()).ok_or(Refusal::UnknownSpi)
    }

    /// The SA of any direction with this SPI and outer destination, as in a lookup of the kernel's
    /// states: an inbound one, otherwise the newest outbound one.
    pub fn find(&self, spi: u32, destination: IpAddr) -> Option<&Arc<Sa>> {
        let key = key_of(spi, destination);
        let inbound = self.0.inbound.get(&key);
        inbound.or_else(|| self.0.outbound_by_spi.get(&key)?.last())
    }

    /// Whether any inbound SA has UDP encapsulation.
    #[inline]
    pub fn expects_udp(&self) -> bool {
        self.0.inbound_udp > 0
    }

    /// What becomes of a packet that is to be sent.
    ///
    /// # Errors
    ///
    /// Fails if the policy discards the packet or has no usable SA, or if no policy matches.
    #[inline]
    pub fn outbound(&self, flow: &Flow) -> Result<Outbound<'_>, Refusal> {
        match self.0.policies.find(flow).ok_or(Refusal::NoPolicy)?.action {
            Action::Bypass => Ok(Outbound::Bypass),
            Action::Discard => Err(Refusal::PolicyDiscard),
            Action::Protect(reqid) => self.protect(reqid, self.newest(reqid), flow),
            Action::ProtectBy { reqid, spi } => self.protect(reqid, self.by_spi(reqid, spi), flow),
        }
    }

    #[inline]
    fn protect<'a>(
        &'a self,
        reqid: u32,
        sa: Result<&'a Arc<Sa>, Refusal>,
        flow: &Flow,
    ) -> Result<Outbound<'a>, Refusal> {
        if sa.is_err() {
            self.0.note_wanted(Wanted { reqid, flow: *flow });
        }
        sa.map(Outbound::Protect)
    }

    /// The outbound SA with this reqid and SPI.
    #[inline]
    fn by_spi(&self, reqid: u32, spi: u32) -> Result<&Arc<Sa>, Refusal> {
        let same = self.0.outbound.get(&reqid).ok_or(Refusal::NoSa)?;
        let its = same.iter().find(|sa| sa.spi == spi && !sa.is_expired());
        its.ok_or(Refusal::NoSa)
    }

    /// The newest outbound SA with this reqid. SAs that have reached a soft limit are used only if
    /// there is no other.
    ///
    /// # Errors
    ///
    /// [`Refusal::NoSa`] if no SA with this reqid is usable.
    #[inline]
    pub fn newest(&self, reqid: u32) -> Result<&Arc<Sa>, Refusal> {
        let same = self.0.outbound.get(&reqid).ok_or(Refusal::NoSa)?;
        let newest_first = || same.iter().rev();
        newest_first()
            .find(|sa| !sa.is_dying())
            .or_else(|| newest_first().find(|sa| !sa.is_expired()))
            .ok_or(Refusal::NoSa)
    }
}

fn key_of(spi: u32, destination: IpAddr) -> (u128, u32, bool) {
    (number(destination), spi, destination.is_ipv6())
}

/// Removes an SA from the list with this key, and an empty list from its map.
fn take_out<K: Eq + Hash>(lists: &mut HashMap<K, Vec<Arc<Sa>>, FxBuildHasher>, key: &K, id: u32) {
    if let Some(same) = lists.get_mut(key) {
        same.retain(|other| other.id != id);
        if same.is_empty() {
            lists.remove(key);
        }
    }
}

/// Maximum number of packets without an SA that are kept for [`Table::take_wanted`].
const WANTED_MAX: usize = 64;
