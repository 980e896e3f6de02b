//! The few colours there are, absent unless a person is looking.

/// Colours on or off.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    on: bool,
}

impl Style {
    /// With colours, or without.
    pub(crate) fn new(on: bool) -> Self {
        Style { on }
    }

    /// Headings.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// What matters less: addresses, source lines.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Accepted.
    pub(crate) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Refused.
    pub(crate) fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Source lines between instructions.
    pub(crate) fn source(self, text: &str) -> String {
        self.paint("36", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
