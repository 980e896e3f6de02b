//! Rate limit of log lines that outside parties cause, so that a flapping link or a misbehaving
//! client does not fill the disk. The first few lines about a subject are logged; further ones are
//! counted, and one line gives their number.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Recent log lines, by subject.
#[derive(Debug, Default)]
pub(crate) struct LogLimit(Mutex<BTreeMap<String, Window>>);

/// Lines about one subject in the current period.
#[derive(Debug)]
struct Window {
    since: Instant,
    lines: u32,
    left_out: u64,
    /// The last line left out.
    last: String,
}

impl LogLimit {
    /// Whether a line is to be logged now; otherwise it is counted.
    pub(crate) fn admits(&self, subject: &str, line: &str, now: Instant) -> bool {
        let mut all = self.0.lock();
        // Outside parties determine the number of subjects.
        let subject = if all.len() < SUBJECTS_MAX { subject } else { OTHERS };
        let window = all.entry(subject.to_owned()).or_insert_with(|| Window {
            since: now,
            lines: 0,
            left_out: 0,
            last: String::new(),
        });
        assert!(window.lines <= LINES_MAX, "what is beyond is left out");
        if window.lines < LINES_MAX {
            window.lines += 1;
            return true;
        }
        window.left_out += 1;
        line.clone_into(&mut window.last);
        false
    }

    /// Ends the periods that are over, and returns a line for each that left out lines.
    pub(crate) fn take_over(&self, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        self.0.lock().retain(|subject, window| {
            let is_over = now.duration_since(window.since) >= PERIOD;
            if is_over && window.left_out > 0 {
                let Window { left_out, last, .. } = window;
                let seconds = PERIOD.as_secs();
                lines.push(format!(
                    "{subject}: {left_out} more lines in {seconds} s; the last: {last}"
                ));
            }
            !is_over
        });
        lines
    }
}

/// Lines about a subject that are logged within [`PERIOD`].
const LINES_MAX: u32 = 5;
const PERIOD: Duration = Duration::from_secs(10);
const SUBJECTS_MAX: usize = 256;
const _: () = assert!(LINES_MAX > 0 && SUBJECTS_MAX > 0, "something is told");
/// Common name of subjects beyond [`SUBJECTS_MAX`].
const OTHERS: &str = "others";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_lines_come_at_once_and_the_others_are_counted() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        let line = |number: u32| format!("line {number}");
        let written = (0..1000).filter(|&it| limit.admits("port p0", &line(it), start)).count();
        assert_eq!(written, LINES_MAX as usize);
        assert!(limit.admits("port p1", "another subject", start));
        assert_eq!(limit.take_over(start + PERIOD / 2), [] as [String; 0]);
        let lines = limit.take_over(start + PERIOD);
        assert_eq!(lines, ["port p0: 995 more lines in 10 s; the last: line 999"]);
        assert!(limit.admits("port p0", "a new window", start + PERIOD));
    }

    #[test]
    fn however_many_subjects_there_are_memory_is_bounded() {
        let (limit, start) = (LogLimit::default(), Instant::now());
        let written = (0..100_000).filter(|it| limit.admits(&it.to_string(), "", start)).count();
        assert_eq!(written, SUBJECTS_MAX + LINES_MAX as usize);
        assert_eq!(limit.take_over(start + PERIOD).len(), 1);
    }
}
