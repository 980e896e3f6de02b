//! Reconciling under full load: no frame is lost, none passes without a program, and what did not
//! change is not touched.

mod keep;
mod many_ports;
mod running;

use std::path::Path;
use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_daemon::State;
use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::live::{Failure, Live};
use towpath_daemon::state::AttachState;
use towpath_engine::Hook;
use towpath_engine::counters::DropReason;
use towpath_jit::passes::Pass;
use towpath_jit::xir::{Alias, Function, Op, Type};
use towpath_objects::{ProgramObject, Selector, Session};

use running::{start, start_with, sum, wait_for};

/// A generator as fast as it goes, whose frames pass their program and end in a sink.
const CONFIG: &str = r#"
[[worker]]
[[worker]]
[[port]]
name = "gen"
kind = "generator"
frames = ["02000000000202000000000108000000000000000000000000000000"]
upper = "out"
[[port]]
name = "out"
kind = "sink"
[[attach]]
port = "gen"
object = "every_verdict.o"
program = "every_verdict"
"#;

fn wait_for_traffic(live: &Live) {
    let count = || sum(live, "gen", |it| it.rx_packets.get());
    let before = count();
    wait_for("traffic", || count() >= before + 1000);
}

#[test]
fn a_reconciliation_without_difference_changes_nothing() {
    let (mut live, state) = start(CONFIG);
    let generation = live.engine().read(|_, snapshot| snapshot.generation);
    let report = live.reconcile(&state);
    assert_eq!(report.changes, Vec::<String>::new());
    assert_eq!(live.engine().read(|_, snapshot| snapshot.generation), generation);
}

#[test]
fn every_frame_is_judged_while_programs_are_replaced_and_ports_come_and_go() {
    let (mut live, mut state) = start(CONFIG);
    let more = parse(
        "[[port]]\nname = \"a\"\nkind = \"pair\"\npeer = \"b\"\n\
         [[port]]\nname = \"b\"\nkind = \"pair\"\npeer = \"a\"\n",
        Path::new("t.toml"),
        Path::new("."),
        &ObjectFiles::default(),
    );
    let more = more.expect("it is fine").state.ports;
    for round in 1..=ROUNDS {
        wait_for_traffic(&live);
        state.programs[0].generation = round;
        state.ports.truncate(2);
        if round % 2 == 0 {
            state.ports.extend(more.clone());
        }
        let report = live.reconcile(&state);
        assert_eq!(report.failures, [], "{report:?}");
        assert!(report.changes.iter().any(|line| line.contains("replaced")), "{report:?}");
        assert!(report.changes.iter().all(|line| !line.starts_with("port gen: removed")));
    }
    assert_eq!(live.programs().len(), 1, "replaced programs are gone");
    live.stop();
    let received = sum(&live, "gen", |it| it.rx_packets.get());
    let judged = sum(&live, "gen", |it| it.actions.iter().map(|action| action.get()).sum());
    assert_eq!(received, judged, "frames passed without a program");
    assert_eq!(sum(&live, "gen", |it| it.drops[DropReason::NoUpper as usize].get()), 0);
    assert_eq!(sum(&live, "out", |it| it.tx_packets.get()), received);
    assert_eq!(live.engine().conservation().missing(), 0);
}

/// Stands for a mistake of the verifier's: every access to a packet goes through a null pointer,
/// where nothing is, whatever else the process has in memory.
const MISTAKE: Pass = Pass::new("mistake", "loses the packet's address", |function, _| {
    let null = function.push(Function::ENTRY, 0, Type::I64, Op::Const(0));
    for inst in &mut function.insts {
        if let Op::Load { place, .. } | Op::Store { place, .. } = &mut inst.op
            && place.alias == Alias::Packet
        {
            place.base = null;
        }
    }
});

/// A daemon whose compiler makes it.
fn start_with_mistake(config: &str) -> (Live, State) {
    let compile_wrongly = |live: &mut Live| {
        let mut compiler = towpath_jit::Options::default();
        compiler.passes.more.push(MISTAKE);
        live.set_compiler(compiler);
    };
    let (live, state, _) = start_with(config, compile_wrongly, &Default::default());
    (live, state)
}

