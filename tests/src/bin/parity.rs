//! Compares Towpath with the running kernel and prints tables, or JSON with `--json`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line program")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use towpath_kernel::Kernel;
use towpath_tests::compare::{self, Budget, HostileBudget, MutantBudget, ObjectBudget, Report};
use towpath_tests::ways::Way;
use towpath_xdp::{Exec, Trust};

/// Parity of Towpath with the running kernel, the arbiter.
#[derive(Parser)]
struct Args {
    /// Ways to run programs, separated by commas: interp, jit, llvm.
    #[arg(long, global = true, value_delimiter = ',', default_value = "interp,jit")]
    #[arg(value_parser = Way::named)]
    exec: Vec<Way>,
    /// Check compiled programs as they run (`--trust guest`).
    #[arg(long, global = true)]
    checked: bool,
    /// The same, and mask them against speculation, which tier 2 does not do.
    #[arg(long, global = true)]
    masked: bool,
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
        /// Object files and folders of them, instead of those of this machine.
        paths: Vec<std::path::PathBuf>,
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
        /// How many, and on what.
        #[command(flatten)]
        budget: RandomArgs,
        /// Leave passes out at random, others for each program.
        #[arg(long)]
        scramble: bool,
        /// Run what the kernel accepts without our proof.
        #[arg(long)]
        unverified: bool,
    },
    /// Random programs that combine everything, on maps with hostile contents: what is accepted
    /// must do no more than was proved. Asks no kernel, but for its opinion of what is found.
    Hostile {
        /// First seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Programs to generate.
        #[arg(long, default_value_t = 100_000)]
        programs: u64,
        /// Packets to run each accepted program on.
        #[arg(long, default_value_t = 4)]
        packets: usize,
        /// Findings to minimise and print.
        #[arg(long, default_value_t = 20)]
        failures: usize,
        /// Programs at the same time.
        #[arg(long, default_value_t = 2)]
        threads: usize,
        /// Leave out programs of which our verifier looks at more instructions than this.
        #[arg(long, value_name = "INSNS", default_value_t = 4000)]
        verified_max: u64,
        /// Ask the kernel about each accepted program too, which must accept it (root; slow).
        #[arg(long)]
        ask_kernel: bool,
    },
    /// The instruction set: each instruction in each form.
    Isa {
        /// What the reference is; the interpreter needs no root.
        #[arg(long, value_enum, default_value_t = Against::Kernel)]
        against: Against,
    },
    /// What programs print, by each conversion.
    Printed {
        /// What the reference is; the interpreter needs no root.
        #[arg(long, value_enum, default_value_t = Against::Kernel)]
        against: Against,
    },
    /// Random programs, compiled with each pass left out in turn.
    Passes {
        /// How many, and on what.
        #[command(flatten)]
        budget: RandomArgs,
    },
}

#[derive(clap::Args)]
struct RandomArgs {
    /// What the reference is; the interpreter needs no root.
    #[arg(long, value_enum, default_value_t = Against::Kernel)]
    against: Against,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Programs to generate.
    #[arg(long, default_value_t = 3000)]
    programs: u64,
    /// Packets to run each accepted program on.
    #[arg(long, default_value_t = 8)]
    packets: usize,
    /// Differences to minimise and print.
    #[arg(long, default_value_t = 20)]
    failures: usize,
    /// Programs at the same time.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Leave out programs of which our verifier looks at more instructions than this: the longest
    /// five of a hundred take most of the time.
    #[arg(long, value_name = "INSNS")]
    verified_max: Option<u64>,
}

/// What decides who is right.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Against {
    /// The running kernel.
    Kernel,
    /// Our interpreter.
    Interp,
}

fn main() -> ExitCode {
    let mut args = Args::parse();
    if args.checked || args.masked {
        args.exec.iter_mut().for_each(|way| way.trust = Trust::Guest);
    }
    args.exec.retain(|way| !args.masked || way.exec != Exec::Llvm);
    args.exec.iter_mut().for_each(|way| way.masked = args.masked);
    let report = match &args.what {
        What::Random { budget, .. } | What::Passes { budget }
            if budget.against == Against::Interp =>
        {
            Ok(random(None, &args))
        }
        &What::Hostile { seed, programs, packets, failures, threads, verified_max, ask_kernel } => {
            let failures_max = failures;
            let progress: fn(&str) = |line| eprintln!("{line}");
            Ok(compare::hostile(&HostileBudget {
                seed,
                programs,
                packets,
                failures_max,
                threads,
                verified_max,
                ask_kernel,
                progress,
            }))
        }
        What::Printed { against: Against::Interp } => Ok(compare::printed(None, &args.exec)),
        What::Isa { against: Against::Interp } => Ok(compare::isa(None, &args.exec, true)),
        _ => match Kernel::open() {
            Ok(kernel) => with_kernel(&kernel, &args),
            Err(why) => Err(why.to_string()),
        },
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

fn with_kernel(kernel: &Kernel, args: &Args) -> Result<Report, String> {
    if let Err(why) = towpath_kernel::isolate_network() {
        eprintln!("no network namespace of our own ({why}): results depend on this machine's");
    }
    match &args.what {
        What::Tables => compare::tables(kernel).map_err(|why| why.to_string()),
        What::Objects { paths, packets, only, unverified } => {
            let (packets, only, unverified) = (*packets, only.clone(), *unverified);
            let (paths, ways) = (paths.clone(), args.exec.clone());
            let budget = ObjectBudget { paths, packets, only, unverified, ways };
            Ok(compare::objects(kernel, &budget))
        }
        What::Speed { count } => Ok(compare::speed(kernel, *count)),
        What::Mutants { objects, seed, mutants, failures } => {
            let (seed, mutants, failures_max) = (*seed, *mutants, *failures);
            let objects = objects.clone();
            let budget = MutantBudget { objects, seed, mutants, failures_max };
            Ok(compare::mutants(kernel, &budget))
        }
        What::Isa { .. } => Ok(compare::isa(Some(kernel), &args.exec, true)),
        What::Printed { .. } => Ok(compare::printed(Some(kernel), &args.exec)),
        What::Random { .. } | What::Passes { .. } | What::Hostile { .. } => {
            Ok(random(Some(kernel), args))
        }
    }
}

fn random(kernel: Option<&Kernel>, args: &Args) -> Report {
    let budget = |random: &RandomArgs, scramble, unverified| Budget {
        seed: random.seed,
        programs: random.programs,
        packets: random.packets,
        verified_max: random.verified_max,
        unverified,
        ways: args.exec.clone(),
        scramble,
        failures_max: random.failures,
        threads: random.threads,
    };
    match &args.what {
        What::Random { budget: random, scramble, unverified } => {
            compare::random(kernel, &budget(random, *scramble, *unverified))
        }
        What::Passes { budget: random } => compare::passes(kernel, &budget(random, false, false)),
        _ => Report::default(),
    }
}
