//! Table of workers: the queues that each polls, its load, and its busiest program.

use towpath_daemon::api::types::WorkerView;

use crate::output::{Align, Table, grouped};

/// Table with a line for each worker.
pub(super) fn table(workers: &[WorkerView]) -> Table {
    let mut table = Table::new(&[
        ("worker", Align::Right),
        ("cpu", Align::Right),
        ("busy", Align::Right),
        ("frames/s", Align::Right),
        ("mostly", Align::Left),
        ("polls", Align::Left),
    ]);
    for worker in workers {
        table.row(vec![
            worker.worker.to_string(),
            worker.cpu.map_or_else(|| "any".to_owned(), |cpu| cpu.to_string()),
            percent(worker.busy),
            grouped(worker.frames_per_second.round() as u64),
            mostly(worker),
            polls(worker),
        ]);
    }
    table
}

/// A share of 1 in per cent.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// The program that takes most of a worker's time.
pub(crate) fn mostly(worker: &WorkerView) -> String {
    let most = worker.programs.first();
    most.map_or_else(String::new, |most| format!("{} {}", most.name, percent(most.share)))
}

/// Ports with their queues, then ports whose flows the worker shares with others, as far as they
/// fit a line: `p0:0-3, p1:1,3, flows of p2 and 7 more ports`.
pub(crate) fn polls(worker: &WorkerView) -> String {
    let polled = worker.queues.iter().map(|it| format!("{}:{}", it.port, ranges(&it.queues)));
    let shared = worker.shares.iter().map(|port| format!("flows of {port}"));
    let text: Vec<String> = polled.chain(shared).take(PORTS_MAX).collect();
    match (worker.queues.len() + worker.shares.len()).saturating_sub(PORTS_MAX) {
        0 => text.join(", "),
        more => {
            format!("{} and {more} more port{}", text.join(", "), if more > 1 { "s" } else { "" })
        }
    }
}

/// `0-3,7`
fn ranges(numbers: &[u32]) -> String {
    let runs = numbers.chunk_by(|one, next| one + 1 == *next);
    let text = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(u32::to_string).collect(),
    });
    text.collect::<Vec<_>>().join(",")
}

/// Largest number of ports in a line.
const PORTS_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use towpath_daemon::api::types::PolledView;

    use super::*;

    #[test]
    fn queues_are_ranges_and_many_ports_a_number() {
        let port = |number: usize, queues: &[u32]| PolledView {
            port: format!("p{number}"),
            queues: queues.to_vec(),
        };
        let polls = |queues: Vec<PolledView>, shares: &[&str]| {
            let shares = shares.iter().map(|name| (*name).to_owned()).collect();
            polls(&WorkerView { queues, shares, ..WorkerView::default() })
        };
        let some = vec![port(0, &[0, 1, 2, 3]), port(1, &[1, 3, 4]), port(2, &[0])];
        assert_eq!(polls(some.clone(), &[]), "p0:0-3, p1:1,3-4, p2:0");
        assert_eq!(polls(some, &["p2"]), "p0:0-3, p1:1,3-4, p2:0, flows of p2");
        let many: Vec<PolledView> = (0..8).map(|number| port(number, &[0])).collect();
        assert!(polls(many, &[]).ends_with("p5:0 and 2 more ports"));
        assert_eq!(polls(Vec::new(), &["p0"]), "flows of p0");
        assert_eq!((polls(Vec::new(), &[]), percent(0.996)), (String::new(), "100%".to_owned()));
    }
}