#[test]
fn a_program_that_faults_is_detached_and_the_rest_goes_on() {
    let config = CONFIG.replace(
        "program = \"every_verdict\"",
        "program = \"every_verdict\"\nexec = \"jit\"\non_failure = \"pass\"",
    );
    let (mut live, state) = start_with_mistake(&config);
    wait_for_stops(&live, 1);
    // The interpreter runs the program until the next reconciliation.
    wait_for_traffic(&live);
    assert_eq!(on_hook(&live, "gen"), 1);
    let report = live.reconcile(&state);
    let [failure] = &report.failures[..] else { panic!("{report:?}") };
    assert!(failure.subject.starts_with("program every_verdict (id "), "{failure:?}");
    for part in ["stopped: program every_verdict", "instruction ", "every_verdict.c:", "SIGSEGV"] {
        assert!(failure.why.contains(part), "{failure:?}");
    }
    assert!(report.changes.iter().any(|line| line.ends_with("detached")), "{report:?}");
    assert_eq!(on_hook(&live, "gen"), 0);
    // It is not loaded and tried again, and the port goes on without it.
    let again = live.reconcile(&state);
    assert_eq!((again.failures, again.changes), (report.failures, Vec::new()));
    wait_for_traffic(&live);
    live.stop();
    let sum_of = |action: usize| sum(&live, "gen", |it| it.actions[action].get());
    let workers = live.engine().workers() as u64;
    assert!((1..=workers).contains(&sum_of(0)), "a frame for each worker at most");
    assert_eq!(live.engine().conservation().missing(), 0);
    assert_eq!(sum(&live, "gen", |it| it.rx_packets.get()), (0..5).map(sum_of).sum::<u64>());
}

#[test]
fn a_filter_that_faults_is_followed_by_drops_and_not_by_nothing() {
    let config = CONFIG
        .replace("program = \"every_verdict\"", "program = \"every_verdict\"\nexec = \"jit\"");
    let (mut live, state) = start_with_mistake(&config);
    wait_for_stops(&live, 1);
    let report = live.reconcile(&state);
    let codes: Vec<_> = report.failures.iter().map(|it| it.code.name()).collect();
    assert_eq!(codes, ["port-shut", "program-stopped"], "{report:?}");
    let sent = || sum(&live, "out", |it| it.tx_packets.get());
    let before = sent();
    wait_for_traffic(&live);
    assert_eq!(sent(), before, "nothing passes that nobody filters");
    assert!(sum(&live, "gen", |it| it.drops[DropReason::NoProgram as usize].get()) >= 1000);
    live.stop();
    assert_eq!(live.engine().conservation().missing(), 0);
}

/// Waits until the machine code of `wanted` programs was stopped.
fn wait_for_stops(live: &Live, wanted: usize) {
    let session = Session::new(live.registry(), 0);
    let is_stopped = |object: &&Arc<ProgramObject>| object.program().stopped().is_some();
    wait_for("stops", || session.progs().iter().filter(is_stopped).count() >= wanted);
}

/// Programs of map entries have no hook that they could be taken from: the interpreter has them.
#[test]
fn programs_of_map_entries_that_fault_are_told_of_and_interpreted() {
    let attach = r#"object = "entries.o"
program = "entries"
exec = "jit"
[attach.maps]
tx_ports = [{ key = 0, value = { ifindex = 65538, prog = "leaves" } }]
cpus = [{ key = 0, value = { qsize = 192, prog = "arrives" } }]"#;
    let config =
        CONFIG.replace("object = \"every_verdict.o\"\nprogram = \"every_verdict\"", attach);
    let (mut live, state) = start_with_mistake(&config);
    wait_for_stops(&live, 2);
    wait_for_traffic(&live);
    let report = live.reconcile(&state);
    assert_eq!(report.changes, Vec::<String>::new());
    let told = |name: &str| {
        let is_it = |it: &&Failure| it.subject.starts_with(&format!("program {name} (id "));
        let failure = report.failures.iter().find(is_it);
        failure.is_some_and(|it| it.why.contains("entries.c:") && it.why.contains("SIGSEGV"))
    };
    assert!(told("leaves") && told("arrives") && report.failures.len() == 2, "{report:?}");
    assert_eq!(on_hook(&live, "gen"), 1, "it did nothing");
    // Frames go through both still.
    let sent = || sum(&live, "out", |it| it.tx_packets.get());
    let before = sent();
    wait_for_traffic(&live);
    assert!(sent() > before, "{before}");
    live.stop();
    assert_eq!(live.engine().conservation().missing(), 0);
}

