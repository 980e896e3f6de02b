//! `towpath bench`: programs beside the running kernel or the interpreter, in the same minute on
//! the same frame. `docs/measuring.md` says how to read the figures.

mod beside;
mod choose;
mod feed;
mod flows;
mod html;
mod measure;
mod prices;
mod profile;
mod result;
mod side;
mod subject;
mod targets;

use towpath_xdp::{Action, Exec};

use crate::args::{BenchArgs, Peer};
use crate::error::{CliError, Status};
use crate::output::Output;
use crate::program::{Opened, check_passes, kernel_types};
use crate::verify::xdp_programs;
pub(crate) use beside::{Beside, beside_kernel};
use measure::{Measured, measure};
use result::{Class, Entry, Method, Results, Skipped};
use subject::Subject;
use targets::{BenchObject, candidates, targets};

/// Measures every program asked for.
pub(crate) fn bench(args: &BenchArgs, output: &mut Output) -> Result<Status, CliError> {
    check_passes(&args.without)?;
    if args.against == Peer::Kernel {
        towpath_kernel::Kernel::open()?;
        // Redirects and routes are then the same on every machine; without it, they are this
        // machine's.
        let _not_permitted = towpath_kernel::isolate_network();
    }
    let env = kernel_types(args.program.btf.as_deref())?;
    if args.helpers {
        return prices::prices(args, &env, output);
    }
    let packets = candidates(args)?;
    let mut results = Results { against: peer_name(args.against), ..Results::default() };
    results.method = method(args);
    let mut status = Status::Ok;
    for target in targets(args)? {
        let opened = match Opened::with_env(&target.path, &args.program, env.clone()) {
            Ok(opened) => opened,
            Err(error) => {
                output.problem(&error);
                status = status.max(error.status());
                continue;
            }
        };
        bench_object(args, &target, &opened, &packets, &mut results, output)?;
    }
    let execs: Vec<_> = args.exec.iter().map(|&exec| Exec::from(exec).name()).collect();
    results.finish(&execs);
    if let Some(path) = &args.report {
        html::write(path, &results)?;
    }
    if output.json {
        output.json(&results)?;
    } else {
        print_summary(&results, output)?;
    }
    Ok(status)
}

fn bench_object(
    args: &BenchArgs,
    target: &BenchObject,
    opened: &Opened,
    packets: &[Vec<u8>],
    results: &mut Results,
    output: &mut Output,
) -> Result<(), CliError> {
    let chosen = if args.selection.name.is_some() || args.selection.section.is_some() {
        vec![opened.select(&args.selection)?]
    } else {
        xdp_programs(opened)
    };
    for index in chosen {
        let map_init = target.map_init.as_deref();
        let measured = Subject::new(args, opened, index, map_init, packets).and_then(measure);
        match measured {
            Ok(measured) => {
                for measured in measured {
                    take(measured, results, output)?;
                }
            }
            Err(reason) => {
                let name = opened.program_name(index).to_owned();
                let object = opened.path.display().to_string();
                let skipped = Skipped { name, object, reason };
                print_skipped(&skipped, output)?;
                results.skipped.push(skipped);
            }
        }
    }
    Ok(())
}

/// Shows what was measured, and adds it to the others.
fn take(measured: Measured, results: &mut Results, output: &mut Output) -> Result<(), CliError> {
    let Measured { entries, class } = measured;
    for entry in &entries {
        print(entry, class, output)?;
        if !output.json {
            profile::print(&entry.profile, output)?;
        }
    }
    if let (Class::Short | Class::Trivial, Some(first)) = (class, entries.first()) {
        print_leftover(first, output)?;
    }
    results.add(class, entries);
    Ok(())
}

fn method(args: &BenchArgs) -> Method {
    Method {
        rounds: args.rounds,
        window_ms: args.window,
        buffers: side::BURST_FRAMES,
        without: args.without.clone(),
        flows: args.flows().to_vec(),
        cold: args.cold,
        cpu: cpu_name(),
        kernel: kernel_version(),
        version: env!("CARGO_PKG_VERSION"),
    }
}

fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name"));
    line.map_or("", |line| line.trim_start_matches([' ', '\t', ':'])).to_owned()
}

