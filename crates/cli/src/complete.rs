//! Completions from a running daemon: names of its ports, programs and maps.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::Duration;

use clap_complete::CompletionCandidate;
use serde_json::Value as Json;
use towpath_daemon::client::Client;

/// Names of ports.
pub(crate) fn ports(current: &OsStr) -> Vec<CompletionCandidate> {
    of_path("/v1/ports", "name", "kind", current)
}

/// Names of security associations.
pub(crate) fn sas(current: &OsStr) -> Vec<CompletionCandidate> {
    of_path("/v1/sas", "name", "suite", current)
}

/// Names of policies.
pub(crate) fn policies(current: &OsStr) -> Vec<CompletionCandidate> {
    of_path("/v1/policies", "name", "action", current)
}

/// Names of the command's objects: maps for the commands on maps, else programs.
pub(crate) fn objects(current: &OsStr) -> Vec<CompletionCandidate> {
    let is_said = |word: &str| std::env::args_os().any(|argument| argument == word);
    match is_said("map") && !is_said("prog") {
        true => of_path("/v1/maps", "name", "type", current),
        false => of_path("/v1/programs", "name", "type", current),
    }
}

/// Names in a list of the API that begin with the typed text.
fn of_path(
    path: &'static str,
    name: &str,
    about: &str,
    current: &OsStr,
) -> Vec<CompletionCandidate> {
    let Some(current) = current.to_str() else { return Vec::new() };
    let all = ask(path).unwrap_or_default();
    let named = all.iter().filter_map(|it| Some((it[name].as_str()?, it[about].as_str())));
    let mut meant: Vec<_> = named.filter(|(name, _)| name.starts_with(current)).collect();
    meant.sort_unstable();
    meant.dedup_by_key(|(name, _)| *name);
    let candidate = |(name, about): (&str, Option<&str>)| {
        CompletionCandidate::new(name).help(about.map(|about| about.to_owned().into()))
    };
    meant.into_iter().map(candidate).collect()
}

/// The daemon's answer; `None` without a daemon or if it is slow, because the user is typing.
fn ask(path: &'static str) -> Option<Vec<Json>> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let socket = socket(&words);
    let (tell, told) = channel();
    let ask = move || {
        let answer = Client::new(&socket).ok().and_then(|client| client.get(path).ok());
        // The caller may have given up.
        let _late = tell.send(answer);
    };
    let _detached = std::thread::Builder::new().spawn(ask).ok()?;
    told.recv_timeout(PATIENCE).ok()?
}

/// The socket named by the words typed so far or by the environment, else the default one.
fn socket(words: &[OsString]) -> PathBuf {
    let named = words.iter().position(|word| word == "--socket").and_then(|at| words.get(at + 1));
    let named = named.cloned().or_else(|| std::env::var_os("TOWPATH_SOCKET"));
    named.map_or_else(|| PathBuf::from(towpath_daemon::SOCKET), PathBuf::from)
}

const PATIENCE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_the_one_that_was_named() {
        let words = ["towpath", "--", "load", "--socket", "s.sock", "p"];
        let named = socket(&words.map(OsString::from));
        assert_eq!(named, PathBuf::from("s.sock"));
    }
}
