//! The cases of `programs/`: that they pass, and how much of each program they reach.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::Bench;

/// Least share of a program's lines that its cases must reach, in percent.
const LINES_MIN: usize = 80;

#[test]
fn every_program_has_cases_that_reach_nearly_all_of_it() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let objects = repository.join("build/clang-19");
    if !objects.is_dir() {
        eprintln!("skipped: no build/clang-19 (make programs-all)");
        return;
    }
    let bench = Bench::new("cases_of_programs");
    let absolute = |path: &str| repository.join(path).display().to_string();
    for file in files(&repository.join("programs/cases"), "toml") {
        let text = std::fs::read_to_string(&file).expect("it is text");
        let text = text
            .replace("../../build/programs", &objects.display().to_string())
            .replace("../routes.toml", &absolute("programs/routes.toml"));
        bench.file(&file.file_name().expect("a name").to_string_lossy(), text);
    }
    let arguments = ["test", ".", "--exec", "interp,jit", "--lcov", "cases.info"];
    // An empty bounding set leaves root without capabilities.
    let powerless = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"];
    let by = if rustix::process::geteuid().is_root() { &powerless[..] } else { &[] };
    let output = bench.command_by(by, &arguments).output().expect("it was started");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));

    let tracefile = std::fs::read_to_string(bench.path("cases.info")).expect("it was written");
    let reached = lines_by_program(&tracefile);
    for program in files(&repository.join("programs"), "c") {
        let name = program.file_stem().expect("a name").to_string_lossy().into_owned();
        // It consists of the other one's file.
        let name = if name == "load_balancer_unrolled" { "load_balancer".into() } else { name };
        let (hit, all) = reached.get(&name).copied().unwrap_or_default();
        assert!(all > 0 && hit * 100 >= all * LINES_MIN, "{name}: {hit} of {all} lines");
    }
}

/// Lines that were reached, and lines, by the name of the C file.
fn lines_by_program(tracefile: &str) -> BTreeMap<String, (usize, usize)> {
    let mut found = BTreeMap::new();
    for record in tracefile.split("end_of_record") {
        let value = |prefix: &str| record.lines().find_map(|line| line.strip_prefix(prefix));
        let count = |prefix: &str| value(prefix).and_then(|it| it.parse().ok()).unwrap_or(0);
        if let Some(path) = value("SF:")
            && let Some(name) = Path::new(path).file_stem()
            && path.ends_with(".c")
        {
            found.insert(name.to_string_lossy().into_owned(), (count("LH:"), count("LF:")));
        }
    }
    found
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("it is in the repository");
    let paths = entries.map(|entry| entry.expect("it can be read").path());
    paths.filter(|path| path.extension().is_some_and(|it| it == extension)).collect()
}
