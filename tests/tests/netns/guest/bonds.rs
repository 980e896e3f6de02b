//! The guest's bond and ours, joined by two cables: traffic while one of them is cut.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use towpath_engine::bond::{BondMode, BondOptions, XmitPolicy};
use towpath_engine::{Hook, Link, PortId, PortOptions, UpperName};
use towpath_ports::bond::Controller;
use towpath_ports::bond::settings::{LacpSettings, Settings};
use towpath_xdp::Program;

use super::scene::{self, GUEST, HOST, Scene, Wire, until};
use crate::programs;
use crate::traffic::ping;

/// Our bond, over the ends of the guest's cables and below the host's stack.
struct Bonded {
    // Dropped first: it looks after a bond of the engine.
    controller: Controller,
    bond: PortId,
    echo: Program,
    scene: Scene,
}

impl Bonded {
    fn new(wire: Wire, mode: BondMode) -> Bonded {
        let scene = Scene::new(wire, 2);
        let policy = XmitPolicy::Layer34;
        let settings = Settings {
            options: BondOptions { mode, policy, ..BondOptions::default() },
            miimon: Duration::from_millis(20),
            lacp: LacpSettings { fast: true, ..LacpSettings::default() },
            ..Settings::default()
        };
        let upper = |name: &str| UpperName::Named(name.to_owned());
        let bond = scene.engine.change(|config| {
            let options = settings.engine_options();
            let bond = config.add_bond(PortOptions::new("bond0"), options, None)?;
            scene.members.iter().try_for_each(|&member| config.enslave(bond, member))?;
            config.set_upper(bond, upper("up"))?;
            config.set_upper(scene.up, upper("bond0"))?;
            Ok(bond)
        });
        let bond = bond.unwrap();
        let tell = Box::new(|line: String| eprintln!("  {line}"));
        let controller = Controller::start(&scene.engine, bond, settings, tell).unwrap();
        let echo = programs::load("echo", "echo", scene.engine.workers());
        Bonded { controller, bond, echo, scene }
    }

    /// From now on a program on the bond answers pings, by `XDP_TX`.
    fn attach(&self) {
        let engine = &self.scene.engine;
        let link = Link::new(self.echo.clone(), 1, engine.workers());
        engine.change(|config| config.set_links(self.bond, Hook::Rx, vec![link])).unwrap();
    }

    /// Pings that the program answered.
    fn answered(&self) -> u64 {
        programs::counter(&self.echo, "answered", 0)[0]
    }

    /// Members that we send by.
    fn usable(&self) -> BTreeSet<String> {
        let members = self.controller.status().members;
        members.into_iter().filter(|it| it.can_send).map(|it| it.name).collect()
    }

    /// Frames received and sent by a member.
    fn frames(&self, index: usize) -> [u64; 2] {
        self.scene.engine.read(|_, snapshot| {
            let counters = &snapshot.port(self.scene.members[index]).unwrap().opened.counters;
            let sum = counters.iter().map(|it| [it.rx_packets.get(), it.tx_packets.get()]);
            sum.fold([0, 0], |[rx, tx], [more_rx, more_tx]| [rx + more_rx, tx + more_tx])
        })
    }

    /// Lets the guest ping the host in the background, ten times a second.
    fn start_pinging(&mut self, seconds: u32) {
        let count = seconds * 10;
        self.scene.vm.run(&format!("ping -q -i 0.1 -c {count} {HOST} >/tmp/ping 2>&1 &"));
    }

    /// Unanswered pings of [`Bonded::start_pinging`].
    fn unanswered(&mut self) -> u32 {
        let text =
            self.scene.vm.run("while pidof ping >/dev/null; do sleep 0.1; done; cat /tmp/ping");
        // "50 packets transmitted, 49 packets received, 2% packet loss"
        let number = |what: &str| {
            let part = text.split([',', '\n']).find_map(|part| part.trim().strip_suffix(what));
            part.and_then(|part| part.parse::<u32>().ok()).unwrap_or_else(|| panic!("{text}"))
        };
        number(" packets transmitted") - number(" packets received")
    }

    /// Sends bytes over TCP to the guest, which must send them all back.
    #[track_caller]
    fn must_echo(&self, connections: usize) {
        let sent: Vec<u8> = (0..20_000_u32).flat_map(|it| it.to_le_bytes()).collect();
        self.scene.host.within(|| {
            for _ in 0..connections {
                let mut stream = TcpStream::connect((GUEST, ECHO_PORT)).unwrap();
                stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                let mut reader = stream.try_clone().unwrap();
                let mut back = Vec::new();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        stream.write_all(&sent).unwrap();
                        stream.shutdown(Shutdown::Write).unwrap();
                    });
                    reader.read_to_end(&mut back).unwrap();
                });
                assert!(back == sent, "{} of {} bytes came back", back.len(), sent.len());
            }
        });
    }

    /// Lines of the guest's state of its bond.
    fn guest_says(&mut self, what: &str) -> Vec<String> {
        let state = self.scene.vm.run("state");
        state.lines().filter_map(|line| line.trim().strip_prefix(what)).map(str::to_owned).collect()
    }
}

