//! `towpath bench --helpers`: the cost of single helpers, kfuncs and map operations.
//!
//! The programs (`bench/prices`) do one thing many times and return how often it went as expected.
//! Both sides run each in turn, and the least time of all rounds counts: whatever disturbs only
//! adds to it.

mod sides;

use serde::Serialize;
use towpath_bpf::Env;
use towpath_xdp::Exec;

use super::feed::{Feed, Renewal};
use super::measure::{calibrate, own_window};
use super::result::{Method, Skipped};
use super::side::Side;
use super::targets::price_targets;
use super::{method, peer_name, print_skipped};
use crate::args::{BenchArgs, RunExec};
use crate::error::{CliError, Status};
use crate::output::Output;
use crate::program::Opened;
use crate::verify::xdp_programs;
use sides::Sides;

/// The `--json` document.
#[derive(Debug, Serialize)]
struct Prices {
    /// The peer that was compared with.
    against: &'static str,
    /// One price for each program and `--exec`.
    prices: Vec<Price>,
    /// Programs that were not measured.
    skipped: Vec<Skipped>,
    /// How and where the figures were made.
    method: Method,
}

/// Cost of one operation.
#[derive(Debug, Serialize)]
struct Price {
    name: String,
    object: String,
    /// Value of `--exec`.
    exec: &'static str,
    /// The engine that really executed it.
    ran: &'static str,
    /// Time for one operation; the least of all rounds.
    ns: f64,
    peer_ns: f64,
    /// Number of the [`REPEATS`] operations that went as expected, here and in the peer.
    done: [u32; 2],
}

/// One engine's program under measurement.
struct Lane<'a> {
    program: Box<dyn Side + 'a>,
    empty: Box<dyn Side + 'a>,
    runs: u64,
    /// Least times of a run so far: the program's and the empty program's.
    least: [f64; 2],
    done: u32,
}

/// Measures every program of the price list.
pub(super) fn prices(args: &BenchArgs, env: &Env, output: &mut Output) -> Result<Status, CliError> {
    let mut list = Prices {
        against: peer_name(args.against),
        prices: Vec::new(),
        skipped: Vec::new(),
        method: method(args),
    };
    for target in price_targets(args)? {
        let opened = Opened::with_env(&target.path, &args.program, env.clone())?;
        for index in xdp_programs(&opened) {
            let name = opened.program_name(index).to_owned();
            let is_other = args.selection.name.as_ref().is_some_and(|wanted| *wanted != name);
            if is_other || name == PREPARATION {
                continue;
            }
            let object = opened.path.display().to_string();
            let sides = Sides { args, opened: &opened, map_init: target.map_init.as_deref() };
            match measure(&sides, index) {
                Ok(measured) => {
                    for price in measured {
                        print(&price, output)?;
                        list.prices.push(price);
                    }
                }
                Err(reason) => {
                    let skipped = Skipped { name, object, reason };
                    print_skipped(&skipped, output)?;
                    list.skipped.push(skipped);
                }
            }
        }
    }
    if output.json {
        output.json(&list)?;
    } else {
        print_summary(&list, output)?;
    }
    Ok(Status::Ok)
}

fn measure(sides: &Sides<'_>, program: usize) -> Result<Vec<Price>, String> {
    let feed = Feed::new(&frame(), Renewal::Kept);
    let linked = sides.opened.link(program).map_err(|error| error.to_string())?;
    let mut peer = Lane::new(sides.peer(&linked, &feed)?, sides.args)?;
    let mut lanes = Vec::new();
    for &exec in &sides.args.exec {
        let (pair, ran) = sides.here(&linked.name, exec, &feed)?;
        lanes.push((exec, ran, Lane::new(pair, sides.args)?));
    }
    for _ in 0..sides.args.rounds {
        peer.round()?;
        for (.., lane) in &mut lanes {
            lane.round()?;
        }
    }
    let price = |(exec, ran, lane): &(RunExec, Exec, Lane<'_>)| Price {
        name: linked.name.clone(),
        object: sides.opened.path.display().to_string(),
        exec: Exec::from(*exec).name(),
        ran: ran.name(),
        ns: lane.ns(),
        peer_ns: peer.ns(),
        done: [lane.done, peer.done],
    };
    Ok(lanes.iter().map(price).collect())
}

impl<'a> Lane<'a> {
    fn new(sides: [Box<dyn Side + 'a>; 2], args: &BenchArgs) -> Result<Self, String> {
        let [mut program, empty] = sides;
        let runs = calibrate(&mut *program, own_window(args))?;
        Ok(Lane { program, empty, runs, least: [f64::INFINITY; 2], done: 0 })
    }

    fn round(&mut self) -> Result<(), String> {
        let Lane { program, empty, runs, least: [least, least_empty], done } = self;
        *least_empty = least_empty.min(empty.time(*runs)?.ns());
        let timed = program.time(*runs)?;
        *least = least.min(timed.ns());
        *done = timed.retval;
        Ok(())
    }

    /// Time for one operation, in nanoseconds.
    fn ns(&self) -> f64 {
        let [least, least_empty] = self.least;
        (least - least_empty).max(0.0) / f64::from(REPEATS)
    }
}

fn print(price: &Price, output: &mut Output) -> Result<(), CliError> {
    if output.json {
        return Ok(());
    }
    let Price { name, exec, ran, ns, peer_ns, done: [done, peer_done], .. } = price;
    let style = output.style;
    let difference = format!("{:>+9.1}", ns - peer_ns);
    let difference = if price.is_slower() { difference } else { style.good(&difference) };
    let mut about = if ran == exec { String::new() } else { "  interpreted".to_owned() };
    if (*done, *peer_done) != (REPEATS, REPEATS) {
        about = format!("{about}  went well {done} times of {REPEATS}, {peer_done} there");
    }
    output.line(&format!(
        "{}  {exec:<6} {ns:>9.1} ns {peer_ns:>9.1} ns {difference}{about}",
        style.bold(&format!("{name:<36}"))
    ))?;
    output.flush()
}

impl Price {
    /// Whether it is slower here, by more than the measurement noise.
    fn is_slower(&self) -> bool {
        self.ns > self.peer_ns * RATIO_NOISE + NOISE_NS
    }
}

fn print_summary(list: &Prices, output: &mut Output) -> Result<(), CliError> {
    let slower = list.prices.iter().filter(|price| price.is_slower()).count();
    output.line("")?;
    output.line(&format!(
        "{} prices: {slower} higher than {}'s, {} not measured",
        list.prices.len(),
        list.against,
        list.skipped.len()
    ))
}

/// An Ethernet frame that is long enough for every program.
fn frame() -> Vec<u8> {
    let mut frame = vec![0; FRAME_BYTES];
    frame[12..14].copy_from_slice(&[8, 0]);
    frame
}

/// The same number as `REPEATS` of `bench/prices/price.h`.
const REPEATS: u32 = 16;
/// The program that runs once before each of the others.
const PREPARATION: &str = "prepare";
const FRAME_BYTES: usize = 256;
/// Prices that differ by less are equal.
const NOISE_NS: f64 = 0.3;
const RATIO_NOISE: f64 = 1.05;
