//! Answers to requests.

use netlink_packet_xfrm::constants::*;
use netlink_packet_xfrm::policy::{SpdHThresh, SpdInfo, SpdInfoAttrs};
use netlink_packet_xfrm::{
    AsyncEventId, Replay, ReplayEsn, UserPolicyId, UserSaId, XfrmAttrs, XfrmMessage, policy, state,
};
use towpath_ipsec::{Direction, SPI_RESERVED_MAX};
use towpath_supervise::protocol::BOUND;
use zeroize::Zeroizing;

use crate::algorithms::wipe;
use crate::door::{Client, Door, Entries, Larval, State};
use crate::policies::{self, Held};
use crate::refused::{EEXIST, ENOBUFS, ENOENT, EOPNOTSUPP, ESRCH, Refused};
use crate::states;
use crate::wire::{
    NLM_F_ACK, NLM_F_MULTI, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, Request, acknowledge, attributes,
    bytes, done, message, requests,
};

/// Messages to a client; each is a datagram. They may have keys.
type Messages = Vec<Zeroizing<Vec<u8>>>;

impl Door {
    /// Answers all requests of a datagram.
    pub fn answer(&self, client: &mut Client, datagram: &[u8]) -> Messages {
        let mut out = Vec::new();
        for request in requests(datagram) {
            match request.kind {
                BOUND => {
                    let groups = request.payload.first_chunk();
                    client.groups = groups.map_or(0, |groups| u32::from_ne_bytes(*groups));
                }
                NLMSG_NOOP | NLMSG_ERROR | NLMSG_DONE => {}
                _ => self.answer_one(&request, &mut out),
            }
        }
        out
    }

    fn answer_one(&self, request: &Request<'_>, out: &mut Messages) {
        match self.perform(request, out) {
            Ok(Answered::Acknowledge) => out.push(acknowledge(request, 0)),
            Ok(Answered::Done) if request.flags & NLM_F_ACK != 0 && !request.is_dump() => {
                out.push(acknowledge(request, 0));
            }
            Ok(Answered::Done) => {}
            Err(refused) => {
                if is_change(request.kind) {
                    (self.log)(&refused.to_string());
                }
                out.push(acknowledge(request, refused.errno));
            }
        }
    }

    fn perform(&self, request: &Request<'_>, out: &mut Messages) -> Result<Answered, Refused> {
        let entries = &mut self.entries.lock();
        let is_sas = request.kind == XFRM_MSG_GETSA;
        if request.is_dump() && (is_sas || request.kind == XFRM_MSG_GETPOLICY) {
            self.dump(entries, request, is_sas, out);
            return Ok(Answered::Done);
        }
        match request.message()? {
            XfrmMessage::AllocSpi(it) => out.push(self.alloc_spi(entries, request, &it)?),
            XfrmMessage::GetSa(it) => out.push(self.get_sa(entries, request, &it.user_sa_id)?),
            XfrmMessage::GetAsyncEvent(it) => out.push(get_ae(entries, request, &it.id)?),
            XfrmMessage::GetSpdInfo(it) => out.push(spd_info(entries, request, it.flags)),
            XfrmMessage::GetPolicy(it) => {
                let (_, held) = find_policy(entries, &it.user_policy_id)?;
                out.push(self.policy_message(entries, held, request, 0));
            }
            other => return self.change(entries, request, other),
        }
        Ok(Answered::Done)
    }

    fn change(
        &self,
        entries: &mut Entries,
        request: &Request<'_>,
        message: XfrmMessage,
    ) -> Result<Answered, Refused> {
        match message {
            XfrmMessage::AddSa(it) | XfrmMessage::UpdateSa(it) => {
                self.add_sa(entries, request, it)?;
            }
            XfrmMessage::DeleteSa(it) => self.delete_sa(entries, &it.user_sa_id)?,
            XfrmMessage::FlushSa(it) => {
                if [0, IPPROTO_ESP, IPSEC_PROTO_ANY].contains(&it.protocol) {
                    self.flush_states(entries);
                }
            }
            XfrmMessage::AddPolicy(it) | XfrmMessage::UpdatePolicy(it) => {
                self.set_policy(entries, request, &it)?;
            }
            XfrmMessage::DeletePolicy(it) => self.delete_policy(entries, &it.user_policy_id)?,
            XfrmMessage::FlushPolicy(_) => self.flush_policies(entries),
            _ => return Err(Refused::new(EOPNOTSUPP, "this message is not supported")),
        }
        Ok(Answered::Acknowledge)
    }

