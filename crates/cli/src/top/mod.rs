//! `top`: ports, programs, maps, drops and workers of a daemon in a terminal, live.
//!
//! A thread asks the daemon, so that keys are answered even if the daemon is slow. Its latest
//! answer is a [`Reading`]; each view makes a [`Sheet`] of that, and [`draw`] puts sheets on the
//! screen.

mod draw;
mod reading;
mod screen;
mod sheet;
#[cfg(test)]
mod tests;
mod views;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::SIGTERM;
use towpath_daemon::client::{Client, ClientError};

use crate::args::TopArgs;
use crate::daemon::client;
use crate::error::CliError;
use crate::output::Output;
use reading::Reading;
use screen::{Request, Screen};

/// Message of the thread that asks the daemon.
type News = Result<Reading, ClientError>;

/// Shows the screen until the user presses q.
pub(crate) fn top(args: &TopArgs, output: &Output) -> Result<(), CliError> {
    let other = "`towpath stats -i 1` prints rates, with --json for programs";
    if output.json {
        return Err(CliError::Daemon(format!("top is for people: {other}")));
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(CliError::Daemon(format!("top needs a terminal: {other}")));
    }
    let client = client(&args.daemon)?;
    // If no daemon answers, the command ends here, before it changes the terminal.
    let first = Reading::take(&client)?;
    let ends = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGTERM, Arc::clone(&ends)).map_err(CliError::Stdout)?;
    let period = Duration::from_secs_f64(args.interval);
    let (pace, paces) = channel();
    let (tell, told) = channel();
    thread::spawn(move || ask(&client, period, &paces, &tell));
    let mut screen = Screen::new(first, period);
    let mut terminal = ratatui::try_init().map_err(CliError::Stdout)?;
    let result = show(&mut terminal, &mut screen, &told, &pace, &ends);
    ratatui::restore();
    result.map_err(CliError::Stdout)
}

/// Asks the daemon once in a period, until the receiver is gone.
fn ask(client: &Client, mut period: Duration, paces: &Receiver<Duration>, tell: &Sender<News>) {
    loop {
        match paces.recv_timeout(period) {
            Ok(other) => period = other,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if tell.send(Reading::take(client)).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    screen: &mut Screen,
    told: &Receiver<News>,
    pace: &Sender<Duration>,
    ends: &AtomicBool,
) -> std::io::Result<()> {
    let mut is_new = true;
    while !ends.load(Ordering::Relaxed) {
        if is_new {
            terminal.draw(|frame| draw::draw(screen, frame))?;
        }
        is_new = false;
        if event::poll(TICK)? {
            is_new = true;
            if let Event::Key(key) = event::read()?
                && key.kind == KeyEventKind::Press
            {
                match screen.press(key) {
                    Request::End => return Ok(()),
                    // Without a receiver the thread has ended: its last message has the reason.
                    Request::Pace(period) => _ = pace.send(period),
                    Request::Nothing => {}
                }
            }
        }
        while let Ok(news) = told.try_recv() {
            is_new = true;
            screen.take(news);
        }
    }
    Ok(())
}

/// Longest time until a message is shown.
const TICK: Duration = Duration::from_millis(100);
