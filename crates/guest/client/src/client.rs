//! Requests as calls.

use std::io;
use std::time::{Duration, Instant};

use towpath_bpf::Errno;

use crate::channel::Channel;
use crate::wire::{
    Arrived, BPF_F_XDP_HAS_FRAGS, CLOSE_ALL, Command, Counters, Direction, Limit, Malformed,
    Message, ObjectRecord, PAYLOAD_MAX, Receiver, Tag, TargetRecord, Values, Writer,
};

/// A session with the host.
#[derive(Debug)]
pub struct Client {
    channel: Channel,
    receiver: Receiver,
    session: u32,
    sequence: u32,
    features: Features,
}

/// The host's features, and this guest's limits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Features {
    /// Number of CPUs of per-CPU values: the host's workers.
    pub cpus: u32,
    /// Directions in which programs may run.
    pub directions: Vec<Direction>,
    /// Helpers that programs may call, by number.
    pub helpers: Vec<u32>,
    /// Kinds of maps, by number.
    pub map_kinds: Vec<u32>,
    /// Limits, and the used amount of each.
    pub limits: Vec<Limit>,
    /// Targets of redirects.
    pub targets: Vec<TargetRecord>,
}

/// Reason why a request failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The connection to the host failed.
    #[error("the host can't be reached: {0}")]
    Channel(#[from] io::Error),
    /// The host refused the request.
    #[error(transparent)]
    Refused(#[from] Box<Refused>),
    /// The host's answer can't be parsed.
    #[error("the host's answer can't be understood: {0}")]
    Malformed(#[from] Malformed),
    /// The request is longer than a message may be, in bytes.
    #[error("{0} bytes in one request, at most {PAYLOAD_MAX}")]
    TooLong(usize),
}

/// A refusal by the host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}: {errno}{}", with_limit(.limit.as_deref()))]
pub struct Refused {
    /// Error number, as `bpf(2)` would return it.
    pub errno: Errno,
    /// Message for people.
    pub text: String,
    /// Name of the limit that the request would exceed.
    pub limit: Option<String>,
    /// The verifier's log; empty without one.
    pub log: String,
}

fn with_limit(name: Option<&str>) -> String {
    name.map_or(String::new(), |name| format!(" (limit \"{name}\")"))
}

/// Definition of a new map.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MapSpec {
    /// Name of the map.
    pub name: String,
    /// Kind of map (`enum bpf_map_type`).
    pub kind: u32,
    /// Size of a key, in bytes.
    pub key_size: u32,
    /// Size of a value, in bytes.
    pub value_size: u32,
    /// Capacity.
    pub max_entries: u32,
    /// `BPF_F_*` flags.
    pub flags: u32,
    /// `map_extra`.
    pub extra: u64,
    /// Handle of the template, for a map of maps.
    pub inner_map: Option<u32>,
    /// Handle of the types, and the ids of the key's and the value's type in them.
    pub types: Option<(u32, u32, u32)>,
}

/// A program to be loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramSpec {
    /// Name of the program.
    pub name: String,
    /// Instructions, which refer to maps by handle.
    pub insns: Vec<u8>,
    /// Licence of the program.
    pub license: String,
    /// Whether it takes frames of several buffers.
    pub has_frags: bool,
    /// Handle of the types that the records below refer to.
    pub btf: Option<u32>,
    /// `struct bpf_func_info` records.
    pub func_info: Vec<u8>,
    /// `struct bpf_line_info` records.
    pub line_info: Vec<u8>,
}

/// Information about a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapInfo {
    /// Name of the map.
    pub name: String,
    /// Kind of map (`enum bpf_map_type`).
    pub kind: u32,
    /// Size of a key, in bytes.
    pub key_size: u32,
    /// Size of a value, in bytes.
    pub value_size: u32,
    /// Capacity.
    pub max_entries: u32,
    /// `BPF_F_*` flags.
    pub flags: u32,
    /// Size in bytes of a value as it is read and written, for all CPUs.
    pub user_value_size: u32,
    /// Whether the map is frozen.
    pub is_frozen: bool,
}

