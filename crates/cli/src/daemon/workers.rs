//! Workers, for people: which queues each polls, how busy it is, with which program.

use towpath_daemon::api::types::{PolledView, WorkerView};

use crate::output::{Align, Table, grouped};

/// A line a worker.
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
            polls(&worker.queues),
        ]);
    }
    table
}

/// Hundredths of a whole, as people write them.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// The program that takes most of a worker's time.
pub(crate) fn mostly(worker: &WorkerView) -> String {
    let most = worker.programs.first();
    most.map_or_else(String::new, |most| format!("{} {}", most.name, percent(most.share)))
}

/// Ports with their queues, as far as they fit a line: `p0:0-3, p1:1,3 and 7 more ports`.
pub(crate) fn polls(all: &[PolledView]) -> String {
    let shown = all.iter().take(PORTS_MAX);
    let text: Vec<String> = shown.map(|it| format!("{}:{}", it.port, ranges(&it.queues))).collect();
    match all.len().saturating_sub(PORTS_MAX) {
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

/// Ports that a line names.
const PORTS_MAX: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_ranges_and_many_ports_a_number() {
        let port = |number: usize, queues: &[u32]| PolledView {
            port: format!("p{number}"),
            queues: queues.to_vec(),
        };
        let some = [port(0, &[0, 1, 2, 3]), port(1, &[1, 3, 4]), port(2, &[0])];
        assert_eq!(polls(&some), "p0:0-3, p1:1,3-4, p2:0");
        let many: Vec<PolledView> = (0..8).map(|number| port(number, &[0])).collect();
        assert!(polls(&many).ends_with("p5:0 and 2 more ports"), "{}", polls(&many));
        assert_eq!((polls(&[]), percent(0.996)), (String::new(), "100%".to_owned()));
    }
}
