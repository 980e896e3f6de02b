//! `load` and `unload`, as in xdp-loader.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value as Json};
use towpath_daemon::api::types::{
    AttachMode, AttachedView, LinkRequest, LinkView, LoadRequest, ProgramRequest, ProgramView,
    UploadView,
};
use towpath_daemon::client::{Client, encoded};
use towpath_daemon::state::HookState;

use super::client;
use crate::args::{LoadArgs, ModeArg, ProgLoadArgs, Replaced, UnloadArgs};
use crate::error::CliError;
use crate::files;
use crate::output::Output;

/// Sends the objects and attaches a program of each, all in one request.
pub(crate) fn load(args: &LoadArgs, output: &mut Output) -> Result<(), CliError> {
    check_mode(args.mode)?;
    let client = client(&args.daemon)?;
    let maps = args.map_init.as_deref().map(read_maps).transpose()?;
    let mut programs = Vec::new();
    for object in &args.objects {
        let uploaded = upload(&client, object)?;
        let set = args.set.iter().map(|it| (it.name.clone(), it.value.clone()));
        let sizes = args.map_sizes.iter().map(|it| (it.name.clone(), it.entries));
        let shared = args.shared_maps.iter().map(|it| (it.name.clone(), it.place.clone()));
        let migrate = args.map_migrate.iter().map(|it| (it.name.clone(), it.migrate));
        let rename = args.map_rename.iter().map(|it| (it.old.clone(), it.new.clone()));
        programs.push(ProgramRequest {
            sha256: uploaded.sha256,
            object: std::path::absolute(object).unwrap_or(object.clone()).display().to_string(),
            program: args.selection.name.clone(),
            section: args.selection.section.clone(),
            prio: args.prio,
            actions: args.actions.clone(),
            dev_bound: args.dev_bound,
            set: set.collect(),
            map_sizes: sizes.collect(),
            maps: maps.clone(),
            shared_maps: shared.collect(),
            fresh_maps: args.fresh_maps,
            map_migrate: migrate.collect(),
            map_rename: rename.collect(),
            lossy: args.lossy,
        });
    }
    let (mode, expected) = match (&args.replace, args.exclusive) {
        (Some(Some(Replaced::All)), _) => (AttachMode::ReplaceAll, None),
        (Some(Some(Replaced::Id(id))), _) => (AttachMode::Replace, Some(*id)),
        (Some(None), _) => (AttachMode::Replace, None),
        (None, true) => (AttachMode::Exclusive, None),
        (None, false) => (AttachMode::Add, None),
    };
    let (port, hook) = (args.port.clone(), args.hook.into());
    let request = LinkRequest { port, hook, programs, mode, expected };
    let attached: AttachedView = client.json("POST", "/v1/links", &request)?;
    if output.json {
        return output.json(&attached);
    }
    for warning in &attached.warnings {
        output.prose("", &format!("warning: {warning}"))?;
    }
    for link in &attached.links {
        let LinkView { id, name, prog_id, prio, exec, .. } = link;
        output.line(&format!(
            "{}: {name}: program {prog_id}, link {id}, priority {prio}, {exec}",
            link.port
        ))?;
    }
    Ok(())
}

/// Loads a program and pins it, which keeps it alive.
pub(crate) fn load_pinned(args: &ProgLoadArgs, output: &mut Output) -> Result<(), CliError> {
    let shared_maps = load_words(&args.words)?;
    let client = client(&args.daemon)?;
    let object = &args.object;
    let program = ProgramRequest {
        sha256: upload(&client, object)?.sha256,
        object: std::path::absolute(object).unwrap_or(object.clone()).display().to_string(),
        program: args.selection.name.clone(),
        section: args.selection.section.clone(),
        set: args.set.iter().map(|it| (it.name.clone(), it.value.clone())).collect(),
        map_sizes: args.map_sizes.iter().map(|it| (it.name.clone(), it.entries)).collect(),
        shared_maps,
        ..ProgramRequest::default()
    };
    let request = LoadRequest { program, path: args.path.clone() };
    let loaded: ProgramView = client.json("POST", "/v1/programs", &request)?;
    if output.json {
        return output.json(&Json::Null);
    }
    let ProgramView { id, name, exec, pinned, .. } = loaded;
    output.line(&format!("{name}: program {id}, {exec}, pinned {}", pinned.join(", ")))
}

