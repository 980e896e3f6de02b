//! Dumps: what arrives at a port, before its programs and after, without the traffic noticing.

use std::fs::File;
use std::io::BufReader;
use std::process::Stdio;

use towpath_capture::{PacketOptions, Reader};

use super::{CONFIG, Daemon, SOCKET};
use crate::support::Bench;

/// A frame of a dump.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    interface: String,
    id: u64,
    verdict: Option<u64>,
    bytes: Vec<u8>,
}

fn frames<R: std::io::Read>(mut reader: Reader<R>) -> Vec<Seen> {
    let mut all = Vec::new();
    while let Some(packet) = reader.next_packet().expect("it is whole") {
        let PacketOptions { flags, packet_id, queue, xdp_verdict, .. } = packet.options;
        assert_eq!(queue, Some(0));
        assert!(packet.timestamp_ns > 1_700_000_000_000_000_000);
        let (id, bytes, at) =
            (packet_id.expect("a number"), packet.data.to_vec(), packet.interface);
        let direction = flags.expect("a direction");
        all.push((
            at,
            direction,
            Seen { interface: String::new(), id, verdict: xdp_verdict, bytes },
        ));
    }
    let names: Vec<String> = reader.interfaces().iter().map(|it| it.name.clone()).collect();
    let named = |(at, direction, seen): (u32, u32, Seen)| {
        let interface = names[at as usize].clone();
        // Only what leaves the sink is watched in these tests.
        assert_eq!(direction, if interface.starts_with("out") { 2 } else { 1 }, "{interface}");
        Seen { interface, ..seen }
    };
    all.into_iter().map(named).collect()
}

fn open(bench: &Bench, name: &str) -> Reader<BufReader<File>> {
    Reader::open(&bench.path(name)).expect("a capture")
}

#[test]
fn frames_are_dumped_before_their_programs_and_after() {
    let bench = Bench::new("dump_ways");
    // So slow that no copy is lost while the reader waits for a core.
    let daemon = Daemon::start(&bench, &CONFIG.replace("rate = 20000", "rate = 1000"));
    let words = ["dump", "gen", "--rx-capture", "entry,exit", "-w", "a.pcapng", "-c", "20"];
    let ended = bench.run(&[&words[..], &["--socket", SOCKET]].concat());
    assert_eq!((ended.status, ended.stdout.as_str()), (0, ""), "{ended:?}");
    assert!(ended.stderr.contains("20 frames captured, 0 lost"), "{ended:?}");
    let seen = frames(open(&bench, "a.pcapng"));
    assert_eq!(seen.len(), 20);
    for frame in &seen {
        assert_eq!(frame.bytes[..6], [2, 0, 0, 0, 0, 2]);
        match frame.interface.as_str() {
            "gen@entry" => assert_eq!(frame.verdict, None),
            "gen@exit" => {
                assert_eq!(frame.verdict, Some(2), "XDP_PASS");
                let before = seen.iter().find(|it| it.id == frame.id && it.verdict.is_none());
                assert!(before.is_some(), "the same number before and after: {seen:?}");
            }
            other => panic!("no such interface: {other}"),
        }
    }

    // Dumps around one program, with cut frames: first for a verdict that it does not give, then
    // for one that it gives.
    let program = ["dump", "gen", "-p", "every_verdict", "--rx-capture", "exit", "-s", "20"];
    let rest = ["--verdict", "drop", "-c", "3", "-w", "b.pcapng", "--socket", SOCKET];
    let mut dump = bench.command(&[&program[..], &rest].concat());
    let mut dump = dump.stderr(Stdio::null()).spawn().expect("it was built");
    daemon.wait_for("the dump", || bench.path("b.pcapng").exists());
    let more = daemon.rx("gen") + 1000;
    daemon.wait_for("traffic", || daemon.rx("gen") > more);
    assert!(dump.try_wait().expect("it is ours").is_none(), "nothing is dropped yet");
    daemon.json(&["map", "update", "name", "overrides", "key", "2", "value", "1"]);
    assert_eq!(dump.wait().expect("it is ours").code(), Some(0));
    let seen = frames(open(&bench, "b.pcapng"));
    assert_eq!(seen.len(), 3);
    assert!(seen.iter().all(|it| it.verdict == Some(1) && it.bytes.len() == 20), "{seen:?}");
    assert_eq!(seen[0].interface, "gen:every_verdict()@fexit", "as xdpdump calls it");

    assert!(!daemon.log().contains("panicked"), "{}", daemon.log());
    daemon.end();
}

