//! A guest's objects as bytes, from which another host can make them again.
//!
//! A saved guest consists of the requests that would make it, in the protocol's encoding, one
//! behind the other: objects in the order of their handles (so that referenced objects come first),
//! contents of maps, attached programs. No other format is needed, and each request is checked like
//! a guest's.

use std::time::Instant;

use towpath_bpf::Errno;
use towpath_bpf::map::{Keys, Values as MapValues};
use towpath_guest_client::wire::{
    Arrived, Command, Direction, Message, PAYLOAD_MAX, Receiver, Tag, Values, Writer,
};
use towpath_objects::MapUse;

use crate::guest::{Guest, Owned, State, place};
use crate::maps::pairs;
use crate::refusal::Refusal;

/// Reason why a guest can't be restored from bytes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The guest has objects already.
    #[error("guest {0} has programs or maps already: reset it first")]
    NotEmpty(String),
    /// The bytes are not the result of [`Guest::save`].
    #[error("at message {0}: the bytes are no saved guest, or not all of one")]
    Damaged(usize),
    /// The per-CPU values are for another number of CPUs.
    #[error("it was saved where programs run on {0} workers, and here they run on {1}")]
    Workers(u32, usize),
    /// A request is not allowed on this host, or unknown.
    #[error("at message {number}: {refusal}")]
    Refused {
        /// Number of the message.
        number: usize,
        /// Reason of the refusal.
        refusal: Box<Refusal>,
    },
}

impl Guest {
    /// All objects of the guest, for [`Guest::restore`]. Programs may run meanwhile: each element
    /// has its value at the time it is read.
    pub fn save(&self) -> Vec<u8> {
        let state = self.state.lock();
        let mut saving = Saving { bytes: Vec::new(), count: 0 };
        let head = Writer::new()
            .with(Tag::BootId, &state.session.boot)
            .u32(Tag::Cpus, self.workers as u32)
            .u32(Tag::Handle, state.owned.memory.next)
            .u32(Tag::Count, state.owned.made.len() as u32);
        saving.add(Command::Hello, head);
        state.owned.save_objects(&mut saving);
        for &direction in Direction::ALL {
            if let Some(handle) = state.owned.attached[place(direction)] {
                let number = direction as u32;
                let writer = Writer::new().u32(Tag::Direction, number).u32(Tag::Handle, handle);
                saving.add(Command::Attach, writer);
            }
        }
        saving.add(Command::Query, Writer::new());
        saving.bytes
    }

    /// Restores a saved guest: handles are the same, and programs are attached. After a failure it
    /// has no objects.
    ///
    /// # Errors
    ///
    /// Fails if the guest has objects already, if the bytes are damaged, or if its limits here are
    /// lower.
    pub fn restore(&self, bytes: &[u8]) -> Result<(), RestoreError> {
        let mut state = self.state.lock();
        if !state.owned.made.is_empty() {
            return Err(RestoreError::NotEmpty(self.name.clone()));
        }
        let restored = self.replay(&mut state, bytes);
        if restored.is_err() {
            self.reset_locked(&mut state, "it could not be restored");
        }
        restored
    }

    fn replay(&self, state: &mut State, bytes: &[u8]) -> Result<(), RestoreError> {
        let (mut receiver, mut number, mut is_whole) = (Receiver::new(), 0, false);
        let mut next = 0;
        receiver.push(bytes);
        while let Some(arrived) = receiver.next(Instant::now()) {
            let Arrived::Message(message) = arrived else {
                return Err(RestoreError::Damaged(number));
            };
            let command = message.header.command().ok_or(RestoreError::Damaged(number))?;
            if (command == Command::Hello) != (number == 0) || receiver.skipped() != 0 || is_whole {
                return Err(RestoreError::Damaged(number));
            }
            let refused = |refusal| RestoreError::Refused { number, refusal: Box::new(refusal) };
            let values = message.values();
            values.check().map_err(|malformed| refused(malformed.into()))?;
            match command {
                Command::Hello => next = self.replay_head(state, values)?,
                Command::Query => is_whole = true,
                _ => self.replay_one(state, command, values).map_err(refused)?,
            }
            number += 1;
        }
        // Handles of freed objects are not used again either.
        state.owned.memory.next = state.owned.memory.next.max(next);
        if is_whole { Ok(()) } else { Err(RestoreError::Damaged(number)) }
    }