    /// Gives out an SPI for an inbound SA (`xfrm_alloc_userspi`).
    fn alloc_spi(
        &self,
        entries: &mut Entries,
        request: &Request<'_>,
        it: &state::AllocSpiMessage,
    ) -> Result<Zeroizing<Vec<u8>>, Refused> {
        let (mut info, least, most) = (it.spi_info.info, it.spi_info.min, it.spi_info.max);
        states::check_protocol(info.id.proto)?;
        let (destination, _) = states::key(&info)?;
        if least > most {
            return Err(Refused::malformed(format!(
                "there is no SPI from {least:#x} to {most:#x}"
            )));
        }
        if entries.larval.len() >= LARVAL_MAX {
            return Err(Refused::new(ENOBUFS, format!("{LARVAL_MAX} SPIs wait for their SAs")));
        }
        let is_free = |entries: &Entries, spi| {
            let key = (destination, spi);
            spi > SPI_RESERVED_MAX
                && !entries.states.contains_key(&key)
                && !entries.larval.contains_key(&key)
        };
        let spi = (0..SPI_TRIES).map(|_| fastrand::u32(least..=most));
        let spi = spi.into_iter().find(|&spi| is_free(entries, spi)).ok_or_else(|| {
            Refused::new(ENOENT, format!("no SPI from {least:#x} to {most:#x} is free"))
        })?;
        info.id.spi = spi;
        let until = (self.clock)() + LARVAL_SECONDS;
        entries.larval.insert((destination, spi), Larval { info, until });
        if entries.locals.len() < LOCALS_MAX {
            entries.locals.insert(destination);
        }
        Ok(message(request, XFRM_MSG_NEWSA, 0, &[&bytes(&info)]))
    }

    /// Adds an SA, or completes the one for which an SPI was given out.
    fn add_sa(
        &self,
        entries: &mut Entries,
        request: &Request<'_>,
        mut it: state::ModifyMessage,
    ) -> Result<(), Refused> {
        let key = states::key(&it.user_sa_info)?;
        let source = states::address(&it.user_sa_info.saddr, it.user_sa_info.family)?;
        let is_update = request.kind == XFRM_MSG_UPDSA;
        let is_larval = entries.larval.contains_key(&key);
        let direction = match (is_update, is_larval, entries.states.contains_key(&key)) {
            (true, true, _) => Direction::Inbound,
            (true, false, true) => return Err(Refused::unsupported("the change of an SA in use")),
            (true, false, false) => return Err(no_sa(key)),
            (false, false, false) => entries.direction(key, source),
            (false, ..) => {
                let (destination, spi) = key;
                let why = format!("there is an SA with SPI {spi:#x} for {destination}");
                return Err(Refused::new(EEXIST, why));
            }
        };
        let config = states::config(&it.user_sa_info, &it.nlas, direction);
        wipe(&mut it.nlas);
        let mut config = config?;
        config.allowed = entries.allowed(direction, config.reqid);
        let sa = self.table.add(config, (self.clock)())?;
        entries.larval.remove(&key);
        let attributes = Zeroizing::new(request.attributes().to_vec());
        let state = State { sa, info: it.user_sa_info, attributes };
        entries.states.insert(key, state);
        Ok(())
    }

    fn get_sa(
        &self,
        entries: &Entries,
        request: &Request<'_>,
        id: &UserSaId,
    ) -> Result<Zeroizing<Vec<u8>>, Refused> {
        let key = sa_key(id)?;
        if let Some(larval) = entries.larval.get(&key) {
            return Ok(message(request, XFRM_MSG_NEWSA, 0, &[&bytes(&larval.info)]));
        }
        let state = entries.states.get(&key).ok_or_else(|| no_sa(key))?;
        Ok(self.sa_message(state, request, 0))
    }

