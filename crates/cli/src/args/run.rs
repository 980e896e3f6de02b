//! Arguments of the commands that run or show one program.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use towpath_bpf::verifier;
use towpath_daemon::code::CodeForm;
use towpath_xdp::{Exec, LoadOptions, Sanitize, Trust};

use super::{ProgramArgs, ProgramCall, Selection, SocketArgs};

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Object file
    #[arg(value_name = "OBJ")]
    pub object: PathBuf,
    /// Capture with the frames, pcap or pcapng; "-" is standard input
    #[arg(long = "in", value_name = "A.pcap", required = true)]
    pub input: PathBuf,
    /// Write surviving frames to this pcapng file, with verdicts and redirect targets; with "-",
    /// they go to standard output, and the report to standard error
    #[arg(long = "out", value_name = "B.pcapng")]
    pub output: Option<PathBuf>,
    /// Run over the whole capture N times; --out gets the frames of the first pass
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Time of the program's clocks
    #[arg(long, value_enum, default_value_t = Clock::Capture)]
    pub clock: Clock,
    /// Executor of the program
    #[arg(long, value_enum, default_value_t = RunExec::Jit)]
    pub exec: RunExec,
    /// Also measure one frame, over and over, in the running kernel [default: kernel for a capture
    /// of 1000 frames or more, none with --json]
    #[arg(long, value_enum)]
    pub against: Option<RunPeer>,
    /// The program.
    #[command(flatten)]
    pub selection: Selection,
    /// Surroundings of the program.
    #[command(flatten)]
    pub surroundings: Surroundings,
    /// Settings for linking.
    #[command(flatten)]
    pub program: ProgramArgs,
}

/// Peers of the measurement that `run` makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunPeer {
    /// The running kernel, through BPF_PROG_TEST_RUN (root)
    Kernel,
    /// No measurement
    None,
}

/// Arguments of `prog run`.
#[derive(Debug, Args)]
pub(crate) struct ProgRunArgs {
    /// Object file, or a program of the daemon: id N, name NAME, tag TAG or pinned PATH
    #[arg(value_name = "OBJ|id N|name NAME", required = true, num_args = 1..=2)]
    pub words: Vec<String>,
    /// The packet: raw bytes, or a capture whose first frame is used; "-" is standard input.
    /// Programs in section "syscall" take none
    #[arg(long, value_name = "FILE")]
    pub data_in: Option<PathBuf>,
    /// Write the packet to this file as the program left it; "-" is standard output
    #[arg(long, value_name = "FILE")]
    pub data_out: Option<PathBuf>,
    /// The context as bytes: struct xdp_md, little endian; for a program in section "syscall", what
    /// it takes
    #[arg(long, value_name = "FILE")]
    pub ctx_in: Option<PathBuf>,
    /// Write the context to this file after the run; "-" is standard output
    #[arg(long, value_name = "FILE")]
    pub ctx_out: Option<PathBuf>,
    /// Run the program N times; duration_ns is the time of one run
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub repeat: u32,
    /// Executor of the program
    #[arg(long, value_enum, default_value_t = ProgRunExec::Interp)]
    pub exec: ProgRunExec,
    /// Settings for a run in a daemon.
    #[command(flatten)]
    pub running: RunningArgs,
    /// The program.
    #[command(flatten)]
    pub selection: Selection,
    /// Surroundings of the program.
    #[command(flatten)]
    pub surroundings: Surroundings,
    /// Settings for linking.
    #[command(flatten)]
    pub program: ProgramArgs,
}

impl ProgRunArgs {
    /// The object file, if the words name one.
    pub(crate) fn object(&self) -> &Path {
        self.words.first().map_or(Path::new(""), Path::new)
    }
}

/// Options for running a program of the daemon.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Programs of the daemon")]
pub(crate) struct RunningArgs {
    /// Send the frame of each run by the program's verdict (BPF_F_TEST_XDP_LIVE_FRAMES)
    #[arg(long)]
    pub live: bool,
    /// Number of runs before their live frames are sent together, up to 256 [default: 64]
    #[arg(long, value_name = "N", requires = "live")]
    pub batch_size: Option<u32>,
    /// Port on which the frames appear to arrive
    #[arg(long, value_name = "PORT", conflicts_with = "ctx_in")]
    pub port: Option<String>,
    /// The port's receive queue
    #[arg(long, value_name = "N", requires = "port", default_value_t = 0)]
    pub rx_queue: u32,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// The surroundings of a program.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Surroundings")]
pub(crate) struct Surroundings {
    /// Trust in the verifier
    #[arg(long, value_enum, default_value_t = RunTrust::Verified)]
    pub trust: RunTrust,
    /// First contents of maps, JSON by map name
    #[arg(long, value_name = "M.json")]
    pub map_init: Option<PathBuf>,
    /// Call a program of the object first, which is in section "syscall": it sets maps up; =HEX
    /// gives it a context. May be given several times
    #[arg(long = "call", value_name = "PROG[=HEX]")]
    pub calls: Vec<ProgramCall>,
    /// Show the contents of all maps afterwards, or of named ones: --dump-maps=stats,flows
    #[arg(long, value_name = "NAME", num_args = 0.., require_equals = true, value_delimiter = ',')]
    pub dump_maps: Option<Vec<String>>,
    /// Interfaces, routes and neighbours for helpers such as bpf_fib_lookup, TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub fib: Option<PathBuf>,
    /// Interface that frames arrive on (ctx->ingress_ifindex)
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub ifindex: u32,
    /// Number of CPUs that programs see: values in an element of a per-CPU map
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub cpus: u32,
    /// Find unset memory, and other mistakes that a verifier accepts: track (bit by bit, in the
    /// interpreter), poison or poison:SEED (the stack begins with random bytes), or off
    #[arg(long, value_name = "HOW", default_value_t = Sanitize::Off)]
    pub sanitize: Sanitize,
}

/// Trust in the verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunTrust {
    /// Accepted programs run without run-time checks
    Verified,
    /// Compiled programs check each access as they run, and their time is limited
    Checked,
    /// As checked, and verified by the kernel's rules for programs without CAP_PERFMON: no address
    /// can leak
    Guest,
}