    /// Reads the header; gives the handle of the next object.
    fn replay_head(&self, state: &mut State, values: Values<'_>) -> Result<u32, RestoreError> {
        let cpus = values.u32(Tag::Cpus).ok().flatten().unwrap_or(0);
        if cpus as usize != self.workers {
            return Err(RestoreError::Workers(cpus, self.workers));
        }
        state.session.boot = values.find(Tag::BootId).unwrap_or_default().to_vec();
        values.number(Tag::Handle).map_err(|_missing| RestoreError::Damaged(0))
    }

    fn replay_one(
        &self,
        state: &mut State,
        command: Command,
        values: Values<'_>,
    ) -> Result<(), Refusal> {
        if matches!(command, Command::BtfLoad | Command::MapCreate | Command::ProgramLoad) {
            let handle = values.number(Tag::Handle)?;
            if handle < state.owned.memory.next {
                let text = format!("object {handle} comes behind {}", state.owned.memory.next - 1);
                return Err(Refusal::new(Errno::EINVAL, text));
            }
            state.owned.memory.next = handle;
        }
        self.execute(state, command, values).map(drop)
    }
}

/// The messages so far.
struct Saving {
    bytes: Vec<u8>,
    count: u32,
}

impl Saving {
    fn add(&mut self, command: Command, writer: Writer) {
        self.count += 1;
        self.bytes.extend(Message::request(command, 0, self.count, writer.finish()).encode());
    }
}

impl Owned {
    fn save_objects(&self, saving: &mut Saving) {
        for (&handle, made) in &self.made {
            let mut writer = Writer::new().u32(Tag::Handle, handle);
            Values::new(&made.payload)
                .iter()
                .map_while(Result::ok)
                .for_each(|(tag, value)| writer.put(tag, value));
            saving.add(made.command, writer);
            if let Ok((_, map)) = self.map(handle) {
                // Constants are stored first, as programs are verified with their values.
                if !names_objects(map) {
                    self.save_contents(handle, saving);
                }
            }
        }
        for &handle in self.made.keys() {
            if self.map(handle).is_ok_and(|(_, map)| names_objects(map)) {
                self.save_contents(handle, saving);
            }
        }
    }

    fn save_contents(&self, handle: u32, saving: &mut Saving) {
        let Ok((_, map)) = self.map(handle) else { return };
        let start = || Writer::new().u32(Tag::Handle, handle);
        let mut writer = start();
        let is_slots = map.map().kind().keys() == Keys::Index;
        for (key, value) in self.contents(handle) {
            // Slots are zero from the start.
            if is_slots && value.iter().all(|&byte| byte == 0) {
                continue;
            }
            writer.put(Tag::Key, &key);
            writer.put(Tag::Value, &value);
            if writer.len() > PAYLOAD_MAX / 4 {
                saving.add(Command::MapUpdate, std::mem::replace(&mut writer, start()));
            }
        }
        saving.add(Command::MapUpdate, writer);
        if map.map().is_frozen() {
            saving.add(Command::MapFreeze, start());
        }
    }

    /// Keys and values in the guest's form, in the order in which they are to be stored.
    fn contents(&self, number: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
        let Ok((handle, map)) = self.map(number) else { return Vec::new() };
        if map.map().kind().values() == MapValues::Queued {
            // Oldest values first.
            let queued = map.map().user().queued().unwrap_or_default();
            let value = |value| (Vec::new(), self.shown(map, &value));
            return queued.into_iter().map(value).collect();
        }
        pairs(handle, map).map(|(key, value)| (key, self.shown(map, &value))).collect()
    }
}

fn names_objects(map: &MapUse) -> bool {
    matches!(map.map().kind().values(), MapValues::Map | MapValues::Program)
}
