//! Arguments of `test`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use towpath_xdp::Sanitize;

/// Arguments of `test`.
#[derive(Debug, Args)]
pub(crate) struct TestArgs {
    /// Files of cases (.toml, .json), captures whose comments name verdicts (.pcapng), or
    /// directories with them
    #[arg(value_name = "FILE|DIR", default_value = "tests")]
    pub paths: Vec<PathBuf>,
    /// Object file of cases that name none
    #[arg(long, value_name = "OBJ")]
    pub object: Option<PathBuf>,
    /// Executors of the programs: each case runs on all of them
    #[arg(long, value_enum, value_delimiter = ',', default_value = "interp,jit")]
    pub exec: Vec<TestExec>,
    /// Find unset memory, and other mistakes that a verifier accepts: track (bit by bit, in the
    /// interpreter), poison or poison:SEED (the stack begins with random bytes), or off
    #[arg(long, value_name = "HOW", default_value_t = Sanitize::Track)]
    pub sanitize: Sanitize,
    /// Run only cases whose names contain TEXT
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub filter: String,
    /// Print the Test Anything Protocol (version 14) instead of text
    #[arg(long, conflicts_with = "json")]
    pub tap: bool,
    /// Write the results to this file as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Show the C lines and branches that the cases reached
    #[arg(long)]
    pub coverage: bool,
    /// Write the coverage to this file as an lcov tracefile, for genhtml and others
    #[arg(long, value_name = "FILE")]
    pub lcov: Option<PathBuf>,
    /// Write the coverage to this file as an HTML page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Run again whenever a file changes, until interrupted
    #[arg(long, conflicts_with_all = ["record", "tap", "json"])]
    pub watch: bool,
    /// Write a file of cases from this capture, with the program's present results as the expected
    /// ones; the only FILE is written
    #[arg(long, value_name = "A.pcap", requires = "object")]
    pub record: Option<PathBuf>,
    /// The program whose results are recorded
    #[arg(short = 'n', long = "prog-name", value_name = "PROG", requires = "record")]
    pub name: Option<String>,
}

impl TestArgs {
    /// Whether coverage is requested.
    pub(crate) fn wants_coverage(&self) -> bool {
        self.coverage || self.lcov.is_some() || self.html.is_some()
    }
}

/// Executors of cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TestExec {
    /// The interpreter: every access checked
    Interp,
    /// Machine code of this CPU
    Jit,
    /// Better machine code, by LLVM
    Llvm,
    /// The running kernel, through BPF_PROG_TEST_RUN (root)
    Kernel,
}

impl TestExec {
    /// The executor's name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TestExec::Interp => "interp",
            TestExec::Jit => "jit",
            TestExec::Llvm => "llvm",
            TestExec::Kernel => "kernel",
        }
    }
}
