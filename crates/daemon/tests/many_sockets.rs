//! The end of an application with very many AF_XDP sockets does not disturb other ports.

mod running;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use towpath_daemon::live::Live;
use towpath_xsk::Server;
use towpath_xsk::abi::{
    AF_XDP, Address, SHARED_UMEM, TX_RING, UMEM_COMPLETION_RING, UMEM_FILL_RING, UMEM_REG, UmemReg,
};
use towpath_xsk_client::{Area, Connection};

use running::{counters, start, sum, wait_for};

/// Traffic of one port, and another port for the application.
const CONFIG: &str = r#"
[[worker]]
[[port]]
name = "gen"
kind = "generator"
rate = 2000
frames = ["02000000000202000000000108000000000000000000000000000000"]
upper = "out"
[[port]]
name = "out"
kind = "sink"
[[port]]
name = "a"
kind = "pair"
peer = "b"
[[port]]
name = "b"
kind = "pair"
peer = "a"
"#;

/// The longest that a worker was at something else than the traffic.
#[derive(Debug, Clone, Copy, Default)]
struct Pause {
    /// By the clock, also while other threads ran.
    wall: Duration,
    /// By the worker's own CPU time.
    worked: Duration,
}

/// Nanoseconds that the worker ran.
fn worked() -> Option<Duration> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let mut folders = tasks.filter_map(|task| Some(task.ok()?.path()));
    let is_worker = |folder: &PathBuf| {
        std::fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.trim() == "worker-0")
    };
    let stat = std::fs::read_to_string(folders.find(is_worker)?.join("schedstat")).ok()?;
    stat.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// The longest pause of the traffic while something is done.
fn longest_pause(live: &Live, act: impl FnOnce() + Send) -> Pause {
    let mut longest = Pause::default();
    std::thread::scope(|scope| {
        let acting = scope.spawn(act);
        // Not by the engine's lock, which is the application's.
        let counters = counters(live, "gen");
        let frames = || counters.iter().map(|it| it.rx_packets.get()).sum::<u64>();
        let look = || (frames(), Instant::now(), worked());
        let (mut seen, mut since, mut before) = look();
        while !acting.is_finished() {
            std::thread::sleep(Duration::from_micros(200));
            let (frames, now, work) = look();
            // A late look of this thread must not count as a pause.
            if frames != seen {
                (seen, since, before) = (frames, now, work);
                continue;
            }
            longest.wall = longest.wall.max(now - since);
            if let (Some(work), Some(before)) = (work, before) {
                longest.worked = longest.worked.max(work - before);
            }
        }
    });
    longest
}

/// Sockets on one queue, with the memory of the first.
fn open(path: &std::path::Path, count: usize) -> Vec<Connection> {
    let area = Area::new(1 << 16).expect("there is memory");
    let mut all: Vec<Connection> = Vec::new();
    for _ in 0..count {
        let connection = Connection::open(path).expect("it is served");
        let ring = |name| {
            connection.set_option(name, &64u32.to_ne_bytes(), None).expect("there is memory");
        };
        ring(TX_RING);
        let ifindex = connection.ifindex("a").expect("a port");
        let address = Address { family: AF_XDP, ifindex, ..Address::default() };
        match all.first() {
            None => {
                let len = area.len() as u64;
                let reg = UmemReg { len, chunk_size: 2048, ..UmemReg::default() };
                let file = Some((area.fd(), 0));
                connection.set_option(UMEM_REG, &reg.to_bytes(), file).expect("it is memory");
                ring(UMEM_FILL_RING);
                ring(UMEM_COMPLETION_RING);
                connection.bind(&address, None).expect("it is free");
            }
            Some(first) => {
                let shared = Address { flags: SHARED_UMEM, ..address };
                connection.bind(&shared, Some(first.rings())).expect("it is shared");
            }
        }
        all.push(connection);
    }
    all
}

#[test]
fn sockets_that_go_together_pause_nobody() {
    let limit = getrlimit(Resource::Nofile);
    let _not_allowed = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // Both ends are in this process.
    let count = (files.saturating_sub(300) / 6).min(1500) as usize;
    let (mut live, _) = start(CONFIG);
    let path = std::env::temp_dir().join(format!("towpath-many-{}.sock", std::process::id()));
    let server = Server::start(live.xsk().sockets(), &path, 0o600).expect("there is room");
    let mut all = Vec::new();
    let opening = longest_pause(&live, || all = open(&path, count));
    assert_eq!(live.xsk().sockets().all().len(), count);
    let generation = || live.engine().read(|_, snapshot| snapshot.generation);
    let (before, start) = (generation(), Instant::now());
    let closing = longest_pause(&live, || {
        drop(all);
        wait_for("end of the sockets", || live.xsk().sockets().all().is_empty());
    });
    let (took, changes) = (start.elapsed(), generation() - before);
    println!("{count} sockets: opening {opening:?}, closing {closing:?}");
    println!("closed in {took:?}, with {changes} changes");
    drop(server);
    live.stop();
    assert_eq!(live.engine().conservation().missing(), 0);
    let sent = sum(&live, "out", |it| it.tx_packets.get());
    assert_eq!(sum(&live, "gen", |it| it.rx_packets.get()), sent);
    // Sockets that go one by one take a change each.
    assert!(changes < count as u64 / 4, "{changes} changes");
    for pause in [opening, closing] {
        assert!(pause.worked.min(pause.wall) < PAUSE_MAX, "{pause:?}");
    }
}

/// Longest accepted pause of traffic: several times the one of a quiet machine, which is below 5
/// ms, because the memory and the caches of a busy one are shared too.
const PAUSE_MAX: Duration = Duration::from_millis(60);
