//! The text of the log.

/// Text up to a limit.
#[derive(Debug)]
pub(crate) struct Log {
    level: u32,
    bytes_max: usize,
    text: String,
    full: bool,
}

impl Log {
    pub(crate) fn new(level: u32, bytes_max: usize) -> Self {
        Log { level, bytes_max, text: String::new(), full: false }
    }

    /// Whether lines of `level` go into the log.
    pub(crate) fn wants(&self, level: u32) -> bool {
        self.level >= level && !self.full
    }

    /// Appends text, up to the limit.
    pub(crate) fn push(&mut self, text: &str) {
        if self.level == 0 || self.full {
            return;
        }
        if self.text.len() + text.len() > self.bytes_max {
            self.full = true;
            self.text.push_str("\n(log cut here: its limit is reached)\n");
            return;
        }
        self.text.push_str(text);
    }

    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }
}
