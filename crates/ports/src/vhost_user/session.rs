//! A front end's messages, one by one, and their effect on the queues. `connection` decides which
//! refusals end a connection, and `control` what follows.
//!
//! A session lasts as long as a connection. Nothing is kept, because a front end that reconnects
//! sends everything again, and the rings' positions are in the guest's memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Shared;
use super::bell_unsafe::{CallEvent, Kick};
use super::feature::{LOG_ALL, Negotiated, PROTOCOL_FEATURES, protocol};
use super::inflight::{Description, Region};
use super::log::Log;
use super::memory::{Memory, REGIONS_MAX};
use super::message::{Message, Refused, request};
use super::ring::Ring;
use super::split::SIZE_MAX;
use super::vring::Vring;

/// State of one connection.
#[derive(Debug)]
pub(super) struct Session {
    shared: Arc<Shared>,
    features: Negotiated,
    protocol: u64,
    memory: Arc<Memory>,
    log: Option<Arc<Log>>,
    inflight: Option<Region>,
    /// The device status field (virtio 1.3, 2.1), as the front end keeps it here.
    status: u8,
}

/// The answer to a message.
#[derive(Debug)]
pub(super) enum Answer {
    /// A payload.
    Payload(Vec<u8>),
    /// A payload with a descriptor.
    File(Vec<u8>, OwnedFd),
    /// Success, if the front end asks for an acknowledgement.
    Done,
}

impl Session {
    pub(super) fn new(shared: &Arc<Shared>) -> Session {
        Session {
            shared: Arc::clone(shared),
            features: Negotiated::default(),
            protocol: 0,
            memory: Arc::default(),
            log: None,
            inflight: None,
            status: 0,
        }
    }

    /// Whether messages that ask for an acknowledgement get one.
    pub(super) fn acknowledges(&self) -> bool {
        self.protocol & 1 << protocol::REPLY_ACK != 0
    }

    /// Records a refused message, for display.
    pub(super) fn note_refusal(&self, request: &str, why: &Refused) {
        self.shared.note_refusal(format!("{request}: {why}"));
    }

    /// Handles a message.
    pub(super) fn handle(&mut self, message: Message) -> Result<Answer, Refused> {
        let answer = match message.request {
            request::GET_FEATURES => number(self.shared.offered()),
            request::SET_FEATURES => self.set_features(message.number()?)?,
            request::GET_PROTOCOL_FEATURES => number(protocol::OFFERED),
            request::SET_PROTOCOL_FEATURES => self.set_protocol_features(message.number()?)?,
            request::GET_QUEUE_NUM => number(u64::from(self.shared.options.queues)),
            request::GET_MAX_MEM_SLOTS => number(REGIONS_MAX as u64),
            request::SET_OWNER => Answer::Done,
            // This only stops the queues.
            request::RESET_OWNER => {
                self.shared.stop_queues();
                Answer::Done
            }
            request::RESET_DEVICE => self.reset_device(),
            request::SET_MEM_TABLE => self.set_memory(message)?,
            request::ADD_MEM_REG => self.add_memory(message)?,
            request::REM_MEM_REG => self.remove_memory(&message)?,
            request::SET_LOG_BASE => self.set_log(message)?,
            request::GET_INFLIGHT_FD => self.make_inflight(&message)?,
            request::SET_INFLIGHT_FD => self.set_inflight(message)?,
            // The descriptor is not signalled: the log is only read while the guest is paused.
            request::SET_LOG_FD => Answer::Done,
            request::SET_VRING_NUM..=request::SET_VRING_ERR | request::SET_VRING_ENABLE => {
                return self.handle_vring(message);
            }
            request::SEND_RARP => self.announce(&message)?,
            request::NET_SET_MTU => self.set_mtu(message.number()?)?,
            request::SET_STATUS => self.set_status(message.number()? as u8),
            request::GET_STATUS => number(u64::from(self.status())),
            _ => return Err(Refused::Unknown),
        };
        Ok(answer)
    }

