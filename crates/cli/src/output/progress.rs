//! A progress bar on standard error, if that is a terminal and the wait is long enough to notice.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Progress of a run over a capture, by bytes read.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar of `total` bytes; without a total (standard input) it only counts.
    pub(crate) fn new(total: Option<u64>) -> Self {
        // indicatif hides the bar if standard error is no terminal; it draws at most 10 times a
        // second, so that drawing takes no time from the program.
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

    /// Number of bytes, if known.
    pub(crate) fn total(&self) -> Option<u64> {
        self.bar.length()
    }

    /// Sets the position of the run.
    pub(crate) fn at(&self, bytes: u64, frames: u64) {
        self.bar.set_position(bytes);
        self.bar.set_message(format!("{} frames", super::grouped(frames)));
    }

    /// Removes the bar at the end of the run.
    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}