#[test]
fn frames_are_dumped_as_they_leave() {
    let bench = Bench::new("dump_tx");
    let more = "[[attach]]\nport = \"out\"\nhook = \"tx\"\nobject = \"every_verdict.o\"\n\
                program = \"every_verdict\"\n";
    let daemon = Daemon::start(&bench, &format!("{CONFIG}{more}"));
    let dump = |words: &[&str], name: &str| {
        let always = ["-w", name, "-c", "20", "--socket", SOCKET];
        let ended = bench.run(&[&["dump", "out"], words, &always].concat());
        assert_eq!(ended.status, 0, "{ended:?}");
        frames(open(&bench, name))
    };
    let seen = dump(&["--tx-capture", "entry,exit"], "a.pcapng");
    let at = |name: &str| seen.iter().filter(|it| it.interface == name).collect::<Vec<_>>();
    let (before, after) = (at("out@tx-entry"), at("out@tx-exit"));
    assert_eq!((before.len(), after.len()), (10, 10), "nothing of what arrives: {seen:?}");
    assert!(before.iter().zip(&after).all(|(before, after)| before.id == after.id));
    assert!(after.iter().all(|it| it.verdict == Some(2)), "all pass");
    // A dump around one program, of the frames that it drops.
    let id = daemon.json(&["status"])["links"]
        .as_array()
        .expect("a list")
        .iter()
        .find_map(|link| (link["hook"] == "tx").then(|| link["prog_id"].to_string()));
    let id = id.expect("it is attached");
    let words = ["--tx-capture", "exit", "-p", &id];
    let seen = dump(&words, "b.pcapng");
    assert!(seen.iter().all(|it| it.interface == "out:every_verdict()@fexit"), "{seen:?}");
    let maps = daemon.json(&["prog", "show", "id", &id])["map_ids"].clone();
    let overrides =
        daemon.json(&["map", "show"]).as_array().expect("a list").iter().find_map(|map| {
            let is_ours = maps.as_array().is_some_and(|maps| maps.contains(&map["id"]));
            (is_ours && map["name"] == "overrides").then(|| map["id"].to_string())
        });
    let overrides = overrides.expect("it has one");
    daemon.json(&["map", "update", "id", &overrides, "key", "2", "value", "1"]);
    let seen = dump(&["--tx-capture", "entry,exit", "--verdict", "drop"], "c.pcapng");
    assert!(seen.iter().all(|it| it.verdict.is_none_or(|verdict| verdict == 1)), "{seen:?}");
    assert!(seen.iter().any(|it| it.verdict == Some(1)), "{seen:?}");
    // Without programs they pass, and both ways fit into one capture.
    daemon.json(&["unload", "out", "-a"]);
    let seen = dump(&["--tx-capture", "exit", "--rx-capture", "entry"], "d.pcapng");
    assert!(seen.iter().all(|it| it.interface == "out@tx-exit" && it.verdict == Some(2)));
    let error = daemon.refusal(1, &["dump", "gen", "--tx-capture", "exit", "-p", "every_verdict"]);
    assert!(error.contains("on the port's other hook"), "{error}");
    daemon.end();
}

#[test]
fn the_code_of_a_running_program_is_shown() {
    let bench = Bench::new("dump_code");
    // Tier 2 keeps addresses beside the code, where no instruction names them.
    let config = CONFIG.replace("[[attach]]", "[[attach]]\nexec = \"jit\"");
    let daemon = Daemon::start(&bench, &config);
    let of_file = bench.json(&["prog", "dump", "every_verdict.o", "-n", "every_verdict", "source"]);
    let id = daemon.json(&["prog", "show"])[0]["id"].to_string();
    assert_eq!(daemon.json(&["prog", "dump", "id", &id, "source"]), of_file, "the same program");
    let name = ["prog", "dump", "name", "every_verdict"];
    let form = |form: &str| daemon.json(&[&name[..], &[form]].concat());
    assert!(form("xir")["text"].as_str().is_some_and(|text| text.contains("every_verdict")));
    assert_eq!(form("clif")["form"], "clif");
    let jited = form("jited");
    let notes = jited["instructions"].as_array().expect("a list").iter();
    let mut notes = notes.filter_map(|line| line["note"].as_str());
    assert!(notes.any(|note| note == "map tx_ports"), "addresses of maps have names: {jited}");
    let error = daemon.refusal(2, &["prog", "dump", "name", "every_verdict", "xri"]);
    assert!(error.contains("expected one of xlated, source, xir"), "{error}");
    let error = daemon.refusal(2, &["prog", "dump", "id", &id, "-n", "every_verdict"]);
    assert!(error.contains("object files only"), "{error}");
    assert!(daemon.refusal(2, &["prog", "dump", "id", "4000"]).contains("no program with id 4000"));
    daemon.end();
}

