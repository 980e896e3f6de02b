//! The command line. Help, manual page and completions come from these types.
//!
//! Names follow the tools people know: xdp-loader's `-n` and `-s` choose a program, bpftool's
//! `prog run` and `prog dump` keep their verbs and words.

mod bench;
mod bond;
mod daemon;
mod demo;
mod dump;
mod groups;
mod ipsec;
mod new;
mod programs;
mod qualify;
mod run;
mod test;
mod wrap;
mod xsk;

pub(crate) use bench::{BenchArgs, Peer};
pub(crate) use bond::{BondCommand, BondHashArgs};
pub(crate) use daemon::{
    BridgeCommand, BtfCommand, BtfDumpArgs, CheckArgs, ElementArgs, EventPipeArgs, EventsArgs,
    ExecCommand, GuestArgs, GuestCommand, GuestFileArgs, LinkCommand, LoadArgs, MapCommand,
    MapDumpArgs, MapLoadArgs, ModeArg, NetCommand, ObjectArgs, PinArgs, PlainArgs, PortArgs,
    PortCommand, PortKeysArgs, ProgLoadArgs, ReloadArgs, Replaced, RowFormat, SocketArgs,
    StatsArgs, StatusArgs, TopArgs, TracelogArgs, UnloadArgs, UnpinArgs, UpArgs,
};
pub(crate) use demo::{DemoCommand, DemoLiveArgs};
pub(crate) use dump::PortDumpArgs;
pub(crate) use groups::{GROUPS, about, command};
pub(crate) use ipsec::{PolicyCommand, SaArgs, SaCommand};
pub(crate) use new::NewArgs;
pub(crate) use programs::{
    Assignment, MapSize, Migration, ProgramArgs, ProgramCall, Rename, Selection, SharedMap,
};
pub(crate) use qualify::QualifyArgs;
pub(crate) use run::{
    Clock, DumpArgs, DumpForm, ProgRunArgs, ProgRunExec, RunArgs, RunExec, RunPeer, RunTrust,
    RunningArgs, Surroundings,
};
pub(crate) use test::{TestArgs, TestExec};
pub(crate) use wrap::WrapArgs;
pub(crate) use xsk::{XskCommand, XskRunArgs};

use std::path::PathBuf;

use clap::{ArgAction, Args, Parser, Subcommand};
use clap_complete::Shell;

