//! Steps of the walk: faults, changes, and their healing, each with what the model makes of it.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::Outcome;
use crate::daemon::{Listening, Sink};
use crate::model::{Content, Disk, Kind, Link, Log, Model, Text};
use crate::traffic::CLASSES;
use crate::world::{World, plug_end, run};

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Another object file.
    Object(usize, Content),
    /// Another filter in the configuration.
    Mask(usize, u8),
    /// The configuration is in another state.
    Write(Text),
    /// It is read again, by the API or by a signal.
    Reload { by_signal: bool },
    /// Object file and filter change, and are read.
    Change(usize, Content, u8),
    /// A user blocks a class, or doesn't any more.
    Block { lane: usize, class: u8, is_blocked: bool },
    /// A user sets a port up or down.
    SetUp(usize, bool),
    /// A user adds a port, or takes it away.
    Extra(bool),
    /// The disk of the state.
    Disk(Disk),
    /// The log's reader.
    Listen(Listening),
    /// The daemon ends and is started again.
    Restart { is_killed: bool, is_log_full: bool },
    /// It is started with a file that it refuses, and then with a good one.
    StartWrongly(Text),
    /// What a port is on goes, comes, or changes.
    Wire(usize, Link),
    /// A tap is deleted behind its port's back.
    DeleteTap(usize, bool),
    /// The largest packet of an interface.
    Mtu(usize, u32),
    /// A client that is no good.
    Client(Rudeness),
}

/// What clients do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rudeness {
    /// They ask, and go.
    Vanish(u8),
    /// They ask, and don't read.
    Stay(u8),
    /// They say half of it.
    Half,
    /// They say something else.
    Noise,
}

impl Step {
    /// One that can be done now.
    pub(crate) fn choose(rng: &mut Rng, model: &Model) -> Step {
        loop {
            let step = Step::any(rng, model);
            if step.is_possible(model) {
                return step;
            }
        }
    }

    fn any(rng: &mut Rng, model: &Model) -> Step {
        let lane = rng.usize(..model.lanes.len());
        match rng.u8(..100) {
            0..8 => Step::Object(lane, any_content(rng)),
            8..12 => Step::Mask(lane, any_mask(rng)),
            12..20 => Step::Write(any_text(rng)),
            20..32 => Step::Reload { by_signal: rng.bool() },
            32..50 => Step::Change(lane, any_content(rng), any_mask(rng)),
            50..62 => {
                let (class, is_blocked) = (rng.u8(..CLASSES - 1), rng.bool());
                Step::Block { lane, class, is_blocked }
            }
            62..67 => Step::SetUp(lane, rng.bool()),
            67..70 => Step::Extra(rng.bool()),
            70..76 => {
                let faults = [Disk::Good, Disk::Full, Disk::ReadOnly, Disk::Limited];
                Step::Disk(faults[rng.usize(..faults.len())])
            }
            76..80 => {
                let all = [Listening::Reads, Listening::Waits, Listening::Gone];
                Step::Listen(all[rng.usize(..all.len())])
            }
            80..83 => Step::Restart { is_killed: rng.bool(), is_log_full: rng.u8(..5) == 0 },
            83 => {
                let wrong = [Text::Mistaken, Text::Cut, Text::Missing];
                Step::StartWrongly(wrong[rng.usize(..wrong.len())])
            }
            84..89 => {
                let all = [Link::Up, Link::Down, Link::Gone];
                Step::Wire(lane, all[rng.usize(..all.len())])
            }
            89..92 => Step::DeleteTap(lane, rng.bool()),
            92..94 => Step::Mtu(lane, [1400, 1500, 9000][rng.usize(..3)]),
            _ => Step::Client(match rng.u8(..4) {
                0 => Rudeness::Vanish(rng.u8(..PATHS)),
                1 => Rudeness::Stay(rng.u8(..PATHS)),
                2 => Rudeness::Half,
                _ => Rudeness::Noise,
            }),
        }
    }

    /// Whether it can be done now.
    pub(crate) fn is_possible(self, model: &Model) -> bool {
        let is_tap = |lane: usize| model.lanes[lane].kind == Kind::Tap;
        match self {
            Step::Block { lane, class, is_blocked } => {
                let lane = &model.lanes[lane];
                let is_other = lane.blocked >> class & 1 != u8::from(is_blocked);
                let has_map = lane.running.is_some_and(|it| it.content != Content::Wide);
                has_map && lane.link != Link::Gone && is_other
            }
            Step::SetUp(lane, is_up) => {
                let lane = &model.lanes[lane];
                lane.is_up != is_up && lane.link != Link::Gone
            }
            Step::Extra(is_there) => model.has_extra != is_there,
            Step::Disk(disk) => (model.disk == Disk::Good) != (disk == Disk::Good),
            Step::Listen(how) => match model.log {
                Log::Read => how != Listening::Reads,
                Log::Unread => how == Listening::Reads,
                Log::Lost | Log::Gone => false,
            },
            Step::Restart { .. } => {
                model.text.is_right() && model.disk == Disk::Good && model.starts_as_it_reloads()
            }
            Step::StartWrongly(_) => model.disk == Disk::Good && model.starts_as_it_reloads(),
            Step::Write(text) => model.text != text,
            Step::Reload { by_signal } => !by_signal || model.text != Text::Missing,
            Step::Wire(lane, link) => !is_tap(lane) && model.lanes[lane].link != link,
            Step::Mtu(lane, _) => model.lanes[lane].link != Link::Gone,
            Step::DeleteTap(lane, _) => is_tap(lane),
            _ => true,
        }
    }