#[test]
fn a_program_that_cannot_be_replaced_stays() {
    let (mut live, mut state) = start(CONFIG);
    let id = live.links()[0].program;
    state.programs[0].program = Some("nothing".to_owned());
    let report = live.reconcile(&state);
    assert_eq!(report.failures.len(), 1, "{report:?}");
    assert_eq!(live.links()[0].program, id);
    let up = live
        .engine()
        .read(|_, snapshot| snapshot.port(live.ports()["gen"].id).is_some_and(|slot| slot.up));
    assert!(up, "it goes on");
}

/// The engine's programs on a port.
fn on_hook(live: &Live, port: &str) -> usize {
    let id = live.ports()[port].id;
    live.engine().read(|config, _| config.links(id, Hook::Rx).expect("it is open").len())
}

#[test]
fn a_hook_has_one_owner() {
    let pair = "[[port]]\nname = \"a\"\nkind = \"pair\"\npeer = \"b\"\n\
                [[port]]\nname = \"b\"\nkind = \"pair\"\npeer = \"a\"\n";
    let (mut live, mut state) = start(&format!("{CONFIG}{pair}"));
    let ids = |live: &Live, port: &str| live.ports()[port].ifindex;
    let program = Selector::Id(live.links()[0].program);
    let mut session = Session::new(live.registry(), 0);
    let (a, gen_port) = (ids(&live, "a"), ids(&live, "gen"));
    // As `ip link set dev a xdp` does through the kernel's doors.
    let refused = session.set_xdp(gen_port, Some(&program), 0).expect_err("the daemon has it");
    assert_eq!(refused.errno(), Errno::EBUSY);
    assert_eq!(session.set_xdp(9999, Some(&program), 0).expect_err("none").errno(), Errno::ENODEV);
    session.set_xdp(a, Some(&program), 0).expect("it is free");
    let native = live.registry().xdp(a).map(|state| state.native);
    assert_eq!((native, on_hook(&live, "a")), (Some(live.links()[0].program), 1));
    let generic = session.set_xdp(a, Some(&program), 2).expect_err("the other mode");
    assert_eq!(generic.errno(), Errno::EEXIST);

    let attach = AttachState { port: "a".to_owned(), ..state.attachments[0].clone() };
    state.attachments.push(attach);
    let report = live.reconcile(&state);
    assert!(report.failures.iter().any(|it| it.why.contains("(EBUSY)")), "{report:?}");
    assert_eq!((on_hook(&live, "a"), live.links().len()), (1, 1), "nothing changed");
    session.set_xdp(a, None, 0).expect("it is ours");
    assert_eq!(on_hook(&live, "a"), 0);
    assert_eq!(live.reconcile(&state).failures, []);
    assert_eq!(on_hook(&live, "a"), 1);
    assert_eq!(session.set_xdp(a, Some(&program), 0).expect_err("now").errno(), Errno::EBUSY);

    // A program that a client attached to a device is removed with the device.
    session.set_xdp(ids(&live, "b"), Some(&program), 0).expect("it is free");
    let b = ids(&live, "b");
    state.ports.retain(|port| port.name != "a" && port.name != "b");
    state.attachments.truncate(1);
    assert_eq!(live.reconcile(&state).failures, []);
    assert_eq!(live.registry().xdp(b), None);
}

const ROUNDS: u64 = 40;