/// A program that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttachInfo {
    /// Direction of the frames that it sees.
    pub direction: Direction,
    /// Handle of the program.
    pub handle: u32,
    /// Name of the program.
    pub name: String,
    /// Counters of the program.
    pub counters: Counters,
    /// Reason why it no longer runs, if it doesn't: every frame is aborted until it is detached.
    pub halted: Option<String>,
}

/// An object of the guest.
pub type ObjectInfo = ObjectRecord;

/// A key and its value.
pub type Element = (Vec<u8>, Vec<u8>);

impl Client {
    /// Begins a session. `boot` stays the same until the guest reboots
    /// (`/proc/sys/kernel/random/boot_id`): if it is another one, the host frees all previous
    /// objects.
    ///
    /// # Errors
    ///
    /// Fails if there is no answer, or if the host has another version of the protocol.
    pub fn begin(channel: Channel, boot: &[u8]) -> Result<Client, ClientError> {
        let mut random = [0; 4];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(io::Error::from)?;
        let mut client = Client {
            channel,
            receiver: Receiver::new(),
            session: u32::from_le_bytes(random),
            sequence: 0,
            features: Features::default(),
        };
        let answer = client.ask(Command::Hello, Writer::new().with(Tag::BootId, boot))?;
        let values = answer.values();
        let bits = values.u32(Tag::Directions)?.unwrap_or(0);
        let has = |direction: &&Direction| bits >> **direction as u32 & 1 == 1;
        client.features = Features {
            cpus: values.u32(Tag::Cpus)?.unwrap_or(1),
            directions: Direction::ALL.iter().filter(has).copied().collect(),
            helpers: values.numbers(Tag::Helpers),
            map_kinds: values.numbers(Tag::MapKinds),
            limits: Limit::all(values),
            targets: TargetRecord::all(values),
        };
        Ok(client)
    }

    /// The host's features.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Loads types; gives their handle.
    ///
    /// # Errors
    ///
    /// Fails with the errors of `BPF_BTF_LOAD`, or if a limit is exceeded.
    pub fn load_types(&mut self, types: &[u8]) -> Result<u32, ClientError> {
        self.handle(Command::BtfLoad, Writer::new().with(Tag::Types, types))
    }

    /// Makes a map; gives its handle.
    ///
    /// # Errors
    ///
    /// Fails with the errors of `BPF_MAP_CREATE`, or if a limit is exceeded.
    pub fn create_map(&mut self, map: &MapSpec) -> Result<u32, ClientError> {
        let mut writer = Writer::new()
            .with(Tag::Name, map.name.as_bytes())
            .u32(Tag::Kind, map.kind)
            .u32(Tag::KeySize, map.key_size)
            .u32(Tag::ValueSize, map.value_size)
            .u32(Tag::MaxEntries, map.max_entries)
            .u32(Tag::MapFlags, map.flags)
            .u64(Tag::MapExtra, map.extra);
        if let Some(inner) = map.inner_map {
            writer = writer.u32(Tag::InnerMap, inner);
        }
        if let Some((btf, key, value)) = map.types {
            writer = writer.u32(Tag::Btf, btf).u32(Tag::KeyType, key).u32(Tag::ValueType, value);
        }
        self.handle(Command::MapCreate, writer)
    }

    /// Verifies and compiles a program; gives its handle.
    ///
    /// # Errors
    ///
    /// Fails with the errors of `BPF_PROG_LOAD` and the verifier's log, or if a limit is exceeded.
    pub fn load_program(&mut self, program: &ProgramSpec) -> Result<u32, ClientError> {
        let flags = if program.has_frags { BPF_F_XDP_HAS_FRAGS } else { 0 };
        let mut writer = Writer::new()
            .with(Tag::Name, program.name.as_bytes())
            .with(Tag::Insns, &program.insns)
            .with(Tag::License, program.license.as_bytes())
            .u32(Tag::ProgramFlags, flags);
        if let Some(btf) = program.btf {
            writer = writer
                .u32(Tag::Btf, btf)
                .with(Tag::FuncInfo, &program.func_info)
                .with(Tag::LineInfo, &program.line_info);
        }
        self.handle(Command::ProgramLoad, writer)
    }