    /// What becomes of the model.
    pub(crate) fn foresee(self, model: &mut Model) {
        let before = model.lanes.clone();
        match self {
            Step::Object(lane, content) => model.lanes[lane].set_content(content),
            Step::Mask(lane, mask) => model.lanes[lane].file.mask = mask,
            Step::Write(text) => model.text = text,
            Step::Reload { .. } => model.reload(),
            Step::Change(lane, content, mask) => {
                model.lanes[lane].file.mask = mask;
                model.lanes[lane].set_content(content);
                model.reload();
            }
            Step::Block { lane, class, is_blocked } => {
                let lane = &mut model.lanes[lane];
                lane.blocked = lane.blocked & !(1 << class) | u8::from(is_blocked) << class;
                lane.uncertain &= !(1 << class);
                if model.disk != Disk::Good {
                    lane.uncertain |= 1 << class;
                }
                return;
            }
            Step::SetUp(lane, is_up) if model.disk == Disk::Good => {
                model.lanes[lane].is_up = is_up;
            }
            Step::Extra(is_there) if model.disk == Disk::Good => model.has_extra = is_there,
            Step::Disk(disk) => {
                model.disk = disk;
                model.is_unsaved = false;
                return;
            }
            Step::Listen(how) => {
                model.log = match how {
                    Listening::Reads => Log::Read,
                    Listening::Waits => Log::Unread,
                    Listening::Gone => Log::Gone,
                }
            }
            Step::Restart { is_log_full, .. } => {
                model.start();
                model.log = if is_log_full { Log::Lost } else { Log::Read };
            }
            Step::StartWrongly(_) => {
                model.text = Text::Good;
                model.start();
                model.log = Log::Read;
            }
            Step::Wire(lane, link) => {
                model.lanes[lane].link = link;
                return;
            }
            Step::SetUp(..)
            | Step::Extra(_)
            | Step::DeleteTap(..)
            | Step::Mtu(..)
            | Step::Client(_) => return,
        }
        model.note_changes(&before);
    }

    /// Does it: `from` is how it was, `to` how it is to be.
    pub(crate) fn act(self, world: &mut World, from: &Model, to: &Model) -> Outcome {
        match self {
            Step::Object(lane, content) => world.put(lane, content),
            Step::Mask(..) | Step::Write(_) => world.write_config(to, to.text),
            Step::Reload { by_signal } => reload(world, to, by_signal),
            Step::Change(lane, content, _) => {
                world.put(lane, content)?;
                world.write_config(to, to.text)?;
                reload(world, to, false)
            }
            Step::Block { lane, class, is_blocked } => {
                let map = world.daemon.map(&format!("a{lane}"), "blocked")?;
                let done = world.daemon.set(map, u32::from(class), is_blocked);
                let is_sure = from.disk == Disk::Good && from.lanes[lane].uncertain == 0;
                match done {
                    Err(error) if is_sure => Err(format!("an element can't be set: {error}")),
                    _ => Ok(()),
                }
            }
            Step::SetUp(lane, up) => {
                let path = format!("/v1/ports/a{lane}");
                ask(world, from, "PATCH", &path, &json!({ "up": up }))
            }
            Step::Extra(true) => {
                let port = json!({ "name": "extra", "kind": "sink" });
                ask(world, from, "POST", "/v1/ports", &port)
            }
            Step::Extra(false) => ask(world, from, "DELETE", "/v1/ports/extra", &json!({})),
            Step::Disk(disk) => world.set_disk(from.disk, disk),
            Step::Listen(how) => {
                world.daemon.listen(how);
                Ok(())
            }
            Step::Restart { is_killed, is_log_full } => {
                end(world, is_killed)?;
                world.start(if is_log_full { Sink::Full } else { Sink::Pipe })
            }
            Step::StartWrongly(text) => {
                end(world, false)?;
                world.write_config(to, text)?;
                world.start(Sink::Pipe)?;
                match world.daemon.wait_end(END)? {
                    Some(0) | None => return Err(format!("it started with {text:?}")),
                    Some(_) => {}
                }
                world.write_config(to, Text::Good)?;
                world.start(Sink::Pipe)
            }
            Step::Wire(lane, link) => wire(lane, from.lanes[lane].link, link),
            Step::DeleteTap(lane, is_first) => {
                let end = if is_first { "a" } else { "b" };
                // A tap that is being made anew is gone already.
                let _absent = run(&format!("ip link del {end}{lane}"));
                Ok(())
            }
            Step::Mtu(lane, mtu) => {
                let name = match to.lanes[lane].kind {
                    Kind::Tap => format!("a{lane}"),
                    Kind::Packet | Kind::Afxdp => format!("v{lane}a"),
                };
                let _refused = run(&format!("ip link set {name} mtu {mtu}"));
                Ok(())
            }
            Step::Client(how) => client(world, how),
        }
    }
}

