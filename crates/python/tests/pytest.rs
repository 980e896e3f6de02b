//! The package's own tests and the example of its page, run by pytest over the module that Cargo
//! has just built.

use std::path::Path;
use std::process::{Command, Stdio};

/// Builds the package in the form of a wheel.
fn package(root: &Path) {
    let built = std::env::current_exe().expect("a test has a path");
    let module = built.with_file_name("libtowpath_python.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/towpath");
    let package = root.join("towpath");
    std::fs::create_dir_all(&package).expect("Cargo's folder for tests can be written");
    for file in std::fs::read_dir(source).expect("it is in the repository") {
        let file = file.expect("it is in the repository");
        if file.path().is_file() {
            std::fs::copy(file.path(), package.join(file.file_name())).expect("there is room");
        }
    }
    std::fs::copy(module, package.join("_native.abi3.so")).expect("Cargo builds it with the tests");
}

/// The first Python that can run the tests.
fn python() -> Option<&'static str> {
    let fits = "import sys, pytest, numpy; sys.exit(sys.version_info < (3, 9))";
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let run = Command::new(python).args(["-c", fits]).stderr(Stdio::null()).status();
        run.is_ok_and(|status| status.success())
    })
}

fn pytest(python: &str, root: &Path, arguments: &[&str], tests: &Path) {
    let run = Command::new(python)
        .args(["-B", "-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .args(arguments)
        .arg(tests)
        .env("PYTHONPATH", root)
        .output()
        .expect("it ran a moment ago");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}\n{}", String::from_utf8_lossy(&run.stderr));
}

/// The first block in this language of a page.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_before, rest) = page.split_once(&format!("```{language}\n")).expect("the page has one");
    rest.split_once("```").expect("it ends").0
}

/// The other examples of docs/python.md, one after the other, each preceded by the code in its mark
/// (`<!-- before: ... -->`).
fn snippets(python: &str, root: &Path, page: &str, objects: &Path) {
    let mut program = String::new();
    let parts: Vec<&str> = page.split("```python\n").collect();
    for pair in parts[1..].windows(2) {
        let before = pair[0].rsplit_once("<!-- before: ").expect("a mark").1;
        program += before.split_once(" -->").expect("it ends").0;
        program += "\n";
        program += pair[1].split_once("```").expect("it ends").0;
    }
    // The folder is beside the objects, for the tests; the code runs where the objects are.
    let folder = root.join("snippets");
    std::fs::create_dir_all(&folder).expect("there is room");
    std::fs::write(folder.join("test_snippets.py"), program).expect("there is room");
    std::fs::copy(objects.join("rate_limiter.o"), folder.join("rate_limiter.o")).expect("built");
    let run = Command::new(python)
        .args(["-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p"])
        .arg("towpath.pytest_plugin")
        .arg(folder)
        .env("PYTHONPATH", root)
        .current_dir(objects)
        .output();
    let run = run.expect("it ran a moment ago");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
}

#[test]
fn pytest_passes() {
    let Some(python) = python() else {
        println!("skipped: no Python 3.9 or later with pytest and numpy");
        return;
    };
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    package(&root);
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    pytest(python, &root, &[], &here.join("tests/py"));

    let page = std::fs::read_to_string(here.join("../../docs/python.md")).expect("it is there");
    let example = root.join("example");
    std::fs::create_dir_all(&example).expect("there is room");
    let files = [("drop_udp.c", block(&page, "c")), ("test_drop_udp.py", block(&page, "python"))];
    for (name, text) in files {
        std::fs::write(example.join(name), text).expect("there is room");
    }
    pytest(python, &root, &["-p", "towpath.pytest_plugin"], &example);

    let objects = here.join("../../build/clang-19");
    if objects.exists() {
        snippets(python, &root, &page, &objects);
    } else {
        println!("no examples that need build/clang-19 (make programs-all)");
    }

    // Files that `towpath new` writes.
    let (template, tests) = (here.join("../cli/template"), root.join("new/tests"));
    std::fs::create_dir_all(&tests).expect("there is room");
    for (file, to) in [("test_filter.py", "new/tests/test_filter.py"), ("filter.o", "new/filter.o")]
    {
        std::fs::copy(template.join(file), root.join(to)).expect("it is in the repository");
    }
    pytest(python, &root, &["-p", "towpath.pytest_plugin"], &tests);
}
