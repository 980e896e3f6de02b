//! Events that disturb applications, or must not.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use towpath_udp::{TxDatagram, UdpStack};

use super::owners::{Owner, plug};
use super::traffic::{Ends, PORT};
use super::world::{Daemon, World};
use crate::lab::{FAR, NEAR, PATIENCE, at, errno, wait_for};

/// An event that disturbs applications, or must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    ReloadSame,
    ReloadOther,
    ReloadRefused,
    /// A program before `udp_steer` that passes, then another one.
    Filter,
    /// A program whose verdict is the last.
    FilterEnds,
    /// A program that the verifier refuses.
    FilterRefused,
    /// A program that isn't there.
    FilterMissing,
    PortRemoved,
    PortReopened,
    PortDown,
    LinkDown,
    WireDeleted,
    ShadowOff,
    ShadowDeleted,
    AddressesGone,
    RoutesGone,
    NeighbourMoves,
    SmallMtu,
    DiskFull,
    DaemonKilled,
    DaemonEnded,
    OtherDaemon,
    AppKilled,
    AppStopped,
    ManyBinds,
}

pub(crate) const EVENTS: [Event; 25] = [
    Event::ReloadSame,
    Event::ReloadOther,
    Event::ReloadRefused,
    Event::Filter,
    Event::FilterEnds,
    Event::FilterRefused,
    Event::FilterMissing,
    Event::PortDown,
    Event::LinkDown,
    Event::AddressesGone,
    Event::RoutesGone,
    Event::NeighbourMoves,
    Event::SmallMtu,
    Event::DiskFull,
    Event::OtherDaemon,
    Event::AppKilled,
    Event::AppStopped,
    Event::ManyBinds,
    Event::PortRemoved,
    Event::PortReopened,
    Event::WireDeleted,
    Event::ShadowOff,
    Event::ShadowDeleted,
    Event::DaemonKilled,
    Event::DaemonEnded,
];

/// Events of every run of the tests.
pub(crate) const FEW: [Event; 5] = [
    Event::ReloadRefused,
    Event::FilterRefused,
    Event::AppKilled,
    Event::ShadowOff,
    Event::DaemonKilled,
];

/// The effect of an event on applications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// Nothing.
    Nothing,
    /// Datagrams are lost.
    Loss,
    /// Nothing arrives until it is over; the sockets stay.
    Silence,
    /// The sockets are gone.
    End,
}

impl Event {
    pub(crate) fn is_possible(self, owner: Owner) -> bool {
        match self {
            Event::LinkDown | Event::WireDeleted => owner.has_wire(),
            // The tap and its shadow have the same Ethernet address, and neighbour discovery takes
            // long then.
            Event::ShadowOff | Event::ShadowDeleted => owner != Owner::Tap,
            // Frames that come while the port is shut wait in the kernel's ring of a packet socket,
            // and arrive when it is open again.
            Event::FilterRefused => !matches!(owner, Owner::Packet | Owner::Bond),
            _ => true,
        }
    }

    pub(crate) fn expect(self) -> Expect {
        match self {
            Event::ReloadSame
            | Event::ReloadOther
            | Event::ReloadRefused
            | Event::Filter
            | Event::FilterMissing
            | Event::SmallMtu
            | Event::DiskFull
            | Event::OtherDaemon
            | Event::AppKilled
            | Event::AppStopped
            | Event::ManyBinds => Expect::Nothing,
            Event::LinkDown
            | Event::AddressesGone
            | Event::RoutesGone
            | Event::NeighbourMoves
            // Datagrams that are sent meanwhile may wait in the kernel.
            | Event::PortDown => Expect::Loss,
            Event::FilterEnds | Event::FilterRefused => Expect::Silence,
            Event::PortRemoved
            | Event::PortReopened
            | Event::WireDeleted
            | Event::ShadowOff
            | Event::ShadowDeleted
            | Event::DaemonKilled
            | Event::DaemonEnded => Expect::End,
        }
    }