/// Anything, and often what is right.
fn any_content(rng: &mut Rng) -> Content {
    let right = [Content::First, Content::Other];
    match rng.bool() {
        true => right[rng.usize(..right.len())],
        false => Content::ALL[rng.usize(..Content::ALL.len())],
    }
}

/// The last class never passes.
fn any_mask(rng: &mut Rng) -> u8 {
    rng.u8(..1 << (CLASSES - 1))
}

fn any_text(rng: &mut Rng) -> Text {
    let wrong = [Text::Reordered, Text::Mistaken, Text::Cut, Text::Empty, Text::Missing];
    if rng.bool() { Text::Good } else { wrong[rng.usize(..wrong.len())] }
}

fn reload(world: &World, to: &Model, by_signal: bool) -> Outcome {
    if by_signal {
        return world.hang_up();
    }
    let done = world.daemon.client.json::<Value>("POST", "/v1/reload", &json!({}));
    match (done, to.is_loadable()) {
        (Ok(_), true) | (Err(_), false) => Ok(()),
        (Ok(report), false) => Err(format!("it took {:?}: {report}", to.text)),
        (Err(error), true) => Err(format!("it refused to reload: {error}")),
    }
}

/// A change that can be saved is taken; any other is refused.
fn ask(world: &World, from: &Model, method: &str, path: &str, body: &Value) -> Outcome {
    let done = world.daemon.client.json::<Value>(method, path, body);
    match (done, from.disk) {
        (Ok(_), Disk::Good) => Ok(()),
        (Err(error), Disk::Good) => Err(format!("{method} {path}: {error}")),
        (Ok(_), disk) => Err(format!("{method} {path}: taken although the disk is {disk:?}")),
        (Err(_), _) => Ok(()),
    }
}

fn end(world: &mut World, is_killed: bool) -> Outcome {
    if is_killed {
        return world.daemon.kill();
    }
    world.daemon.signal(Signal::TERM);
    match world.daemon.wait_end(END)? {
        Some(0) => Ok(()),
        status => Err(format!("SIGTERM: it ended with {status:?}")),
    }
}

fn wire(lane: usize, from: Link, to: Link) -> Outcome {
    if from == Link::Gone {
        plug_end(lane, "a")?;
    }
    match to {
        Link::Up => run(&format!("ip link set w{lane}a up")),
        Link::Down => run(&format!("ip link set w{lane}a down")),
        Link::Gone => run(&format!("ip link del w{lane}a")),
    }
}

fn client(world: &mut World, how: Rudeness) -> Outcome {
    let said = |error: std::io::Error| format!("a client: {error}");
    let mut stream = UnixStream::connect(world.socket()).map_err(said)?;
    stream.set_write_timeout(Some(Duration::from_secs(5))).map_err(said)?;
    let ask = |path: u8| format!("GET {} HTTP/1.1\r\nhost: x\r\n\r\n", path_of(path));
    let text = match how {
        Rudeness::Vanish(path) | Rudeness::Stay(path) => ask(path),
        Rudeness::Half => "POST /v1/reload HTTP/1.1\r\nhost: x\r\ncontent-le".to_owned(),
        Rudeness::Noise => "\u{0}\u{1}\r\n\r\n".repeat(50),
    };
    // It may be shown the door.
    let _refused = stream.write_all(text.as_bytes());
    if !matches!(how, Rudeness::Vanish(_)) {
        world.idle.push(stream);
        if world.idle.len() > IDLE_MAX {
            world.idle.remove(0);
        }
    }
    Ok(())
}

fn path_of(path: u8) -> &'static str {
    let all = ["/v1/events", "/v1/ports/a0/dump", "/v1/ports/b0/dump", "/v1/trace", "/v1/status"];
    all[usize::from(path) % all.len()]
}

/// Paths that clients ask for.
const PATHS: u8 = 5;
/// Connections that are kept.
const IDLE_MAX: usize = 8;
/// How long the daemon takes to end.
const END: Duration = Duration::from_secs(5);
