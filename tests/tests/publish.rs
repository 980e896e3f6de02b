//! Published things are complete: crates have all that a registry requires, the library has no
//! unused dependencies, the image copies what was built before.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// The crates of the library; the others are the command's.
const PUBLISHED: [&str; 5] =
    ["towpath-bpf", "towpath-maps", "towpath-jit", "towpath-xdp", "towpath"];

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace")
}

fn cargo(arguments: &[&str]) -> String {
    let run = Command::new(env!("CARGO")).args(arguments).current_dir(top()).output();
    let output = run.expect("Cargo runs this test");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Names of the crates that the library is made of, with or without its features.
fn made_of(features: &[&str]) -> BTreeSet<String> {
    let tree = ["tree", "--offline", "-p", "towpath", "-e", "normal,build", "--prefix", "none"];
    let text = cargo(&[&tree, features].concat());
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn who_only_verifies_compiles_no_compiler_and_no_c() {
    let is_compiler = |name: &&String| {
        name.starts_with("cranelift") || name.starts_with("capstone") || *name == "cc"
    };
    let small = made_of(&["--no-default-features"]);
    assert_eq!(small.iter().filter(is_compiler).collect::<Vec<_>>(), [""; 0]);
    assert!(small.contains("towpath-bpf") && small.len() < 40, "{small:?}");
    let whole = made_of(&[]);
    assert!(whole.contains("cranelift-codegen"), "the other way round");
    let (shown, name) = (made_of(&["--features", "disasm"]), "iced-x86");
    assert_eq!((whole.contains(name), shown.contains(name)), (false, true), "who asks for it");
    // Cranelift's own disassembler takes a minute to build (C), and is not used.
    assert!(!whole.iter().any(|name| name.starts_with("capstone")), "{whole:?}");
}

#[test]
fn published_crates_have_what_a_registry_asks_for() {
    let metadata = cargo(&["metadata", "--offline", "--no-deps", "--format-version", "1"]);
    let metadata: serde_json::Value = serde_json::from_str(&metadata).expect("it is JSON");
    let packages = metadata["packages"].as_array().expect("a list");
    let mut seen = 0;
    for package in packages {
        let name = package["name"].as_str().expect("a name");
        let is_published = PUBLISHED.contains(&name);
        assert_eq!(package["publish"].is_null(), is_published, "{name}: publish");
        if !is_published {
            continue;
        }
        seen += 1;
        for key in ["description", "license", "rust_version", "repository", "readme"] {
            let is_set = package[key].as_str().is_some_and(|text| !text.is_empty());
            assert!(is_set || KNOWN_TO_LACK.contains(&key), "{name}: no {key}");
        }
        for dependency in package["dependencies"].as_array().expect("a list") {
            let is_ours = dependency["path"].is_string() && dependency["kind"].is_null();
            let of = dependency["name"].as_str().expect("a name");
            if is_ours {
                assert!(PUBLISHED.contains(&of), "{name} needs {of}, which is not published");
                assert_ne!(dependency["req"], "*", "{name}: {of} without a version");
            }
        }
    }
    assert_eq!(seen, PUBLISHED.len());
}

/// There is no public repository to name yet, and the registry shows the crates' own documentation.
const KNOWN_TO_LACK: [&str; 2] = ["repository", "readme"];

#[test]
fn the_image_copies_what_is_there_or_was_built() {
    let text = std::fs::read_to_string(top().join("Containerfile")).expect("it is there");
    let joined = text.replace("\\\n", " ");
    let mut built = Vec::new();
    for line in joined.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["COPY", from, source, _] if from.starts_with("--from=") => {
                let destination = format!("DESTDIR={}", source.trim_end_matches('/'));
                assert!(built.contains(&destination), "{line}: nothing makes {source}");
            }
            ["COPY", source, _] => assert!(top().join(source).exists(), "{line}"),
            ["RUN", ..] => built.extend(words.iter().map(|&word| word.to_owned())),
            _ => {}
        }
    }
    // The files that install.sh installs are made before it runs, each in its own script's step.
    let position = |what: &str| {
        let found = built.iter().position(|word| word == what);
        found.unwrap_or_else(|| panic!("the image lacks {what}"))
    };
    for needed in [
        "towpath-cli",
        "towpath-capi",
        "towpath-xsk-capi",
        "towpath-udp-capi",
        "scripts/build-guest-agent.sh",
    ] {
        assert!(position(needed) < position("scripts/install.sh"), "{needed}");
    }
    let script = std::fs::read_to_string(top().join("scripts/install.sh")).expect("it is there");
    assert!(script.contains("agent=${AGENT:-build/guest/towpath-guest}"), "where the image has it");
    let ignored = std::fs::read_to_string(top().join(".dockerignore")).expect("it is there");
    assert!(ignored.lines().any(|line| line == "target"), "gigabytes would be copied");
}
