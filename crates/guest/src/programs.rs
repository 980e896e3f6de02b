//! Programs and their types: checks, and loading through `bpf(2)`'s implementation.

use towpath_bpf::btf::emit::{FUNC_INFO_BYTES, LINE_INFO_BYTES};
use towpath_bpf::insn::PSEUDO_BTF_ID;
use towpath_bpf::proto::helper_name;
use towpath_bpf::{Errno, Insn};
use towpath_guest_client::wire::{BPF_F_XDP_HAS_FRAGS, Command, Tag, Values, Writer};
use towpath_objects::{ATTR_BYTES, Command as Bpf, Handle, Name, Object, btf_load, prog_load};

use crate::guest::Owned;
use crate::handles::Made;
use crate::limits::{Limits, Used};
use crate::maps::copied;
use crate::memory::Memory;
use crate::refusal::Refusal;

impl Owned {
    pub(crate) fn load_types(
        &mut self,
        values: Values<'_>,
        limits: &Limits,
    ) -> Result<Writer, Refusal> {
        let types = values.bytes(Tag::Types)?;
        let used = Used { bytes: types.len() as u64, ..Used::default() };
        self.used().check(used, limits)?;
        let mut attr = Attr::new(&mut self.memory);
        attr.bytes(btf_load::BTF, types);
        attr.u32(btf_load::BTF_SIZE, types.len() as u32);
        let (loaded, log) = attr.call(&self.objects, Bpf::BtfLoad, &Log::BTF);
        let handle = loaded
            .map_err(|errno| Refusal { log, ..Refusal::new(errno, "the types can't be used") })?;
        let made = Made {
            command: Command::BtfLoad,
            payload: copied(values),
            needs: Vec::new(),
            name: String::new(),
            used,
        };
        Ok(Writer::new().u32(Tag::Handle, self.keep(handle, made)?))
    }

    pub(crate) fn load_program(
        &mut self,
        values: Values<'_>,
        limits: &Limits,
    ) -> Result<Writer, Refusal> {
        let insns = instructions(values.bytes(Tag::Insns)?)?;
        let (instructions, bytes) = (insns.len() as u64, copied(values).len() as u64);
        let used = Used { programs: 1, instructions, bytes, ..Used::default() };
        self.used().check(used, limits)?;
        check_calls(&insns, limits)?;
        let name = values.text(Tag::Name)?.unwrap_or_default();
        let mut attr = Attr::new(&mut self.memory);
        attr.program(values)?;
        let (loaded, log) = attr.call(&self.objects, Bpf::ProgLoad, &Log::PROGRAM);
        let handle = loaded.map_err(|errno| {
            let text = format!("program {name} is refused");
            Refusal { log, ..Refusal::new(errno, text) }
        })?;
        let (command, payload) = (Command::ProgramLoad, copied(values));
        let needs = self.needs(&insns, values.u32(Tag::Btf)?);
        let tag = match &handle.object {
            Object::Program(program) => program.tag().to_string(),
            _ => String::new(),
        };
        let made = Made { command, payload, needs, name: name.to_owned(), used };
        let number = self.keep(handle, made)?;
        Ok(Writer::new().u32(Tag::Handle, number).with(Tag::Text, tag.as_bytes()))
    }

    /// Objects that a program refers to.
    fn needs(&self, insns: &[Insn], btf: Option<u32>) -> Vec<u32> {
        let named = insns.iter().filter(|insn| insn.is_ld_imm64() && insn.src != 0);
        let named = named.map(|insn| insn.imm.cast_unsigned());
        let mut needs: Vec<u32> =
            named.filter(|number| self.map(*number).is_ok()).chain(btf).collect();
        needs.sort_unstable();
        needs.dedup();
        needs
    }
}

fn instructions(bytes: &[u8]) -> Result<Vec<Insn>, Refusal> {
    let (slots, rest) = bytes.as_chunks();
    if !rest.is_empty() {
        let text = format!("{} bytes are no whole number of instructions", bytes.len());
        return Err(Refusal::new(Errno::EINVAL, text));
    }
    Ok(slots.iter().map(|slot| Insn::from_le_bytes(*slot)).collect())
}

/// Checks that a guest's program uses only its own maps and allowed helpers.
fn check_calls(insns: &[Insn], limits: &Limits) -> Result<(), Refusal> {
    for (at, insn) in insns.iter().enumerate() {
        let number = insn.imm.cast_unsigned();
        if insn.is_helper_call() && !limits.helpers.contains(&number) {
            let name = helper_name(number).unwrap_or("unknown");
            let text = format!(
                "instruction {at} calls helper {number} ({name}), which this guest's programs may not"
            );
            return Err(Refusal::not_allowed("helpers", text));
        }
        if insn.is_kfunc_call() {
            let text = format!("instruction {at} calls a function of the host's (kfunc)");
            return Err(Refusal::not_allowed("helpers", text));
        }
        if insn.is_ld_imm64() && insn.src == PSEUDO_BTF_ID {
            let text = format!("instruction {at} reads a variable of the host's");
            return Err(Refusal::not_allowed("helpers", text));
        }
    }
    Ok(())
}

