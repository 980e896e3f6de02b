//! The sanitizer finds seeded defects, each in its line, and nothing where nothing is wrong.
//!
//! `tests/data/sanitizer/*.c` hold programs with and without defects. Lines before one with defects
//! say so: `// finds KIND: TEXT`, where TEXT is a part of the message. Each program runs on
//! one packet.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use towpath_bpf::program::{AttachType, SlotInit};
use towpath_bpf::{Env, Object};
use towpath_tests::execution::fill_slots;
use towpath_tests::packets::packets;
use towpath_tests::sources;
use towpath_xdp::host::kernel_types;
use towpath_xdp::program::{LoadOptions, Loader, Select};
use towpath_xdp::{Finding, FindingKind, Frame, Sanitizer, Tally};

#[test]
fn seeded_defects_are_found_and_nothing_else() {
    let top = sources::repository();
    let mut count = 0;
    for file in sources_of(&top.join("tests/data/sanitizer")) {
        let text = std::fs::read_to_string(&file).expect("C is UTF-8");
        let defects = marks(&text);
        count += defects.len();
        for clang in ["clang-19", "clang-14"] {
            let Some(object) = compile(clang, &top, &file) else {
                eprintln!("skipped: {clang} is missing: scripts/install-deps.sh test");
                continue;
            };
            let findings = run_all(&object);
            compare(&file, clang, &defects, &findings);
        }
    }
    assert!(count >= 25, "only {count} defects are seeded");
}

