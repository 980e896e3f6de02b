//! The operations of both sides: memory, calls, descriptors; and running a line on either.

use std::collections::HashMap;
use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_bpf::btf::Btf;

use crate::fields::{self, Width};
use crate::script::Line;
use crate::show;
use crate::values::{self, Names, Value};

/// Memory behind an attribute, at addresses that both sides know.
pub(crate) struct Memory {
    /// Address of the first byte.
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

/// Attributes of `IFLA_XDP`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Xdp {
    pub(crate) descriptor: Option<i32>,
    pub(crate) flags: Option<u32>,
    pub(crate) expected: Option<i32>,
}

/// One implementation of `bpf(cmd, attr)`.
pub(crate) trait Side {
    /// Address where memory for a call is.
    fn start(&self) -> u64;

    /// Makes a call over `memory`, in which results are left.
    fn call(
        &mut self,
        command: u32,
        attr: u64,
        size: u32,
        memory: &mut Memory,
    ) -> Result<u32, Errno>;

    /// Waits until objects without references are gone.
    fn settle(&self);

    /// `close(2)`
    fn close(&mut self, descriptor: u32) -> Result<(), Errno>;

    /// `dup(2)`
    fn duplicate(&mut self, descriptor: u32) -> Result<u32, Errno>;

    /// The types of the kernel that programs are verified against.
    fn types(&self) -> Arc<Btf>;

    /// The path of its bpffs.
    fn bpffs(&self) -> String;

    /// `mkdir(2)`, `rmdir(2)` or `unlink(2)`.
    fn change_path(&mut self, what: &str, path: &str) -> Result<(), Errno>;

    /// Adds a device that runs programs itself, or one above another; its ifindex.
    fn add_device(&mut self, below: Option<u32>) -> Result<u32, Errno>;

    /// Removes a device.
    fn remove_device(&mut self, ifindex: u32) -> Result<(), Errno>;

    /// `RTM_SETLINK` with `IFLA_XDP`.
    fn set_xdp(&mut self, ifindex: u32, xdp: &Xdp) -> Result<(), Errno>;

    /// The ids of a device's programs: generic, native.
    fn xdp(&mut self, ifindex: u32) -> Result<[u32; 2], Errno>;
}

/// A side, and what a script's names stand for on it.
pub(crate) struct Runner<'a> {
    side: &'a mut dyn Side,
    names: Names,
}

