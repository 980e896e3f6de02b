//! `BPF_PROG_LOAD`, `BPF_PROG_BIND_MAP`, `BPF_ENABLE_STATS`.

use std::sync::Arc;

use towpath_bpf::btf::Linkage;
use towpath_bpf::program::{AttachType, Function, Linked};
use towpath_bpf::verifier::{self, Verified};
use towpath_bpf::{Errno, Insn};
use towpath_xdp::LoadError;

use super::debug_info::DebugInfo;
use super::insns::{Resolved, digest};
use super::log::{Refusal, UserLog};
use super::{BPF_F_TOKEN_FD, Call};
use crate::attr::{bind_map, enable_stats, prog_load as field};
use crate::caller::{copy_in, read_string};
use crate::object::program::{
    ATTACH_XDP_CPUMAP, ATTACH_XDP_DEVMAP, About, PROG_TYPE_DEQUEUE, PROG_TYPE_SYSCALL,
    PROG_TYPE_XDP, ProgramObject, now,
};
use crate::object::{Handle, Name, Object, Tag};

impl Call<'_> {
    /// `bpf_prog_load`
    pub(super) fn prog_load(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let flags = self.u32(field::PROG_FLAGS);
        if flags & !FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        self.check_token(flags, field::PROG_TOKEN_FD)?;
        let count = self.u32(field::INSN_CNT) as usize;
        if count == 0 || count > INSNS_MAX {
            return Err(Errno::E2BIG);
        }
        let kind = self.u32(field::PROG_TYPE);
        let attach = self.attach_type(kind)?;
        let insns = copy_in(self.caller, self.u64(field::INSNS), count * 8)?;
        let insns: Vec<Insn> =
            insns.as_chunks().0.iter().map(|slot| Insn::from_le_bytes(*slot)).collect();
        let license = read_string(self.caller, self.u64(field::LICENSE), LICENSE_MAX)?;
        let digest = digest(&insns);
        if self.u64(field::SIGNATURE) != 0 {
            // There is no keyring to check it against (`bpf_lookup_user_key`).
            return Err(Errno::EINVAL);
        }
        self.check_device(flags, kind)?;
        if !(1..=PROG_TYPE_LAST).contains(&kind) && kind != PROG_TYPE_DEQUEUE {
            return Err(Errno::EINVAL);
        }
        let load_time = now();
        let name = Name::parse(self.attr.array(field::PROG_NAME).ok_or(Errno::EINVAL)?)?;
        let about = About {
            kind,
            attach,
            name,
            tag: Tag::from_digest(&digest),
            uid: self.caller.uid(),
            load_time,
            is_gpl: false,
            btf: None,
            functions: Vec::new(),
            lines: Vec::new(),
            insns: Vec::new(),
            bound_to: Some(self.u32(field::PROG_IFINDEX)).filter(|&ifindex| ifindex != 0),
        };
        let license = String::from_utf8_lossy(&license).into_owned();
        let loaded = self.verify_and_prepare(&insns, license, about, digest)?;
        self.caller.install(Handle::new(Object::Program(loaded)))
    }

    /// `bpf_check` and what follows it, with the caller's log.
    fn verify_and_prepare(
        &mut self,
        insns: &[Insn],
        license: String,
        mut about: About,
        digest: [u8; 32],
    ) -> Result<Arc<ProgramObject>, Errno> {
        let log = UserLog::new(
            self.u32(field::LOG_LEVEL),
            self.u64(field::LOG_BUF),
            self.u32(field::LOG_SIZE),
        )?;
        let mut text = String::new();
        let outcome = self.check(insns, license, &mut about, digest, &log, &mut text);
        let (true_size, logged) = log.finish(self.caller, &text);
        self.attr.answer_if_known(self.caller, field::LOG_TRUE_SIZE, true_size)?;
        logged?;
        let (verified, resolved) = outcome?;
        let maps = resolved.maps.iter().map(|map| Arc::clone(map.map())).collect();
        let shared = &self.objects.shared;
        // The verifier has seen every reference that could be wrong.
        let program = shared.load(verified, maps).map_err(|error| match error {
            LoadError::Unmasked { .. } => Errno::ENOTSUPP,
            _unresolved => Errno::EINVAL,
        })?;
        for map in &resolved.maps {
            if let Err(errno) = map.admit(&program, &about) {
                shared.forget(&program);
                return Err(errno);
            }
        }
        let id = program.id();
        let make = |lease| ProgramObject::new(lease, program, shared.clone(), about, resolved.maps);
        let object = self.objects.programs.create_with(id, make)?;
        object.tell(self.objects.attachments.devices())?;
        Ok(object)
    }

    /// The checks whose refusals are explained in the log.
    fn check(
        &mut self,
        insns: &[Insn],
        license: String,
        about: &mut About,
        digest: [u8; 32],
        log: &UserLog,
        text: &mut String,
    ) -> Result<(Verified, Resolved), Errno> {
        let refuse = |refusal: Refusal, text: &mut String| {
            *text += &refusal.text;
            refusal.errno
        };
        let info = self.debug_info(insns.len()).map_err(|why| refuse(why, text))?;
        let mut resolved = self.resolve(insns).map_err(|why| refuse(why, text))?;
        self.listed_maps(&mut resolved).map_err(|why| refuse(why, text))?;
        let exclusive = resolved.maps.iter().filter_map(|map| map.exclusive_to());
        if exclusive.into_iter().any(|hash| hash != digest) {
            *text += "program's digest doesn't match with map's digest\n";
            return Err(Errno::EACCES);
        }
        if let Err(message) = check_sleepable(about.kind, self.u32(field::PROG_FLAGS)) {
            *text += message;
            return Err(Errno::EINVAL);
        }
        let linked = self.linked(license, about, info, &mut resolved);
        about.is_gpl = linked.is_gpl_compatible();
        let mut options = self.objects.shared.options().verifier.clone();
        options.log_level = log.level & LOG_LEVELS;
        options.device_bound = about.bound_to.is_some();
        let report = verifier::verify_with_log(linked, &options);
        *text += &report.log;
        match report.result {
            Ok(verified) => Ok((verified, resolved)),
            Err(rejection) => {
                if report.log.is_empty() {
                    *text += &format!("{rejection}\n");
                }
                Err(rejection.errno)
            }
        }
    }

    /// The program in the form for the verifier.
    fn linked(
        &self,
        license: String,
        about: &mut About,
        info: DebugInfo,
        resolved: &mut Resolved,
    ) -> Linked {
        let entry = Function {
            start: 0,
            name: about.name.to_string(),
            linkage: Linkage::Global,
            type_id: None,
        };
        let functions = if info.functions.is_empty() { vec![entry] } else { info.functions };
        about.insns = std::mem::take(&mut resolved.shown);
        about.functions = info.function_records;
        about.lines = info.line_records;
        about.btf = info.btf;
        Linked {
            name: about.name.to_string(),
            section: "xdp".to_owned(),
            attach: match about.attach {
                ATTACH_XDP_DEVMAP if about.kind == PROG_TYPE_XDP => AttachType::Devmap,
                ATTACH_XDP_CPUMAP if about.kind == PROG_TYPE_XDP => AttachType::Cpumap,
                _ if about.kind == PROG_TYPE_DEQUEUE => AttachType::Dequeue,
                _ if about.kind == PROG_TYPE_SYSCALL => AttachType::Syscall,
                _ => AttachType::Xdp,
            },
            has_frags: self.u32(field::PROG_FLAGS) & BPF_F_XDP_HAS_FRAGS != 0,
            license,
            insns: resolved.insns.clone(),
            functions,
            lines: info.lines,
            maps: resolved.definitions().into(),
            unresolved: Vec::new(),
            kfuncs: resolved.kfuncs.clone(),
            btf: about.btf.as_ref().map(|btf| Arc::clone(btf.types())),
            kernel_btf: Arc::clone(&self.objects.env.kernel_btf),
        }
    }

    /// Checks a program's attach target (`bpf_prog_load_check_attach`) and returns its attach type.
    fn attach_type(&self, kind: u32) -> Result<u32, Errno> {
        let attach = self.u32(field::EXPECTED_ATTACH_TYPE);
        let target = self.u32(field::ATTACH_PROG_FD);
        let extends = if target == 0 {
            false
        } else {
            let handle = self.caller.handle(target).map_err(|_no_program| Errno::EINVAL)?;
            match &handle.object {
                Object::Program(_) => true,
                Object::Btf(_) => return Err(Errno::ENOTSUPP),
                _ => return Err(Errno::EINVAL),
            }
        };
        let named = self.u32(field::ATTACH_BTF_ID) != 0;
        // Tracing, LSM and struct_ops programs belong to a kernel.
        let may_extend = kind == PROG_TYPE_EXT;
        if (extends || named) && !may_extend || may_extend && extends != named {
            return Err(Errno::EINVAL);
        }
        let attach = match (kind, attach) {
            (PROG_TYPE_CGROUP_SOCK, 0) => 2,
            (PROG_TYPE_SK_REUSEPORT, 0) => 39,
            _ => attach,
        };
        let rule = ATTACH_TYPES.iter().find(|(ruled, _)| *ruled == kind);
        match rule {
            Some((_, allowed)) if !allowed.contains(&attach) => Err(Errno::EINVAL),
            _ => Ok(attach),
        }
    }

    /// A program for one device (`bpf_prog_dev_bound_init`). No card runs programs of its own, so
    /// that it can only be bound.
    fn check_device(&self, flags: u32, kind: u32) -> Result<(), Errno> {
        let ifindex = self.u32(field::PROG_IFINDEX);
        if ifindex == 0 {
            return Ok(());
        }
        let wrong = kind != PROG_TYPE_XDP
            || flags & !(BPF_F_XDP_DEV_BOUND_ONLY | BPF_F_XDP_HAS_FRAGS) != 0
            || flags & BPF_F_XDP_DEV_BOUND_ONLY == 0 && flags & BPF_F_XDP_HAS_FRAGS != 0;
        let device = self.objects.attachments.devices().device(ifindex);
        match device {
            None => Err(Errno::EINVAL),
            Some(_) if wrong => Err(Errno::EINVAL),
            Some(device) if !device.native => Err(Errno::EOPNOTSUPP),
            Some(_) if flags & BPF_F_XDP_DEV_BOUND_ONLY == 0 => Err(Errno::EINVAL),
            Some(_) => Ok(()),
        }
    }

    /// `bpf_prog_bind_map`
    pub(super) fn bind_map(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(bind_map::END)?;
        if self.u32(bind_map::FLAGS) != 0 {
            return Err(Errno::EINVAL);
        }
        let program = self.caller.handle(self.u32(bind_map::PROG_FD))?;
        let program = program.program()?;
        let map = self.caller.handle(self.u32(bind_map::MAP_FD))?;
        program.bind(Arc::clone(map.map()?.object()));
        Ok(0)
    }

    /// `bpf_enable_stats`
    pub(super) fn enable_stats(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(enable_stats::END)?;
        if self.u32(enable_stats::TYPE) != 0 {
            return Err(Errno::EINVAL);
        }
        self.caller.install(Handle::new(Object::Stats))
    }
}

