//! Mistakes in a configuration file: all of them are reported at once, each with line and remedy.

use std::path::Path;

use towpath_daemon::file::{Loaded, ObjectFiles, parse};
use towpath_daemon::state::SpreadState;

fn load(text: &str) -> Result<Loaded, Vec<String>> {
    let here = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/fixtures"));
    let loaded = parse(text, Path::new("t.toml"), here, &ObjectFiles::default());
    loaded.map_err(|error| error.lines)
}

/// The lines of the error, with a blank line before them and after each.
#[track_caller]
fn assert_refused(text: &str, expected: &[&str]) {
    let lines = load(text).expect_err("it is wrong");
    assert_eq!(lines, expected, "{text}");
}

const PAIR: &str = "[[port]]\nname = \"p0\"\nkind = \"pair\"\npeer = \"p1\"\n\
                    [[port]]\nname = \"p1\"\nkind = \"pair\"\npeer = \"p0\"\n";

#[test]
fn a_whole_file_becomes_a_state() {
    let text = format!(
        "[api]\nsocket = \"/run/x.sock\"\nmode = \"0600\"\n[metrics]\nlisten = \"[::1]:9464\"\n\
         [engine]\nframes = 4096\n[[worker]]\ncpu = 0\nmode = \"busy\"\n[[worker]]\n\
         [[bridge]]\nname = \"br0\"\nageing = 10\n{PAIR}upper = \"br0\"\nmtu = 9000\n\
         [[port]]\nname = \"gen\"\nkind = \"generator\"\nrate = 10\nworkers = [1]\n\
         [[attach]]\nport = [\"p0\", \"gen\"]\nobject = \"every_verdict.o\"\n\
         program = \"every_verdict\"\nprio = 7\nactions = [\"XDP_PASS\", \"tx\"]\n\
         set = {{ shift = 3 }}\nmaps = {{ overrides = {{ \"1\" = 2 }} }}\n"
    );
    let loaded = load(&text).expect("nothing is wrong");
    assert_eq!(loaded.settings.mode, 0o600);
    assert_eq!(loaded.state.workers.len(), 2);
    assert_eq!(loaded.state.ports[1].mtu, Some(9000));
    assert_eq!(loaded.state.attachments.len(), 2, "one for each port");
    assert_eq!(loaded.state.programs.len(), 1, "of one program");
    let json = serde_json::to_string(&loaded.state).expect("it is data");
    let back: towpath_daemon::State = serde_json::from_str(&json).expect("it is data");
    assert_eq!(back, loaded.state);
}

#[test]
fn workers_are_as_many_as_are_asked_for() {
    let workers = |text: &str| load(text).expect("nothing is wrong").state.workers;
    assert_eq!(workers("").len(), 0, "one, when nothing is said");
    assert_eq!(workers("[engine]\nworkers = 3\n").len(), 3);
    let both = workers("[engine]\nworkers = 3\n[[worker]]\ncpu = 1\n");
    assert_eq!(both.iter().map(|worker| worker.cpu).collect::<Vec<_>>(), [Some(1), None, None]);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    assert!((1..=cpus).contains(&workers("[engine]\nworkers = \"auto\"\n").len()));
    let many = "[[worker]]\n".repeat(200);
    assert!(workers(&format!("[engine]\nworkers = \"auto\"\n{many}")).len() >= 200);
    let said = "expected \"auto\" or a number of workers, 1 to 256";
    for wrong in ["0", "257", "-1", "1.5", "\"all\"", "true"] {
        let line = format!("t.toml:2:1: engine.workers: {said}");
        assert_refused(&format!("[engine]\nworkers = {wrong}\n"), &[&line]);
    }
    let spins = workers("[[worker]]\n[[worker]]\nspin_us = 0\n");
    assert_eq!([spins[0].spin_us, spins[1].spin_us], [None, Some(0)]);
    let long = "[[worker]]\n[[worker]]\nspin_us = 10001\n";
    assert_refused(long, &["t.toml:3:1: worker[1].spin_us: 0 to 10000 microseconds"]);
    assert_refused(
        "[engine]\nworkers = 1\n[[worker]]\n[[worker]]\n",
        &["t.toml:2:1: engine.workers: there are 2 [[worker]] sections, which are more"],
    );
}