impl<'a> Runner<'a> {
    pub(crate) fn new(side: &'a mut dyn Side) -> Runner<'a> {
        let numbers = HashMap::from([("lo".to_owned(), 1)]);
        let (bpffs, types) = (side.bpffs(), Some(side.types()));
        let names = Names { numbers, bpffs, types, ..Names::default() };
        Runner { side, names }
    }

    /// Runs one line and says what came of it.
    pub(crate) fn run(&mut self, line: &Line) -> String {
        let (result, shown) = match fields::command(&line.command) {
            Some(number) => self.command(number, line),
            None => self.pseudo(line),
        };
        match result {
            Err(errno) => format!("{errno:?}{shown}"),
            Ok(_) if line.bind.is_some() => format!("fd{shown}"),
            Ok(0) => format!("ok{shown}"),
            Ok(number) => format!("ok {number}{shown}"),
        }
    }

    fn command(&mut self, number: u32, line: &Line) -> (Result<u32, Errno>, String) {
        let mut attr = vec![0; fields::ATTR_BYTES];
        let mut size = fields::ATTR_BYTES as u32;
        let mut memory = Memory { start: self.side.start(), bytes: vec![0; 4096] };
        let mut outputs = Vec::new();
        for (name, text) in &line.arguments {
            let value = values::parse(text, &self.names, name)
                .unwrap_or_else(|| panic!("line {}: {name}={text}", line.number));
            if name == "size" {
                size = value.number() as u32;
                continue;
            }
            let (at, width) = fields::field(number, name)
                .unwrap_or_else(|| panic!("line {}: no field {name}", line.number));
            put(&mut attr, at, width, &value, &mut memory);
            if let Value::Output(bytes, _) = value {
                let place = memory.bytes.len() - bytes.next_multiple_of(64) - 64;
                outputs.push((name.clone(), place, bytes));
            }
        }
        attr.resize(attr.len().max(size as usize).min(4096), 0);
        let place = memory.start;
        memory.bytes[..attr.len()].copy_from_slice(&attr);
        let result = self.side.call(number, place, size, &mut memory);
        if let (Ok(descriptor), Some(name)) = (&result, &line.bind) {
            self.bind(name, *descriptor);
        }
        let shown = show::outputs(number, &memory, &outputs, &self.names, line, result.is_ok());
        let unnamed = fields::RETURNS_DESCRIPTOR.contains(&number) && line.bind.is_none();
        if let (Ok(descriptor), true) = (&result, unnamed) {
            let closed = self.side.close(*descriptor);
            return (closed.map(|()| 0), format!(" (a descriptor){shown}"));
        }
        (result.map(|number| if line.bind.is_some() { 0 } else { number }), shown)
    }

    /// Gives a new descriptor a name, and finds out its object's id.
    fn bind(&mut self, name: &str, descriptor: u32) {
        self.names.descriptors.insert(name.to_owned(), descriptor);
        let mut memory = Memory { start: self.side.start(), bytes: vec![0; 1024] };
        let info = memory.start + 512;
        memory.bytes[..4].copy_from_slice(&descriptor.to_ne_bytes());
        memory.bytes[4..8].copy_from_slice(&40u32.to_ne_bytes());
        memory.bytes[8..16].copy_from_slice(&info.to_ne_bytes());
        let get_info = fields::command("obj_get_info_by_fd").unwrap_or_default();
        if self.side.call(get_info, memory.start, 16, &mut memory).is_err() {
            return;
        }
        let word = |at: usize| memory.bytes[at..].first_chunk().map(|b| u32::from_ne_bytes(*b));
        // A BTF's info is 32 bytes long and has its id elsewhere.
        let id = if word(4) == Some(32) { word(512 + 12) } else { word(512 + 4) };
        self.names.ids.insert(name.to_owned(), id.unwrap_or(0));
    }

    fn pseudo(&mut self, line: &Line) -> (Result<u32, Errno>, String) {
        let arguments: Vec<&str> = line.arguments.iter().map(|(word, _)| word.as_str()).collect();
        let path = |text: &str| text.replace("$D", &self.names.bpffs);
        let known = |name: &str| self.names.descriptors.get(name).copied().unwrap_or(u32::MAX);
        let result = match (line.command.as_str(), arguments.as_slice()) {
            ("close", [name]) => self.side.close(known(name)).map(|()| 0),
            ("dup", [name]) => self.side.duplicate(known(name)),
            ("mkdir" | "rmdir" | "unlink", [name]) => {
                let path = path(name);
                self.side.change_path(&line.command, &path).map(|()| 0)
            }
            ("add_device", []) => self.side.add_device(None),
            ("add_device", [below]) => self.side.add_device(Some(self.number(below))),
            ("remove_device", [name]) => self.side.remove_device(self.number(name)).map(|()| 0),
            ("set_xdp", [name, ..]) => {
                let xdp = self.xdp_of(line);
                self.side.set_xdp(self.number(name), &xdp).map(|()| 0)
            }
            ("show_xdp", [name]) => return self.show_xdp(self.number(name)),
            ("walk", [kind]) => return (Ok(0), self.walk(kind)),
            _ => panic!("line {}: {:?}", line.number, line.text),
        };
        if let (Ok(descriptor), Some(name)) = (&result, &line.bind) {
            if line.command == "dup" {
                self.bind(name, *descriptor);
            } else {
                self.names.numbers.insert(name.clone(), *descriptor);
            }
        }
        (result.map(|number| if line.bind.is_some() { 0 } else { number }), String::new())
    }

    fn number(&self, name: &str) -> u32 {
        self.names.number(name).unwrap_or(u64::MAX) as u32
    }

    fn xdp_of(&self, line: &Line) -> Xdp {
        let number = |field: &str| {
            let (_, value) = line.arguments.iter().find(|(name, _)| name == field)?;
            self.names.number(value)
        };
        Xdp {
            descriptor: number("fd").map(|number| number as i32),
            flags: number("flags").map(|number| number as u32),
            expected: number("expected").map(|number| number as i32),
        }
    }

    fn show_xdp(&mut self, ifindex: u32) -> (Result<u32, Errno>, String) {
        match self.side.xdp(ifindex) {
            Err(errno) => (Err(errno), String::new()),
            Ok(ids) => {
                let [generic, native] = ids.map(|id| self.names.name_of_id(id, 'p'));
                (Ok(0), format!(" generic={generic} native={native}"))
            }
        }
    }

    /// All ids of a kind that the script has names for, in `GET_NEXT_ID` order.
    fn walk(&mut self, kind: &str) -> String {
        let command = fields::command(&format!("{kind}_get_next_id")).unwrap_or_default();
        self.side.settle();
        let (mut id, mut shown) = (0, String::new());
        loop {
            let mut memory = Memory { start: self.side.start(), bytes: vec![0; 64] };
            memory.bytes[..4].copy_from_slice(&u32::to_ne_bytes(id));
            if self.side.call(command, memory.start, 8, &mut memory).is_err() {
                return shown;
            }
            id = memory.bytes[4..].first_chunk().map_or(u32::MAX, |b| u32::from_ne_bytes(*b));
            let mut names: Vec<_> =
                self.names.ids.iter().filter(|(_, known)| **known == id).collect();
            names.sort();
            let of_kind = names.iter().find(|(name, _)| name.starts_with(&kind[..1]));
            shown += &of_kind.map_or(String::new(), |(name, _)| format!(" {name}"));
        }
    }
}

/// Puts a value into the attribute, and what it points to behind it.
fn put(attr: &mut [u8], at: usize, width: Width, value: &Value, memory: &mut Memory) {
    let number = match value {
        Value::Number(number) => *number,
        Value::Bytes(bytes) => {
            let len = bytes.len().min(attr.len() - at);
            attr[at..at + len].copy_from_slice(&bytes[..len]);
            return;
        }
        Value::Pointer(pieces) => {
            let bytes = values::join(pieces, memory);
            memory.append(&bytes)
        }
        Value::Output(bytes, fill) => memory.append(&vec![*fill; *bytes]),
    };
    match width {
        Width::Half => attr[at..at + 4].copy_from_slice(&(number as u32).to_ne_bytes()),
        Width::Word => attr[at..at + 8].copy_from_slice(&number.to_ne_bytes()),
    }
}

impl Memory {
    /// Adds bytes, with a gap behind them; where they are.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> u64 {
        let place = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len().next_multiple_of(64) + 64;
        self.bytes.resize(end, 0);
        self.start + place as u64
    }
}

/// Names that scripts use for what sides number differently.
pub(crate) type Numbers = HashMap<String, u32>;
