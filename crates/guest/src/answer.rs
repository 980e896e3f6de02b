//! Requests and their answers.

use std::time::Instant;

use towpath_bpf::Errno;
use towpath_bpf::program::MapType;
use towpath_guest_client::wire::{
    Arrived, CLOSE_ALL, Command, Counters, Direction, Header, Message, PAYLOAD_MAX, Tag,
    TargetRecord, Values, Writer,
};

use crate::guest::{Guest, State, halted, place};
use crate::handles::no_object;
use crate::maps::is_offered;
use crate::refusal::Refusal;

impl Guest {
    /// Answers a message of the guest. Returns the answer, and whether the request was done.
    pub fn answer(&self, arrived: Arrived, now: Instant) -> (Message, bool) {
        let mut state = self.state.lock();
        self.look_locked(&mut state);
        let (header, outcome) = match arrived {
            Arrived::Message(message) => {
                state.counts.requests += 1;
                (message.header, self.serve(&mut state, &message, now))
            }
            Arrived::Damaged(header) => {
                state.counts.damaged += 1;
                let text = "its bytes are not as they were written (CRC-32)";
                (header, Err(Refusal::new(Errno::EBADMSG, text)))
            }
            Arrived::Oversized(header) => {
                state.counts.damaged += 1;
                let text = format!("{} bytes, at most {PAYLOAD_MAX} are taken", header.length);
                (header, Err(Refusal::new(Errno::EMSGSIZE, text)))
            }
        };
        match outcome {
            Ok(writer) => (reply(&header, 0, writer), true),
            Err(refusal) => {
                self.note_refusal(&mut state, &header, &refusal);
                let status = refusal.errno.0.unsigned_abs();
                (reply(&header, status, describe(&refusal)), false)
            }
        }
    }

    /// Records a refusal for the operator: each new one is an event.
    fn note_refusal(&self, state: &mut State, header: &Header, refusal: &Refusal) {
        state.counts.refused += 1;
        let command = header.command().map_or("a message", |command| command.name());
        let text = format!("{command}: {refusal}");
        if state.counts.refusal.as_ref() != Some(&text) {
            self.edge.tell(&format!("guest {}: {text}", self.name));
        }
        state.counts.refusal = Some(text);
    }

    fn serve(&self, state: &mut State, message: &Message, now: Instant) -> Result<Writer, Refusal> {
        let command = state.session.admit(&message.header)?;
        state.bucket.take(1, &state.limits, now)?;
        let values = message.values();
        values.check()?;
        let elements = values.all(Tag::Key).count() as u64;
        state.bucket.take(elements.saturating_sub(1), &state.limits, now)?;
        self.execute(state, command, values)
    }

    /// Executes a command.
    pub(crate) fn execute(
        &self,
        state: &mut State,
        command: Command,
        values: Values<'_>,
    ) -> Result<Writer, Refusal> {
        let State { owned, limits, bucket, .. } = state;
        match command {
            Command::Hello => self.hello(state, values),
            Command::BtfLoad => self
                .take_long(state, |State { owned, limits, .. }| owned.load_types(values, limits)),
            Command::MapCreate => owned.create_map(values, limits),
            Command::MapLookup => owned.lookup(values),
            Command::MapUpdate => owned.update(values),
            Command::MapDelete => owned.delete(values),
            Command::MapNextKey => owned.next_key(values),
            Command::MapLookupBatch => {
                owned.lookup_batch(values, |count| bucket.take(count, limits, Instant::now()))
            }
            Command::MapLookupAndDelete => owned.lookup_and_delete(values),
            Command::MapFreeze => owned.freeze(values),
            Command::MapInfo => owned.map_info(values),
            Command::ProgramLoad => self
                .take_long(state, |State { owned, limits, .. }| owned.load_program(values, limits)),
            Command::Attach => self.attach(state, values),
            Command::Detach => self.detach(state, values),
            Command::Query => Ok(self.query(state)),
            Command::List => {
                let mut writer = Writer::new();
                owned.list().iter().for_each(|object| object.put(&mut writer));
                Ok(writer)
            }
            Command::Close => {
                let all = values.u64(Tag::Flags)?.unwrap_or(0) & CLOSE_ALL != 0;
                owned.close(values.number(Tag::Handle)?, all).map(|()| Writer::new())
            }
            Command::Reset => {
                self.reset_locked(state, "it asked for that");
                Ok(Writer::new())
            }
        }
    }

