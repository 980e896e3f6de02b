//! `/v1/ports/{name}/dump`: frames that a port receives and sends, as a pcapng stream.

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

/// Parameters of a dump; lists are separated by commas.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DumpQuery {
    /// Points at which received frames are shown: `entry`, `exit`, or both.
    capture: Option<String>,
    /// Points at which sent frames are shown: `entry`, `exit`, or both.
    tx_capture: Option<String>,
    /// Largest number of bytes per frame.
    snaplen: Option<u32>,
    /// Verdicts of the frames that are shown.
    verdict: Option<String>,
    /// Programs, by name or id, or `all`.
    program: Option<String>,
    /// Number of frames after which the stream ends.
    count: Option<u64>,
}

/// Streams received frames before the port's programs (`capture=entry`, the default), after them
/// with their verdict (`exit`), or both (`entry,exit`), from now on. `tx_capture` is the same for
/// sent frames, before and after the programs of the `tx` hook; if it is given alone, received
/// frames are not shown.
///
/// `program` selects programs of these hooks, by name or id, or `all`, and shows the frames of
/// each; without it, each hook is shown as a whole. `verdict` selects frames with these verdicts
/// (`drop,tx`), before and after the programs; `snaplen` limits the bytes per frame; `count` ends
/// the stream after this number of frames. The stream also ends with the port. A slow reader loses
/// copies, which statistics blocks count.
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
        // Dequeue programs do not judge packets.
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

/// Parses the points at which a hook's frames are shown.
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

/// The selected programs on the hooks that are shown.
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

/// Default snaplen, as in `xdpdump`: the longest packet that captures may contain.
const SNAPLEN: usize = towpath_capture::PACKET_BYTES_MAX as usize;
