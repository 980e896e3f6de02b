//! Drawing of the screen.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Padding, Paragraph, Row, Sparkline, Table, Wrap};

use super::reading::Total;
use super::screen::Screen;
use super::sheet::{Cell, GAP, Sheet, Tone, short};
use super::views::View;
use crate::output::Align;

/// Draws the whole screen.
pub(super) fn draw(screen: &mut Screen, frame: &mut Frame<'_>) {
    let area = frame.area();
    let alarms = alarms(screen, area.width);
    let chart = if area.height >= CHART_FROM_HEIGHT { CHART_HEIGHT } else { 0 };
    let [head, chart, tabs, rows, alarm, keys] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(chart),
        Constraint::Length(1),
        Constraint::Min(2),
        Constraint::Length(alarms.len() as u16),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(self::head(screen, head.width), head);
    if chart.height > 0 {
        draw_chart(screen, frame, chart);
    }
    frame.render_widget(self::tabs(screen), tabs);
    draw_rows(screen, frame, rows);
    frame.render_widget(Paragraph::new(alarms), alarm);
    frame.render_widget(self::keys(keys.width), keys);
    if screen.shows_help {
        draw_help(frame, area);
    }
}

/// The top lines: the daemon, and the traffic of all ports.
fn head(screen: &Screen, width: u16) -> Paragraph<'static> {
    let status = &screen.now.status;
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    let daemon = format!(
        "towpath {}, pid {}, {} worker{}, {} port{}",
        status.version,
        status.pid,
        status.workers,
        plural(status.workers),
        status.ports.len(),
        plural(status.ports.len()),
    );
    let pace = match screen.is_paused {
        true => "paused".to_owned(),
        false => format!("every {:?}", screen.period),
    };
    let gap = usize::from(width).saturating_sub(daemon.chars().count() + pace.len()).max(1);
    let Total { rx, rx_bits, tx, tx_bits, drops } = screen.rates.total();
    let number = |number: u64| Span::raw(short(number as f64)).bold();
    let mut sums = vec![
        Span::raw("rx "),
        number(rx),
        Span::raw("/s "),
        number(rx_bits),
        Span::raw("bit/s  tx "),
        number(tx),
        Span::raw("/s "),
        number(tx_bits),
        Span::raw("bit/s  drop "),
        number(drops).style(tone(if drops > 0 { Tone::Bad } else { Tone::Plain })),
        Span::raw("/s"),
    ];
    let missing = screen.now.stats.frames.missing;
    if missing != 0 {
        sums.push(Span::styled(format!("  missing {missing}"), tone(Tone::Bad)));
    }
    let daemon = Line::from(vec![
        Span::raw(daemon).bold(),
        Span::raw(" ".repeat(gap)),
        Span::styled(pace, tone(if screen.is_paused { Tone::Bad } else { Tone::Faint })),
    ]);
    Paragraph::new(vec![daemon, Line::from(sums)])
}

/// Draws a chart of the frames that arrived, one column for each period.
fn draw_chart(screen: &Screen, frame: &mut Frame<'_>, area: Rect) {
    let [label, chart] =
        Layout::horizontal([Constraint::Length(LABEL_WIDTH), Constraint::Min(1)]).areas(area);
    let shown = screen.past.len().min(usize::from(chart.width));
    let values: Vec<u64> =
        screen.past.iter().skip(screen.past.len() - shown).map(|it| it.rx).collect();
    let most = values.iter().copied().max().unwrap_or(0);
    let labels =
        vec![Line::from(format!("{}/s", short(most as f64))), Line::from("rx"), Line::from("0")];
    let labels = Paragraph::new(labels).alignment(Alignment::Right).style(tone(Tone::Faint));
    frame.render_widget(labels, Rect { width: label.width.saturating_sub(1), ..label });
    // The latest period is at the right edge.
    let free = chart.width.saturating_sub(shown as u16);
    let chart = Rect { x: chart.x + free, width: chart.width - free, ..chart };
    let bars = Sparkline::default().data(&values).max(most.max(1));
    frame.render_widget(bars.style(Style::new().fg(Color::Cyan)), chart);
}

fn tabs(screen: &Screen) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, view) in (1..).zip(View::ALL) {
        let is_seen = view == screen.view;
        let style =
            if is_seen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        spans.push(Span::styled(format!(" {number} {} ", view.title()), style));
        spans.push(Span::raw(" "));
    }
    Line::from(spans)
}

