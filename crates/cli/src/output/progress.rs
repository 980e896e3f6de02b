//! A progress bar on standard error, when that is a terminal and the wait is long enough to see.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How far a run over a capture is, by bytes read.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar of `total` bytes; without a total (standard input) it only counts.
    pub(crate) fn new(total: Option<u64>) -> Self {
        // Hidden by indicatif when standard error is no terminal; 10 redraws a second at most, so
        // that drawing takes no time from the program.
        let target = ProgressDrawTarget::stderr_with_hz(10);
        let bar = ProgressBar::with_draw_target(total, target);
        let template = match total {
            Some(_) => "{bar:32} {percent:>3} %  {msg}  {eta} left",
            None => "{spinner} {msg}",
        };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress { bar }
    }

    /// Bytes there are, when that is known.
    pub(crate) fn total(&self) -> Option<u64> {
        self.bar.length()
    }

    /// Where the run is.
    pub(crate) fn at(&self, bytes: u64, frames: u64) {
        self.bar.set_position(bytes);
        self.bar.set_message(format!("{} frames", super::grouped(frames)));
    }

    /// The run is over: the bar goes away.
    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