/// Pings that may be lost while a side does not know yet what happened: it takes an emulated guest
/// longer when the machine is busy. Three more are for what was under way.
fn excused(detecting: Duration) -> u32 {
    3 + (detecting.as_millis() / PING_MILLIS) as u32
}

#[test]
fn active_backup_fails_over_on_both_sides() {
    if let Some(why) = scene::unavailable() {
        return eprintln!("skipped: {why}");
    }
    let mut it = Bonded::new(Wire::Packet, BondMode::ActiveBackup);
    it.scene.vm.run("bond active-backup 10.0.0.2/24 miimon=20 -- eth0 eth1");
    it.scene.vm.run(&format!("serve {ECHO_PORT}"));
    it.scene.until_answered();
    it.scene.must_ping_both_ways();
    it.must_echo(2);
    assert_eq!((active(&mut it), it.usable()), ("eth0".to_owned(), names(&["m0"])));

    // The guest pings the whole time, and the program answers.
    it.attach();
    it.start_pinging(4);
    until("the program answers", || it.answered() > 3);
    let mut start = Instant::now();
    it.scene.cut(0);
    until("the guest fails over", || active(&mut it) == "eth1");
    until("we fail over", || it.usable() == names(&["m1"]));
    let mut detecting = start.elapsed();
    it.must_echo(2);
    start = Instant::now();
    it.scene.mend(0);
    it.scene.cut(1);
    until("the guest comes back", || active(&mut it) == "eth0");
    until("we come back", || it.usable() == names(&["m0"]));
    detecting += start.elapsed();
    it.must_echo(2);
    assert_eq!(ping(&it.scene.host, GUEST, 5, 56), 5);
    let (lost, answered) = (it.unanswered(), it.answered());
    eprintln!("  {lost} of 40 pings lost in two fail-overs, {answered} answered by the program");
    assert!(lost <= excused(detecting), "{lost} of 40 pings were lost, {detecting:?} to detect");
    it.scene.check();
}

#[test]
fn lacp_forms_an_aggregate_with_linux() {
    if let Some(why) = scene::unavailable() {
        return eprintln!("skipped: {why}");
    }
    let mut it = Bonded::new(Wire::Tap, BondMode::Lacp);
    let options = "miimon=20 lacp_rate=fast xmit_hash_policy=layer3+4";
    it.scene.vm.run(&format!("bond 802.3ad 10.0.0.2/24 {options} -- eth0 eth1"));
    it.scene.vm.run(&format!("serve {ECHO_PORT}"));
    until_aggregated(&mut it, 2);
    let ours = mac(it.controller.status().mac);
    assert_eq!(it.guest_says("Partner Mac Address: "), [ours], "the guest knows us");
    it.scene.until_answered();
    it.scene.must_ping_both_ways();
    let before = [it.frames(0), it.frames(1)];
    // Half of them in each direction by each member, and not many frames for each: they are long.
    it.must_echo(40);
    for (index, before) in before.into_iter().enumerate() {
        let [rx, tx] = it.frames(index);
        assert!(rx > before[0] + 50 && tx > before[1] + 50, "both ways over m{index}");
    }

    it.attach();
    it.start_pinging(6);
    until("the program answers", || it.answered() > 3);
    let mut start = Instant::now();
    it.scene.cut(0);
    until_aggregated(&mut it, 1);
    let mut detecting = start.elapsed();
    assert_eq!(it.usable(), names(&["m1"]));
    it.must_echo(4);
    start = Instant::now();
    it.scene.mend(0);
    until_aggregated(&mut it, 2);
    detecting += start.elapsed();
    it.must_echo(4);
    let lost = it.unanswered();
    eprintln!("  {lost} of 60 pings lost while a cable was cut and mended");
    assert!(lost <= excused(detecting), "{lost} of 60 pings were lost, {detecting:?} to detect");

    // The guest's link stays up: only LACP tells it that the partner is gone.
    it.scene.set_carrier(1, "off");
    until_aggregated(&mut it, 1);
    assert_eq!(it.usable(), names(&["m0"]));
    it.must_echo(4);
    it.scene.set_carrier(1, "on");
    until_aggregated(&mut it, 2);
    it.scene.must_ping_both_ways();
    it.scene.check();
}

/// Waits until both sides have `ports` ports in their aggregate.
#[track_caller]
fn until_aggregated(it: &mut Bonded, ports: usize) {
    // 0x3f: active, fast, aggregating, in sync, collecting, distributing.
    let collecting = |it: &mut Bonded| {
        let states = it.guest_says("port state: ");
        states.chunks(2).filter(|pair| *pair == ["63", "63"]).count()
    };
    until(&format!("the guest has {ports} ports"), || {
        it.guest_says("Number of ports: ") == [ports.to_string()] && collecting(it) == ports
    });
    until(&format!("we have {ports} ports"), || it.usable().len() == ports);
    let ids = it.guest_says("Aggregator ID: ");
    let states = it.guest_says("port state: ");
    eprintln!("  guest: aggregators {ids:?}, states {states:?}; we send by {:?}", it.usable());
}

/// The member that the guest uses.
fn active(it: &mut Bonded) -> String {
    it.guest_says("Currently Active Slave: ").concat()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn mac(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

const ECHO_PORT: u16 = 7;
/// Between two pings of the guest.
const PING_MILLIS: u128 = 100;
