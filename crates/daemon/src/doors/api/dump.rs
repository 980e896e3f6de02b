//! `/v1/ports/{name}/dump`: what arrives at a port and leaves it, as a pcapng stream.

use std::convert::Infallible;

use axum::Json;
use axum::response::Response;
use serde::Deserialize;
use towpath_bpf::suggest;
use towpath_engine::tap::{ALL_VERDICTS, Points, TapOptions};

use super::answer::{Asked, Daemon, Part, blocking};
use super::error::{ApiError, ErrorBody};
use super::ports::not_open;
use super::sse;
use crate::control::Inner;
use crate::control::dump::{self, Wanted, Watched};
use crate::live::LiveLink;
use crate::model::refusal::Refusal;
use crate::model::run_config::{ACTIONS, action_number};
use crate::model::state::HookState;

/// What a dump shows; lists have commas between their words.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DumpQuery {
    /// What arrives: `entry`, `exit`, or both.
    capture: Option<String>,
    /// What leaves.
    tx_capture: Option<String>,
    /// Bytes of a frame.
    snaplen: Option<u32>,
    /// Only frames with these verdicts.
    verdict: Option<String>,
    /// Programs, by name or id, or `all`.
    program: Option<String>,
    /// Ends after so many frames.
    count: Option<u64>,
}

/// Frames as they arrive (`capture=entry`, the default), as they were judged, with the verdict
/// (`exit`), or both (`entry,exit`), from now on. `tx_capture` is the same of what leaves, before
/// the programs of the `tx` hook and after; with it alone, nothing of what arrives.
///
/// `program` watches programs of these hooks one by one, by name or id, or `all`; without it, each
/// hook as a whole. `verdict` keeps only frames with these verdicts (`drop,tx`), before and after;
/// `snaplen` cuts frames to so many bytes; `count` ends the stream after so many frames. It ends
/// with the port, too. A reader that is too slow loses copies, which statistics blocks count.
#[utoipa::path(get, path = "/v1/ports/{name}/dump",
    params(("name" = String, Path), ("capture" = Option<String>, Query),
        ("tx_capture" = Option<String>, Query),
        ("snaplen" = Option<u32>, Query), ("verdict" = Option<String>, Query),
        ("program" = Option<String>, Query), ("count" = Option<u64>, Query)),
    responses((status = 200, content_type = "application/x-pcapng", body = Vec<u8>),
        (status = 400, body = ErrorBody), (status = 404, body = ErrorBody)))]
pub(super) async fn dump(
    control: Daemon,
    Part(name): Part<String>,
    Asked(query): Asked<DumpQuery>,
) -> Result<Response, ApiError> {
    let Json(chunks) = blocking(&control, move |control| {
        let wanted = control.read(|inner| wanted(inner, &name, &query))?;
        dump::start(control, &wanted).map_err(Refusal::refused)
    })
    .await?;
    let pieces = futures_util::stream::unfold(chunks, async |mut chunks| {
        let bytes = chunks.recv().await?;
        Some((Ok::<_, Infallible>(bytes.into()), chunks))
    });
    Ok(sse::stream("application/x-pcapng", pieces))
}

fn wanted(inner: &Inner, name: &str, query: &DumpQuery) -> Result<Wanted, Refusal> {
    let port = inner.live.ports.get(name).ok_or_else(|| not_open(inner, name))?;
    let what_arrives = match (&query.capture, &query.tx_capture) {
        (Some(words), _) => words,
        (None, Some(_)) => "",
        (None, None) => "entry",
    };
    let rx = points("capture", what_arrives)?;
    let tx = points("tx_capture", query.tx_capture.as_deref().unwrap_or_default())?;
    if !rx.is_any() && !tx.is_any() {
        return Err(Refusal::bad("capture, tx_capture: neither asks for anything"));
    }
    let on_port = |link: &&LiveLink| link.attach.port == name;
    let links: Vec<&LiveLink> = inner.live.links.iter().filter(on_port).collect();
    let is_seen = |hook: HookState| match hook {
        HookState::Rx => rx.is_any(),
        HookState::Tx => tx.is_any(),
        // It judges no packet.
        HookState::Dequeue => false,
    };
    let named = query.program.as_deref();
    let programs = named.map_or(Ok(Vec::new()), |it| programs(&links, it, is_seen))?;
    if query.snaplen == Some(0) || query.count == Some(0) {
        return Err(Refusal::bad("snaplen, count: at least 1"));
    }
    let options = TapOptions {
        rx,
        tx,
        links: programs.iter().map(|program| program.link).collect(),
        verdicts: query.verdict.as_deref().map_or(Ok(ALL_VERDICTS), verdicts)?,
        snaplen: query.snaplen.map_or(SNAPLEN, |it| it as usize).min(SNAPLEN),
    };
    Ok(Wanted { port: name.to_owned(), id: port.id, programs, options, count: query.count })
}

/// Where frames of a hook are seen.
fn points(key: &str, words: &str) -> Result<Points, Refusal> {
    let mut points = Points::default();
    for word in words.split(',').filter(|word| !word.is_empty()) {
        match word {
            "entry" => points.entry = true,
            "exit" => points.exit = true,
            _ => {
                let message = format!("{key}: {word:?}: expected entry, exit, or entry,exit");
                return Err(Refusal::bad(message));
            }
        }
    }
    Ok(points)
}

/// The programs that are meant, on hooks that are seen.
fn programs(
    links: &[&LiveLink],
    wanted: &str,
    is_seen: impl Fn(HookState) -> bool,
) -> Result<Vec<Watched>, Refusal> {
    let mut found: Vec<Watched> = Vec::new();
    for word in wanted.split(',') {
        let is_meant = |link: &&&LiveLink| {
            let name = link.link.program.name();
            word == "all" || name == word || word.parse() == Ok(link.program)
        };
        let mut meant = links.iter().filter(is_meant).peekable();
        let is_elsewhere = meant.peek().is_some();
        let before = found.len();
        found.extend(meant.filter(|link| is_seen(link.attach.hook)).map(|link| Watched {
            link: link.id,
            name: link.link.program.name().to_owned(),
            hook: link.attach.hook,
        }));
        if found.len() == before && is_elsewhere {
            let message = format!("program {word:?} is on the port's other hook (ENOENT)");
            return Err(Refusal::missing(message));
        }
        if found.len() == before {
            let names: Vec<&str> = links.iter().map(|link| link.link.program.name()).collect();
            let hint = suggest::among(word, names.iter().copied());
            let message = format!("no program {word:?} is on this port{hint} (ENOENT)");
            return Err(Refusal::missing(message));
        }
    }
    found.sort_by_key(|program| program.link);
    found.dedup();
    Ok(found)
}

fn verdicts(wanted: &str) -> Result<u32, Refusal> {
    wanted.split(',').try_fold(0, |mask, word| match action_number(word) {
        Some(action) => Ok(mask | 1 << action),
        None => {
            let names: Vec<String> = ACTIONS.iter().map(|it| it.to_lowercase()).collect();
            let names = names.join(", ");
            Err(Refusal::bad(format!("verdict: {word:?}: expected some of {names}")))
        }
    })
}

/// `xdpdump`'s default, and the longest that captures may hold.
const SNAPLEN: usize = towpath_capture::PACKET_BYTES_MAX as usize;
