//! Loading a program, and the kernel's answer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use towpath_bpf::program::AttachType;
use towpath_bpf::{Errno, Insn, Linked};

use crate::image::Image;
use crate::map::{MapSet, object_name};
use crate::sys_unsafe::{self, ProgramImage, number};
use crate::types::KernelTypes;
use crate::uapi::ProgLoad;

/// A program that the kernel accepted; unloaded on drop.
#[derive(Debug)]
pub struct KernelProgram {
    name: String,
    fd: OwnedFd,
    log: String,
}

/// Options of loading.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LoadOptions {
    /// Verifier log of accepted programs: 0 none, 1 instructions, 2 with states, 4 statistics
    /// (`BPF_LOG_*`).
    pub log_level: u32,
    /// Whether to load again after a refusal to get the log. If not, the log is empty, and a
    /// refusal takes half the time.
    pub log_refusals: bool,
    /// Further `BPF_F_*` program flags, e.g. strict alignment.
    pub prog_flags: u32,
    /// Whether to load without `CAP_PERFMON`: then the verifier refuses programs whose results
    /// depend on addresses or on unwritten stack (`allow_ptr_leaks`, `allow_uninit_stack`).
    pub without_perfmon: bool,
}

impl Default for LoadOptions {
    fn default() -> Self {
        LoadOptions { log_level: 0, log_refusals: true, prog_flags: 0, without_perfmon: false }
    }
}

/// Reason why a program could not be loaded.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The kernel's verifier, or a check before it, refused the program.
    #[error("the kernel refuses the program: {errno}\n{log}")]
    Refused {
        /// Error number of the kernel.
        errno: Errno,
        /// The verifier's log; may be empty.
        log: String,
    },
    /// The kernel refuses the program's types.
    #[error("the kernel refuses the program's BTF: {errno}\n{log}")]
    Btf {
        /// Error number of the kernel.
        errno: Errno,
        /// Explanation of the kernel.
        log: String,
    },
    /// An instruction refers to a map that was not loaded.
    #[error("instruction {insn} loads map {index}, but the map set has no such map")]
    NoSuchMap {
        /// Slot of the instruction.
        insn: usize,
        /// Index in the immediate.
        index: i32,
    },
    /// An instruction refers to a kfunc outside the program's table.
    #[error("instruction {insn} calls kfunc {index}, but the program lists no such kfunc")]
    NoSuchKfunc {
        /// Slot of the instruction.
        insn: usize,
        /// Index in the immediate.
        index: i32,
    },
    /// The kernel refuses to put the program into a program array.
    #[error("no tail call leads to the program: {reason}")]
    Slot {
        /// Message of the kernel.
        reason: String,
    },
    /// The running kernel has no function of this name.
    #[error("instruction {insn} calls kfunc `{name}`, which the running kernel does not have")]
    UnknownKfunc {
        /// Slot of the instruction.
        insn: usize,
        /// Name of the function.
        name: String,
    },
}

impl LoadError {
    /// Error number of the kernel, if the kernel refused.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            LoadError::Refused { errno, .. } | LoadError::Btf { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// The same error, with a note on types that the kernel refused before.
    fn without_types(self, types: &Option<LoadError>) -> Self {
        match (self, types) {
            (LoadError::Refused { errno, log }, Some(types)) => {
                let reason = types.log().trim_end().lines().last().unwrap_or_default();
                let note = format!("It was loaded without its BTF, which is refused: {reason}");
                LoadError::Refused { errno, log: format!("{}\n{note}", log.trim_end()) }
            }
            (error, _) => error,
        }
    }

    /// Log of the kernel; empty if there is none.
    pub fn log(&self) -> &str {
        match self {
            LoadError::Refused { log, .. } | LoadError::Btf { log, .. } => log,
            _ => "",
        }
    }
}

/// Information of the kernel about a loaded program (`struct bpf_prog_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramInfo {
    /// Id of the program in this kernel.
    pub id: u32,
    /// Hash of its instructions.
    pub tag: [u8; 8],
    /// Size of the instructions after the verifier's rewriting, in bytes.
    pub xlated_bytes: u32,
    /// Size of the machine code in bytes; 0 if the program is interpreted.
    pub jited_bytes: u32,
    /// Number of instructions that the verifier processed.
    pub verified_insns: u32,
}

impl KernelProgram {
    /// Name of the C function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Log of the verifier; empty unless [`LoadOptions::log_level`] asked for one.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Sizes, tag and verification effort.
    pub fn info(&self) -> Result<ProgramInfo, Errno> {
        let info = sys_unsafe::prog_info(self.as_fd())?;
        Ok(ProgramInfo {
            id: info.id,
            tag: info.tag,
            xlated_bytes: info.xlated_prog_len,
            jited_bytes: info.jited_prog_len,
            verified_insns: info.verified_insns,
        })
    }
}

impl AsFd for KernelProgram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