    /// The value at a key.
    ///
    /// # Errors
    ///
    /// Fails with the errors of `BPF_MAP_LOOKUP_ELEM`.
    pub fn lookup(&mut self, map: u32, key: &[u8]) -> Result<Vec<u8>, ClientError> {
        self.value(Command::MapLookup, map, key)
    }

    /// Takes an element out.
    ///
    /// # Errors
    ///
    /// Fails with the errors of `BPF_MAP_LOOKUP_AND_DELETE_ELEM`.
    pub fn lookup_and_delete(&mut self, map: u32, key: &[u8]) -> Result<Vec<u8>, ClientError> {
        self.value(Command::MapLookupAndDelete, map, key)
    }

    /// Stores elements, in as many requests as necessary.
    ///
    /// # Errors
    ///
    /// Fails with the errors of `BPF_MAP_UPDATE_ELEM`; elements before the wrong one are stored.
    pub fn update(
        &mut self,
        map: u32,
        elements: &[Element],
        flags: u64,
    ) -> Result<(), ClientError> {
        let start = || Writer::new().u32(Tag::Handle, map).u64(Tag::Flags, flags);
        let (mut writer, mut count) = (start(), 0);
        for (key, value) in elements {
            let bytes = writer.len() + key.len() + value.len() + 32;
            if count == ELEMENTS_MAX || count > 0 && bytes > PAYLOAD_MAX {
                self.ask(Command::MapUpdate, std::mem::replace(&mut writer, start()))?;
                count = 0;
            }
            writer.put(Tag::Key, key);
            writer.put(Tag::Value, value);
            count += 1;
        }
        self.ask(Command::MapUpdate, writer).map(drop)
    }

    /// Removes an element.
    ///
    /// # Errors
    ///
    /// Fails with the errors of `BPF_MAP_DELETE_ELEM`.
    pub fn delete(&mut self, map: u32, key: &[u8]) -> Result<(), ClientError> {
        let writer = Writer::new().u32(Tag::Handle, map).with(Tag::Key, key);
        self.ask(Command::MapDelete, writer).map(drop)
    }

    /// The key behind a key, or the first.
    ///
    /// # Errors
    ///
    /// Fails with the errors of `BPF_MAP_GET_NEXT_KEY`.
    pub fn next_key(&mut self, map: u32, key: Option<&[u8]>) -> Result<Vec<u8>, ClientError> {
        let mut writer = Writer::new().u32(Tag::Handle, map);
        if let Some(key) = key {
            writer = writer.with(Tag::Key, key);
        }
        let answer = self.ask(Command::MapNextKey, writer)?;
        Ok(answer.values().bytes(Tag::Key)?.to_vec())
    }

    /// All elements of a map.
    ///
    /// # Errors
    ///
    /// Fails with the errors of `BPF_MAP_GET_NEXT_KEY` for kinds without keys.
    pub fn dump(&mut self, map: u32) -> Result<Vec<Element>, ClientError> {
        let mut elements: Vec<Element> = Vec::new();
        let mut last: Option<Vec<u8>> = None;
        loop {
            let mut writer = Writer::new().u32(Tag::Handle, map);
            if let Some(last) = &last {
                writer = writer.with(Tag::Key, last);
            }
            let answer = self.ask(Command::MapLookupBatch, writer)?;
            let values = answer.values();
            let Some(end) = values.all(Tag::Key).last() else { return Ok(elements) };
            last = Some(end.to_vec());
            let pairs = values.all(Tag::Key).zip(values.all(Tag::Value));
            let filled = pairs.filter(|(_, value)| !value.is_empty());
            elements.extend(filled.map(|(key, value)| (key.to_vec(), value.to_vec())));
        }
    }