impl RunTrust {
    /// Sets this trust for verification and compilation.
    pub(crate) fn apply(self, options: &mut LoadOptions) {
        options.jit.trust = match self {
            RunTrust::Verified => Trust::Verified,
            RunTrust::Checked | RunTrust::Guest => Trust::Guest,
        };
        options.jit.mask_speculation = self == RunTrust::Guest;
        self.restrict(&mut options.verifier);
    }

    /// Sets this trust for verification.
    pub(crate) fn restrict(self, options: &mut verifier::Options) {
        if self == RunTrust::Guest {
            options.restrict();
        }
    }
}

/// Time of clocks during `run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clock {
    /// The time of the frame's capture
    Capture,
    /// The machine's time
    Machine,
}

/// Executors of `run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunExec {
    /// The interpreter: every access checked
    Interp,
    /// Machine code of this CPU; programs that can't be compiled are interpreted
    Jit,
    /// As jit, and LLVM's better machine code once it is ready
    Llvm,
}

impl From<RunExec> for Exec {
    fn from(exec: RunExec) -> Exec {
        match exec {
            RunExec::Interp => Exec::Interp,
            RunExec::Jit => Exec::Jit,
            RunExec::Llvm => Exec::Llvm,
        }
    }
}

/// Executors of `prog run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgRunExec {
    /// The interpreter: every access checked
    Interp,
    /// Machine code of this CPU; programs that can't be compiled are interpreted
    Jit,
    /// As jit, and LLVM's better machine code once it is ready
    Llvm,
    /// The running kernel, through BPF_PROG_TEST_RUN
    Kernel,
}

/// Arguments of `prog dump`.
#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    /// Object file, or a program of the daemon: id N, name NAME or tag TAG. Then the form: xlated
    /// (linked instructions, the default), source (the same below their C lines), xir (the
    /// compiler's representation after all passes), clif, llvm (the compiler's outputs), jited
    /// (machine code). "linum" after xlated or jited also shows the C lines and their numbers
    #[arg(value_name = "OBJ|id N|name NAME [FORM]", required = true, num_args = 1..=4)]
    pub words: Vec<String>,
    /// Compiler of the machine code that "jited" shows
    #[arg(long, value_enum, default_value_t = RunExec::Jit)]
    pub exec: RunExec,
    /// Trust in the verifier: it changes "xir" and later forms
    #[arg(long, value_enum, default_value_t = RunTrust::Verified)]
    pub trust: RunTrust,
    /// Leave out a pass of the compiler; may be given several times
    #[arg(long, value_name = "PASS", value_delimiter = ',')]
    pub without: Vec<String>,
    /// The program.
    #[command(flatten)]
    pub selection: Selection,
    /// Settings for linking.
    #[command(flatten)]
    pub program: ProgramArgs,
    /// The daemon.
    #[command(flatten)]
    pub daemon: SocketArgs,
}

/// Forms of `prog dump`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DumpForm {
    /// Linked instructions: maps, subprograms and types are resolved
    Xlated,
    /// Instructions below their C lines
    Source,
    /// The compiler's representation, after all passes
    Xir,
    /// The compiler's output for Cranelift
    Clif,
    /// LLVM's representation, after LLVM's passes
    Llvm,
    /// Machine code of this CPU
    Jited,
}

impl From<DumpForm> for CodeForm {
    fn from(form: DumpForm) -> CodeForm {
        match form {
            DumpForm::Xlated => CodeForm::Xlated,
            DumpForm::Source => CodeForm::Source,
            DumpForm::Xir => CodeForm::Xir,
            DumpForm::Clif => CodeForm::Clif,
            DumpForm::Llvm => CodeForm::Llvm,
            DumpForm::Jited => CodeForm::Jited,
        }
    }
}