pub(crate) fn load(
    linked: &Linked,
    maps: &MapSet,
    types: &KernelTypes,
    options: &LoadOptions,
) -> Result<KernelProgram, LoadError> {
    let image = Image::new(linked, maps, types)?;
    let shared = linked.btf.as_ref().and_then(|btf| maps.btf_fd(btf));
    let own = match shared {
        None if !image.btf.is_empty() => Some(load_btf(&image.btf)),
        _ => None,
    };
    // libbpf does the same: a program that needs no types must not fail for bad ones.
    let (own, without) = match own.transpose() {
        Ok(own) => (own, None),
        Err(refused) => (None, Some(refused)),
    };
    let btf = shared.or(own.as_ref());
    let prog_type = match linked.attach {
        AttachType::Syscall => PROG_TYPE_SYSCALL,
        _ => PROG_TYPE_XDP,
    };
    let flags = match linked.attach {
        AttachType::Syscall => F_SLEEPABLE,
        _ if linked.has_frags => F_XDP_HAS_FRAGS,
        _ => 0,
    };
    let numbers = ProgLoad {
        prog_type,
        expected_attach_type: attach_number(linked.attach),
        prog_flags: options.prog_flags | flags,
        prog_name: object_name(&linked.name),
        prog_btf_fd: btf.map_or(0, |fd| number(fd.as_fd())),
        log_level: options.log_level,
        ..ProgLoad::default()
    };
    let bytes = ProgramImage {
        insns: &image.insns,
        license: &image.license,
        func_info: if btf.is_some() { &image.func_info } else { &[] },
        // The shared blob has no strings for source lines.
        line_info: if own.is_some() { &image.line_info } else { &[] },
    };
    let load =
        || load_logged(&bytes, numbers, options).map_err(|refused| refused.without_types(&without));
    let (fd, log) = if options.without_perfmon {
        sys_unsafe::without_capabilities(PERFMON_CAPABILITIES, load)
            .map_err(|errno| LoadError::Refused { errno, log: String::new() })??
    } else {
        load()?
    };
    Ok(KernelProgram { name: linked.name.clone(), fd, log })
}

/// Loads, with a log buffer that grows while the kernel says it is too small.
fn load_logged(
    image: &ProgramImage<'_>,
    mut numbers: ProgLoad,
    options: &LoadOptions,
) -> Result<(OwnedFd, String), LoadError> {
    if options.log_level == 0 {
        match sys_unsafe::prog_load(image, &numbers, &mut []) {
            Ok(fd) => return Ok((fd, String::new())),
            Err(errno) if !options.log_refusals => {
                return Err(LoadError::Refused { errno, log: String::new() });
            }
            Err(_) => numbers.log_level = 1,
        }
    }
    let mut log = vec![0; LOG_BYTES_FIRST];
    loop {
        match sys_unsafe::prog_load(image, &numbers, &mut log) {
            Ok(fd) => return Ok((fd, text(&log))),
            Err(Errno::ENOSPC) if log.len() < LOG_BYTES_MAX => {
                log = vec![0; log.len() * 16];
            }
            Err(errno) => return Err(LoadError::Refused { errno, log: text(&log) }),
        }
    }
}

fn load_btf(blob: &[u8]) -> Result<OwnedFd, LoadError> {
    sys_unsafe::btf_load(blob, &mut []).or_else(|_| {
        let mut log = vec![0; LOG_BYTES_FIRST];
        sys_unsafe::btf_load(blob, &mut log)
            .map_err(|errno| LoadError::Btf { errno, log: text(&log) })
    })
}

/// Loads a bare program, to find out whether that is possible at all.
pub(crate) fn probe(insns: &[Insn]) -> Result<(), Errno> {
    let insns: Vec<u8> = insns.iter().flat_map(|insn| insn.to_le_bytes()).collect();
    let image = ProgramImage { insns: &insns, license: b"GPL\0", ..ProgramImage::default() };
    let numbers = ProgLoad { prog_type: PROG_TYPE_XDP, ..ProgLoad::default() };
    sys_unsafe::prog_load(&image, &numbers, &mut []).map(drop)
}

/// The log up to its terminating zero.
fn text(log: &[u8]) -> String {
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).into_owned()
}

fn attach_number(attach: AttachType) -> u32 {
    match attach {
        AttachType::Xdp => 37,
        AttachType::Devmap => 33,
        AttachType::Cpumap => 35,
        // No kernel has such programs: loaded as XDP, it gets the kernel's refusal.
        AttachType::Dequeue | AttachType::Syscall => 0,
    }
}

/// `BPF_PROG_TYPE_XDP`.
pub(crate) const PROG_TYPE_XDP: u32 = 6;
/// `BPF_PROG_TYPE_SYSCALL`.
const PROG_TYPE_SYSCALL: u32 = 31;
/// `BPF_F_SLEEPABLE`.
const F_SLEEPABLE: u32 = 1 << 4;
/// `BPF_F_XDP_HAS_FRAGS`.
pub(crate) const F_XDP_HAS_FRAGS: u32 = 1 << 5;
/// `CAP_PERFMON` and `CAP_SYS_ADMIN`, which includes it.
const PERFMON_CAPABILITIES: u64 = 1 << 38 | 1 << 21;
/// First size of a log buffer.
const LOG_BYTES_FIRST: usize = 1 << 16;
/// Largest size of a log buffer in bytes; a longer log is cut off (the kernel takes up to 1 GB).
const LOG_BYTES_MAX: usize = 1 << 28;