/// `type xdp` or `type syscall`, `map name NAME id N|pinned PATH|PATH`, in bpftool's words.
fn load_words(words: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let (mut shared, mut rest) = (BTreeMap::new(), words);
    while let [word, tail @ ..] = rest {
        let tail: Vec<&str> = tail.iter().map(String::as_str).collect();
        let used = match (word.as_str(), &tail[..]) {
            ("type", ["xdp" | "syscall", ..]) => 2,
            ("map", ["name", name, "id" | "pinned", place, ..]) => {
                shared.insert((*name).to_owned(), (*place).to_owned());
                5
            }
            ("map", ["name", name, place, ..]) => {
                shared.insert((*name).to_owned(), (*place).to_owned());
                4
            }
            _ => {
                let message = format!(
                    "{word}: expected type xdp or syscall, or map name NAME id N|pinned PATH"
                );
                return Err(CliError::Usage(message));
            }
        };
        rest = &rest[used..];
    }
    Ok(shared)
}

/// Refuses modes other than native.
fn check_mode(mode: Option<ModeArg>) -> Result<(), CliError> {
    let (word, why) = match mode {
        None | Some(ModeArg::Native | ModeArg::Unspecified) => return Ok(()),
        Some(ModeArg::Skb) => ("skb", "there are no socket buffers that it could run on"),
        Some(ModeArg::Hw) => ("hw", "no device runs programs for Towpath"),
    };
    Err(CliError::Usage(format!(
        "--mode {word}: {why}: omit it, or use native, the mode of all programs"
    )))
}

/// Detaches programs of a port.
pub(crate) fn unload(args: &UnloadArgs, output: &mut Output) -> Result<(), CliError> {
    let client = client(&args.daemon)?;
    let _port: Json = client.get(&format!("/v1/ports/{}", encoded(&args.port)))?;
    let links: Vec<LinkView> = client.get("/v1/links")?;
    let hook = args.hook.map(HookState::from);
    let is_wanted = |link: &LinkView| {
        link.port == args.port
            && args.id.is_none_or(|id| link.prog_id == id)
            && hook.is_none_or(|hook| link.hook == hook)
    };
    let wanted: Vec<LinkView> = links.into_iter().filter(is_wanted).collect();
    if wanted.is_empty() {
        let what = args.id.map_or("nothing".to_owned(), |id| format!("no program with id {id}"));
        let here = hook.map_or(String::new(), |hook| format!(" to its {hook} hook"));
        return Err(CliError::Daemon(format!(
            "{port}: {what} is attached{here} (ENOENT): `towpath status {port}` shows the \
             attached programs",
            port = args.port
        )));
    }
    let first = wanted.first().map(|link| link.prog_id);
    let is_one = wanted.iter().all(|link| Some(link.prog_id) == first);
    if args.id.is_none() && !args.all && !is_one {
        let all: Vec<String> = wanted
            .iter()
            .map(|it| format!("{} (id {}, {}, prio {})", it.name, it.prog_id, it.hook, it.prio))
            .collect();
        return Err(CliError::Usage(format!(
            "{port} has several programs: {}; `towpath unload {port} -i {first}` takes one off, \
             --all all of them",
            all.join(", "),
            port = args.port,
            first = first.unwrap_or_default(),
        )));
    }
    for link in &wanted {
        let path = format!("/v1/links/{}", link.id);
        let _done: Json = client.send("DELETE", &path, [].as_slice().into())?;
    }
    if output.json { output.json(&wanted) } else { Ok(()) }
}

/// Sends an object.
pub(crate) fn upload(client: &Client, object: &Path) -> Result<UploadView, CliError> {
    let bytes = files::read(object, "an object file", OBJECT_BYTES_MAX)?;
    let name = object.display().to_string();
    Ok(client.send("PUT", &format!("/v1/objects?name={}", encoded(&name)), bytes.into())?)
}

fn read_maps(path: &Path) -> Result<Map<String, Json>, CliError> {
    let bytes = files::read(path, "map contents", MAPS_BYTES_MAX)?;
    serde_json::from_slice(&bytes)
        .map_err(|error| CliError::Text { path: path.to_owned(), message: error.to_string() })
}

const OBJECT_BYTES_MAX: u64 = 64 << 20;
const MAPS_BYTES_MAX: u64 = 64 << 20;