/// Objects of others are tried with `TOWPATH_SANITIZER_OBJECTS=FOLDER`, which prints what is found.
#[test]
fn programs_of_this_repository_have_nothing_to_find() {
    let packets = packets(30, 60, true);
    if let Some(folder) = std::env::var_os("TOWPATH_SANITIZER_OBJECTS") {
        return println!("{}", look_at_others(Path::new(&folder), &packets));
    }
    let folder = match sources::own_objects() {
        Ok(folder) => folder,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let objects = sources::object_files(&folder);
    let found = objects.iter().flat_map(|it| judge(it, &packets).1);
    // Queues of flows are one CPU's each.
    let found = found.filter(|it| it.kind != FindingKind::LostUpdate);
    let told: Vec<String> = found.map(|it| it.to_string()).collect();
    assert!(objects.len() >= 30, "only {} objects", objects.len());
    assert!(told.is_empty(), "{}", told.join("\n"));
}

fn look_at_others(folder: &Path, packets: &[Vec<u8>]) -> String {
    let (mut count, mut told) = (0, Vec::new());
    for object in sources::object_files(folder) {
        let (programs, findings) = judge(&object, packets);
        count += programs;
        let name = object.display();
        told.extend(findings.iter().map(|it| format!("{name}: {}: {it}", it.program)));
    }
    format!("{}\n{count} programs", told.join("\n"))
}

/// Runs each program of an object that is accepted on all packets; gives how many those are, and
/// the mistakes.
fn judge(path: &Path, packets: &[Vec<u8>]) -> (usize, Vec<Finding>) {
    let Ok(bytes) = std::fs::read(path) else { return (0, Vec::new()) };
    let Ok(object) = Object::open(&bytes, "object") else { return (0, Vec::new()) };
    let (mut count, mut findings, mut tally) = (0, Vec::new(), Tally::default());
    let (env, options) = (kernel_types(), LoadOptions { workers: 1, ..LoadOptions::default() });
    // Targets of tail calls rely on the program before them, so they are not run alone.
    let slots = object.maps().iter().flat_map(|map| &map.slots);
    let stages: Vec<&str> = slots
        .filter_map(|(_, init)| match init {
            SlotInit::Program(name) => Some(name.as_str()),
            SlotInit::Map(_) => None,
        })
        .collect();
    let entered = object.programs().iter().filter(|program| {
        program.attach == AttachType::Xdp && !stages.contains(&program.name.as_str())
    });
    for program in entered {
        let Ok(loader) = Loader::new(&object, &env, &options) else { continue };
        let Ok(loaded) = loader.program(Select::Name(&program.name)) else { continue };
        fill_slots(&loaded);
        let mut worker = loaded.worker(0);
        worker.set_sanitizer(Some(Sanitizer::new()));
        for packet in packets {
            let mut frame = Frame::new(packet).expect("a packet");
            // Faults are checked by another test.
            let _verdict = loaded.run(&mut worker, &mut frame);
        }
        count += 1;
        let sanitizer = worker.sanitizer().expect("it was set");
        tally.add(sanitizer);
        findings.extend(sanitizer.take());
    }
    let linked = (0..object.programs().len()).filter_map(|index| object.link(index, &env).ok());
    linked.for_each(|linked| tally.look_at(&linked));
    findings.extend(tally.findings());
    (count, findings)
}

/// A line, the kind of mistake, and a part of the message.
type Defect = (u32, String, String);

fn marks(text: &str) -> Vec<Defect> {
    let is_mark = |line: &str| line.contains(MARK);
    let lines: Vec<&str> = text.lines().collect();
    let marked = lines.iter().enumerate().filter_map(|(at, line)| {
        let (_, mark) = line.split_once(MARK)?;
        let next = lines[at..].iter().position(|line| !is_mark(line))?;
        Some((mark, (at + next + 1) as u32))
    });
    let parsed = marked.map(|(mark, number)| {
        let (kind, message) = mark.split_once(": ").expect("KIND: TEXT");
        (number, kind.to_owned(), message.to_owned())
    });
    parsed.collect()
}

const MARK: &str = "// finds ";

fn compare(file: &Path, clang: &str, defects: &[Defect], findings: &[Finding]) {
    let name = format!("{} by {clang}", file.display());
    let wanted: BTreeSet<(u32, &str)> =
        defects.iter().map(|(line, kind, _)| (*line, kind.as_str())).collect();
    let found: BTreeSet<(u32, &str)> = findings.iter().map(place).collect();
    let missed: Vec<_> = wanted.difference(&found).collect();
    let false_alarms: Vec<String> = findings
        .iter()
        .filter(|finding| !wanted.contains(&place(finding)))
        .map(|finding| format!("{}: {finding}", finding.program))
        .collect();
    assert!(
        missed.is_empty() && false_alarms.is_empty(),
        "{name}: missed {missed:?}, false alarms:\n{}",
        false_alarms.join("\n")
    );
    for (line, kind, text) in defects {
        let told = findings.iter().filter(|it| place(it) == (*line, kind.as_str()));
        let messages: Vec<&str> = told.map(|finding| finding.message.as_str()).collect();
        let says = messages.iter().any(|message| message.contains(text.as_str()));
        assert!(says, "{name}: line {line}: {text:?} is not in {messages:#?}");
    }
}

fn place(finding: &Finding) -> (u32, &'static str) {
    (finding.line.as_ref().map_or(0, |(_, line)| *line), finding.kind.name())
}

/// Runs each program of an object on one packet.
fn run_all(object: &Path) -> Vec<Finding> {
    let bytes = std::fs::read(object).expect("clang made it");
    let object = Object::open(&bytes, "sanitizer.o").expect("an object");
    let mut findings = Vec::new();
    for program in object.programs() {
        let (env, options) = (Env::builtin(), LoadOptions { workers: 1, ..LoadOptions::default() });
        let loader = Loader::new(&object, &env, &options).expect("its maps");
        let loaded = loader.program(Select::Name(&program.name));
        let loaded = loaded.unwrap_or_else(|error| panic!("{}: {error}", program.name));
        let mut worker = loaded.worker(0);
        worker.set_sanitizer(Some(Sanitizer::new()));
        for _ in 0..2 {
            let mut frame = Frame::new(&packet()).expect("a packet");
            loaded.run(&mut worker, &mut frame).expect("a verified program");
        }
        let sanitizer = worker.sanitizer().expect("it was set");
        findings.extend(sanitizer.take());
        let mut tally = Tally::default();
        tally.add(sanitizer);
        findings.extend(tally.findings());
    }
    findings
}

/// A DNS question from 10.0.0.1 to 10.0.0.2.
fn packet() -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    packet.extend([0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0x26, 0xbd, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0x30, 0x39, 0, 53, 0, 26, 0, 0]);
    packet.extend([0; 18]);
    packet
}

fn sources_of(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("the folder is in the repository");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut files: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|it| it == "c")).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

/// `None` where there is no such compiler.
fn compile(clang: &str, top: &Path, source: &Path) -> Option<PathBuf> {
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("sanitizer").join(clang);
    std::fs::create_dir_all(&out).expect("a folder of ours");
    let object = out.join(source.file_stem()?).with_extension("o");
    let mut command = Command::new(clang);
    command.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wno-uninitialized", "-c"]);
    command.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
    command.arg("-I").arg(top.join("programs/include")).arg(source).arg("-o").arg(&object);
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}", source.display());
    Some(object)
}