    fn sa_message(&self, state: &State, request: &Request<'_>, flags: u16) -> Zeroizing<Vec<u8>> {
        let info = states::current(&state.info, &state.sa, (self.clock)());
        let used = match info.lifetime_cur.use_time {
            0 => Vec::new(),
            time => attributes(&[XfrmAttrs::LastUsed(time)]),
        };
        message(request, XFRM_MSG_NEWSA, flags, &[&bytes(&info), &state.attributes, &used])
    }

    fn delete_sa(&self, entries: &mut Entries, id: &UserSaId) -> Result<(), Refused> {
        let key = sa_key(id)?;
        if entries.larval.remove(&key).is_some() {
            return Ok(());
        }
        let state = entries.states.remove(&key).ok_or_else(|| no_sa(key))?;
        self.table.remove(state.sa.id());
        entries.note_removed(&state.sa);
        Ok(())
    }

    /// Adds a policy, or replaces it.
    fn set_policy(
        &self,
        entries: &mut Entries,
        request: &Request<'_>,
        it: &policy::ModifyMessage,
    ) -> Result<(), Refused> {
        let mut info = it.user_policy_info;
        let key = policies::key(info.direction, &info.selector)?;
        let known = entries.policies.get(&key);
        if known.is_some() && request.kind == XFRM_MSG_NEWPOLICY {
            return Err(Refused::new(EEXIST, "there is a policy with this selector"));
        }
        if known.is_none() && entries.policies.len() >= POLICIES_MAX {
            return Err(Refused::new(ENOBUFS, format!("there are {POLICIES_MAX} policies")));
        }
        info.index = known.map_or(0, |held| held.info.index);
        if info.index == 0 {
            // As in the kernel, the lowest three bits are the direction.
            entries.policies_made = entries.policies_made.wrapping_add(1);
            info.index = entries.policies_made << 3 | u32::from(info.direction);
        }
        let held = Held::new(info, &it.nlas, request.attributes())?;
        if let Some(policy) = held.policy(key.1) {
            let old = known.and_then(|known| known.policy(key.1));
            self.table.replace_policies(old.as_slice(), &[policy])?;
        }
        let reqids = [known.and_then(Held::reqid), held.reqid()];
        entries.policies.insert(key, held);
        reqids.into_iter().flatten().for_each(|reqid| entries.restrict(reqid));
        Ok(())
    }

    fn delete_policy(&self, entries: &mut Entries, id: &UserPolicyId) -> Result<(), Refused> {
        let (key, _) = find_policy(entries, id)?;
        let Some(held) = entries.policies.remove(&key) else { return Ok(()) };
        if let Some(policy) = held.policy(key.1) {
            self.table.remove_policy(&policy);
        }
        if let Some(reqid) = held.reqid() {
            entries.restrict(reqid);
        }
        Ok(())
    }

    /// A policy with the time of its last packet. IKE daemons ask for it to learn whether the peer
    /// is alive.
    fn policy_message(
        &self,
        entries: &Entries,
        held: &Held,
        request: &Request<'_>,
        flags: u16,
    ) -> Zeroizing<Vec<u8>> {
        let mut info = held.info;
        info.lifetime_cur.use_time = states::wall_time(entries.last_use(held), (self.clock)());
        message(request, XFRM_MSG_NEWPOLICY, flags, &[&bytes(&info), &held.attributes])
    }

    fn dump(&self, entries: &Entries, request: &Request<'_>, is_sas: bool, out: &mut Messages) {
        if is_sas {
            let states = entries.states.values();
            out.extend(states.map(|state| self.sa_message(state, request, NLM_F_MULTI)));
        } else {
            let policies = entries.policies.values();
            let message = |held| self.policy_message(entries, held, request, NLM_F_MULTI);
            out.extend(policies.map(message));
        }
        out.push(done(request));
    }
}

/// The end of an answer, behind its messages.
enum Answered {
    /// An acknowledgement.
    Acknowledge,
    /// Nothing more, unless one is asked for.
    Done,
}

/// Whether a refused request of this kind leaves packets without an SA or a policy.
fn is_change(kind: u16) -> bool {
    [XFRM_MSG_NEWSA, XFRM_MSG_UPDSA, XFRM_MSG_ALLOCSPI, XFRM_MSG_NEWPOLICY, XFRM_MSG_UPDPOLICY]
        .contains(&kind)
}

