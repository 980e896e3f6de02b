//! Fewer steps that come to the same.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::steps::Step;
use crate::walk::{Finding, again};

/// A finding with steps left out as long as there is one, and time.
pub(crate) fn shrink(dir: &Path, mut finding: Box<Finding>) -> Box<Finding> {
    let start = Instant::now();
    let mut size = finding.steps.len() / 2;
    while size > 0 {
        let mut at = 0;
        while at < finding.steps.len() {
            if start.elapsed() > TIME {
                return finding;
            }
            let mut rest: Vec<Step> = finding.steps.clone();
            rest.drain(at..(at + size).min(rest.len()));
            match again(dir, &finding.lanes, &rest) {
                Err(smaller) if smaller.steps.len() < finding.steps.len() => {
                    finding = Box::new(Finding { seed: finding.seed, ..*smaller });
                }
                _ => at += size,
            }
        }
        size /= 2;
    }
    finding
}

/// For all of it.
const TIME: Duration = Duration::from_secs(300);
