//! Steps of the walk: faults, changes, and their healing, each with what the model makes of it.

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::Signal;
use serde_json::{Value, json};
use towpath_daemon::client::Client;

use crate::Outcome;
use crate::daemon::{Listening, SOCKET, Sink};
use crate::model::{Content, Disk, Filter, Kind, Link, Log, Model, Text};
use crate::strangers;
use crate::traffic::CLASSES;
use crate::world::{Neighbour, World, plug_end, run};

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
    /// A user has a device map lead to the other port, or doesn't any more.
    Lead(usize, bool),
    /// Somebody runs something at a port, or it is killed.
    Neighbour(usize, Neighbour, bool),
    /// A virtual machine is killed, and another one comes.
    KillMachine(usize),
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
    /// Queues of an interface.
    Queues(usize, u32),
    /// A member of a bond is up, or down.
    Member(usize, usize, bool),
    /// The daemon is killed so many microseconds after it was told to read another filter and to
    /// block a class.
    Kill { lane: usize, filter: Filter, class: u8, after_us: u64 },
    /// A bit of what was saved turns while the daemon doesn't run; perhaps the configuration is
    /// read when it does.
    Damage { place: u32, is_read: bool },
    /// A virtual machine's monitor that says nonsense.
    FrontEnd(u64),
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
        match rng.u8(..112) {
            0..5 => Step::Object(lane, any_content(rng)),
            5..8 => Step::Mask(lane, any_mask(rng)),
            8..14 => Step::Write(any_text(rng)),
            14..22 => Step::Reload { by_signal: rng.bool() },
            22..40 => Step::Change(lane, any_content(rng), any_mask(rng)),
            40..50 => {
                let (class, is_blocked) = (rng.u8(..CLASSES - 1), rng.bool());
                Step::Block { lane, class, is_blocked }
            }
            50..54 => Step::SetUp(lane, rng.bool()),
            54..56 => Step::Extra(rng.bool()),
            56..62 => {
                Step::Disk(one(rng, &[Disk::Good, Disk::Full, Disk::ReadOnly, Disk::Limited]))
            }
            62..65 => {
                let all = [Listening::Reads, Listening::Waits, Listening::Gone];
                Step::Listen(one(rng, &all))
            }
            65..71 => Step::Restart { is_killed: rng.bool(), is_log_full: rng.u8(..5) == 0 },
            71 => Step::StartWrongly(one(rng, &[Text::Mistaken, Text::Cut, Text::Missing])),
            72..75 => Step::Damage { place: rng.u32(..), is_read: rng.bool() },
            75..80 => {
                let filter = Filter { content: any_content(rng), mask: any_mask(rng) };
                let (class, after_us) = (rng.u8(..CLASSES - 1), rng.u64(..20_000));
                Step::Kill { lane, filter, class, after_us }
            }
            80..84 => {
                Step::Wire(lane, one(rng, &[Link::Up, Link::Down, Link::Gone, Link::Renamed]))
            }
            84..87 => Step::DeleteTap(lane, rng.bool()),
            87 => Step::Mtu(lane, one(rng, &[1400, 1500, 9000])),
            88 => Step::Queues(lane, rng.u32(1..3)),
            89..92 => Step::Member(lane, rng.usize(..2), rng.bool()),
            92..95 => Step::FrontEnd(rng.u64(..)),
            100..103 => Step::Lead(lane, rng.u8(..4) > 0),
            103..107 => Step::Neighbour(lane, Neighbour::App, rng.bool()),
            107..110 => Step::Neighbour(lane, Neighbour::Dump, rng.bool()),
            110.. => Step::KillMachine(lane),
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
                lane.running.is_some_and(|it| it.content != Content::Wide) && is_other
            }
            Step::Lead(lane, leads) => {
                let lane = &model.lanes[lane];
                lane.running.is_some() && lane.leads != Some(leads)
            }
            Step::Neighbour(lane, Neighbour::App, is_there) => {
                model.lanes[lane].has_app != is_there && model.lanes[lane].kind != Kind::Bond
            }
            Step::KillMachine(lane) => model.lanes[lane].kind == Kind::Machine,
            Step::SetUp(lane, is_up) => model.lanes[lane].is_up != is_up,
            Step::Extra(is_there) => model.has_extra != is_there,
            Step::Disk(disk) => (model.disk == Disk::Good) != (disk == Disk::Good),
            Step::Listen(how) => match model.log {
                Log::Read => how != Listening::Reads,
                Log::Unread => how == Listening::Reads,
                Log::Lost | Log::Gone => false,
            },
            Step::Restart { .. } => model.text.is_right() && model.can_start(),
            Step::StartWrongly(_) => model.can_start(),
            Step::Damage { .. } => model.is_simple(),
            Step::Kill { .. } => {
                model.disk == Disk::Good && model.can_start() && model.text.is_right()
            }
            Step::Write(text) => model.text != text,
            Step::Reload { by_signal } => !by_signal || model.text != Text::Missing,
            Step::Wire(lane, link) => {
                let lane = &model.lanes[lane];
                lane.kind.is_on_wire() && lane.link != link
            }
            Step::Mtu(lane, _) => {
                model.lanes[lane].link.is_there() && model.lanes[lane].kind != Kind::Machine
            }
            Step::Queues(lane, _) => {
                let lane = &model.lanes[lane];
                // The kernel's veth turns its carrier on then, also where the far end is down.
                lane.kind.is_on_wire() && lane.link == Link::Up
            }
            Step::Member(lane, member, is_up) => {
                let lane = &model.lanes[lane];
                lane.kind == Kind::Bond && lane.members[member] != is_up
            }
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
            Step::Lead(lane, leads) => return model.lead(lane, leads),
            Step::Neighbour(lane, Neighbour::App, is_there) => {
                model.lanes[lane].has_app = is_there;
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
            Step::Restart { .. }
            | Step::StartWrongly(_)
            | Step::Damage { .. }
            | Step::Kill { .. } => {
                self.foresee_start(model);
            }
            Step::Wire(lane, link) => {
                model.lanes[lane].link = link;
                return;
            }
            Step::Member(lane, member, is_up) => {
                model.lanes[lane].members[member] = is_up;
                return;
            }
            Step::SetUp(..)
            | Step::Extra(_)
            | Step::Neighbour(..)
            | Step::KillMachine(_)
            | Step::DeleteTap(..)
            | Step::Mtu(..)
            | Step::Queues(..)
            | Step::FrontEnd(_)
            | Step::Client(_) => return,
        }
        model.note_changes(&before);
    }

    /// The same of steps after which another daemon runs.
    fn foresee_start(self, model: &mut Model) {
        model.log = Log::Read;
        match self {
            Step::Restart { is_log_full, .. } => {
                model.start();
                model.log = if is_log_full { Log::Lost } else { Log::Read };
            }
            Step::StartWrongly(_) => {
                model.text = Text::Good;
                model.start();
            }
            Step::Damage { is_read, .. } => model.start_damaged(is_read),
            Step::Kill { lane, filter, class, .. } => model.kill(lane, filter, class),
            _ => {}
        }
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
                let map = world.daemon.map(lane, "blocked")?;
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
            Step::Restart { .. }
            | Step::StartWrongly(_)
            | Step::Damage { .. }
            | Step::Kill { .. } => self.act_on_daemon(world, to),
            Step::FrontEnd(seed) => {
                let mut rng = Rng::with_seed(seed);
                let kept = strangers::say_nonsense(&world.socket(true), &mut rng);
                world.idle.extend(kept);
                Ok(())
            }
            Step::Client(how) => client(world, how),
            Step::Lead(at, leads) => lead(world, at, leads, from),
            Step::Neighbour(lane, which, true) => world.run_neighbour(lane, which),
            Step::Neighbour(lane, which, false) => {
                world.kill_neighbour((lane, which));
                Ok(())
            }
            // Whoever sends frames has it.
            Step::KillMachine(_) => Ok(()),
            Step::Wire(..)
            | Step::DeleteTap(..)
            | Step::Mtu(..)
            | Step::Queues(..)
            | Step::Member(..) => self.act_on_host(from),
        }
    }

    /// The daemon ends, and another one is started.
    fn act_on_daemon(self, world: &mut World, to: &Model) -> Outcome {
        match self {
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
            Step::Kill { lane, filter, class, after_us } => {
                world.put(lane, filter.content)?;
                world.write_config(to, to.text)?;
                kill_meanwhile(world, lane, class, after_us)?;
                world.start(Sink::Pipe)
            }
            Step::Damage { place, is_read } => {
                let mut lanes = to.lanes.iter().enumerate();
                lanes.try_for_each(|(at, lane)| world.put(at, lane.file.content))?;
                world.write_config(to, to.text)?;
                reload(world, to, false)?;
                end(world, false)?;
                world.damage(place)?;
                world.start(Sink::Pipe)?;
                if is_read {
                    world.wait_start()?;
                    reload(world, to, false)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What happens to interfaces.
    fn act_on_host(self, from: &Model) -> Outcome {
        match self {
            Step::Wire(lane, link) => wire(lane, from.lanes[lane].link, link),
            Step::DeleteTap(lane, is_first) => {
                let end = if is_first { "a" } else { "b" };
                // A tap that is being made anew is gone already.
                let _absent = run(&format!("ip link del {end}{lane}"));
                Ok(())
            }
            Step::Mtu(lane, mtu) => {
                let name = match from.lanes[lane].kind {
                    Kind::Tap => format!("a{lane}"),
                    Kind::Packet | Kind::Afxdp => format!("v{lane}a"),
                    Kind::Bond => format!("m{lane}0"),
                    Kind::Machine => return Ok(()),
                };
                let _refused = run(&format!("ip link set {name} mtu {mtu}"));
                Ok(())
            }
            Step::Queues(lane, queues) => {
                // There may be so many already.
                let _same = run(&format!("ethtool -L v{lane}a rx {queues} tx {queues}"));
                Ok(())
            }
            Step::Member(lane, member, is_up) => {
                let state = if is_up { "up" } else { "down" };
                run(&format!("ip link set m{lane}{member} {state}"))
            }
            _ => Ok(()),
        }
    }
}

fn one<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.usize(..all.len())]
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

/// Kills the daemon while it is asked for changes; what it says to them, nobody hears.
fn kill_meanwhile(world: &mut World, lane: usize, class: u8, after_us: u64) -> Outcome {
    let daemon = &mut world.daemon;
    let map = daemon.map(lane, "blocked").ok();
    let client = |path: &str, body: Value| {
        let socket = world.dir.join(SOCKET);
        let path = path.to_owned();
        std::thread::spawn(move || {
            let client = Client::new(&socket).expect("there are descriptors");
            client.json::<Value>("POST", &path, &body).is_ok()
        })
    };
    let mut asks = vec![client("/v1/reload", json!({}))];
    if let Some(map) = map {
        let path = format!("/v1/maps/{map}/update");
        asks.push(client(&path, json!({ "key": class, "value": 1 })));
    }
    std::thread::sleep(Duration::from_micros(after_us));
    daemon.kill()?;
    for ask in asks {
        let _answered: bool = ask.join().expect("no panic");
    }
    Ok(())
}

/// Has a lane's device map lead to its other port, as soon as that is there.
fn lead(world: &World, lane: usize, leads: bool, from: &Model) -> Outcome {
    let (daemon, start) = (&world.daemon, Instant::now());
    let map = daemon.map(lane, "out")?;
    let is_sure = from.disk == Disk::Good && from.lanes[lane].leads.is_some();
    loop {
        let index = daemon.index(&format!("b{lane}"))?;
        match daemon.put(map, 0, leads.then(|| index.into())) {
            // A tap that was deleted is made anew, with another number.
            Err(_) if is_sure && start.elapsed() < END => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) if is_sure => return Err(format!("an element can't be set: {error}")),
            _ => return Ok(()),
        }
    }
}

fn wire(lane: usize, from: Link, to: Link) -> Outcome {
    let (near, far, other) = (format!("v{lane}a"), format!("w{lane}a"), format!("r{lane}a"));
    if from == Link::Gone {
        plug_end(lane, "a")?;
    }
    if from == Link::Renamed {
        run(&format!("ip link set {other} name {near}"))?;
        run(&format!("ip link set {near} up"))?;
    }
    match to {
        Link::Up => run(&format!("ip link set {far} up")),
        Link::Down => run(&format!("ip link set {far} down")),
        Link::Gone => run(&format!("ip link del {far}")),
        Link::Renamed => {
            run(&format!("ip link set {near} down"))?;
            run(&format!("ip link set {near} name {other}"))
        }
    }
}

fn client(world: &mut World, how: Rudeness) -> Outcome {
    let said = |error: std::io::Error| format!("a client: {error}");
    let mut stream = UnixStream::connect(world.socket(false)).map_err(said)?;
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
