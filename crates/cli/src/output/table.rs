//! Tables for people: aligned columns, no lines, cells wrapped when the terminal is too narrow.

use comfy_table::{CellAlignment, ContentArrangement, TableComponent, presets};

use super::Style;

/// Alignment of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    /// Left: for words.
    Left,
    /// Right: for numbers.
    Right,
}

/// A table being filled.
#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<String>,
    alignments: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns.
    pub(crate) fn new<N: AsRef<str>>(columns: &[(N, Align)]) -> Self {
        Table {
            header: columns.iter().map(|(name, _)| name.as_ref().to_owned()).collect(),
            alignments: columns.iter().map(|(_, align)| *align).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, each ending with a newline.
    pub(super) fn render(&self, style: Style) -> String {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::NOTHING);
        table.set_style(TableComponent::VerticalLines, ' ');
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(&self.header);
        for row in &self.rows {
            table.add_row(row);
        }
        for (column, align) in table.column_iter_mut().zip(&self.alignments) {
            column.set_cell_alignment(match align {
                Align::Left => CellAlignment::Left,
                Align::Right => CellAlignment::Right,
            });
        }
        let mut text = String::new();
        for (index, line) in table.to_string().lines().enumerate() {
            let line = line.trim_end();
            let line = if index == 0 { style.bold(line) } else { line.to_owned() };
            text.push(' ');
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

/// A number with spaces between groups of three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in the unit that needs the fewest digits.
pub(crate) fn in_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_made_readable() {
        assert_eq!(grouped(7), "7");
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(in_bytes(1023), "1023 B");
        assert_eq!(in_bytes(1536), "1.5 KiB");
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("count", Align::Right)]);
        table.row(vec!["a".to_owned(), "1".to_owned()]);
        table.row(vec!["longer".to_owned(), "1000".to_owned()]);
        let text = table.render(Style::new(false));
        let widths: Vec<usize> = text.lines().map(str::len).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{text}");
    }
}