#[test]
fn a_dump_is_text_json_or_a_stream() {
    let bench = Bench::new("dump_forms");
    let daemon = Daemon::start(&bench, CONFIG);
    let run = |words: &[&str]| {
        let ended = bench.run(&[&["dump", "gen", "--socket", SOCKET], words].concat());
        assert_eq!(ended.status, 0, "{ended:?}");
        ended.stdout
    };
    let text = run(&["-c", "2", "-x", "--rx-capture", "exit"]);
    assert!(text.contains("gen@exit[XDP_PASS]: packet size 28 bytes, captured 28"), "{text}");
    assert!(text.contains("  0x0010:  00 00 00 00 "), "{text}");
    let line = run(&["-c", "1", "--json", "-x"]);
    let json: serde_json::Value = serde_json::from_str(&line).expect("one object");
    assert_eq!((&json["interface"], &json["len"]), (&"gen@entry".into(), &28.into()), "{json}");
    assert!(json["data"].as_str().is_some_and(|it| it.starts_with("020000000002")), "{json}");

    let words = ["dump", "gen", "--socket", SOCKET, "-w", "-", "-c", "5"];
    let piped = bench.command(&words).output().expect("it was built");
    assert_eq!(frames(Reader::new(piped.stdout.as_slice()).expect("a capture")).len(), 5);
    run(&["-c", "4", "-w", "c.pcap", "--use-pcap"]);
    let mut classic = open(&bench, "c.pcap");
    assert_eq!(classic.format(), towpath_capture::Format::Pcap);
    let mut count = 0;
    while classic.next_packet().expect("it is whole").is_some() {
        count += 1;
    }
    assert_eq!(count, 4);

    // Interrupted, it says what it has.
    let words = ["dump", "gen", "--socket", SOCKET, "-w", "d.pcapng"];
    let dump = bench.command(&words).stderr(Stdio::piped()).spawn().expect("it was built");
    let long_enough = || std::fs::metadata(bench.path("d.pcapng")).is_ok_and(|it| it.len() > 9000);
    daemon.wait_for("frames", long_enough);
    let pid = dump.id().to_string();
    let told = std::process::Command::new("kill").args(["-INT", &pid]).status();
    assert!(told.expect("kill is there").success());
    let ended = dump.wait_with_output().expect("it is ours");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(frames(open(&bench, "d.pcapng")).len() > 50, "and whole blocks");

    let error = daemon.refusal(1, &["dump", "gne"]);
    assert!(error.contains("did you mean \"gen\"?"), "{error}");
    let error = daemon.refusal(1, &["dump", "gen", "-p", "every_verdit"]);
    assert!(error.contains("did you mean \"every_verdict\"?"), "{error}");
    let error = daemon.refusal(1, &["dump", "gen", "--verdict", "dorp"]);
    assert!(error.contains("expected some of aborted, drop"), "{error}");
    daemon.end();
}

#[test]
fn neither_a_full_disk_nor_a_slow_reader_hurts_traffic() {
    let bench = Bench::new("dump_full");
    let daemon = Daemon::start(&bench, &CONFIG.replace("rate = 20000\n", ""));
    let error = daemon.refusal(2, &["dump", "gen", "-w", "/dev/full"]);
    assert!(error.contains("/dev/full: No space left on device"), "{error}");
    // The same of a port that writes a capture, and of a recording.
    daemon.json(&["port", "add", "disk", "kind=pcap", "out=/dev/full"]);
    daemon.json(&["port", "set", "gen", "upper=disk"]);
    let tx_error = || daemon.json(&["port", "show", "disk"])[0]["tx_error"].clone();
    daemon.wait_for("an error", || tx_error().is_string());
    assert!(tx_error().as_str().is_some_and(|why| why.contains("No space left")));
    daemon.json(&["port", "set", "gen", "upper=out"]);
    // A reader that does not read at all: copies are lost, frames are not.
    let words = ["dump", "gen", "--socket", SOCKET, "-w", "-", "--rx-capture", "entry,exit"];
    let mut slow = bench.command(&words);
    let mut slow = slow.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it was built");
    let before = daemon.rx("gen");
    daemon.wait_for("traffic", || daemon.rx("gen") > before + 1_000_000);
    let mut reader = Reader::new(slow.stdout.take().expect("piped")).expect("a capture");
    while reader.dropped() == 0 {
        assert!(reader.next_packet().expect("it is whole").is_some(), "it has no end");
    }
    drop(reader);
    slow.kill().expect("it is ours");
    slow.wait().expect("it is ours");
    // A port that goes takes its dumps with it.
    let words = ["dump", "p0", "--socket", SOCKET];
    let dump = bench.command(&words).stderr(Stdio::piped()).spawn().expect("it was built");
    std::thread::sleep(std::time::Duration::from_millis(300));
    daemon.json(&["port", "del", "p0"]);
    let ended = dump.wait_with_output().expect("it is ours");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    daemon.end();
}
