//! `towpath-guest`: the agent inside a virtual machine, which makes the host run the machine's XDP
//! programs.

#![forbid(unsafe_code)]

mod args;
mod maps;
mod output;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use serde_json::{Value as Json, json};
use towpath_bpf::Object;
use towpath_bpf::map::MapType;
use towpath_bpf::proto::helper_name;
use towpath_guest_client::wire::Direction;
use towpath_guest_client::{Client, ClientError, LoadError, Wanted, load, open};

use args::{Args, Command, LoadArgs, UnloadArgs};

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(Some(json)) => output::print(&json, args.json),
        Ok(None) => ExitCode::SUCCESS,
        Err(problem) => {
            output::complain(&problem, args.json);
            ExitCode::FAILURE
        }
    }
}

/// Reason why a command failed.
pub(crate) struct Problem {
    text: String,
    /// The verifier's log.
    log: String,
}

impl Problem {
    fn new(text: impl Into<String>) -> Problem {
        Problem { text: text.into(), log: String::new() }
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Problem {
        let log = match &error {
            ClientError::Refused(refused) => refused.log.clone(),
            _ => String::new(),
        };
        Problem { text: error.to_string(), log }
    }
}

impl From<LoadError> for Problem {
    fn from(error: LoadError) -> Problem {
        let text = error.to_string();
        match error {
            LoadError::Refused { source, .. } => Problem { text, ..Problem::from(source) },
            _ => Problem::new(text),
        }
    }
}

/// Executes a command; returns its results.
fn run(args: &Args) -> Result<Option<Json>, Problem> {
    let said = match &args.command {
        Command::Features => features(&client(args, None)?),
        Command::Load(load) => load_object(args, load),
        Command::Unload(unload) => self::unload(args, unload),
        Command::Status => status(&mut client(args, None)?),
        Command::Map(map) => maps::run(&mut client(args, None)?, map),
        Command::Man => return manual(),
    };
    said.map(Some)
}

/// Prints the manual page, made from the same types as the parser.
fn manual() -> Result<Option<Json>, Problem> {
    // Section 8 is for administrators' commands; the host's `towpath guest` is in section 1.
    let page = clap_mangen::Man::new(Args::command()).section("8").render(&mut std::io::stdout());
    page.map_err(|error| Problem::new(format!("the page can't be written: {error}")))?;
    Ok(None)
}

/// Connects to the host: over the channel of that interface, if one is given.
fn client(args: &Args, interface: Option<&str>) -> Result<Client, Problem> {
    let mac = match interface {
        None => None,
        Some(name) => {
            let path = format!("/sys/class/net/{name}/address");
            let address = std::fs::read_to_string(path)
                .map_err(|error| Problem::new(format!("interface {name}: {error}")))?;
            Some(address.trim().to_owned())
        }
    };
    let wanted = match (&args.socket, args.vsock) {
        (Some(path), _) => Wanted::Unix(path.clone()),
        (None, Some((cid, port))) => Wanted::Vsock { cid, port },
        (None, None) => Wanted::Port(args.channel.clone()),
    };
    let channel = open(&wanted, mac.as_deref())
        .map_err(|error| Problem::new(format!("the host can't be reached: {error}")))?;
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    Ok(Client::begin(channel, boot.trim_ascii())?)
}

fn features(client: &Client) -> Result<Json, Problem> {
    let features = client.features();
    let helper = |&number: &u32| match helper_name(number) {
        Some(name) => json!(name),
        None => json!(number),
    };
    let kind = |&number: &u32| match MapType::from_number(number) {
        Some(kind) => json!(kind.name()),
        None => json!(number),
    };
    let limits = features.limits.iter().map(output::limit);
    let targets = features.targets.iter().map(|target| {
        json!({
            "ifindex": target.ifindex,
            "name": target.name,
            "mtu": target.mtu,
            "address": output::mac(target.mac),
            "up": target.is_up,
        })
    });
    Ok(json!({
        "cpus": features.cpus,
        "directions": features.directions.iter().map(|it| it.word()).collect::<Vec<_>>(),
        "limits": limits.collect::<Vec<_>>(),
        "targets": targets.collect::<Vec<_>>(),
        "map_kinds": features.map_kinds.iter().map(kind).collect::<Vec<_>>(),
        "helpers": features.helpers.iter().map(helper).collect::<Vec<_>>(),
    }))
}

fn load_object(args: &Args, wanted: &LoadArgs) -> Result<Json, Problem> {
    let LoadArgs { interface, object, program, direction, replace } = wanted;
    let direction = direction.direction();
    let file = std::fs::read(object)
        .map_err(|error| Problem::new(format!("{}: {error}", object.display())))?;
    let file = Object::open(&file, &object.display().to_string())
        .map_err(|error| Problem::new(error.to_string()))?;
    let client = &mut client(args, Some(interface))?;
    let current = running(client, direction)?;
    if let (Some(current), false) = (current, *replace) {
        let text = format!("program {current} runs already: --replace puts this one in its place");
        return Err(Problem::new(text));
    }
    let loaded = load(client, &file, program.as_deref())?;
    if let Err(error) = client.attach(direction, loaded.program, Some(current.unwrap_or(0))) {
        client.close_all(loaded.program)?;
        return Err(error.into());
    }
    if let Some(current) = current {
        client.close_all(current)?;
    }
    let maps = loaded.maps.iter().map(|(name, handle)| json!({"name": name, "handle": handle}));
    Ok(json!({
        "interface": interface,
        "direction": direction.word(),
        "program": loaded.name,
        "handle": loaded.program,
        "maps": maps.collect::<Vec<_>>(),
    }))
}

fn running(client: &mut Client, direction: Direction) -> Result<Option<u32>, ClientError> {
    let attached = client.query()?;
    Ok(attached.iter().find(|it| it.direction == direction).map(|it| it.handle))
}

fn unload(args: &Args, wanted: &UnloadArgs) -> Result<Json, Problem> {
    let direction = wanted.direction.direction();
    let client = &mut client(args, Some(&wanted.interface))?;
    let current = running(client, direction)?;
    client.detach(direction)?;
    if let Some(current) = current {
        client.close_all(current)?;
    }
    Ok(json!({"interface": wanted.interface, "direction": direction.word(), "program": null}))
}

fn status(client: &mut Client) -> Result<Json, Problem> {
    let attached = client.query()?;
    let attached = attached.iter().map(|it| {
        let [aborted, drop, pass, tx, redirect] = it.counters.actions;
        json!({
            "direction": it.direction.word(),
            "program": it.name,
            "handle": it.handle,
            "runs": it.counters.runs,
            "aborted": aborted,
            "drop": drop,
            "pass": pass,
            "tx": tx,
            "redirect": redirect,
            "faults": it.counters.faults,
        })
    });
    let programs = attached.collect::<Vec<_>>();
    let objects = client.list()?;
    let objects = objects.iter().map(|it| {
        json!({"handle": it.handle, "kind": it.what.word(), "name": it.name, "bytes": it.bytes})
    });
    let objects = objects.collect::<Vec<_>>();
    let limits = client.features().limits.iter().map(output::limit).collect::<Vec<_>>();
    Ok(json!({"programs": programs, "objects": objects, "limits": limits}))
}