    /// Has it happen.
    pub(crate) fn begin(self, world: &mut World, ends: &Ends) {
        match self {
            Event::ReloadSame => world.reload_well(),
            Event::ReloadOther => {
                world.config.more = "[[port]]\nname = \"other\"\nkind = \"sink\"\n".to_owned();
                world.reload_well();
            }
            Event::ReloadRefused => {
                world.config.more = "[[port]]\nname = \"x\"\nkind = \"pari\"\n".to_owned();
                world.reload().unwrap_err();
            }
            Event::Filter => {
                for program in ["other", "configured"] {
                    world.config.more = attach("run_config.o", program, "actions = [\"pass\"]");
                    world.reload_well();
                }
            }
            Event::FilterEnds => {
                world.config.more = attach("run_config.o", "other", "actions = [\"drop\"]");
                world.reload_well();
            }
            Event::FilterRefused => {
                world.config.more = attach("refused.o", "reads_too_far", "");
                assert_ne!(world.reload().unwrap(), json!([]));
            }
            Event::FilterMissing => {
                world.config.more = attach("missing.o", "none", "");
                world.reload().unwrap_err();
            }
            Event::PortDown => {
                world.config.keys = "up = false\n".to_owned();
                world.reload_well();
            }
            Event::PortReopened => {
                world.config.keys = "workers = [0]\n".to_owned();
                world.reload_well();
            }
            Event::PortRemoved => {
                world.config.has_port = false;
                world.reload_well();
            }
            Event::ShadowOff => {
                world.config.has_shadow = false;
                world.reload_well();
            }
            Event::SmallMtu => small_mtu(world, ends),
            Event::DiskFull => {
                world.fill(true);
                // It may be refused, as what it changes can't be saved.
                world.config.more = "[[port]]\nname = \"other\"\nkind = \"sink\"\n".to_owned();
                let _refused = world.reload();
            }
            Event::DaemonKilled => world.daemon.take().unwrap().kill(),
            Event::DaemonEnded => {
                let daemon = world.daemon.take().unwrap();
                daemon.signal(Signal::TERM);
                assert!(daemon.wait(), "it succeeds");
            }
            Event::OtherDaemon => other_daemon(world),
            Event::AppKilled => app_killed(world, ends),
            Event::AppStopped => app_stopped(world, ends),
            Event::ManyBinds => many_binds(ends),
            _ => self.begin_on_host(world, ends),
        }
    }

    fn begin_on_host(self, world: &World, ends: &Ends) {
        match self {
            Event::LinkDown => world.near("ip link set near down"),
            Event::WireDeleted => world.near("ip link del near"),
            Event::ShadowDeleted => world.near("ip link del stack0"),
            Event::AddressesGone => {
                world.near("ip addr flush dev stack0");
            }
            Event::RoutesGone => {
                world.near("ip route flush dev stack0 table main");
                world.near("ip -6 route flush dev stack0 table main");
                unreachable_soon(ends);
            }
            Event::NeighbourMoves => {
                world.far("sysctl -qw net.ipv4.conf.far.arp_notify=1");
                let number = world.config.keys.len() as u8 ^ fastrand::u8(..);
                world.far(&format!("ip link set far address 02:00:00:00:77:{number:02x}"));
            }
            event => panic!("{event:?}"),
        }
    }

    /// Ends it.
    pub(crate) fn end(self, world: &mut World) {
        let is_started_again = matches!(self, Event::DaemonKilled | Event::DaemonEnded);
        if is_started_again {
            world.start();
        }
        match self {
            Event::LinkDown => world.near("ip link set near up"),
            Event::WireDeleted => {
                let Owner::Afxdp(queues) = world.owner else {
                    plug(&world.near, &world.far, ("near", "far"), 1);
                    return world.settle();
                };
                plug(&world.near, &world.far, ("near", "far"), queues);
            }
            Event::RoutesGone => {
                world.near("ip route replace 10.77.0.0/24 dev stack0 src 10.77.0.2");
                world.near("ip -6 route replace 2001:db8:77::/64 dev stack0");
            }
            Event::DiskFull => world.fill(false),
            _ => {}
        }
        let config = &mut world.config;
        (config.has_port, config.has_shadow) = (true, true);
        config.keys.clear();
        config.more.clear();
        world.reload_well();
        world.settle();
    }
}

fn attach(object: &str, program: &str, keys: &str) -> String {
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/cli/tests/fixtures");
    format!(
        "[[attach]]\nport = \"p0\"\nobject = \"{fixtures}/{object}\"\nprogram = \"{program}\"\n\
         {keys}\n"
    )
}

/// Sending fails soon with the error that the documents name.
fn unreachable_soon(ends: &Ends) {
    let sockets = ends.sockets();
    for (socket, far) in sockets.all.iter().zip([FAR[0], FAR[2]]) {
        let datagram = TxDatagram::new(b"nobody gets it!!", at(far, 9));
        wait_for("error", || match socket.send_batch(&[datagram]) {
            Ok(_) => false,
            Err(error) => errno(&error) == Errno::NETUNREACH,
        });
    }
}

/// The MTU is smaller, and larger datagrams are refused.
fn small_mtu(world: &mut World, ends: &Ends) {
    world.config.keys = "mtu = 1400\n".to_owned();
    world.reload_well();
    let sockets = ends.sockets();
    let to = at(FAR[0], PORT);
    wait_for("MTU", || {
        // A way that nobody uses is not asked for again.
        let _sent = sockets.all[0].send_batch(&[TxDatagram::new(&[0; 1373], at(FAR[0], 9))]);
        sockets.all[0].max_payload(to) == Some(1372)
    });
    let sent = sockets.all[0].send_batch(&[TxDatagram::new(&[0; 1373], at(FAR[0], 9))]);
    assert_eq!(errno(&sent.unwrap_err()), Errno::MSGSIZE);
}