fn draw_rows(screen: &mut Screen, frame: &mut Frame<'_>, area: Rect) {
    let sheet = screen.sheet();
    if sheet.rows.is_empty() {
        let nothing = Paragraph::new(sheet.nothing).wrap(Wrap { trim: true });
        return frame.render_widget(nothing.style(tone(Tone::Faint)), area);
    }
    let shown = sheet.fitting(area.width);
    let place = screen.place_mut();
    let title = titles(&sheet, &shown, place.column, place.is_descending);
    let rows = sheet.rows.iter().map(|row| {
        Row::new(shown.iter().map(|(column, width)| {
            let Cell { text, tone: how, .. } = &row[*column];
            cell(text, *width, sheet.columns[*column].align).style(tone(*how))
        }))
    });
    let widths = shown.iter().map(|(_, width)| Constraint::Length(*width));
    let table = Table::new(rows, widths)
        .header(title)
        .column_spacing(GAP)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    // The selected row may be gone, so the selection is limited to the last one.
    let last = sheet.rows.len() - 1;
    place.rows.select(Some(place.rows.selected().unwrap_or(0).min(last)));
    frame.render_stateful_widget(table, area, &mut place.rows);
}

/// Titles, with a mark at the column that rows are ordered by.
fn titles(sheet: &Sheet, shown: &[(usize, u16)], by: usize, is_descending: bool) -> Row<'static> {
    let mark = if is_descending { "v" } else { "^" };
    let titles = shown.iter().map(|&(column, width)| {
        let it = &sheet.columns[column];
        let text = match (column == by, it.align) {
            (false, _) => it.title.to_owned(),
            (true, Align::Left) => format!("{}{mark}", it.title),
            (true, Align::Right) => format!("{mark}{}", it.title),
        };
        cell(&text, width, it.align)
    });
    Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD))
}

fn cell(text: &str, width: u16, align: Align) -> ratatui::widgets::Cell<'static> {
    let (text, width) = (text.to_owned(), usize::from(width));
    ratatui::widgets::Cell::new(match align {
        Align::Left => text,
        Align::Right => format!("{text:>width$}"),
    })
}

/// Failures, warnings and troubles: a line each.
fn alarms(screen: &Screen, width: u16) -> Vec<Line<'static>> {
    let status = &screen.now.status;
    let failures = status.failures.iter().map(|it| format!("failed: {it}"));
    let warnings = status.warnings.iter().map(|it| format!("warning: {it}"));
    let trouble = screen.trouble.iter().cloned();
    let all: Vec<String> = trouble.chain(failures).chain(warnings).collect();
    let more = all.len().saturating_sub(ALARMS_MAX);
    let mut lines: Vec<String> = all.into_iter().take(ALARMS_MAX).collect();
    if more > 0 {
        lines.push(format!("and {more} more: `towpath status` has them"));
    }
    let cut = |line: String| {
        let width = usize::from(width);
        let is_long = line.chars().count() > width;
        let kept = line.lines().next().unwrap_or_default().chars();
        let kept: String =
            kept.take(if is_long { width.saturating_sub(1) } else { width }).collect();
        if is_long { format!("{kept}…") } else { kept }
    };
    lines.into_iter().map(|line| Line::styled(cut(line), tone(Tone::Bad))).collect()
}

fn keys(width: u16) -> Line<'static> {
    let wide = "q quit  1-5 Tab view  s S sort  r reverse  + - pace  space pause  ? help";
    let text = if usize::from(width) >= wide.len() { wide } else { "q quit  ? help" };
    Line::styled(text, tone(Tone::Faint))
}

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let lines: Vec<Line<'_>> = HELP.lines().map(Line::from).collect();
    let (width, height) = (HELP_WIDTH.min(area.width), (lines.len() as u16 + 2).min(area.height));
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let block = Block::bordered().title(" towpath top ").padding(Padding::horizontal(1));
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(block), place);
}

fn tone(tone: Tone) -> Style {
    match tone {
        Tone::Plain => Style::new(),
        Tone::Faint => Style::new().add_modifier(Modifier::DIM),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Bad => Style::new().fg(Color::Red),
    }
}

const HELP: &str = "\
1 ... 5   ports, programs, maps, drops, workers
Tab, ← →  next and previous view
↑ ↓ j k   up and down; PgUp, PgDn, Home, End
s S       order by the next column, the one before
r         the other way round
+ -       twice as often, half as often
space     pause
q         quit (Esc, Ctrl-C)

Narrow terminals show fewer columns.
BUSY: share of the time in which a worker has something to do.
FULL: elements of a map in per cent of its capacity.
Any key goes back.";
const HELP_WIDTH: u16 = 58;
const ALARMS_MAX: usize = 3;
/// Height below which only tables are drawn.
const CHART_FROM_HEIGHT: u16 = 16;
const CHART_HEIGHT: u16 = 3;
const LABEL_WIDTH: u16 = 9;
