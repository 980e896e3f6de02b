//! The accelerator under mutated packets while SAs and policies come and go. A packet comes out
//! decrypted only if a peer sent it, nothing comes out in plain text that should be encrypted, and
//! each frame is accounted for.
//!
//! `TOWPATH_CHURN_SECONDS` says for how long, `TOWPATH_CHURN_SEED` in which order.

#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(clippy::print_stdout, reason = "the counts of a long run")]

mod changes;
mod kfuncs;
mod mutants;
mod packets;
mod synchronous;
mod witness;

use std::sync::Arc;
use std::time::{Duration, Instant};

use changes::Changes;
use mutants::Mutants;
use towpath_engine::{Engine, Mode, Options, PortOptions, UpperName, WorkerOptions};
use towpath_ipsec::{Direct, Fault, Faults, Table, TableLimits};
use towpath_ports::ipsec::{self, Ipsec};
use towpath_xdp::program::Select;
use towpath_xdp::{Exec, LoadOptions, Program};
use witness::Witness;

#[test]
fn mutated_packets_while_sas_come_and_go() {
    let options = ipsec::Options { queues: 2, deliver_refused: true, ..Default::default() };
    churn(|table| Ipsec::new(options, table));
}

/// The same with an engine that delays packets and fails to run some of them.
#[test]
fn mutated_packets_while_sas_come_and_go_and_the_engine_fails() {
    let faults = Faults { fail_every: 17, delay_rounds_max: 5, ..Faults::default() };
    let options =
        ipsec::Options { queues: 2, ring: 256, deliver_refused: true, ..Default::default() };
    churn(|table| {
        Ipsec::with_engine(options, table, "fault", move |capacity| {
            Ok(Box::new(Fault::new(Direct::new(capacity), faults)))
        })
    });
}

/// Programs do the work, and the port does half of it at the same time with the same SAs.
#[test]
fn mutated_packets_for_programs_while_sas_come_and_go() {
    let (object, env) = match (kfuncs::object(), kfuncs::env()) {
        (Ok(object), Ok(env)) => (object, env),
        (Err(why), _) | (_, Err(why)) => return eprintln!("skipped: {why}"),
    };
    let options = ipsec::Options { queues: 2, deliver_refused: true, ..Default::default() };
    for name in ["ok_esp_gateway", "ok_esp_gateway_and_port"] {
        let load = LoadOptions { workers: 2, exec: Exec::Jit, ..LoadOptions::default() };
        let program = Program::load(&object, Select::Name(name), &env, &load).unwrap();
        churn_with(|table| Ipsec::new(options.clone(), table), Some(&program));
    }
}

fn churn(port: impl FnOnce(Arc<Table>) -> Ipsec) {
    churn_with(port, None);
}

/// Runs with a program on the source, or without one and with the accelerator behind it.
fn churn_with(port: impl FnOnce(Arc<Table>) -> Ipsec, program: Option<&Program>) {
    let time = Duration::from_secs(number("TOWPATH_CHURN_SECONDS").unwrap_or(2));
    let seed = number("TOWPATH_CHURN_SEED").unwrap_or(1);
    let worker = WorkerOptions { cpu: None, mode: Mode::Adaptive, ..WorkerOptions::default() };
    let engine = Engine::start(&Options { workers: vec![worker; 2], frames: 4096 }).unwrap();
    let table = Arc::new(Table::new(TableLimits::default()));
    let (source, witness) = (Mutants::new(seed), Witness::default());
    let options =
        |name: &str, ifindex| PortOptions { ifindex: Some(ifindex), ..PortOptions::new(name) };
    let from = engine.add_port(options("from", 11), Box::new(source.clone())).unwrap();
    let port = Box::new(port(Arc::clone(&table)));
    let esp = engine.add_port(options("esp", 12), port).unwrap();
    engine.add_port(options("to", 13), Box::new(witness.clone())).unwrap();
    let behind = if program.is_some() { "to" } else { "esp" };
    if let Some(program) = program {
        let programs = [program.clone()];
        engine.change(|config| towpath_bench::attach(config, from, &programs, 2, 0)).unwrap();
    }
    for (port, to) in [(from, behind), (esp, "to")] {
        let upper = UpperName::Named(to.to_owned());
        engine.change(|config| config.set_upper(port, upper)).unwrap();
    }
    let mut changes = Changes::new(&table, seed);
    let start = Instant::now();
    let mut memory = None;
    while start.elapsed() < time {
        for _ in 0..100 {
            changes.step();
        }
        if start.elapsed() > time / 4 {
            memory.get_or_insert_with(resident);
        }
        std::thread::yield_now();
    }
    let growth = resident().saturating_sub(memory.unwrap_or_default());
    source.stop();
    while !engine.conservation().is_settled() {
        assert!(start.elapsed() < time + Duration::from_secs(60), "frames do not settle");
        std::thread::sleep(Duration::from_millis(1));
    }
    engine.stop();
    println!("seed {seed}, {time:?}: {} changes, memory grew by {growth} KiB", changes.count());
    print!("{witness}");
    assert_eq!(engine.conservation().missing(), 0);
    witness.check();
    assert!(growth < MEMORY_KIB_MAX, "memory grew by {growth} KiB");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Resident memory of the process in KiB.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64 / 1024
}

/// Memory that may be added after a quarter of the time: the allocator's and that of rings.
const MEMORY_KIB_MAX: u64 = 32 * 1024;
