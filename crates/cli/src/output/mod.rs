//! Output of results: text or JSON on standard output, with colours if it is a terminal.

mod progress;
mod style;
mod table;

pub(crate) use progress::Progress;
pub(crate) use style::Style;
pub(crate) use table::{Align, Table, grouped, in_bytes};

use std::io::{self, BufWriter, IsTerminal as _, Stderr, Stdout, Write};

use serde::Serialize;

use crate::args::OutputArgs;
use crate::error::CliError;

/// Standard output and how to use it.
#[derive(Debug)]
pub(crate) struct Output {
    stdout: BufWriter<Stream>,
    /// Whether JSON was asked for.
    pub json: bool,
    /// Number of `-v` options.
    pub verbose: u8,
    /// Colours, or none.
    pub style: Style,
    pretty: bool,
}

#[derive(Debug)]
enum Stream {
    Stdout(Stdout),
    Stderr(Stderr),
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Stdout(stream) => stream.write(bytes),
            Stream::Stderr(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Stdout(stream) => stream.flush(),
            Stream::Stderr(stream) => stream.flush(),
        }
    }
}

impl Output {
    /// Standard output in the form that the arguments ask for.
    pub(crate) fn new(args: OutputArgs) -> Self {
        let OutputArgs { json, pretty, verbose } = args;
        let stdout = io::stdout();
        // https://no-color.org: set and not empty means no colours.
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let style = Style::new(stdout.is_terminal() && !no_color && !json);
        let stdout = BufWriter::new(Stream::Stdout(stdout));
        Output { stdout, json: json || pretty, verbose, style, pretty }
    }

    /// Prints on standard error from now on, without colours: standard output has another use.
    pub(crate) fn step_aside(&mut self) -> Result<(), CliError> {
        self.flush()?;
        self.stdout = BufWriter::new(Stream::Stderr(io::stderr()));
        self.style = Style::new(false);
        Ok(())
    }

    /// Prints a line of text.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), CliError> {
        self.bytes(text.as_bytes())?;
        self.bytes(b"\n")
    }

    /// Prints prose behind a label, indented, broken between words.
    pub(crate) fn prose(&mut self, label: &str, text: &str) -> Result<(), CliError> {
        let indent = "  ".len() + label.len();
        let mut line = format!("  {label}");
        for word in text.split_whitespace() {
            let is_first = line.len() == indent;
            if !is_first && line.chars().count() + 1 + word.chars().count() > PROSE_COLUMNS {
                self.line(&line)?;
                line = " ".repeat(indent);
            } else if !is_first {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.line(&line)
    }

    /// Prints a JSON document: on one line, or over several with `--pretty`.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), CliError> {
        let result = if self.pretty {
            serde_json::to_writer_pretty(&mut self.stdout, value)
        } else {
            serde_json::to_writer(&mut self.stdout, value)
        };
        result.map_err(|error| CliError::Stdout(error.into()))?;
        self.bytes(b"\n")
    }

    /// Prints a table, indented by two spaces.
    pub(crate) fn table(&mut self, table: &Table) -> Result<(), CliError> {
        let text = table.render(self.style);
        self.bytes(text.as_bytes())
    }

    /// As [`Output::table`]; nothing at all for a table without rows.
    pub(crate) fn section(&mut self, table: &Table) -> Result<(), CliError> {
        if table.is_empty() { Ok(()) } else { self.table(table) }
    }

    /// Prints a note about the result on standard error, apart from the result itself.
    pub(crate) fn note(&self, text: &str) {
        let _told = writeln!(io::stderr(), "note: {text}");
    }

    /// Prints an error on standard error although there is a result.
    pub(crate) fn problem(&self, error: &CliError) {
        let _told = writeln!(io::stderr(), "error: {error}");
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.stdout.write_all(bytes).map_err(CliError::Stdout)
    }

    /// Makes sure that everything has left the process.
    pub(crate) fn flush(&mut self) -> Result<(), CliError> {
        self.stdout.flush().map_err(CliError::Stdout)
    }
}

/// Width of prose, in columns: wider lines are harder to read.
const PROSE_COLUMNS: usize = 96;
