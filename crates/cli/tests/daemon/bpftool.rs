//! Our JSON beside the real bpftool's, for the same objects with the same contents, key by key.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::{Value, json};

use super::{CONFIG, Daemon};
use crate::support::{Bench, frame};

/// The maps that are compared, by name; sections of variables are called after their object there.
const MAPS: [(&str, &str); 11] = [
    ("flows", "flows"),
    ("totals", "totals"),
    ("pinned_totals", "pinned_totals"),
    ("stages", "stages"),
    (".data", "keeper_1.data"),
    (".bss", "keeper_1.bss"),
    (".rodata", "keeper_1.rodata"),
    ("tp_queue", "tp_queue"),
    ("tp_trie", "tp_trie"),
    ("tp_ring", "tp_ring"),
    ("tp_devices", "tp_devices"),
];

/// Maps whose elements bpftool can't list: the kernel has no next key of queues and ring buffers,
/// and devices of the host are none of ours: an error for each empty slot is all there is.
const NOT_LISTED: [&str; 3] = ["tp_queue", "tp_ring", "tp_devices"];

/// Created on both sides, in bpftool's words.
const CREATED: [(&str, &str); 4] = [
    ("tp_queue", "type queue key 0 value 4 entries 4"),
    ("tp_trie", "type lpm_trie key 8 value 4 entries 4 flags 1"),
    ("tp_ring", "type ringbuf key 0 value 0 entries 4096"),
    ("tp_devices", "type devmap key 4 value 8 entries 4"),
];

/// bpftool and its output, if it is installed and may be used.
struct Bpftool {
    folder: String,
}

impl Bpftool {
    fn run(&self, words: &str) -> Option<Value> {
        let words = words.replace("DIR", &self.folder);
        let done = Command::new("bpftool").arg("-j").args(words.split_whitespace()).output();
        let done = done.ok().filter(|done| done.status.success())?;
        serde_json::from_slice(&done.stdout).ok()
    }

    fn json(&self, words: &str) -> Value {
        self.run(words).unwrap_or_else(|| panic!("bpftool {words}"))
    }
}

impl Drop for Bpftool {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.folder);
        // It is pinned by name.
        let _gone = std::fs::remove_file("/sys/fs/bpf/pinned_totals");
    }
}

/// A folder of the kernel's with the same objects; why not, if there is none.
fn kernel(bench: &Bench) -> Result<Bpftool, String> {
    let folder = format!("/sys/fs/bpf/towpath-{}", std::process::id());
    let bpftool = Bpftool { folder };
    let object = bench.path("keeper_1.o");
    let load = format!("prog loadall {} DIR", object.display());
    bpftool.run(&load).ok_or("bpftool can't load: it is missing, or this needs root")?;
    for (name, words) in CREATED {
        bpftool.json(&format!("map create DIR/{name} {words} name {name}"));
    }
    Ok(bpftool)
}

/// The same keys in the same order and the same values, but for those of `differs`, which are of
/// the same type; and what only one of both has.
fn compare(what: &str, ours: &Value, theirs: &Value, differs: &[&str]) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys = |it: &serde_json::Map<String, Value>| -> Vec<String> {
                it.keys().filter(|key| *key != "towpath" && *key != "pinned").cloned().collect()
            };
            assert_eq!(keys(a), keys(b), "{what}: {ours} {theirs}");
            for key in keys(a) {
                let (ours, theirs) = (&a[&key], &b[&key]);
                match differs.contains(&&*key) {
                    true => assert_eq!(kind(ours), kind(theirs), "{what}: {key}"),
                    false => compare(&format!("{what}: {key}"), ours, theirs, differs),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{what}: {ours} {theirs}");
            a.iter().zip(b).for_each(|(a, b)| compare(what, a, b, differs));
        }
        _ => assert_eq!(ours, theirs, "{what}"),
    }
}

fn kind(json: &Value) -> std::mem::Discriminant<Value> {
    std::mem::discriminant(json)
}

/// A daemon and the kernel with the same objects.
struct Both<'a> {
    daemon: &'a Daemon<'a>,
    bpftool: &'a Bpftool,
}

