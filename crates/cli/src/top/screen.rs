//! Contents of the screen, and effects of keys.

use std::collections::VecDeque;
use std::time::Duration;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::widgets::TableState;

use super::News;
use super::reading::{Rates, Reading, Total};
use super::sheet::Sheet;
use super::views::View;

/// The contents of the screen.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) now: Reading,
    pub(super) rates: Rates,
    /// Traffic of all ports in each period, the latest at the back.
    pub(super) past: VecDeque<Total>,
    pub(super) period: Duration,
    pub(super) view: View,
    /// Whether updates are paused.
    pub(super) is_paused: bool,
    pub(super) shows_help: bool,
    /// Reason why there is no newer reading.
    pub(super) trouble: Option<String>,
    places: [ViewState; View::ALL.len()],
}

/// The user's position in a view.
#[derive(Debug)]
pub(super) struct ViewState {
    /// The column that rows are ordered by.
    pub(super) column: usize,
    pub(super) is_descending: bool,
    pub(super) rows: TableState,
}

/// A request that a key press makes of the loop that draws the screen.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Request {
    Nothing,
    /// Asks the daemon at this interval from now on.
    Pace(Duration),
    End,
}

impl Screen {
    pub(super) fn new(now: Reading, period: Duration) -> Screen {
        let place = |view: View| {
            let (column, is_descending) = view.first_order();
            ViewState { column, is_descending, rows: TableState::new().with_selected(0) }
        };
        Screen {
            now,
            rates: Rates::default(),
            past: VecDeque::new(),
            period,
            view: View::Ports,
            is_paused: false,
            shows_help: false,
            trouble: None,
            places: View::ALL.map(place),
        }
    }

    /// Takes the daemon's answer, or the error instead of one.
    pub(super) fn take(&mut self, news: News) {
        match news {
            Err(why) => self.trouble = Some(why.to_string()),
            Ok(_) if self.is_paused => self.trouble = None,
            Ok(now) => {
                self.trouble = None;
                self.rates = Rates::between(&self.now, &now);
                self.past.push_back(self.rates.total());
                if self.past.len() > PAST_MAX {
                    self.past.pop_front();
                }
                self.now = now;
            }
        }
    }

    /// The table of the current view, in its order.
    pub(super) fn sheet(&self) -> Sheet {
        let place = self.place();
        let mut sheet = self.view.sheet(&self.now, &self.rates);
        sheet.order(place.column, place.is_descending);
        sheet
    }

    pub(super) fn place(&self) -> &ViewState {
        &self.places[self.view as usize]
    }

    pub(super) fn place_mut(&mut self) -> &mut ViewState {
        &mut self.places[self.view as usize]
    }

    /// Handles a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> Request {
        if self.shows_help {
            self.shows_help = false;
            return Request::Nothing;
        }
        match key.code {
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return Request::End;
            }
            KeyCode::Char('q') | KeyCode::Esc => return Request::End,
            KeyCode::Char('?' | 'h') => self.shows_help = true,
            KeyCode::Char(' ' | 'p') => self.is_paused = !self.is_paused,
            KeyCode::Char(digit @ '1'..='5') => {
                self.view = View::ALL[digit as usize - '1' as usize];
            }
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(View::ALL.len() - 1),
            KeyCode::Char('s' | '>') => self.order_by(1),
            KeyCode::Char('S' | '<') => self.order_by(self.view.columns().len() - 1),
            KeyCode::Char('r') => {
                let place = self.place_mut();
                place.is_descending = !place.is_descending;
            }
            KeyCode::Char('+') => return self.pace(self.period / 2),
            KeyCode::Char('-') => return self.pace(self.period * 2),
            _ => self.walk(key.code),
        }
        Request::Nothing
    }

    fn turn(&mut self, by: usize) {
        self.view = View::ALL[(self.view as usize + by) % View::ALL.len()];
    }

    /// Orders rows by the column `by` steps further: numbers with the largest first, words by the
    /// alphabet.
    fn order_by(&mut self, by: usize) {
        let columns = self.view.columns();
        let place = self.place_mut();
        place.column = (place.column + by) % columns.len();
        place.is_descending = columns[place.column].align == crate::output::Align::Right;
    }

    fn pace(&mut self, period: Duration) -> Request {
        self.period = period.clamp(PERIOD_MIN, PERIOD_MAX);
        Request::Pace(self.period)
    }

    fn walk(&mut self, key: KeyCode) {
        let rows = &mut self.place_mut().rows;
        match key {
            KeyCode::Down | KeyCode::Char('j') => rows.select_next(),
            KeyCode::Up | KeyCode::Char('k') => rows.select_previous(),
            KeyCode::PageDown => rows.scroll_down_by(PAGE),
            KeyCode::PageUp => rows.scroll_up_by(PAGE),
            KeyCode::Home | KeyCode::Char('g') => rows.select_first(),
            KeyCode::End | KeyCode::Char('G') => rows.select_last(),
            _ => {}
        }
    }
}

/// Number of periods to keep: one for each column of a wide terminal.
const PAST_MAX: usize = 512;
const PAGE: u16 = 10;
const PERIOD_MIN: Duration = Duration::from_millis(250);
const PERIOD_MAX: Duration = Duration::from_secs(60);