    /// Begins a session: the answer has the host's features.
    fn hello(&self, state: &mut State, values: Values<'_>) -> Result<Writer, Refusal> {
        let boot = values.find(Tag::BootId).unwrap_or_default();
        if boot.len() > BOOT_ID_MAX {
            let text = format!("BootId has {} bytes, at most {BOOT_ID_MAX}", boot.len());
            return Err(Refusal::new(Errno::EINVAL, text));
        }
        if !boot.is_empty() && !state.session.boot.is_empty() && boot != state.session.boot {
            self.reset_locked(state, "it was started again");
        }
        if !boot.is_empty() {
            state.session.boot = boot.to_vec();
        }
        let kinds = MapType::ALL.iter().filter(|kind| is_offered(**kind));
        let kinds: Vec<u32> = kinds.map(|&kind| kind as u32).collect();
        let directions = Direction::ALL.iter().fold(0, |bits, &it| bits | 1 << it as u32);
        let mut writer = Writer::new()
            .u32(Tag::PayloadMax, PAYLOAD_MAX as u32)
            .u32(Tag::Cpus, self.workers as u32)
            .u32(Tag::Directions, directions)
            .numbers(Tag::Helpers, &state.limits.helpers)
            .numbers(Tag::MapKinds, &kinds);
        state.owned.limits(&state.limits).iter().for_each(|limit| limit.put(&mut writer));
        for target in self.edge.targets() {
            let crate::Target { ifindex, name, mtu, mac, is_up } = target;
            TargetRecord { ifindex, mtu, is_up, mac, name }.put(&mut writer);
        }
        Ok(writer)
    }

    fn attach(&self, state: &mut State, values: Values<'_>) -> Result<Writer, Refusal> {
        let (direction, handle) = (values.direction()?, values.number(Tag::Handle)?);
        let current = state.owned.attached[place(direction)];
        match values.u32(Tag::Expected)? {
            Some(expected) if expected != current.unwrap_or(0) => {
                let text = match current {
                    Some(current) => format!("program {current} runs, not {expected}"),
                    None => format!("no program runs, and {expected} was to be replaced"),
                };
                return Err(Refusal::new(Errno::EEXIST, text));
            }
            None if current.is_some() => {
                return Err(Refusal::new(Errno::EBUSY, "a program runs already"));
            }
            _ => {}
        }
        if !state.owned.made.contains_key(&handle) {
            return Err(no_object(handle));
        }
        let program = state.owned.program(handle);
        let program = program.ok_or_else(|| {
            Refusal::new(Errno::EINVAL, format!("object {handle} is not a program"))
        })?;
        let attached = self.edge.set_program(direction, Some(program.program()));
        attached.map_err(|why| Refusal::new(Errno::EINVAL, why))?;
        let name = program.name().to_string();
        state.owned.attached[place(direction)] = Some(handle);
        let word = direction.word();
        self.edge.tell(&format!("guest {}: program {name} runs ({word})", self.name));
        Ok(Writer::new())
    }

    fn detach(&self, state: &mut State, values: Values<'_>) -> Result<Writer, Refusal> {
        let direction = values.direction()?;
        let attached = &mut state.owned.attached[place(direction)];
        if attached.is_none() {
            return Err(Refusal::new(Errno::ENOENT, "no program runs"));
        }
        let detached = self.edge.set_program(direction, None);
        detached.map_err(|why| Refusal::new(Errno::EINVAL, why))?;
        *attached = None;
        self.edge.tell(&format!("guest {}: no program runs ({})", self.name, direction.word()));
        Ok(Writer::new())
    }

    /// Running programs: for each direction its number, handle, name and counters.
    fn query(&self, state: &State) -> Writer {
        let mut writer = Writer::new();
        for &direction in Direction::ALL {
            let Some(handle) = state.owned.attached[place(direction)] else { continue };
            let name = state.owned.made.get(&handle).map_or("", |made| made.name.as_str());
            writer.put(Tag::Direction, &(direction as u32).to_le_bytes());
            writer.put(Tag::Handle, &handle.to_le_bytes());
            writer.put(Tag::Name, name.as_bytes());
            let counters = self.edge.counters(direction).unwrap_or_default();
            Counters::put(&counters, &mut writer);
            let halted = state.owned.running(direction).and_then(|program| halted(program));
            writer.put(Tag::Text, halted.unwrap_or_default().as_bytes());
        }
        writer
    }
}

fn reply(header: &Header, status: u32, writer: Writer) -> Message {
    Message { header: header.reply(status), payload: writer.finish() }
}

/// The values of a refusal.
fn describe(refusal: &Refusal) -> Writer {
    let mut writer = Writer::new().with(Tag::Text, refusal.text.as_bytes());
    if let Some(limit) = refusal.limit {
        writer.put(Tag::Limit, limit.as_bytes());
    }
    if !refusal.log.is_empty() {
        writer.put(Tag::Log, refusal.log.as_bytes());
    }
    writer
}

const BOOT_ID_MAX: usize = 64;
