//! A table that can be ordered by each of its columns, and loses columns on a narrow screen.

use std::cmp::Ordering;

use towpath_daemon::natural::natural;

use crate::output::Align;

/// Properties of a column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) align: Align,
    /// Rank of the column: if there is no room, columns with the largest rank go first; 0 stays.
    pub(super) rank: u8,
}

/// A column of words.
pub(super) const fn words(title: &'static str, rank: u8) -> Column {
    Column { title, align: Align::Left, rank }
}

/// A column of numbers.
pub(super) const fn numbers(title: &'static str, rank: u8) -> Column {
    Column { title, align: Align::Right, rank }
}

/// Emphasis of a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Tone {
    #[default]
    Plain,
    /// A value without significance, like 0.
    Faint,
    Good,
    Bad,
}

/// Contents of one row in one column.
#[derive(Debug, Clone, Default)]
pub(super) struct Cell {
    pub(super) text: String,
    /// Number to order by, instead of the text.
    number: Option<f64>,
    pub(super) tone: Tone,
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), ..Cell::default() }
    }

    /// A number and its text; a faint one if it is 0.
    pub(super) fn number(number: f64, text: String) -> Cell {
        let tone = if number == 0.0 { Tone::Faint } else { Tone::Plain };
        Cell { text, number: Some(number), tone }
    }

    pub(super) fn toned(self, tone: Tone) -> Cell {
        Cell { tone, ..self }
    }

    fn order(&self, other: &Cell) -> Ordering {
        match (self.number, other.number) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            _ => natural(&self.text, &other.text),
        }
    }
}

/// A table.
#[derive(Debug)]
pub(super) struct Sheet {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Vec<Cell>>,
    /// Text to show if there are no rows.
    pub(super) nothing: &'static str,
}

impl Sheet {
    /// Orders rows; rows that are equal keep their order.
    pub(super) fn order(&mut self, column: usize, is_descending: bool) {
        self.rows.sort_by(|one, other| {
            let order = one[column].order(&other[column]);
            if is_descending { order.reverse() } else { order }
        });
    }

    /// Columns that fit into the width, with their own widths.
    pub(super) fn fitting(&self, width: u16) -> Vec<(usize, u16)> {
        let width_of = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].text.chars().count());
            // The width includes the mark of the column that rows are ordered by.
            let title = self.columns[column].title.chars().count() + 1;
            u16::try_from(cells.max().unwrap_or(0).max(title)).unwrap_or(u16::MAX)
        };
        let mut shown: Vec<(usize, u16)> =
            (0..self.columns.len()).map(|column| (column, width_of(column))).collect();
        let needs = |shown: &[(usize, u16)]| {
            shown.iter().map(|(_, width)| u32::from(*width) + u32::from(GAP)).sum::<u32>()
        };
        while needs(&shown) > u32::from(width) + u32::from(GAP) {
            let last = shown.iter().enumerate().max_by_key(|(_, (at, _))| self.columns[*at].rank);
            match last {
                Some((place, (at, _))) if self.columns[*at].rank > 0 => _ = shown.remove(place),
                _ => break,
            }
        }
        shown
    }
}

/// Columns of space between two columns.
pub(super) const GAP: u16 = 2;

/// A number with at most three digits before its unit: `985`, `12.3k`, `1.23M`.
pub(super) fn short(number: f64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    let (mut value, mut unit) = (number.abs(), 0);
    // A value that rounds to 1000 is shown in the next unit.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = match (unit, value) {
        (0, _) => 0,
        (_, ..9.995) => 2,
        (_, ..99.95) => 1,
        _ => 0,
    };
    let sign = if number < 0.0 && value > 0.5 { "-" } else { "" };
    format!("{sign}{value:.digits$}{}", UNITS[unit])
}
