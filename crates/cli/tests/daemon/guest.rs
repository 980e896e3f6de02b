//! Objects of virtual machines: `guest show`, `save`, `restore` and `reset`.

use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use towpath_guest_client::wire::Direction;
use towpath_guest_client::{Client, MapSpec, ProgramSpec, Wanted, open};
use towpath_workload::virtio::{Guest, GuestOptions};

use super::Daemon;
use crate::support::Bench;

const GUESTS: &str = r#"
[[port]]
name = "vm0"
kind = "vhost-user"
path = "vm0.vhost"
[port.offload]
path = "vm0.offload"
maps = 2

[[port]]
name = "vm1"
kind = "vhost-user"
path = "vm1.vhost"
[port.offload]
path = "vm1.offload"
"#;

#[test]
fn guests_are_shown_saved_restored_and_reset() {
    let bench = Bench::new("daemon_guest");
    let daemon = Daemon::start(&bench, GUESTS);
    let (mut client, _map) = with_a_program(&bench, "vm0.offload");

    let shown = daemon.json(&["guest", "show", "vm0"])[0].clone();
    assert_eq!(shown["connected"], true, "{shown}");
    assert_eq!(shown["programs"][0]["name"], "drops", "{shown}");
    assert_eq!(shown["programs"][0]["direction"], "ingress");
    let limit = &shown["limits"][2];
    assert_eq!(
        (&limit["name"], &limit["limit"], &limit["used"]),
        (&"maps".into(), &2.into(), &1.into())
    );
    let status = daemon.json(&["status"]);
    assert_eq!(status["guests"][0]["programs"][0]["name"], "drops", "{status}");
    let text = bench.run(&["guest", "show", "--socket", super::SOCKET]).stdout;
    assert!(text.contains("drops") && text.contains("1 of 2"), "{text}");

    daemon.json(&["guest", "save", "vm0", "vm.saved"]);
    let there = daemon.json(&["guest", "restore", "vm1", "vm.saved"]);
    assert_eq!(there["programs"][0]["tag"], shown["programs"][0]["tag"], "{there}");
    let error = daemon.refusal(1, &["guest", "restore", "vm1", "vm.saved"]);
    assert!(error.contains("reset it first"), "{error}");
    daemon.json(&["guest", "reset", "vm0"]);
    assert!(client.list().expect("it answers").is_empty(), "it has nothing any more");
    let error = daemon.refusal(1, &["guest", "show", "vm2"]);
    assert!(error.contains("did you mean"), "{error}");
    daemon.end();
}

/// A guest's agent that has loaded a map with one element, and runs a program that drops all.
fn with_a_program(bench: &Bench, channel: &str) -> (Client, u32) {
    let mut client = agent(bench, channel);
    let hash = MapSpec {
        name: "hits".to_owned(),
        kind: 1,
        key_size: 4,
        value_size: 8,
        max_entries: 10,
        ..MapSpec::default()
    };
    let map = client.create_map(&hash).expect("one is allowed");
    client.update(map, &[(vec![1; 4], vec![2; 8])], 0).expect("there is room");
    // r0 = XDP_DROP; exit
    let insns = [[0xb7, 0, 0, 0, 1, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]].concat();
    let (name, license) = ("drops".to_owned(), "GPL".to_owned());
    let program = ProgramSpec { name, insns, license, ..ProgramSpec::default() };
    let program = client.load_program(&program).expect("it is fine");
    client.attach(Direction::Ingress, program, None).expect("none runs");
    (client, map)
}

fn agent(bench: &Bench, channel: &str) -> Client {
    let channel = open(&Wanted::Unix(bench.path(channel)), None).expect("it listens");
    Client::begin(channel, b"boot").expect("it answers")
}

/// A host: a machine's port, and another machine's on the other side.
const HOST: &str = r#"
[[port]]
name = "vm"
kind = "vhost-user"
path = "vm.vhost"
upper = "peer"
[port.offload]
path = "vm.offload"

[[port]]
name = "peer"
kind = "vhost-user"
path = "peer.vhost"
upper = "vm"
"#;

#[test]
fn a_guest_moves_to_another_daemon_and_goes_on() {
    let (here, there) = (Bench::new("daemon_guest_here"), Bench::new("daemon_guest_there"));
    let (old, new) = (Daemon::start(&here, HOST), Daemon::start(&there, HOST));
    let machine = |bench: &Bench, name: &str| {
        Guest::connect(&bench.path(name), GuestOptions::default()).expect("the port listens")
    };
    let mut moving = machine(&here, "vm.vhost");
    let (mut before, mut after) = (machine(&here, "peer.vhost"), machine(&there, "peer.vhost"));
    let (mut client, map) = with_a_program(&here, "vm.offload");
    assert!(before.send(0, &[0; 12], &[7; 60]));
    let judged = |client: &mut Client, count| {
        let end = Instant::now() + Duration::from_secs(10);
        while client.query().expect("it answers")[0].counters.runs < count {
            assert!(Instant::now() < end, "the program judges it");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    judged(&mut client, 1);

    let file = here.path("vm.saved").display().to_string();
    old.json(&["guest", "save", "vm", &file]);
    // It goes on meanwhile.
    assert!(moving.send(0, &[0; 12], &[1; 60]));
    assert_eq!(before.wait_for(0).expect("it sends").1, [1; 60]);
    new.json(&["guest", "restore", "vm", &file]);
    let stream = UnixStream::connect(there.path("vm.vhost")).expect("the port listens");
    moving.reconnect(stream).expect("its rings are as they were");

    let mut client = agent(&there, "vm.offload");
    assert_eq!(client.lookup(map, &[1; 4]).expect("it has the same handle"), [2; 8]);
    assert!(after.send(0, &[0; 12], &[7; 60]));
    judged(&mut client, 1);
    assert!(moving.receive(0).is_none(), "what is dropped does not get there");
    assert!(moving.send(0, &[0; 12], &[2; 60]));
    assert_eq!(after.wait_for(0).expect("it sends").1, [2; 60]);
    client.detach(Direction::Ingress).expect("one runs");
    assert!(after.send(0, &[0; 12], &[8; 60]));
    assert_eq!(moving.wait_for(0).expect("nothing is dropped").1, [8; 60]);
    drop((moving, before, after));
    old.end();
    new.end();
}