/// Fields by which a command's log is requested.
struct Log {
    level: usize,
    size: usize,
    buffer: usize,
    /// Log level of the second verification, after a refusal.
    verbose: u32,
}

impl Log {
    const PROGRAM: Log = Log {
        level: prog_load::LOG_LEVEL,
        size: prog_load::LOG_SIZE,
        buffer: prog_load::LOG_BUF,
        verbose: 1,
    };
    const BTF: Log = Log {
        level: btf_load::BTF_LOG_LEVEL,
        size: btf_load::BTF_LOG_SIZE,
        buffer: btf_load::BTF_LOG_BUF,
        verbose: 1,
    };
}

/// The attribute of one call.
struct Attr<'a> {
    memory: &'a mut Memory,
    bytes: [u8; ATTR_BYTES],
}

impl<'a> Attr<'a> {
    fn new(memory: &'a mut Memory) -> Attr<'a> {
        memory.bytes.unmap();
        Attr { memory, bytes: [0; ATTR_BYTES] }
    }

    fn u32(&mut self, at: usize, value: u32) {
        self.bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }

    fn u64(&mut self, at: usize, value: u64) {
        self.bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    }

    /// Stores the address of these bytes.
    fn bytes(&mut self, at: usize, bytes: &[u8]) {
        let address = self.memory.bytes.map_bytes(bytes);
        self.u64(at, address);
    }

    /// Reads a guest's description of a program.
    fn program(&mut self, values: Values<'_>) -> Result<(), Refusal> {
        let insns = values.bytes(Tag::Insns)?;
        let license = values.text(Tag::License)?.unwrap_or_default();
        let flags = values.u32(Tag::ProgramFlags)?.unwrap_or(0);
        if flags & !BPF_F_XDP_HAS_FRAGS != 0 {
            let text = format!("program flags {flags:#x}: only {BPF_F_XDP_HAS_FRAGS:#x} is taken");
            return Err(Refusal::new(Errno::EINVAL, text));
        }
        self.u32(prog_load::PROG_TYPE, PROG_TYPE_XDP);
        self.u32(prog_load::EXPECTED_ATTACH_TYPE, ATTACH_XDP);
        self.u32(prog_load::INSN_CNT, (insns.len() / INSN_BYTES) as u32);
        self.bytes(prog_load::INSNS, insns);
        self.bytes(prog_load::LICENSE, &[license.as_bytes(), &[0]].concat());
        self.u32(prog_load::PROG_FLAGS, flags);
        let name = Name::cut(values.text(Tag::Name)?.unwrap_or_default()).bytes();
        self.bytes[prog_load::PROG_NAME..][..name.len()].copy_from_slice(&name);
        if let Some(btf) = values.u32(Tag::Btf)? {
            self.u32(prog_load::PROG_BTF_FD, btf);
            self.records(
                values.find(Tag::FuncInfo),
                (prog_load::FUNC_INFO, prog_load::FUNC_INFO_CNT, prog_load::FUNC_INFO_REC_SIZE),
                FUNC_INFO_BYTES,
            );
            self.records(
                values.find(Tag::LineInfo),
                (prog_load::LINE_INFO, prog_load::LINE_INFO_CNT, prog_load::LINE_INFO_REC_SIZE),
                LINE_INFO_BYTES,
            );
        }
        Ok(())
    }

    fn records(&mut self, bytes: Option<&[u8]>, at: (usize, usize, usize), size: usize) {
        let Some(bytes) = bytes.filter(|bytes| bytes.len() >= size) else { return };
        self.bytes(at.0, bytes);
        self.u32(at.1, (bytes.len() / size) as u32);
        self.u32(at.2, size as u32);
    }

    /// Makes the call; if it is refused, makes it once more with a log. The object does not get a
    /// handle of the guest yet.
    fn call(
        mut self,
        objects: &towpath_objects::Objects,
        command: Bpf,
        log: &Log,
    ) -> (Result<Handle, Errno>, String) {
        let errno = match self.once(objects, command) {
            Ok(handle) => return (Ok(handle), String::new()),
            Err(errno) => errno,
        };
        let address = self.memory.bytes.map_bytes(&vec![0; LOG_BYTES]);
        self.u32(log.level, log.verbose);
        self.u32(log.size, LOG_BYTES as u32);
        self.u64(log.buffer, address);
        // If it isn't refused again, the first refusal was for lack of some resource.
        let _again = self.once(objects, command);
        let text = self.memory.bytes.bytes(address).unwrap_or_default();
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        let text = String::from_utf8_lossy(&text[..end]).into_owned();
        self.memory.bytes.unmap();
        (Err(errno), text)
    }

    fn once(&mut self, objects: &towpath_objects::Objects, command: Bpf) -> Result<Handle, Errno> {
        let address = self.memory.bytes.map_bytes(&self.bytes);
        let next = self.memory.next;
        let made = objects.bpf(self.memory, command as u32, address, ATTR_BYTES as u32);
        // The caller that keeps the object gives it its handle.
        self.memory.next = next;
        self.memory.handles.remove(&made?).ok_or(Errno::EBADF)
    }
}

const INSN_BYTES: usize = 8;
/// Largest part of the verifier's log for a guest, in bytes: the end of the log.
const LOG_BYTES: usize = 1 << 18;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
