//! `towpath new`: all that it makes passes at once, and is what its sources say.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::Bench;

/// A fresh folder, and `edge` made in it.
fn made(test: &str) -> Bench {
    let bench = Bench::new(test);
    let ended = bench.run(&["new", "edge"]);
    assert_eq!((ended.status, ended.stderr.as_str()), (0, ""), "{ended:?}");
    assert!(ended.stdout.contains("cd edge\n  towpath test "), "{ended:?}");
    bench
}

/// Runs a command in the folder; `towpath` is found on the path.
fn inside(bench: &Bench, words: &[&str], path: &str) -> Output {
    let binary = Path::new(env!("CARGO_BIN_EXE_towpath")).parent().expect("it is in a folder");
    Command::new(words[0])
        .args(&words[1..])
        .current_dir(bench.path("edge"))
        .env("PATH", format!("{}:{path}", binary.display()))
        .output()
        .expect("it is installed")
}

fn assert_green(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// Names of compilers that are installed.
fn compilers() -> Vec<&'static str> {
    let is_there = |clang: &&str| Command::new(clang).arg("--version").output().is_ok();
    ["clang", "clang-14", "clang-19"].into_iter().filter(is_there).collect()
}

#[test]
fn the_tests_pass_without_a_compiler() {
    let bench = made("new_bare");
    let output = inside(&bench, &["towpath", "test"], "");
    let said = assert_green(&output);
    assert!(said.contains("6 passed, 0 failed, 0 skipped"), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "nothing is out of date");
    let page = std::fs::read_to_string(bench.path("edge/README.md")).expect("it was written");
    assert!(page.starts_with("# edge\n"), "{page}");
    let program = std::fs::read_to_string(bench.path("edge/filter.c")).expect("it was written");
    assert!(program.lines().count() < 60, "it is to be read at a glance");
    assert_green(&inside(&bench, &["towpath", "verify", "filter.o"], ""));
    // Every line that can be reached is.
    let said = assert_green(&inside(&bench, &["towpath", "test", "--coverage"], ""));
    assert!(said.contains("filter.c"), "{said}");
}

#[test]
fn it_is_made_and_tested_by_make() {
    let path = std::env::var("PATH").expect("make has to be found");
    let compilers = compilers();
    if compilers.is_empty() {
        println!("skipped: no clang (scripts/install-deps.sh demo)");
        return;
    }
    let bench = made("new_make");
    for clang in compilers {
        assert_green(&inside(
            &bench,
            &["make", "-B", "filter.o", &format!("CLANG={clang}")],
            &path,
        ));
        let said = assert_green(&inside(&bench, &["make", "test"], &path));
        assert!(said.contains("6 passed, 0 failed, 0 skipped"), "{clang}: {said}");
    }
    // Changed, and not compiled: what is tested isn't what is read.
    let changed = std::fs::read(bench.path("edge/filter.c")).expect("it was written");
    bench.file("edge/filter.c", [&changed[..], b"#error changed\n"].concat());
    let output = inside(&bench, &["towpath", "test"], &path);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("filter.o is older than") && told.contains("(make)"), "{told}");
    assert!(!inside(&bench, &["make", "test"], &path).status.success());
}

#[test]
fn the_object_is_what_the_source_says() {
    let bench = made("new_object");
    let path = std::env::var("PATH").expect("make has to be found");
    if !compilers().contains(&"clang-19") {
        println!("skipped: no clang-19 (scripts/install-deps.sh test)");
        return;
    }
    let dump = ["prog", "dump", "edge/filter.o", "source"];
    let shipped = bench.run(&dump);
    assert!(shipped.stdout.contains("service.port = bpf_ntohs(ports[1]);"), "{shipped:?}");
    assert_green(&inside(&bench, &["make", "-B", "filter.o", "CLANG=clang-19"], &path));
    assert_eq!(bench.run(&dump).stdout, shipped.stdout, "make -C crates/cli/template -B filter.o");
    let shipped = include_bytes!("../../template/filter.o");
    let maps = |file: &str| bench.json(&["inspect", file])["maps"].clone();
    bench.file("shipped.o", shipped);
    assert_eq!(maps("edge/filter.o"), maps("shipped.o"));
}

#[test]
fn what_is_there_is_left_alone() {
    let bench = made("new_refused");
    std::fs::remove_file(bench.path("edge/Makefile")).expect("it was written");
    bench.file("file", "mine");
    std::os::unix::fs::symlink("nowhere", bench.path("dangling")).expect("the directory is there");
    for there in ["edge", "edge/", "file", "dangling"] {
        let error = bench.refusal(2, &["new", there]);
        assert!(error.contains("exists already: choose another name"), "{there}: {error}");
    }
    assert!(!bench.path("edge/Makefile").exists(), "nothing was written into it");
    for bad in ["a b", "2edge", ".", "a.b", "absent/é"] {
        let error = bench.refusal(2, &["new", bad]);
        assert!(error.contains("a name begins with a letter"), "{bad}: {error}");
    }
    let error = bench.refusal(2, &["new", "absent/edge"]);
    assert!(error.contains("absent/edge: No such file"), "{error}");
    let made = bench.json(&["new", "edge/inner"]);
    assert_eq!(made["created"], "edge/inner", "{made}");
    for file in made["files"].as_array().expect("a list") {
        let path = format!("edge/inner/{}", file.as_str().expect("a name"));
        assert!(bench.path(&path).exists(), "{path}");
    }
}