impl Both<'_> {
    /// The same words on both sides, but for the numbers of maps; ours, then theirs.
    fn json(&self, words: &str) -> (Value, Value) {
        let name = words.split(' ').skip_while(|word| *word != "name").nth(1);
        let (ours, theirs) = match name {
            Some(name) => {
                let by_id = |id: &str| words.replace(&format!("name {name}"), &format!("id {id}"));
                let theirs = self.newest(|other| other == name);
                (by_id(&self.own(name)), by_id(&theirs["id"].to_string()))
            }
            None => (words.to_owned(), words.to_owned()),
        };
        let ours: Vec<&str> = ours.split(' ').collect();
        (self.daemon.json(&ours), self.bpftool.json(&theirs))
    }

    /// The number of our first map with a name: each object that was loaded has its own.
    fn own(&self, name: &str) -> String {
        let all = self.daemon.json(&["map", "show"]);
        let mut all = all.as_array().expect("a list").iter();
        let found = all.find(|map| map["name"] == name);
        found.unwrap_or_else(|| panic!("{name}"))["id"].to_string()
    }

    /// The newest of the kernel's maps with a name: others may have some, too.
    fn newest(&self, is_it: impl Fn(&str) -> bool) -> Value {
        let all = self.bpftool.json("map show");
        let mut all = all.as_array().expect("a list").iter();
        let found = all.rfind(|map| map["name"].as_str().is_some_and(&is_it));
        let id = &found.expect("it was made")["id"];
        // In its lists bpftool says of a map without BTF what it said of the map before.
        self.bpftool.json(&format!("map show id {id}"))
    }

    /// The same packet, and the same elements.
    fn fill(&self, bench: &Bench) {
        bench.file("frame", frame(2));
        let frame = bench.path("frame").display().to_string();
        self.bpftool.json(&format!("prog run pinned DIR/keeper data_in {frame}"));
        self.daemon.json(&["prog", "run", "pinned", "keeper", "--data-in", "frame"]);
        for words in [
            "map push name tp_queue value 1 0 0 0",
            "map enqueue name tp_queue value 2 0 0 0",
            "map update name tp_trie key 24 0 0 0 10 0 0 0 value 1 0 0 0",
        ] {
            assert_eq!(self.json(words), (Value::Null, Value::Null), "{words}");
        }
    }

    fn compare_program(&self, name: &str) {
        let ours = self.daemon.json(&["prog", "show", "pinned", name]);
        let theirs = self.bpftool.json(&format!("prog show pinned DIR/{name}"));
        compare(name, &ours, &theirs, &OF_THE_MACHINE);
        let ours = self.daemon.json(&["prog", "dump", "xlated", "pinned", name]);
        let theirs = self.bpftool.json(&format!("prog dump xlated pinned DIR/{name}"));
        // The instructions differ; the keys of each instruction must not.
        let keys = |all: &Value| -> BTreeSet<String> {
            let all = all.as_array().expect("a list").iter();
            all.flat_map(|it| it.as_object().expect("an object").keys().cloned()).collect()
        };
        assert_eq!(keys(&ours), keys(&theirs), "{name}");
    }

    fn compare_map(&self, ours: &str, theirs: &str) {
        let theirs: String = theirs.chars().take(15).collect();
        let is_section = ours.starts_with('.');
        let found = self.newest(|name| name == theirs || is_section && name.ends_with(ours));
        let own = self.own(ours);
        let shown = self.daemon.json(&["map", "show", "id", &own]);
        compare(ours, &shown, &found, &OF_THE_MACHINE);
        if !NOT_LISTED.contains(&ours) {
            let dumped = self.bpftool.json(&format!("map dump id {}", found["id"]));
            let own = self.daemon.json(&["map", "dump", "id", &own]);
            compare(ours, &own, &dumped, &OF_THE_MACHINE);
        }
    }
}

/// Keys whose values may differ, but must have the same type.
const OF_THE_MACHINE: [&str; 12] = [
    "id",
    "tag",
    "loaded_at",
    "bytes_jited",
    "bytes_memlock",
    "btf_id",
    "name",
    "map_ids",
    "bytes_xlated",
    "cpu",
    "values",
    "flags",
];

#[test]
fn our_json_is_bpftools_key_by_key() {
    let bench = Bench::new("bpftool");
    let bpftool = match kernel(&bench) {
        Ok(bpftool) => bpftool,
        Err(why) => return println!("skipped: {why}"),
    };
    let daemon = Daemon::start(&bench, &CONFIG[..CONFIG.find("[[attach]]").expect("one")]);
    for (name, words) in CREATED {
        let path = format!("dir/{name}");
        let words: Vec<&str> = words.split(' ').collect();
        daemon.json(&[&["map", "create", &path], &words[..], &["name", name]].concat());
    }
    daemon.json(&["prog", "load", "keeper_1.o", "keeper", "-n", "keeper"]);
    daemon.json(&["prog", "load", "keeper_1.o", "last", "-n", "last"]);
    let both = Both { daemon: &daemon, bpftool: &bpftool };
    both.fill(&bench);
    ["keeper", "last"].into_iter().for_each(|name| both.compare_program(name));
    MAPS.into_iter().for_each(|(ours, theirs)| both.compare_map(ours, theirs));
    for words in [
        "map lookup name flows key hex 07 00 00 00",
        "map getnext name flows",
        "map peek name tp_queue",
        "map pop name tp_queue",
    ] {
        let (ours, theirs) = both.json(words);
        compare(words, &ours, &theirs, &[]);
    }
    let file = bench.path("keeper_1.o").display().to_string();
    let (ours, theirs) = both.json(&format!("btf dump file {file}"));
    // In a file sections have no sizes yet; loaders fill them in.
    compare("btf", &ours, &theirs, &["vars", "size"]);
    for which in ["prog pinned keeper", &format!("map id {}", both.own("flows"))] {
        let words = format!("btf dump {which}");
        let types = daemon.json(&words.split(' ').collect::<Vec<_>>());
        assert!(types["types"].as_array().is_some_and(|types| types.len() > 10), "{types}");
    }
    daemon.json(&["load", "gen", "keeper_1.o", "-n", "keeper"]);
    let net = daemon.json(&["net", "show"]);
    let xdp = &net[0]["xdp"][0];
    assert_eq!((&xdp["devname"], &xdp["mode"]), (&json!("gen"), &json!("driver")), "{net}");
    daemon.end();
}