    fn set_features(&mut self, features: u64) -> Result<Answer, Refused> {
        let unknown = features & !self.shared.offered();
        if unknown != 0 {
            return Err(Refused::Features(unknown));
        }
        self.features = Negotiated(features);
        self.shared.note_features(self.features);
        // The log may be switched while rings run.
        self.remap();
        Ok(Answer::Done)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<Answer, Refused> {
        let unknown = features & !protocol::OFFERED;
        if unknown != 0 {
            return Err(Refused::Features(unknown));
        }
        self.protocol = features;
        Ok(Answer::Done)
    }

    /// Resets the device as a restarting driver does: queues must be set up again.
    fn reset_device(&mut self) -> Answer {
        self.shared.reset_queues();
        self.shared.generation.note_reset();
        (self.features, self.status) = (Negotiated::default(), 0);
        Answer::Done
    }

    fn set_memory(&mut self, mut message: Message) -> Result<Answer, Refused> {
        let regions = message.regions()?;
        let files = std::mem::take(&mut message.files);
        if files.len() != regions.len() {
            return Err(Refused::Files(files.len(), regions.len()));
        }
        let mut memory = Memory::default();
        for (range, file) in regions.into_iter().zip(files) {
            memory = memory.with(range, file).map_err(Refused::Memory)?;
        }
        self.replace_memory(memory);
        Ok(Answer::Done)
    }

    fn add_memory(&mut self, mut message: Message) -> Result<Answer, Refused> {
        let (range, file) = (message.region()?, message.file()?);
        let memory = self.memory.with(range, file).map_err(Refused::Memory)?;
        self.replace_memory(memory);
        Ok(Answer::Done)
    }

    /// Some front ends attach the file again, which is ignored.
    fn remove_memory(&mut self, message: &Message) -> Result<Answer, Refused> {
        let range = message.region()?;
        let memory = self.memory.without(&range).ok_or(Refused::NoRegion)?;
        self.replace_memory(memory);
        Ok(Answer::Done)
    }

    fn replace_memory(&mut self, memory: Memory) {
        self.shared.note_memory(&memory);
        self.memory = Arc::new(memory);
        self.remap();
    }

    fn set_log(&mut self, mut message: Message) -> Result<Answer, Refused> {
        let (len, offset) = (message.u64_at(0)?, message.u64_at(8)?);
        let log = Log::new(message.file()?, offset, len).map_err(Refused::Memory)?;
        self.log = Some(Arc::new(log));
        self.remap();
        // A message with a descriptor is always answered, as the front end waits for it.
        Ok(number(0))
    }

    /// Makes the in-flight region that the front end is to keep, for the negotiated ring format.
    fn make_inflight(&self, message: &Message) -> Result<Answer, Refused> {
        let Description { queues, size, .. } = message.inflight()?;
        if usize::from(queues) > self.shared.vrings.len() {
            return Err(Refused::Queue(u64::from(queues), self.shared.vrings.len()));
        }
        if queues == 0 || size == 0 || size > SIZE_MAX {
            return Err(Refused::RingSize(u32::from(size)));
        }
        let made = Region::create(queues, size, Ring::noted_as(self.features));
        let (file, description) = made.map_err(Refused::Memory)?;
        Ok(Answer::File(description.to_payload(), file))
    }

    fn set_inflight(&mut self, mut message: Message) -> Result<Answer, Refused> {
        let description = message.inflight()?;
        let region = Region::new(&message.file()?, description).map_err(Refused::Memory)?;
        self.inflight = Some(region);
        Ok(Answer::Done)
    }

    /// Handles a message about one queue.
    fn handle_vring(&mut self, mut message: Message) -> Result<Answer, Refused> {
        let index = message.u32_at(0)?;
        match message.request {
            request::SET_VRING_NUM => {
                let (vring, (_, size)) = (self.vring(u64::from(index))?, message.state()?);
                if size == 0 || size > u32::from(SIZE_MAX) {
                    return Err(Refused::RingSize(size));
                }
                vring.lock().setup.size = size;
            }
            request::SET_VRING_BASE => {
                let (vring, (_, base)) = (self.vring(u64::from(index))?, message.state()?);
                vring.lock().setup.base = base;
            }
            request::SET_VRING_ADDR => {
                let (_, addresses) = message.addresses()?;
                self.vring(u64::from(index))?.lock().setup.addresses = Some(addresses);
                // For a running ring, this switches logging of its writes.
            }
            request::GET_VRING_BASE => {
                let base = self.vring(u64::from(index))?.stop();
                self.shared.note_queues();
                let words = [index.to_ne_bytes(), base.to_ne_bytes()];
                return Ok(Answer::Payload(words.concat()));
            }
            request::SET_VRING_ENABLE => {
                let (vring, (_, is_on)) = (self.vring(u64::from(index))?, message.state()?);
                vring.lock().setup.enable(is_on != 0);
                self.shared.note_queues();
                vring.wake();
            }
            request::SET_VRING_KICK | request::SET_VRING_CALL | request::SET_VRING_ERR => {
                self.set_bell(&mut message)?;
            }
            _ => return Err(Refused::Unknown),
        }
        Ok(Answer::Done)
    }

    /// `SET_VRING_KICK`, `SET_VRING_CALL` and `SET_VRING_ERR`: the first one starts the queue.
    fn set_bell(&mut self, message: &mut Message) -> Result<(), Refused> {
        let number = message.number()?;
        let file = if number & NO_FILE == 0 { Some(message.file()?) } else { None };
        let bell = |file: Option<OwnedFd>| {
            let bell = file.map(|file| CallEvent::new(file, &self.shared.signals));
            bell.transpose().map_err(Refused::EventFd)
        };
        let (index, shared) = (number & INDEX_MASK, Arc::clone(&self.shared));
        let vring = self.vring(index)?;
        match message.request {
            request::SET_VRING_CALL => vring.set_call(bell(file)?),
            request::SET_VRING_ERR => vring.lock().setup.error = bell(file)?,
            _ => {
                let kick = file.map(Kick::new).transpose().map_err(Refused::EventFd)?;
                vring.lock().setup.kick = kick.map(Arc::new);
                // Without protocol features, this also enables the queue.
                if !self.features.has(PROTOCOL_FEATURES) {
                    vring.lock().setup.enable(true);
                }
                let log = self.log().map(Arc::clone);
                let index = index as u32;
                let region = self.inflight.as_ref().map(|region| (region, index));
                let started = vring.start(&self.memory, self.features, log, region);
                started.map_err(|why| Refused::Setup(index, why))?;
                shared.note_queues();
            }
        }
        Ok(())
    }

    fn announce(&self, message: &Message) -> Result<Answer, Refused> {
        let mac = message.payload.first_chunk().ok_or(Refused::Short)?;
        self.shared.announce(*mac);
        Ok(Answer::Done)
    }

    fn set_mtu(&self, mtu: u64) -> Result<Answer, Refused> {
        if !(MTU_MIN..=MTU_MAX).contains(&mtu) {
            return Err(Refused::Mtu(mtu));
        }
        self.shared.note_mtu(mtu as u32);
        Ok(Answer::Done)
    }

    /// Stores the device status; a driver that writes 0 has reset the device.
    fn set_status(&mut self, status: u8) -> Answer {
        if status == 0 && self.status != 0 {
            self.shared.stop_queues();
            self.shared.generation.note_reset();
        }
        self.status = status;
        Answer::Done
    }

    fn status(&self) -> u8 {
        let needs_reset = if self.shared.has_broken_queue() { NEEDS_RESET } else { 0 };
        self.status | needs_reset
    }

    fn vring(&self, index: u64) -> Result<&Vring, Refused> {
        let count = self.shared.vrings.len();
        let vring = usize::try_from(index).ok().and_then(|index| self.shared.vrings.get(index));
        vring.ok_or(Refused::Queue(index, count))
    }

    fn log(&self) -> Option<&Arc<Log>> {
        self.log.as_ref().filter(|_| self.features.has(LOG_ALL))
    }

    fn remap(&self) {
        for vring in &self.shared.vrings {
            vring.remap(&self.memory, self.log(), self.features);
        }
        self.shared.note_queues();
    }
}

/// Stops the queues when the front end is gone.
impl Drop for Session {
    fn drop(&mut self) {
        self.shared.reset_queues();
        self.shared.note_memory(&Memory::default());
        self.shared.note_features(Negotiated::default());
    }
}

fn number(value: u64) -> Answer {
    Answer::Payload(value.to_ne_bytes().to_vec())
}

/// `VHOST_USER_VRING_NOFD_MASK` and `VHOST_USER_VRING_IDX_MASK`
const NO_FILE: u64 = 1 << 8;
const INDEX_MASK: u64 = 0xff;
const _: () = assert!(INDEX_MASK & NO_FILE == 0, "a bit of its own");
/// `VIRTIO_CONFIG_S_NEEDS_RESET`
const NEEDS_RESET: u8 = 0x40;
const MTU_MIN: u64 = 68;
const MTU_MAX: u64 = 65535;
const _: () = assert!(MTU_MIN < MTU_MAX);