    /// Freezes the map: from now on only programs write to it.
    ///
    /// # Errors
    ///
    /// Fails with the errors of `BPF_MAP_FREEZE`.
    pub fn freeze(&mut self, map: u32) -> Result<(), ClientError> {
        self.ask(Command::MapFreeze, Writer::new().u32(Tag::Handle, map)).map(drop)
    }

    /// Information about a map.
    ///
    /// # Errors
    ///
    /// Fails with `EBADF` or `EINVAL` if the handle is not that of a map.
    pub fn map_info(&mut self, map: u32) -> Result<MapInfo, ClientError> {
        let answer = self.ask(Command::MapInfo, Writer::new().u32(Tag::Handle, map))?;
        let values = answer.values();
        Ok(MapInfo {
            name: values.text(Tag::Name)?.unwrap_or_default().to_owned(),
            kind: values.number(Tag::Kind)?,
            key_size: values.number(Tag::KeySize)?,
            value_size: values.number(Tag::ValueSize)?,
            max_entries: values.number(Tag::MaxEntries)?,
            flags: values.number(Tag::MapFlags)?,
            user_value_size: values.number(Tag::UserValueSize)?,
            is_frozen: values.number(Tag::Frozen)? != 0,
        })
    }

    /// Attaches a program. `expected` is the handle of the program that must be attached (0 for
    /// none); without it, no program may be attached.
    ///
    /// # Errors
    ///
    /// Fails with `EBUSY` or `EEXIST` if another program is attached.
    pub fn attach(
        &mut self,
        direction: Direction,
        program: u32,
        expected: Option<u32>,
    ) -> Result<(), ClientError> {
        let mut writer =
            Writer::new().u32(Tag::Direction, direction as u32).u32(Tag::Handle, program);
        if let Some(expected) = expected {
            writer = writer.u32(Tag::Expected, expected);
        }
        self.ask(Command::Attach, writer).map(drop)
    }

    /// Detaches the program of a direction.
    ///
    /// # Errors
    ///
    /// Fails with `ENOENT` if no program is attached.
    pub fn detach(&mut self, direction: Direction) -> Result<(), ClientError> {
        let writer = Writer::new().u32(Tag::Direction, direction as u32);
        self.ask(Command::Detach, writer).map(drop)
    }

    /// Running programs and their counters.
    ///
    /// # Errors
    ///
    /// Fails if the host can't be reached.
    pub fn query(&mut self) -> Result<Vec<AttachInfo>, ClientError> {
        let answer = self.ask(Command::Query, Writer::new())?;
        let values = answer.values();
        let number = |bytes: &[u8]| bytes.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let directions = values.all(Tag::Direction).filter_map(number);
        let handles = values.all(Tag::Handle).filter_map(number);
        let names = values.all(Tag::Name).map(|name| String::from_utf8_lossy(name).into_owned());
        let counters = values.all(Tag::Counters).filter_map(Counters::of);
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        let halted = values.all(Tag::Text).map(text).chain(std::iter::repeat(String::new()));
        let all = directions.zip(handles).zip(names.zip(counters).zip(halted));
        let info = |((direction, handle), ((name, counters), halted))| {
            let direction = Direction::from_number(direction)?;
            let halted = Some(halted).filter(|why: &String| !why.is_empty());
            Some(AttachInfo { direction, handle, name, counters, halted })
        };
        Ok(all.filter_map(info).collect())
    }

    /// All objects of the guest.
    ///
    /// # Errors
    ///
    /// Fails if the host can't be reached.
    pub fn list(&mut self) -> Result<Vec<ObjectInfo>, ClientError> {
        let answer = self.ask(Command::List, Writer::new())?;
        Ok(ObjectRecord::all(answer.values()))
    }

