//! `bench/bond`: what a bond costs, and what its second member gains.
//!
//! The table of the kernel's commit 9e2ee5c7e7c3 ("net, bonding: Add XDP support to the bonding
//! driver"): one program without a bond, on a bond of one and on a bond of two, with a worker for
//! each member. Frames of 64 bytes come from generators in memory, and what is sent ends there.
//! Then what the choice of a member costs in each mode, beside DPDK's `net_bond`.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

mod dpdk;
mod setup;

use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};
use towpath_bench::median;
use towpath_bench::testpmd::Testpmd;
use towpath_engine::bond::{BondMode, BondOptions, XmitPolicy};

use dpdk::Sender;
use setup::{Action, Setup, bond, last_cpu};

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Rounds; the sides take turns.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 200)]
    window: u64,
    /// The bond's mode in the first table.
    #[arg(long, default_value = "balance-xor")]
    mode: BondMode,
    /// Its hash policy.
    #[arg(long, default_value = "layer3+4")]
    policy: XmitPolicy,
    /// Prints figures as JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Only this part: table, balance-rr or choice.
    #[arg(long)]
    only: Option<String>,
    /// Leaves DPDK out.
    #[arg(long)]
    no_dpdk: bool,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let mut report = json!({
        "frame_bytes": 64, "mode": args.mode.name(), "policy": args.policy.name(),
    });
    let is_wanted = |part: &str| args.only.as_deref().is_none_or(|only| only == part);
    if is_wanted("table") {
        report["table"] = table(&args)?.into();
    }
    if is_wanted("balance-rr") {
        report["balance_rr"] = in_turn(&args)?;
    }
    if is_wanted("choice") {
        report["choice"] = choice(&args)?.into();
    }
    if args.json {
        println!("{report:#}");
    }
    Ok(())
}

/// The six ways a frame is received: (name, ports, in a bond, workers).
const WAYS: [(&str, usize, bool, usize); 6] = [
    ("no bond, 1 worker", 1, false, 1),
    ("bond of 1, 1 worker", 1, true, 1),
    ("bond of 2, 1 worker", 2, true, 1),
    ("no bond, 2 workers", 1, false, 2),
    ("bond of 1, 2 workers", 1, true, 2),
    ("bond of 2, 2 workers", 2, true, 2),
];

/// Ratios of frames a second: (name, numerator, denominator, bar).
const RATIOS: [(&str, usize, usize, f64); 3] = [
    ("bond of 1 over no bond, 1 worker", 1, 0, 0.98),
    ("bond of 1 over no bond, 2 workers", 4, 3, 0.98),
    ("bond of 2 on 2 workers over bond of 1", 5, 1, 1.9),
];

/// Without a bond, bonds of one and of two.
fn table(args: &Args) -> anyhow::Result<Vec<Value>> {
    say(args, "64-byte frames; millions a second that the workers' processor time gives:");
    say(args, "median (least .. most); ratios are those of neighbours in a round\n");
    let mut report = Vec::new();
    for action in [Action::Drop, Action::Tx] {
        for has_many_flows in [false, true] {
            let setups = WAYS.map(|(_, ports, is_bond, workers)| Setup {
                action,
                has_many_flows,
                ports,
                bond: is_bond.then(|| bond(args.mode, args.policy)),
                workers,
            });
            let rates = rounds(args, &setups)?;
            let flows = if has_many_flows { "many flows" } else { "one flow" };
            say(args, &format!("{}, {flows}", action.name()));
            for ((name, ..), rates) in WAYS.iter().zip(&rates) {
                say(args, &line(name, rates));
            }
            let mut ratios = serde_json::Map::new();
            for (name, over, under, bar) in RATIOS {
                let of: Vec<f64> =
                    rates[over].iter().zip(&rates[under]).map(|(a, b)| a / b).collect();
                let (ratio, least, most) = median(&of);
                let text = format!("  {name:38} {ratio:6.3}x ({least:.3} .. {most:.3}), bar {bar}");
                say(args, &text);
                ratios.insert(name.to_owned(), figures(&of));
            }
            say(args, "");
            let ways: serde_json::Map<_, _> =
                WAYS.iter().zip(&rates).map(|(way, it)| (way.0.to_owned(), figures(it))).collect();
            report.push(json!({
                "action": action.name(), "flows": flows, "mpps": ways, "ratios": ratios,
            }));
        }
    }
    Ok(report)
}

/// Millions of frames a second, for each setup and round.
fn rounds(args: &Args, setups: &[Setup]) -> anyhow::Result<Vec<Vec<f64>>> {
    let window = Duration::from_millis(args.window);
    let mut rates = vec![Vec::new(); setups.len()];
    for _ in 0..args.rounds {
        for (setup, rates) in setups.iter().zip(&mut rates) {
            rates.push(setup.workers as f64 * 1000.0 / setup.measure(window)?);
        }
    }
    Ok(rates)
}

