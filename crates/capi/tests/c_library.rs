//! The header and the library, used from C.

use std::path::{Path, PathBuf};
use std::process::Command;

fn ran(command: &mut Command) {
    let output = command.output().expect("asked for a moment ago");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Compiles one of the programs of the Python package's tests.
fn object(clang: &str, name: &str, into: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../python/tests/py").join(name);
    let (out, machine) = (into.join(name).with_extension("o"), std::env::consts::ARCH);
    let include = format!("/usr/include/{machine}-linux-gnu");
    let flags = ["-O2", "-g", "-target", "bpf", "-I", &include, "-c"];
    ran(Command::new(clang).args(flags).arg(source).arg("-o").arg(&out));
    out
}

fn is_there(command: &str) -> bool {
    Command::new(command).arg("--version").output().is_ok_and(|output| output.status.success())
}

#[test]
fn c_uses_every_function() {
    let clangs = ["clang-19", "clang-14", "clang"];
    let (Some(clang), true) = (clangs.into_iter().find(|it| is_there(it)), is_there("cc")) else {
        println!("skipped: no clang, or no C compiler");
        return;
    };
    let into = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let built = std::env::current_exe().expect("a test has a path");
    let library = built.with_file_name("libtowpath_capi.so");
    // As an installation has it: programs ask for what the library calls itself.
    std::fs::copy(&library, into.join("libtowpath.so.0")).expect("Cargo builds it with the tests");
    let (here, program) = (Path::new(env!("CARGO_MANIFEST_DIR")), into.join("use"));
    ran(Command::new("cc")
        .args(["-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&program)
        .arg(here.join("tests/c/use.c"))
        .arg("-I")
        .arg(here.join("include"))
        .arg(into.join("libtowpath.so.0")));
    ran(Command::new(&program)
        .arg(object(clang, "meter.c", into))
        .arg(object(clang, "careless.c", into))
        .env("LD_LIBRARY_PATH", into));
}

#[test]
fn the_example_of_the_page_runs() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let objects = here.join("../../build/clang-19");
    if !objects.exists() || !is_there("cc") {
        println!("skipped: no build/clang-19 (make programs-all), or no C compiler");
        return;
    }
    let page = std::fs::read_to_string(here.join("../../docs/c.md")).expect("it is there");
    let (_before, rest) = page.split_once("```c\n").expect("docs/c.md has it");
    let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
    std::fs::create_dir_all(into.join("build/programs")).expect("there is room");
    let object = "build/programs/firewall.o";
    std::fs::copy(objects.join("firewall.o"), into.join(object)).expect("there is room");
    let example = into.join("example.c");
    std::fs::write(&example, rest.split_once("```").expect("it ends").0).expect("there is room");
    let built = std::env::current_exe().expect("a test has a path");
    let library = built.with_file_name("libtowpath_capi.so");
    std::fs::copy(&library, into.join("libtowpath.so.0")).expect("Cargo builds it with the tests");
    ran(Command::new("cc")
        .args([
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
            "example",
            "example.c",
            "libtowpath.so.0",
            "-I",
        ])
        .arg(here.join("include"))
        .current_dir(&into));
    let mut example = Command::new(into.join("example"));
    let run = example.current_dir(&into).env("LD_LIBRARY_PATH", &into).output();
    let run = run.expect("it was compiled a moment ago");
    assert_eq!(String::from_utf8_lossy(&run.stdout), "the firewall returned 2\n");
}
