//! README's live tour, word for word, and once more on what it left behind.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::Bench;

/// The block of commands below "Live" in README.md.
fn tour(readme: &str) -> &str {
    let (_before, rest) = readme.split_once("\n## Live\n").expect("the README has it");
    let (_before, rest) = rest.split_once("```sh\n").expect("commands");
    rest.split_once("```").expect("they end").0
}

/// Why it can't run here.
fn unavailable(objects: &Path) -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        return Some("taps need root and /dev/net/tun");
    }
    (!objects.exists()).then_some("no build/clang-19 (make programs-all)")
}

#[test]
fn the_readmes_tour_works_twice() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let objects = top.join("build/clang-19");
    if let Some(why) = unavailable(&objects) {
        return eprintln!("skipped: {why}");
    }
    let read = |name: &str| std::fs::read_to_string(top.join(name)).expect("it is there");
    let bench = Bench::new("tour");
    for folder in ["bin", "build", "packaging"] {
        std::fs::create_dir(bench.path(folder)).expect("the directory is fresh");
    }
    let link = |from: &Path, to: &str| {
        std::os::unix::fs::symlink(from, bench.path(to)).expect("the directory is fresh");
    };
    link(Path::new(env!("CARGO_BIN_EXE_towpath")), "bin/towpath");
    link(&objects, "build/programs");
    // The daemon's saved state must not be the machine's.
    let state = bench.path("state").display().to_string();
    let config = read("packaging/towpath.toml").replace("/var/lib/towpath", &state);
    bench.file("packaging/towpath.toml", config);
    // As in a terminal: one line runs in the background, and the others do not wait for it.
    let commands = tour(&read("README.md")).replace("/tmp/towpath.sock", "$PWD/towpath.sock");
    let wait = "until [ -S towpath.sock ]; do sleep 0.05; done";
    let commands = commands.replacen("& sleep 1\n", &format!("&\n{wait}\n"), 1);
    assert!(commands.contains(wait), "{commands}");
    bench.file("tour.sh", format!("set -me\nip link set lo up\n{commands}wait\n"));

    let first = walk(&bench);
    assert!(first.contains("source: firewall: program 1, link 1, priority 10"), "{first}");
    // The first walk's program is restored; no other program is attached.
    let second = walk(&bench);
    assert!(second.contains("source: firewall: program 2, link 1, priority 10"), "{second}");
    for said in [first, second] {
        assert_eq!(said.matches("link 1, priority 10").count(), 2, "{said}");
        assert!(said.contains("source@exit[XDP_DROP]"), "{said}");
        let rule = said.lines().find(|line| line.starts_with("key 1 ")).expect("it is looked up");
        assert!(rule.contains("cpu 0 {\"packets\":"), "{rule}");
        assert!(!rule.contains("\"packets\":0,"), "the map was emptied: {rule}");
    }
}

/// Does what the tour says; gives what it printed.
fn walk(bench: &Bench) -> String {
    let paths = std::env::var("PATH").unwrap_or_default();
    let run = Command::new("unshare")
        .args(["--net", "bash", "tour.sh"])
        .current_dir(bench.path("."))
        .env("PATH", format!("{}:{paths}", bench.path("bin").display()))
        .stdin(Stdio::null())
        .output()
        .expect("util-linux is everywhere");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
    said
}
