//! The few colours of the output, absent unless it goes to a terminal.

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

    /// Formats a heading.
    pub(crate) fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    /// Formats less important text: addresses, source lines.
    pub(crate) fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    /// Formats an accepted item.
    pub(crate) fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Formats a refused item.
    pub(crate) fn bad(self, text: &str) -> String {
        self.paint("31", text)
    }

    /// Formats a source line between instructions.
    pub(crate) fn source(self, text: &str) -> String {
        self.paint("36", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
