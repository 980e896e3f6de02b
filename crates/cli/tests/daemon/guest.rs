//! What the daemon runs for virtual machines: shown, carried to another port, taken away.

use towpath_guest_client::wire::Direction;
use towpath_guest_client::{Client, MapSpec, ProgramSpec, Wanted, open};

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
    let channel = open(&Wanted::Unix(bench.path("vm0.offload")), None).expect("it listens");
    let mut client = Client::begin(channel, b"boot").expect("it answers");
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