/// Checks whether a program says that it may sleep (`check_attach_btf_id`): those that users call
/// have to, and no other type here may.
fn check_sleepable(kind: u32, flags: u32) -> Result<(), &'static str> {
    match (kind, flags & BPF_F_SLEEPABLE != 0) {
        (PROG_TYPE_SYSCALL, false) => Err("Syscall programs can only be sleepable\n"),
        (PROG_TYPE_SYSCALL, true) | (_, false) => Ok(()),
        (_, true) => Err("Only fentry/fexit/fmod_ret, lsm, iter, uprobe, and struct_ops programs \
                          can be sleepable\n"),
    }
}

/// Attach types of program types that insist on some.
const ATTACH_TYPES: &[(u32, &[u32])] = &[
    (8, &[0, 1]),
    (PROG_TYPE_CGROUP_SOCK, &[2, 12, 13, 34]),
    (PROG_TYPE_SK_REUSEPORT, &[39, 40]),
    (25, &[21, 22]),
    (PROG_TYPE_EXT, &[0]),
    (30, &[36]),
    (PROG_TYPE_SYSCALL, &[0]),
    (PROG_TYPE_DEQUEUE, &[0]),
];

const PROG_TYPE_CGROUP_SOCK: u32 = 9;
const PROG_TYPE_SK_REUSEPORT: u32 = 21;
const PROG_TYPE_EXT: u32 = 28;
/// `BPF_PROG_TYPE_NETFILTER`
const PROG_TYPE_LAST: u32 = 32;
const BPF_F_SLEEPABLE: u32 = 1 << 4;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;
/// `BPF_F_STRICT_ALIGNMENT` to `BPF_F_TEST_REG_INVARIANTS`, and `BPF_F_TOKEN_FD`.
const FLAGS: u32 = 0xff | BPF_F_TOKEN_FD;
/// Most instructions (`BPF_COMPLEXITY_LIMIT_INSNS`).
const INSNS_MAX: usize = 1_000_000;
/// Bytes of a licence that are looked at.
const LICENSE_MAX: usize = 127;
/// Log levels that say how much is logged.
const LOG_LEVELS: u32 = 3;
