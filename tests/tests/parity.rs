//! Parity with the running kernel, in a small budget; `make parity` runs the full one.
//!
//! Each test says "skipped: why" where the kernel or its source can't be had.

#![expect(clippy::print_stderr, reason = "a skipped test says why")]

use towpath_kernel::{Kernel, isolate_network};
use towpath_tests::compare::{self, Budget, HostileBudget, ObjectBudget, Report};
use towpath_tests::ways::Way;

/// Number of random programs in `cargo test`; `TOWPATH_PARITY_PROGRAMS` asks for more.
const PROGRAMS_DEFAULT: u64 = 1000;

/// Number of hostile programs, which take a few seconds.
const HOSTILE_PROGRAMS: u64 = 5000;

/// Runs `comparison` with a kernel in an empty network namespace and expects no difference that
/// `docs/differences.md` doesn't explain.
fn expect_parity(comparison: impl FnOnce(&Kernel) -> Option<Report>) {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    if let Err(why) = isolate_network() {
        return eprintln!("skipped: no network namespace of our own: {why}");
    }
    let Some(report) = comparison(&kernel) else { return };
    assert!(report.passed(), "{report}");
}

#[test]
fn verifier_tables() {
    expect_parity(|kernel| match compare::tables(kernel) {
        Ok(report) => Some(report),
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    });
}

#[test]
fn object_files() {
    let budget = ObjectBudget { packets: 40, ways: ways(), ..ObjectBudget::default() };
    expect_parity(|kernel| Some(compare::objects(kernel, &budget)));
}

#[test]
fn random_programs() {
    let wanted = std::env::var("TOWPATH_PARITY_PROGRAMS").ok();
    let programs = wanted.and_then(|n| n.parse().ok()).unwrap_or(PROGRAMS_DEFAULT);
    let budget = Budget {
        seed: 1,
        programs,
        packets: 6,
        verified_max: None,
        unverified: false,
        ways: ways(),
        scramble: false,
        failures_max: 5,
        threads: 2,
    };
    expect_parity(|kernel| Some(compare::random(Some(kernel), &budget)));
}

/// Needs no kernel: other programs than above, each compiled with a random choice of passes.
#[test]
fn random_programs_with_passes_left_out() {
    let budget = Budget {
        seed: 1_000_000,
        programs: PROGRAMS_DEFAULT,
        packets: 6,
        verified_max: None,
        unverified: false,
        ways: ways(),
        scramble: true,
        failures_max: 5,
        threads: 2,
    };
    let report = compare::random(None, &budget);
    assert!(report.passed(), "{report}");
}

/// Needs no kernel: what is accepted does what was proved of it.
#[test]
fn hostile_programs() {
    let budget = HostileBudget {
        seed: 1,
        programs: HOSTILE_PROGRAMS,
        packets: 3,
        failures_max: 3,
        threads: 2,
        verified_max: 4000,
        ask_kernel: false,
        progress: |_| {},
    };
    let report = compare::hostile(&budget);
    assert!(report.passed(), "{report}");
}

/// The kernel has its turn where it can be had.
#[test]
fn instruction_set() {
    let report = match Kernel::open() {
        Ok(kernel) => compare::isa(Some(&kernel), &ways(), false),
        Err(_) => compare::isa(None, &ways(), true),
    };
    assert!(report.passed(), "{report}");
}

/// The kernel has its turn where it can be had.
#[test]
fn printed_lines() {
    let mut all = ways();
    all.extend(Way::named("llvm").ok());
    let report = match Kernel::open() {
        Ok(kernel) => compare::printed(Some(&kernel), &all),
        Err(_) => compare::printed(None, &all),
    };
    assert!(report.passed(), "{report}");
}

/// Everything that executes programs.
fn ways() -> Vec<Way> {
    ["interp", "jit"].iter().filter_map(|name| Way::named(name).ok()).collect()
}