fn kernel_version() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    text.trim().to_owned()
}

/// Name of the peer, as `--against` spells it.
fn peer_name(peer: Peer) -> &'static str {
    match peer {
        Peer::Kernel => "kernel",
        Peer::Interp => "interp",
    }
}

/// Prints one program's line, as soon as it is measured.
fn print(entry: &Entry, class: Class, output: &mut Output) -> Result<(), CliError> {
    if output.json {
        return Ok(());
    }
    let Entry { name, exec, ns, peer_ns, ratio, difference_ns, spread: [least, most], .. } = entry;
    let style = output.style;
    let (compared, is_faster) = match class {
        Class::Measured => (format!("{ratio:>6.2}x  {least:.2}..{most:.2}"), *least > 1.0),
        Class::Short => (format!("{difference_ns:>+6.1} ns"), *difference_ns < 0.0),
        Class::Trivial => ("too little work to compare".to_owned(), false),
    };
    let compared = format!("{compared:<18}");
    let compared = if is_faster { style.good(&compared) } else { compared };
    let ran = if entry.ran == *exec { "" } else { ", interpreted" };
    output.line(&format!(
        "{}  {exec:<6} {ns:>9.1} ns {peer_ns:>9.1} ns {compared}  {}",
        style.bold(&format!("{name:<28}")),
        style.dim(&format!("{}{ran}", what_it_did(entry)))
    ))?;
    output.flush()
}

/// Prints reasons why a program may have done so little.
fn print_leftover(entry: &Entry, output: &mut Output) -> Result<(), CliError> {
    if output.json {
        return Ok(());
    }
    let style = output.style;
    entry.leftover.iter().try_for_each(|text| output.line(&style.dim(&format!("    {text}"))))
}

/// Verdict, work and frame of a measured program, so that its figure can be interpreted.
fn what_it_did(entry: &Entry) -> String {
    let Entry { verdict, executed, frame, frame_bytes, flows, .. } = entry;
    let action = Action::from_returned(*verdict);
    // A value that is no verdict counts as XDP_ABORTED, which would hide it.
    let verdict =
        if action as u32 == *verdict { action.to_string() } else { format!("returns {verdict}") };
    let flows = if *flows == 1 { String::new() } else { format!(", {flows} flows") };
    format!("{verdict} after {executed} instructions, frame {frame} of {frame_bytes} bytes{flows}")
}

fn print_skipped(skipped: &Skipped, output: &mut Output) -> Result<(), CliError> {
    if output.json {
        return Ok(());
    }
    let Skipped { name, reason, .. } = skipped;
    let style = output.style;
    output.line(&format!("{}  {}", style.bold(&format!("{name:<28}")), style.dim(reason)))?;
    output.flush()
}

fn print_summary(results: &Results, output: &mut Output) -> Result<(), CliError> {
    let Results { geomean, differences, programs, short, trivial, skipped, against, .. } = results;
    let of = |list: &[Entry], exec: &str| list.iter().filter(|entry| entry.exec == exec).count();
    output.line("")?;
    for (exec, means) in &results.geomean_by_flows {
        for (flows, mean) in means.as_object().into_iter().flatten() {
            let Some(mean) = mean.as_f64() else { continue };
            let mine = |entry: &&Entry| entry.exec == exec && entry.flows.to_string() == *flows;
            let count = programs.iter().filter(mine).count();
            let flows = if flows == "1" { "1 flow" } else { &format!("{flows} flows") };
            output.line(&format!(
                "{exec}, {flows}: {mean:.2} times as fast as {against}, geometric mean of \
                 {count} programs"
            ))?;
        }
    }
    for (exec, mean) in geomean {
        let Some(mean) = mean.as_f64() else { continue };
        output.line(&format!("{exec}: {mean:.2} times as fast as {against}, at worst"))?;
    }
    for (exec, found) in differences {
        let Some(mean) = found["mean_ns"].as_f64() else { continue };
        output.line(&format!(
            "{exec}: {mean:+.1} ns on average in {} short programs, {} slower by more than 1 ns",
            of(short, exec),
            found["slower"]
        ))?;
    }
    let counts = (trivial.len(), skipped.len());
    output.line(&format!("{} with too little work, {} not measured", counts.0, counts.1))
}