#[test]
fn unknown_keys_words_and_sections_get_suggestions() {
    assert_refused("[[prot]]\n", &["t.toml:1:3: prot: no such section; did you mean \"port\"?"]);
    assert_refused(
        "[[port]]\nname = \"a\"\nkind = \"tab\"\n",
        &["t.toml:3:1: port[0].kind: no port kind \"tab\"; did you mean \"tap\"?"],
    );
    assert_refused(
        "[[port]]\nname = \"a\"\nkind = \"sink\"\nhash = 5\nmtu = 1\n",
        &["t.toml:4:1: port[0].hash: a port of kind \"sink\" has no such key; there are: name, \
           kind, upper, up, mtu, linearize, ifindex, workers, spread, fault, limit, rx_hash, \
           rx_vlan, timestamp, record, shadow, trace, offload"],
    );
    assert_refused(
        "[[worker]]\nmode = \"bussy\"\n",
        &["t.toml:2:1: worker[0].mode: unknown word \"bussy\"; did you mean \"busy\"?"],
    );
    assert_refused(
        "[[bridge]]\nname = \"b\"\nagein = 3\n[api]\nmode = \"99\"\n",
        &[
            "t.toml:3:1: bridge[0].agein: unknown key \"agein\"; did you mean \"ageing\"?",
            "t.toml:5:1: api.mode: \"99\" is not a mode: octal digits, like \"0660\"",
        ],
    );
    assert_refused(
        "[port]\n",
        &["t.toml:1:2: port: expected [[port]], with two brackets: there may be several"],
    );
}

#[test]
fn ports_spread_by_flow_and_bonds_by_their_members() {
    let port = |spread: &str| {
        let text = format!("[[port]]\nname = \"a\"\nkind = \"sink\"\nspread = \"{spread}\"\n");
        load(&text).map(|loaded| loaded.state.ports[0].spread)
    };
    assert_eq!(port("flow").expect("nothing is wrong"), Some(SpreadState::Flow));
    assert_eq!(port("off").expect("nothing is wrong"), Some(SpreadState::Off));
    assert_refused(
        "[[port]]\nname = \"a\"\nkind = \"sink\"\nspread = \"flows\"\n",
        &["t.toml:4:1: port[0].spread: unknown word \"flows\"; did you mean \"flow\"?"],
    );
    assert_refused(
        "[[port]]\nname = \"b\"\nkind = \"bond\"\nspread = \"flow\"\n",
        &["t.toml:4:1: port[0].spread: a bond has no queues of its own: say it of its members"],
    );
}

#[test]
fn names_are_checked() {
    assert_refused(
        "[[bridge]]\nname = \"x\"\n[[port]]\nname = \"x\"\nkind = \"sink\"\n",
        &["t.toml:4:1: port[0].name: the name \"x\" is taken: ports and bridges share names"],
    );
    assert_refused(
        "[[port]]\nname = \"a b\"\nkind = \"sink\"\n",
        &["t.toml:2:1: port[0].name: \"a b\": only letters, digits, '.', '_' and '-'"],
    );
    assert_refused(
        "[[port]]\nname = \"a-very-long-name\"\nkind = \"sink\"\n",
        &["t.toml:2:1: port[0].name: \"a-very-long-name\" is longer than 15 bytes"],
    );
}

#[test]
fn references_lead_somewhere() {
    assert_refused(
        "[[port]]\nname = \"p0\"\nkind = \"pair\"\npeer = \"p1\"\n",
        &["t.toml:4:1: port[0].peer: no port \"p1\"; there are none"],
    );
    assert_refused(
        &format!("{PAIR}upper = \"br0\"\n"),
        &["t.toml:9:1: port[1].upper: no port or bridge \"br0\"; there are: p0"],
    );
    assert_refused(
        &format!("{PAIR}[[attach]]\nport = \"p2\"\nobject = \"none.o\"\n"),
        &["t.toml:11:1: attach[0].object: none.o: No such file or directory"]
            .map(|line| line.replace("none.o: No", &format!("{}/none.o: No", fixtures())))
            .each_ref()
            .map(String::as_str),
    );
    let attach = "[[attach]]\nport = \"p2\"\nobject = \"refused.o\"\n";
    assert_refused(
        &format!("{PAIR}{attach}"),
        &["t.toml:10:1: attach[0].port: no port \"p2\"; did you mean \"p0\"?"],
    );
}