    /// Frees an object without references.
    ///
    /// # Errors
    ///
    /// Fails with `EBUSY` if another object refers to it.
    pub fn close(&mut self, handle: u32) -> Result<(), ClientError> {
        self.ask(Command::Close, Writer::new().u32(Tag::Handle, handle)).map(drop)
    }

    /// As [`Client::close`], and frees objects that then have no references: a program's maps and
    /// types.
    ///
    /// # Errors
    ///
    /// Fails with `EBUSY` if another object refers to it.
    pub fn close_all(&mut self, handle: u32) -> Result<(), ClientError> {
        let writer = Writer::new().u32(Tag::Handle, handle).u64(Tag::Flags, CLOSE_ALL);
        self.ask(Command::Close, writer).map(drop)
    }

    /// Frees all objects.
    ///
    /// # Errors
    ///
    /// Fails if the host can't be reached.
    pub fn reset(&mut self) -> Result<(), ClientError> {
        self.ask(Command::Reset, Writer::new()).map(drop)
    }

    fn value(&mut self, command: Command, map: u32, key: &[u8]) -> Result<Vec<u8>, ClientError> {
        let writer = Writer::new().u32(Tag::Handle, map).with(Tag::Key, key);
        Ok(self.ask(command, writer)?.values().bytes(Tag::Value)?.to_vec())
    }

    fn handle(&mut self, command: Command, writer: Writer) -> Result<u32, ClientError> {
        Ok(self.ask(command, writer)?.values().number(Tag::Handle)?)
    }

    /// Sends a request, and repeats it later if the host says that there were too many at once.
    fn ask(&mut self, command: Command, writer: Writer) -> Result<Message, ClientError> {
        let (payload, start) = (writer.finish(), Instant::now());
        if payload.len() > PAYLOAD_MAX {
            return Err(ClientError::TooLong(payload.len()));
        }
        let mut request = Message::request(command, self.session, 0, payload);
        loop {
            let answer = self.ask_once(&mut request)?;
            match refused(&answer) {
                None => return Ok(answer),
                Some(refused) if refused.errno == Errno::EAGAIN && start.elapsed() < PATIENCE => {
                    std::thread::sleep(PAUSE);
                }
                Some(refused) => return Err(Box::new(refused).into()),
            }
        }
    }

    fn ask_once(&mut self, request: &mut Message) -> Result<Message, ClientError> {
        self.sequence += 1;
        request.header.sequence = self.sequence;
        let until = Instant::now() + PATIENCE;
        self.channel.send(&request.encode(), until)?;
        let mut bytes = vec![0; READ_BYTES];
        loop {
            while let Some(arrived) = self.receiver.next(Instant::now()) {
                let Arrived::Message(message) = arrived else { continue };
                let of = (message.header.session, message.header.sequence);
                // Other messages answer an earlier client, which is gone.
                if of == (self.session, self.sequence) && message.header.is_reply() {
                    message.values().check()?;
                    return Ok(message);
                }
            }
            let count = self.channel.receive(&mut bytes, until)?;
            self.receiver.push(&bytes[..count]);
        }
    }
}

/// The refusal in an answer, if there is one.
fn refused(answer: &Message) -> Option<Refused> {
    let status = answer.header.status;
    if status == 0 {
        return None;
    }
    let values: Values<'_> = answer.values();
    let text = |tag| {
        let bytes = values.find(tag)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    Some(Refused {
        errno: Errno(i32::try_from(status).unwrap_or(i32::MAX)),
        text: text(Tag::Text).unwrap_or_default(),
        limit: text(Tag::Limit),
        log: text(Tag::Log).unwrap_or_default(),
    })
}

/// Largest number of elements in one request: less than a second's worth at a host that counts
/// operations.
const ELEMENTS_MAX: u32 = 256;
/// Longest time for an answer, in which programs may have to be verified.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);
const READ_BYTES: usize = 1 << 16;
