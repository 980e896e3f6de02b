//! A shadow netdev: the host's stack behind a port that is no interface.

use std::fs::File;
use std::os::fd::AsFd as _;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use towpath_engine::{Engine, Hook, Link, Options, PortId, PortOptions, UpperName};
use towpath_ports::pair::{self, Pair};
use towpath_ports::shadow::{self, Shadow};
use towpath_ports::tap::{self, Tap};

use crate::lab;
use crate::namespace::Namespace;
use crate::programs::{self, Seen, live, seen};
use crate::traffic::{must_ping, serve, tcp};

/// A guest behind `p1`, the pair `x0`-`x1`, and the host that sees `x1`.
struct Scene {
    engine: Engine,
    guest: Namespace,
    x1: PortId,
}

impl Scene {
    fn new() -> Scene {
        let engine = Engine::start(&Options::default()).unwrap();
        let guest = Namespace::new();
        let options = tap::Options { netns: Some(guest.path()), ..tap::Options::new("h1") };
        let p1 = engine.add_port(PortOptions::new("p1"), Box::new(Tap::new(&options).unwrap()));
        guest.run("ip addr add 10.0.0.1/24 dev h1");
        let (a, b) = Pair::new(pair::Options::default());
        let x0 = engine.add_port(PortOptions::new("x0"), Box::new(a)).unwrap();
        let x1 = engine.add_port(PortOptions::new("lookups-x1"), Box::new(b)).unwrap();
        let upper = |name: &str| UpperName::Named(name.to_owned());
        engine.change(|config| config.set_upper(p1.unwrap(), upper("x0"))).unwrap();
        engine.change(|config| config.set_upper(x0, upper("p1"))).unwrap();
        Scene { engine, guest, x1 }
    }

    fn ifindex(&self) -> u32 {
        self.engine.read(|_, snapshot| snapshot.port(self.x1).unwrap().ifindex)
    }
}

/// The output of `ip link show` for the shadow.
fn link(host: &Namespace) -> serde_json::Value {
    let text = host.run("ip -j link show lookups-x1");
    let links: serde_json::Value = serde_json::from_str(&text).unwrap();
    links[0].clone()
}

fn is_up(link: &serde_json::Value) -> bool {
    link["flags"].as_array().unwrap().iter().any(|flag| flag == "UP")
}

fn with_stack(host: &Namespace) {
    let scene = Scene::new();
    let before = scene.ifindex();
    let program = live("pass", 1);
    let links = vec![Link::new(program.clone(), 1, scene.engine.workers())];
    scene.engine.change(|config| config.set_links(scene.x1, Hook::Rx, links)).unwrap();
    let shadow = Shadow::add(&scene.engine, scene.x1, &shadow::Options::default()).unwrap();
    let shown = link(host);
    assert_eq!(shown["ifindex"], scene.ifindex(), "programs and the host mean the same");
    assert_eq!((&shown["mtu"], &shown["address"]), (&1500.into(), &"02:00:00:00:00:0b".into()));

    host.run("ip addr add 10.0.0.2/24 dev lookups-x1");
    must_ping(&scene.guest, "10.0.0.2", 56);
    must_ping(host, "10.0.0.1", 1472);
    assert_eq!(seen(&program, Seen::Echo as u32)[0], 22, "its programs see what comes in");
    let _server = serve(host);
    let rate = tcp(&scene.guest, "10.0.0.2", "-t 1");
    eprintln!("  TCP into the host's stack: {:.2} Gbit/s", rate / 1e9);
    assert!(rate > 50e6, "{rate}");

    scene.engine.change(|config| config.set_mtu(scene.x1, Some(1300))).unwrap();
    scene.engine.change(|config| config.set_up(scene.x1, false)).unwrap();
    shadow.follow(&scene.engine).unwrap();
    let shown = link(host);
    assert_eq!((&shown["mtu"], is_up(&shown)), (&1300.into(), false));
    scene.engine.change(|config| config.set_up(scene.x1, true)).unwrap();
    shadow.follow(&scene.engine).unwrap();
    assert!(is_up(&link(host)));

    shadow.remove(&scene.engine).unwrap();
    assert_eq!(scene.ifindex(), before);
    assert!(!host.output("ip link show lookups-x1").status.success(), "it went");
}

fn alone(host: &Namespace) {
    let scene = Scene::new();
    let before = scene.ifindex();
    let options = shadow::Options { stack: false, ..shadow::Options::default() };
    let shadow = Shadow::add(&scene.engine, scene.x1, &options).unwrap();
    assert_eq!(link(host)["ifindex"], scene.ifindex());
    assert!(shadow.tap().is_none());
    shadow.remove(&scene.engine).unwrap();
    assert_eq!(scene.ifindex(), before);
    assert!(!host.output("ip link show lookups-x1").status.success(), "it went");
}

#[test]
fn the_host_answers_through_a_port_with_a_shadow() {
    if let Some(why) = lab::unavailable().or_else(programs::unavailable) {
        return eprintln!("skipped: {why}");
    }
    let host = Namespace::new();
    let run = || {
        let file = File::open(host.path()).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        with_stack(&host);
        alone(&host);
    };
    std::thread::scope(|scope| scope.spawn(run).join().unwrap());
}