/// Another daemon with the same ports and shadow, and one with the same sockets as well.
fn other_daemon(world: &World) {
    let dir = world.dir.join("other");
    std::fs::create_dir_all(dir.join("small")).unwrap();
    std::fs::copy(world.dir.join("t.toml"), dir.join("t.toml")).unwrap();
    let mut other = Daemon::start(&dir);
    other.check();
    // Applications of its own.
    let options = towpath_udp::Options { path: dir.join("api.sock.xsk"), ..world.options() };
    if let Ok(stack) = UdpStack::open(&options) {
        // The shadow, and with it the address, is the first one's.
        let refusal = stack.bind(at(NEAR[0], PORT)).err().map(|it| errno(&it));
        assert_eq!(refusal, Some(Errno::ADDRNOTAVAIL));
    }
    other.signal(Signal::TERM);
    assert!(other.wait(), "it succeeds");
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(!Daemon::spawn(&world.dir).wait(), "a second daemon has the same sockets");
}

/// An application in a process of its own.
pub(crate) struct App(pub(crate) Child);

impl App {
    /// One that has bound a port, and sends a lot.
    pub(crate) fn start(ends: &Ends) -> App {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(std::env::current_exe().unwrap());
        command.args(["trouble::events::an_application", "--exact", "--nocapture"]);
        command.env(APP, &ends.options().path).stdout(Stdio::null());
        let app = App(command.spawn().unwrap());
        wait_for("application", || {
            std::thread::sleep(Duration::from_millis(10));
            !is_free(ends)
        });
        app
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.0.kill();
        let _waited = self.0.wait();
    }
}

fn is_free(ends: &Ends) -> bool {
    match ends.sockets().stack.bind(at(NEAR[0], PORT + 10)) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(errno(&error), Errno::ADDRINUSE);
            false
        }
    }
}

fn app_killed(world: &World, ends: &Ends) {
    let mut app = App::start(ends);
    let there = world.kernel(&at(FAR[0], 0).to_string());
    (0..200).for_each(|_| there.send_if_possible(b"for the victim", at(NEAR[0], PORT + 10)));
    app.0.kill().unwrap();
    let start = Instant::now();
    wait_for("port", || is_free(ends));
    eprintln!("{:?}: the port is free after {:?}", world.owner, start.elapsed());
    assert!(start.elapsed() < Duration::from_secs(1));
}

fn app_stopped(world: &World, ends: &Ends) {
    let app = App::start(ends);
    kill_process(Pid::from_child(&app.0), Signal::STOP).unwrap();
    let there = world.kernel(&at(FAR[0], 0).to_string());
    for _ in 0..100 {
        (0..64).for_each(|_| there.send_if_possible(b"for a sleeper", at(NEAR[0], PORT + 10)));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!is_free(ends), "it still has its port");
    kill_process(Pid::from_child(&app.0), Signal::CONT).unwrap();
    drop(app);
    wait_for("port", || is_free(ends));
}

fn many_binds(ends: &Ends) {
    let sockets = ends.sockets();
    let other = UdpStack::open(ends.options()).unwrap();
    for round in 0..100 {
        let bind = |stack: &UdpStack| stack.bind(at(NEAR[round % 4], 0)).unwrap();
        let bound: Vec<_> = [&sockets.stack, &other].into_iter().map(bind).collect();
        let again = other.bind(bound[0].local_addr()).err().map(|it| errno(&it));
        assert_eq!(again, Some(Errno::ADDRINUSE));
    }
}

/// The application; no test otherwise.
#[test]
fn an_application() {
    let Some(path) = std::env::var_os(APP) else { return };
    let options = towpath_udp::Options { path: path.into(), ..towpath_udp::Options::new("p0") };
    let stack = UdpStack::open(&options).unwrap();
    let mut socket = None;
    // The test may be finding out whether the port is free.
    wait_for("port", || {
        socket = stack.bind(at(NEAR[0], PORT + 10)).ok();
        socket.is_some()
    });
    let socket = socket.unwrap();
    let full = TxDatagram { segment_size: Some(1), ..TxDatagram::new(&[0; 64], at(FAR[0], 9)) };
    let start = Instant::now();
    while start.elapsed() < 10 * PATIENCE && socket.wait_send(Some(PATIENCE)).is_ok() {
        let _full = socket.send_batch(&[full]);
        std::thread::sleep(Duration::from_millis(1));
    }
}

const APP: &str = "TOWPATH_UDP_APP";