/// XDP in user space: verify and run compiled XDP programs, without root, kernel or network card.
///
/// Towpath takes an XDP object file as the compiler made it, proves its programs safe by the
/// kernel's rules, and runs them over captures and single packets.
///
/// Exit status: 0 on success; 1 if a program was refused (by the verifier, or by the running
/// kernel), the daemon refused the request, or a check failed; 2 if the command line or a file has
/// a mistake, or no daemon answers.
#[derive(Debug, Parser)]
#[command(name = "towpath", version, subcommand_required = true, arg_required_else_help = true)]
#[command(max_term_width = 100)]
pub(crate) struct Cli {
    /// Output options of every command.
    #[command(flatten)]
    pub output: OutputArgs,
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Output options.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// Print JSON instead of text; errors too, as {"error": "..."}
    #[arg(short = 'j', long, global = true)]
    pub json: bool,
    /// Print JSON over several lines
    #[arg(long, global = true)]
    pub pretty: bool,
    /// Verbose: verifier log, program output (-vv: trace instructions)
    #[arg(short, long, global = true, action = ArgAction::Count)]
    pub verbose: u8,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program over a capture and show its verdicts
    ///
    /// The program runs on every frame of the capture, as if the frame had just been received.
    /// Frames that survive (XDP_PASS, XDP_TX, XDP_REDIRECT) can be written to another capture,
    /// each with its verdict and redirect target.
    Run(Box<RunArgs>),
    /// Run test cases: packets, and expected results of a program
    ///
    /// A case has contents of maps, packets, and the expected verdict, redirect target, packet,
    /// maps and printed lines, as far as they matter (docs/test.md). It runs on each executor of
    /// --exec; only "kernel" needs root. The exit status is 1 if a case failed.
    Test(Box<TestArgs>),
    /// Create a folder with a program of your own and passing tests
    ///
    /// The folder contains a program in C, its compiled object, a Makefile, cases for
    /// `towpath test`, a file for pytest, a workflow for CI and a page that explains them. Next:
    /// `cd NAME && towpath test`.
    New(NewArgs),
    /// Check whether programs would be accepted
    ///
    /// Without -n or -s, every XDP program of every object is verified. With --json there is one
    /// line for each program.
    Verify(VerifyArgs),
    /// Run one packet through a program, or show its instructions
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Prog {
        /// The subcommand.
        #[command(subcommand)]
        command: ProgCommand,
    },
    /// Measure programs beside the running kernel or the interpreter
    ///
    /// Every program runs over the same frame in many buffers, in rounds with its peer, and the
    /// time of an empty program is subtracted on both sides. Without OBJ, the programs that
    /// `make programs` builds are measured. A ratio above 1 means faster than the peer.
    Bench(Box<BenchArgs>),
    /// Test every feature of ports, and compare it with the advertised ones
    ///
    /// Frames are sent, received and checked for each kind of port and for the kernel's own
    /// devices. The tests cover the kernel's XDP features (netdev netlink family), hints, room
    /// around packets, MTU, checksums and segmentation in both directions (docs/features.md). The
    /// exit status is 1 if an advertised feature does not work.
    Qualify(QualifyArgs),
    /// Run the daemon in the foreground
    ///
    /// Ports, bridges, workers and programs come from a TOML file (docs/configuration.md), and
    /// from the commands `port`, `bridge` and `load`. SIGHUP makes the daemon read the file again,
    /// SIGTERM ends it.
    Up(UpArgs),
    /// Check a configuration file, without running anything
    Check(CheckArgs),
    /// Reload the configuration and apply changes
    Reload(ReloadArgs),
    /// Attach a program of each object to a port of the daemon
    ///
    /// Programs run in the order of their priority; the next one runs when the verdict so far is
    /// among the chain-call actions. All objects are attached at once, or none.
    Load(Box<LoadArgs>),
    /// Detach programs from a port of the daemon
    Unload(UnloadArgs),
    /// Show the daemon's ports and the programs on them
    Status(StatusArgs),
    /// Add, change, remove and show ports of the daemon
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Port {
        /// The subcommand.
        #[command(subcommand)]
        command: PortCommand,
    },
    /// Show maps of the daemon's programs, and change them while traffic flows
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Map {
        /// The subcommand.
        #[command(subcommand)]
        command: MapCommand,
    },
    /// Show and detach programs on the daemon's hooks
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Link {
        /// The subcommand.
        #[command(subcommand)]
        command: LinkCommand,
    },
    /// Show types (BTF)
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Btf {
        /// The subcommand.
        #[command(subcommand)]
        command: BtfCommand,
    },
    /// Show programs on the daemon's ports, in bpftool's words
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Net {
        /// The subcommand.
        #[command(subcommand)]
        command: NetCommand,
    },
    /// Show bonds, and the member that a frame leaves on
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Bond {
        /// The subcommand.
        #[command(subcommand)]
        command: BondCommand,
    },
    /// Show features of the daemon's ports, by the kernel's feature flags
    Features(PortArgs),
    /// Show programs of virtual machines, and move them to another daemon
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Guest {
        /// The subcommand.
        #[command(subcommand)]
        command: GuestCommand,
    },
    /// Show the daemon's bridges and their learnt addresses
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Bridge {
        /// The subcommand.
        #[command(subcommand)]
        command: BridgeCommand,
    },
    /// Show and change IPsec security associations of the daemon
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Sa {
        /// The subcommand.
        #[command(subcommand)]
        command: SaCommand,
    },
    /// Show and change IPsec policies of the daemon
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Policy {
        /// The subcommand.
        #[command(subcommand)]
        command: PolicyCommand,
    },
    /// Show the daemon's counters, or rates
    Stats(StatsArgs),
    /// Show ports, programs, maps and drops of the daemon live, in a terminal
    ///
    /// Keys select the view and its order; ? shows them.
    Top(TopArgs),
    /// Show changes and failures of the daemon as they happen
    Events(EventsArgs),
    /// Show or capture arriving and leaving frames of a port, with verdicts
    ///
    /// The options are xdpdump's. Frames are shown as they arrive, or as the programs left them,
    /// with the verdict. A slow reader does not slow the port down: copies are lost, and counted.
    /// The command ends when interrupted.
    Dump(PortDumpArgs),
    /// Show AF_XDP sockets, or open one
    Xsk {
        /// The subcommand.
        #[command(subcommand)]
        command: XskCommand,
    },
    /// Run an unmodified IKE daemon that manages the SAs of a port
    ///
    /// The program, such as strongSwan's charon, asks the kernel for a netlink socket of family
    /// XFRM. It gets a connection to the port in its place, by which it adds and removes SAs and
    /// policies. This command becomes the program; a second process, which ends with it, answers
    /// the calls that open such sockets, and prints each of them with -v. SAs stay when the program
    /// ends, until their hard limits.
    Wrap(WrapArgs),
    /// Run a daemon for a script: `exec up -c FILE --for 10s`
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Exec {
        /// The subcommand.
        #[command(subcommand)]
        command: ExecCommand,
    },
    /// Run a live demo
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Demo {
        /// The subcommand.
        #[command(subcommand)]
        command: DemoCommand,
    },
    /// Show the contents of an object file
    ///
    /// Shows programs, maps, global variables, licence and sizes. No program is verified or run.
    Inspect(InspectArgs),
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page, in roff
    Man {
        /// Write one page for each command into this directory instead
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// The commands under `prog`.
#[derive(Debug, Subcommand)]
pub(crate) enum ProgCommand {
    /// Run one packet through a program (BPF_PROG_TEST_RUN)
    ///
    /// The packet is read from a file, or from standard input with "-": raw bytes, or the first
    /// frame of a pcap or pcapng file. With --exec kernel the same linked program is loaded into
    /// the running kernel, which needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON. A program
    /// of a daemon (id N, name NAME) runs in the daemon, with --live on frames that are then sent.
    Run(Box<ProgRunArgs>),
    /// Show the instructions of a program
    Dump(DumpArgs),
    /// List programs that the daemon has loaded
    #[command(visible_alias = "list")]
    Show(ObjectArgs),
    /// Load a program into the daemon and pin it, without attaching it
    Load(ProgLoadArgs),
    /// Pin a program of the daemon, which keeps it loaded: PROG PATH
    Pin(PinArgs),
    /// Remove a pin
    Unpin(UnpinArgs),
    /// Show output of running programs (bpf_printk), or a program's stream
    ///
    /// Without arguments, the command shows all lines of all programs, as the kernel's trace_pipe
    /// does, until it is interrupted. `stdout PROG` and `stderr PROG` print a program's unread
    /// bpf_stream_printk output.
    Tracelog(TracelogArgs),
}

/// Arguments of `verify`.
#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Object files
    #[arg(value_name = "OBJ", required = true)]
    pub objects: Vec<PathBuf>,
    /// The programs [default: all].
    #[command(flatten)]
    pub selection: Selection,
    /// Values for global variables.
    #[command(flatten)]
    pub program: ProgramArgs,
    /// Trust in the programs' authors: "guest" applies the rules for programs of virtual machines
    #[arg(long, value_enum, default_value_t = RunTrust::Verified)]
    pub trust: RunTrust,
}

/// Arguments of `inspect`.
#[derive(Debug, Args)]
pub(crate) struct InspectArgs {
    /// Object file
    #[arg(value_name = "OBJ")]
    pub object: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_arguments_is_consistent() {
        command().debug_assert();
    }
}