fn sa_key(id: &UserSaId) -> Result<states::Key, Refused> {
    Ok((states::address(&id.daddr, id.family)?, id.spi))
}

fn no_sa((destination, spi): states::Key) -> Refused {
    Refused::new(ESRCH, format!("there is no SA with SPI {spi:#x} for {destination}"))
}

/// The policy of an index, else of a selector.
fn find_policy<'a>(
    entries: &'a Entries,
    id: &UserPolicyId,
) -> Result<(policies::Key, &'a Held), Refused> {
    let missing = || Refused::new(ENOENT, "there is no such policy");
    let found = match id.index {
        0 => {
            let key = policies::key(id.direction, &id.selector)?;
            entries.policies.get_key_value(&key)
        }
        index => entries.policies.iter().find(|(_, held)| held.info.index == index),
    };
    found.map(|(key, held)| (*key, held)).ok_or_else(missing)
}

/// Numbers of policies (`build_spdinfo`), and the lengths of prefixes that the kernel puts into
/// hash tables: the defaults.
fn spd_info(entries: &Entries, request: &Request<'_>, flags: u32) -> Zeroizing<Vec<u8>> {
    let of = |wanted| {
        let count = entries.policies.keys().filter(|(direction, _)| *direction == wanted).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    };
    let info = SpdInfo {
        incnt: of(XFRM_POLICY_IN),
        outcnt: of(XFRM_POLICY_OUT),
        fwdcnt: of(XFRM_POLICY_FWD),
        ..SpdInfo::default()
    };
    let whole = |bits| SpdHThresh { lbits: bits, rbits: bits };
    let nlas = vec![
        SpdInfoAttrs::SpdInfo(info),
        SpdInfoAttrs::SpdIpv4HThresh(whole(32)),
        SpdInfoAttrs::SpdIpv6HThresh(whole(128)),
    ];
    let answer = policy::NewSpdInfoMessage { flags, nlas };
    message(request, XFRM_MSG_NEWSPDINFO, 0, &[&bytes(&answer)])
}

/// The sequence numbers of an SA (`build_aevent`).
fn get_ae(
    entries: &Entries,
    request: &Request<'_>,
    id: &AsyncEventId,
) -> Result<Zeroizing<Vec<u8>>, Refused> {
    let key = sa_key(&id.sa_id)?;
    let state = entries.states.get(&key).ok_or_else(|| no_sa(key))?;
    let event = AsyncEventId {
        saddr: state.info.saddr,
        flags: XFRM_AE_RVAL,
        reqid: state.info.reqid,
        ..*id
    };
    let attribute = attributes(&[replay(state)]);
    Ok(message(request, XFRM_MSG_NEWAE, 0, &[&bytes(&event), &attribute]))
}

fn replay(state: &State) -> XfrmAttrs {
    let sequence = state.sa.statistics().sequence;
    let (sent, received) = match state.sa.direction() {
        Direction::Outbound => (sequence, 0),
        Direction::Inbound => (0, sequence),
    };
    let words = |number: u64| ((number >> 32) as u32, number as u32);
    let ((oseq_hi, oseq), (seq_hi, seq)) = (words(sent), words(received));
    let towpath_ipsec::Replay { window: replay_window, esn, .. } = state.sa.replay();
    if !esn && replay_window <= 32 {
        return XfrmAttrs::ReplayState(Replay { oseq, seq, bitmap: u32::MAX });
    }
    // All numbers in the window count as received: an SA that continues from here accepts none.
    let bmp = vec![u32::MAX; replay_window.div_ceil(32) as usize];
    let bmp_len = bmp.len() as u32;
    XfrmAttrs::ReplayStateEsn(ReplayEsn { bmp_len, oseq, seq, oseq_hi, seq_hi, replay_window, bmp })
}

/// Seconds for which an SPI is kept for its SA.
const LARVAL_SECONDS: u64 = 165;
const LARVAL_MAX: usize = 4096;
const LOCALS_MAX: usize = 1024;
const POLICIES_MAX: usize = 49_152;
const SPI_TRIES: usize = 1024;