/// Counters that workers shared would make a frame dearer when there are two of them.
fn in_turn(args: &Args) -> anyhow::Result<Value> {
    let options = bond(BondMode::BalanceRr, XmitPolicy::default());
    let one = Setup { has_many_flows: false, ..Setup::reflecting(2, Some(options)) };
    let two = Setup { workers: 2, ..one.clone() };
    let window = Duration::from_millis(args.window);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..args.rounds {
        times[0].push(one.measure(window)?);
        times[1].push(two.measure(window)?);
    }
    let ratios: Vec<f64> = times[1].iter().zip(&times[0]).map(|(two, one)| two / one).collect();
    say(args, "balance-rr, bond of 2, XDP_TX: ns of processor time per frame");
    say(args, &line("1 worker", &times[0]));
    say(args, &line("2 workers", &times[1]));
    let (ratio, least, most) = median(&ratios);
    say(args, &format!("  {:38} {ratio:6.3}x ({least:.3} .. {most:.3}), bar 1.05\n", "2 over 1"));
    let [one, two] = times;
    Ok(json!({
        "ns_per_frame": { "1 worker": figures(&one), "2 workers": figures(&two) },
        "ratio": figures(&ratios),
    }))
}

/// Modes, ours and DPDK's (`net_bond`'s numbers are the kernel's).
fn choices() -> Vec<(&'static str, Option<BondOptions>, Option<dpdk::Kind>)> {
    let xor = |policy| Some(bond(BondMode::BalanceXor, policy));
    let plain = |mode| Some(bond(mode, XmitPolicy::default()));
    vec![
        ("no bond", None, None),
        ("balance-rr", plain(BondMode::BalanceRr), Some((0, None))),
        ("active-backup", plain(BondMode::ActiveBackup), Some((1, None))),
        ("balance-xor, layer2", xor(XmitPolicy::Layer2), Some((2, Some("l2")))),
        ("balance-xor, layer2+3", xor(XmitPolicy::Layer23), Some((2, Some("l23")))),
        ("balance-xor, layer3+4", xor(XmitPolicy::Layer34), Some((2, Some("l34")))),
    ]
}

/// What choosing a member costs, in each mode.
fn choice(args: &Args) -> anyhow::Result<Vec<Value>> {
    let window = Duration::from_millis(args.window);
    let has_dpdk = !args.no_dpdk && Testpmd::is_installed();
    say(args, "bond of 2, 1 worker, XDP_TX, many flows, beside DPDK's net_bond over net_null:");
    say(
        args,
        "ns of processor time per frame, with making it; + is over the same without a bond\n",
    );
    if !has_dpdk {
        say(args, "skipped DPDK: dpdk-testpmd is not installed, or not wanted");
    }
    let choices = choices();
    let mut senders = Vec::new();
    for (_, _, kind) in choices.iter().filter(|_| has_dpdk) {
        senders.push(Sender::start(last_cpu()?, *kind)?);
    }
    let (mut ours, mut theirs) = (vec![Vec::new(); choices.len()], vec![Vec::new(); choices.len()]);
    for _ in 0..args.rounds {
        for (index, (_, options, _)) in choices.iter().enumerate() {
            let setup = Setup::reflecting(if options.is_some() { 2 } else { 1 }, options.clone());
            ours[index].push(setup.measure(window)?);
            if let Some(sender) = senders.get_mut(index) {
                theirs[index].push(sender.measure(window)?);
            }
        }
    }
    let mut report = Vec::new();
    for (index, (name, ..)) in choices.iter().enumerate() {
        let added = |all: &[Vec<f64>]| {
            let pairs = all[index].iter().zip(&all[0]);
            pairs.map(|(bond, none)| bond - none).collect::<Vec<f64>>()
        };
        let text = |all: &[Vec<f64>]| {
            let ((ns, ..), (more, ..)) = (median(&all[index]), median(&added(all)));
            format!("{ns:6.2} ({more:+.2})")
        };
        say(args, &format!("  {name:24} towpath {}   net_bond {}", text(&ours), text(&theirs)));
        report.push(json!({
            "mode": name,
            "towpath": { "ns": figures(&ours[index]), "added_ns": figures(&added(&ours)) },
            "net_bond": { "ns": figures(&theirs[index]), "added_ns": figures(&added(&theirs)) },
        }));
    }
    Ok(report)
}

fn say(args: &Args, text: &str) {
    if !args.json {
        println!("{text}");
    }
}

fn line(name: &str, of: &[f64]) -> String {
    let (middle, least, most) = median(of);
    format!("  {name:38} {middle:6.2} ({least:.2} .. {most:.2})")
}

fn figures(of: &[f64]) -> Value {
    let (median, least, most) = median(of);
    json!({ "median": median, "least": least, "most": most, "rounds": of })
}
