//! Compares Towpath with the running kernel and prints tables, or JSON with `--json`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use towpath_kernel::Kernel;
use towpath_tests::compare::{self, Budget, MutantBudget, ObjectBudget};
use towpath_xdp::Exec;

/// Parity of Towpath with the running kernel, the arbiter.
#[derive(Parser)]
struct Args {
    /// Run programs as machine code instead of in the interpreter.
    #[arg(long, global = true)]
    jit: bool,
    /// Print JSON instead of tables.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// The kernel's own verifier test tables.
    Tables,
    /// Object files: packaged ones, the kernel's samples and selftests, our own.
    Objects {
        /// Packets to run each accepted program on.
        #[arg(long, default_value_t = 200)]
        packets: usize,
        /// Only objects whose path contains this.
        #[arg(long, default_value = "")]
        only: String,
        /// Run what the kernel accepts without our proof.
        #[arg(long)]
        unverified: bool,
    },
    /// Time and memory of verification beside the kernel's.
    Speed {
        /// The longest programs to take.
        #[arg(long, default_value_t = 20)]
        count: usize,
    },
    /// Programs of these objects, changed a little: verdicts only.
    Mutants {
        /// Object files.
        #[arg(required = true)]
        objects: Vec<std::path::PathBuf>,
        /// First seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Changed forms of each program.
        #[arg(long, default_value_t = 100)]
        mutants: u64,
        /// Differences to print.
        #[arg(long, default_value_t = 20)]
        failures: usize,
    },
    /// Random programs.
    Random {
        /// First seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Programs to generate.
        #[arg(long, default_value_t = 3000)]
        programs: u64,
        /// Packets to run each accepted program on.
        #[arg(long, default_value_t = 8)]
        packets: usize,
        /// Run what the kernel accepts without our proof.
        #[arg(long)]
        unverified: bool,
        /// Differences to minimise and print.
        #[arg(long, default_value_t = 20)]
        failures: usize,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => {
            eprintln!("skipped: {why}");
            return ExitCode::from(2);
        }
    };
    if let Err(why) = towpath_kernel::isolate_network() {
        eprintln!("no network namespace of our own ({why}): results depend on this machine's");
    }
    let exec = if args.jit { Exec::Jit } else { Exec::Interp };
    let report = match args.what {
        What::Tables => compare::tables(&kernel),
        What::Objects { packets, only, unverified } => {
            Ok(compare::objects(&kernel, &ObjectBudget { packets, only, unverified, exec }))
        }
        What::Speed { count } => Ok(compare::speed(&kernel, count)),
        What::Mutants { objects, seed, mutants, failures } => {
            let budget = MutantBudget { objects, seed, mutants, failures_max: failures };
            Ok(compare::mutants(&kernel, &budget))
        }
        What::Random { seed, programs, packets, unverified, failures } => {
            let budget =
                Budget { seed, programs, packets, unverified, exec, failures_max: failures };
            Ok(compare::random(&kernel, &budget))
        }
    };
    match report {
        Ok(report) => {
            if args.json {
                println!("{}", report.json());
            } else {
                println!("{report}");
            }
            ExitCode::from(u8::from(!report.passed()))
        }
        Err(why) => {
            eprintln!("skipped: {why}");
            ExitCode::from(2)
        }
    }
}