fn fixtures() -> String {
    format!("{}/../cli/tests/fixtures", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn tables_of_the_host_are_checked_with_the_ports() {
    let text = format!(
        "{PAIR}[[host.interface]]\nname = \"p0\"\naddresses = [\"192.0.2.1\"]\n\
         [[host.route]]\nto = \"default\"\ndev = \"p1\"\n"
    );
    let host = load(&text).expect("nothing is wrong").state.host.expect("it was written");
    assert_eq!((host.interface.len(), host.route.len()), (1, 1));
    assert_refused(
        &format!("{PAIR}[[host.route]]\nto = \"10.0.0.0/8\"\ndev = \"p3\"\nmetrics = 3\n"),
        &["t.toml:12:1: host.route[0].metrics: unknown key \"metrics\"; did you mean \"metric\"?"],
    );
    assert_refused(
        &format!(
            "{PAIR}[[host.route]]\nto = \"10.0.0.1/8\"\ndev = \"p0\"\n\
             [[host.neighbour]]\naddress = \"10.0.0.2\"\ndev = \"p9\"\n\
             mac = \"02:00:00:00:00:01\"\n"
        ),
        &[
            "t.toml:10:1: host.route[0].to: \"10.0.0.1/8\": bits past the prefix, expected \
             10.0.0.0/8",
            "t.toml:14:1: host.neighbour[0].dev: no interface is called \"p9\"; did you mean \
             \"p0\"?",
        ],
    );
    let lines = load("[host]\ntables = \"none.toml\"\n").expect_err("there is no such file");
    assert!(lines[0].starts_with("t.toml:2:1: host.tables: "), "{lines:?}");
    assert!(lines[0].ends_with("none.toml: No such file or directory"), "{lines:?}");
}

#[test]
fn frames_must_not_go_round_for_ever() {
    assert_refused(
        "[[port]]\nname = \"a\"\nkind = \"sink\"\nupper = \"a\"\n",
        &["t.toml:4:1: port[0].upper: a port cannot be its own upper: frames would not end"],
    );
    // Frames that p0 passes leave through p1 and arrive at p0 again.
    assert_refused(
        "[[port]]\nname = \"p0\"\nkind = \"pair\"\npeer = \"p1\"\nupper = \"p1\"\n\
         [[port]]\nname = \"p1\"\nkind = \"pair\"\npeer = \"p0\"\n",
        &["t.toml:5:1: port[0].upper: passed frames would loop for ever: p0 -> p0; give one \
           of them another upper"],
    );
    // Both ends of a pair in one bridge: each broadcast comes back.
    let both = "[[bridge]]\nname = \"br\"\n\
                [[port]]\nname = \"p0\"\nkind = \"pair\"\npeer = \"p1\"\nupper = \"br\"\n\
                [[port]]\nname = \"p1\"\nkind = \"pair\"\npeer = \"p0\"\nupper = \"br\"\n";
    let lines = load(both).expect_err("a loop");
    assert!(lines[0].contains("for ever"), "{lines:?}");
    let one = both.replacen("peer = \"p0\"\nupper = \"br\"\n", "peer = \"p0\"\n", 1);
    load(&one).expect("one end of a pair in a bridge is what pairs are for");
}

#[test]
fn what_is_no_toml_is_placed() {
    let lines = load("[api]\nsocket = \n").expect_err("no value");
    assert!(lines[0].starts_with("t.toml:2:"), "{lines:?}");
}

#[test]
fn options_of_kinds_are_checked_before_anything_is_opened() {
    let generator = "[[port]]\nname = \"g\"\nkind = \"generator\"\n";
    for (keys, expected) in [
        ("rate = 0", "rate: 1 or more frames a second"),
        ("size = 10", "size: 60 to 3520 bytes"),
        ("frames = [\"0g\"]", "frames[0]: no hex bytes"),
        ("frames = [\"00\"]", "template 0: "),
        ("mac = \"1:2\"", "mac: \"1:2\" is not an Ethernet address, like 02:00:00:00:00:01"),
        ("fields = [{ offset = 60, width = 1, max = 3 }]", "fields[0] ends at byte 61"),
        ("burst = -1", "burst: expected a whole number from 0 to 4294967295, not -1 (with rate: "),
    ] {
        let lines = load(&format!("{generator}{keys}\n")).expect_err(keys);
        assert!(lines[0].contains(expected), "{keys}: {lines:?}");
    }
    let lines = load("[[port]]\nname = \"c\"\nkind = \"pcap\"\n").expect_err("no capture");
    assert!(lines[0].contains("name a capture to replay"), "{lines:?}");
}

#[test]
fn the_documentation_has_every_key_of_every_kind() {
    let docs = include_str!("../../../docs/configuration.md");
    for kind in towpath_daemon::kinds::KINDS {
        let heading = format!("### kind = \"{}\"", kind.name);
        let section = docs.split(&heading).nth(1).unwrap_or_else(|| panic!("no {heading}"));
        let section = section.split("\n## ").next().unwrap_or_default();
        let section = section.split("\n### ").next().unwrap_or_default();
        for option in kind.options {
            let row = format!("| `{}` | {} | {} |", option.key, option.default, option.text);
            assert!(section.contains(&row), "{}: no {row}", kind.name);
        }
    }
}

#[test]
fn the_example_is_a_configuration() {
    let text = include_str!("../../../packaging/towpath.toml");
    load(text).expect("it is an example");
}

#[test]
fn priority_and_actions_are_read_from_the_object() {
    use towpath_daemon::run_config::{RunConfig, run_config};
    let bytes = include_bytes!("../../cli/tests/fixtures/run_config.o");
    let object = towpath_bpf::Object::open(bytes, "run_config.o").expect("it is an object");
    let expected = RunConfig { priority: 10, actions: 1 << 1 | 1 << 2 };
    assert_eq!(run_config(&object, "configured"), expected);
    assert_eq!(run_config(&object, "other"), RunConfig::default());
}
