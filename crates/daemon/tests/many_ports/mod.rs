//! Many ports: what a start, a change of one and an end ask of the engine does not grow with their
//! number.

use std::fmt::Write as _;

use towpath_daemon::State;
use towpath_daemon::live::Live;

use crate::running::{start, start_with};

/// Ports, half of them with a program where it can be, in whatever order they were written.
fn config(kind: &str, count: usize) -> String {
    let mut text = "[[worker]]\n[[worker]]\n[[bridge]]\nname = \"br\"\n".to_owned();
    for number in 0..count {
        let _ = writeln!(text, "[[port]]\nname = \"p{number}\"\nkind = \"{kind}\"");
        match kind {
            "pair" => {
                let _ = writeln!(text, "peer = \"p{}\"", number ^ 1);
            }
            "generator" => {
                let _ = writeln!(text, "frames = [\"{}\"]\nrate = 1", "02".repeat(60));
            }
            _ => {}
        }
        if number % 2 == 0 && kind != "sink" {
            let _ = writeln!(
                text,
                "upper = \"br\"\n[[attach]]\nport = \"p{number}\"\nobject = \"every_verdict.o\"\n\
                 program = \"every_verdict\"\nexec = \"interp\""
            );
        }
    }
    text
}

/// Snapshots that workers took over.
fn snapshots(live: &Live) -> u64 {
    live.engine().read(|_, snapshot| snapshot.generation)
}

/// Snapshots that a start, a change of one port, the removal of one and an end take.
fn counted(kind: &str, count: usize) -> [u64; 4] {
    let (mut live, mut state) = start(&config(kind, count));
    let started = snapshots(&live);
    let step = |state: &State, live: &mut Live| {
        let before = snapshots(live);
        let report = live.reconcile(state);
        assert_eq!(report.failures, [], "{report:?}");
        snapshots(live) - before
    };
    state.ports[count / 2].up = false;
    let changed = step(&state, &mut live);
    state.attachments.clear();
    state.programs.clear();
    // A pair goes as a whole.
    state.ports.truncate(count - 2);
    let removed = step(&state, &mut live);
    state.ports.clear();
    let ended = step(&state, &mut live);
    assert!(live.ports().is_empty());
    live.stop();
    [started, changed, removed, ended]
}

#[test]
fn a_port_more_takes_no_snapshot_more() {
    for kind in ["sink", "pair", "generator"] {
        let (few, many) = (counted(kind, 10), counted(kind, 40));
        assert_eq!(few, many, "{kind}");
        assert!(many.iter().all(|&count| count <= 5), "{kind}: {many:?}");
    }
}

/// If one port of a pair cannot be opened, the other one is not either; all other ports are.
#[test]
fn ports_that_cannot_be_had_keep_none_from_coming() {
    let config = config("pair", 8).replace("name = \"p5\"\n", "name = \"p5\"\nifindex = 77\n");
    let taken = config.replace("name = \"p3\"\n", "name = \"p3\"\nifindex = 77\n");
    let (mut live, state, report) = start_with(&taken, |_| {}, &Default::default());
    let failures: Vec<String> = report.failures.iter().map(ToString::to_string).collect();
    assert!(failures[0].starts_with("port p4: ") && failures[0].contains("77"), "{failures:?}");
    let open: Vec<&str> = live.ports().keys().map(String::as_str).collect();
    assert_eq!(open, ["p0", "p1", "p2", "p3", "p6", "p7"]);
    let mut next = state;
    next.ports[3].ifindex = Some(78);
    let report = live.reconcile(&next);
    assert_eq!(report.failures, [], "{report:?}");
    assert_eq!((live.ports()["p3"].ifindex, live.ports()["p5"].ifindex), (78, 77));
    live.stop();
}
