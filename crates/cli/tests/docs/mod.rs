//! Every block of README and of the pages in `docs/` is run, or says why it isn't ([`marks`]).
//!
//! | block | is |
//! | --- | --- |
//! | `sh`, `console` | run, line by line, in the page's folder: what is shown is printed |
//! | `c` | compiled: `compile` of the prelude |
//! | `toml` | a configuration that `towpath check` takes, or the file that it is marked as |
//! | `json` | of the shape that a command's answer has, or the file that it is marked as |
//! | others | run by another test, or marked as not run |
//!
//! Commands succeed, or fail where an error is shown.

mod compare;
mod marks;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::support::Bench;
use compare::{difference, json_difference};
use marks::{Block, Item, commands, items};

#[test]
fn every_block_is_run_or_says_why_not() {
    let Some(objects) = objects() else { return eprintln!("{NO_OBJECTS}") };
    let mut complaints = Vec::new();
    let mut counts = Counts::default();
    for page in pages() {
        let text = std::fs::read_to_string(top().join(&page)).expect("pages are UTF-8");
        let start = Instant::now();
        match Page::read(&page, &text) {
            Ok(read) => read.walk(&objects, &mut counts, &mut complaints),
            Err(why) => complaints.push(format!("{}:{why}", page.display())),
        }
        eprintln!("{}: {:.1} s", page.display(), start.elapsed().as_secs_f64());
    }
    counts.skipped.iter().for_each(|why| eprintln!("skipped: {why}"));
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    assert!(counts.run > 45, "{counts:?}");
}

#[test]
fn what_is_wrong_on_a_page_is_found() {
    let Some(objects) = objects() else { return eprintln!("{NO_OBJECTS}") };
    let complaints = |text: &str| {
        let mut complaints = Vec::new();
        let page = Path::new("wrong.md");
        match Page::read(page, text) {
            Ok(read) => read.walk(&objects, &mut Counts::default(), &mut complaints),
            Err(why) => complaints.push(why),
        }
        complaints.join("\n")
    };
    for (wrong, why) in [
        ("```\nls\n```\n", "no language"),
        ("```sh\nfalse\n```\n", "ended with 1"),
        ("```sh\nno_such_command\n```\n", "no_such_command"),
        ("```console\n$ echo a\nb\n```\n", "shown: b"),
        ("```console\n$ echo a\nerror: a\n```\n", "an error is shown"),
        ("```toml\n[[port]]\nname = \"p\"\nkind = \"sink\"\nmtuu = 9\n```\n", "no such key"),
        (
            "<!-- shape: towpath inspect build/programs/echo.o --json -->\n```json\n{\"a\": 1}\n```\n",
            "is shown",
        ),
        ("```json\n{}\n```\n", "as which file"),
        ("<!-- file: a.toml -->\n```toml\na = 1\n```\n", "nothing on the page uses"),
        ("<!-- not run: -->\n```python\nx\n```\n", "no reason"),
        ("<!-- run by: crates/cli/tests/cli.rs -->\n```python\nx\n```\n", "does not name"),
    ] {
        let found = complaints(wrong);
        assert!(found.contains(why), "{wrong}: {found}");
    }
    assert!(complaints("```c\nint x\n```\n").contains("expected ';'"));
    let right =
        "<!-- file: a.txt\nb\n-->\n```console\n$ cat a.txt\nb\n```\n```sh\nX=1\n[ $X = 1 ]\n```\n";
    assert_eq!(complaints(right), "");
}

/// Folder of the compiled programs, if there is also a compiler for the programs on the pages.
fn objects() -> Option<PathBuf> {
    let objects = top().join("build/clang-19");
    (objects.exists() && clang().is_some()).then_some(objects)
}

const NO_OBJECTS: &str = "skipped: no clang or no build/clang-19 (make programs-all)";

/// Results of all blocks.
#[derive(Debug, Default)]
struct Counts {
    run: usize,
    by_other_tests: usize,
    marked: usize,
    skipped: Vec<String>,
}

/// A page, and what is to be done with it.
struct Page<'a> {
    path: &'a Path,
    items: Vec<(usize, Item)>,
}

/// Something that a page's shell does, and what is to come of it.
struct Step {
    line: usize,
    script: String,
    outcome: Outcome,
}

enum Outcome {
    /// It ends well, and prints whatever it likes.
    Fine,
    /// It prints this.
    Prints(Vec<String>, bool),
    /// It prints a document of this one's shape.
    Shape(String),
}

impl Page<'_> {
    fn read<'a>(path: &'a Path, text: &str) -> Result<Page<'a>, String> {
        Ok(Page { path, items: items(text)? })
    }

    /// Does everything that is on the page.
    fn walk(&self, objects: &Path, counts: &mut Counts, complaints: &mut Vec<String>) {
        let mut steps = Vec::new();
        for (line, item) in &self.items {
            let result = match item {
                Item::File { name, text } => self.save(*line, name, text).map(|step| vec![step]),
                Item::Run(text) => {
                    let block = Block { text: text.clone(), ..Block::default() };
                    self.commands(*line, &block)
                }
                Item::Block(block) => self.block(*line, block, counts),
            };
            match result {
                Ok(more) => steps.extend(more),
                Err(why) => complaints.push(format!("{}:{line}: {why}", self.path.display())),
            }
        }
        if !steps.is_empty() {
            let found = run(self.path, objects, &steps);
            complaints.extend(found.into_iter().map(|it| format!("{}:{it}", self.path.display())));
        }
    }

    /// The steps that run a block.
    fn block(&self, line: usize, block: &Block, counts: &mut Counts) -> Result<Vec<Step>, String> {
        if let Some(reason) = block.mark("not run") {
            counts.marked += 1;
            return if reason.is_empty() { Err("no reason".to_owned()) } else { Ok(Vec::new()) };
        }
        if let Some(file) = block.mark("run by") {
            counts.by_other_tests += 1;
            let test =
                std::fs::read_to_string(top().join(file)).map_err(|e| format!("{file}: {e}"))?;
            let page = self.path.display().to_string();
            let is_named = test.contains(&page);
            return if is_named {
                Ok(Vec::new())
            } else {
                Err(format!("{file} does not name {page}"))
            };
        }
        if let Some(what) = block.mark("needs")
            && let Some(why) = lacking(what)
        {
            counts.skipped.push(format!("{}:{line}: {why}", self.path.display()));
            return Ok(Vec::new());
        }
        counts.run += 1;
        let around = |key: &str| block.mark(key).map_or(String::new(), |text| format!("{text}\n"));
        let whole = format!("{}{}{}", around("before"), block.text, around("after"));
        let named = block.mark("file");
        match (block.language.as_str(), named) {
            ("sh" | "console", _) => self.commands(line, block),
            ("c", _) => {
                let name = named.map_or_else(|| format!("line_{line}.c"), str::to_owned);
                let compile = step(line, format!("compile {name}\n"), Outcome::Fine);
                Ok(vec![write_step(line, &name, &whole), compile])
            }
            ("toml" | "json", Some(name)) => Ok(vec![self.save(line, name, &whole)?]),
            ("toml", None) => {
                let name = format!("line_{line}.toml");
                let check = step(line, format!("towpath check -c {name}\n"), Outcome::Fine);
                Ok(vec![write_step(line, &name, &whole), check])
            }
            ("json", None) => match block.mark("shape") {
                Some(command) => {
                    Ok(vec![step(line, format!("{command}\n"), Outcome::Shape(whole))])
                }
                None => {
                    Err("as which file is it read, or what prints it (file, shape)?".to_owned())
                }
            },
            ("", _) => Err("no language: sh, console, c, toml, json, python, text?".to_owned()),
            (language, _) => Err(format!("nothing runs {language}: say why (not run, run by)")),
        }
    }

    fn commands(&self, line: usize, block: &Block) -> Result<Vec<Step>, String> {
        let mask = block.mark("output") == Some("numbers differ");
        let commands = commands(block);
        if commands.is_empty() {
            return Err("no command: one begins with `$ `".to_owned());
        }
        let is_daemon = |text: &str| text.contains("towpath up") && text.trim_end().ends_with('&');
        let steps = commands.into_iter().flat_map(|command| {
            let wait = is_daemon(&command.text).then(|| step(line, "answers\n", Outcome::Fine));
            let outcome = match command.output.iter().all(|line| line.trim().is_empty()) {
                true => Outcome::Fine,
                false => Outcome::Prints(command.output, mask),
            };
            [Some(step(line, format!("{}\n", command.text), outcome)), wait]
        });
        Ok(steps.flatten().collect())
    }

    /// Writes a file that something on the page then uses.
    fn save(&self, line: usize, name: &str, text: &str) -> Result<Step, String> {
        let short = name.rsplit('/').next().unwrap_or(name);
        let is_used = |(at, item): &(usize, Item)| match item {
            Item::Run(script) => *at > line && script.contains(short),
            Item::Block(block) => {
                let runs = ["sh", "console"].contains(&&*block.language);
                let shape = block.mark("shape").is_some_and(|command| command.contains(short));
                let takes = runs || block.mark("file").is_some();
                *at > line && (takes && block.text.contains(short) || shape)
            }
            Item::File { text, .. } => text.contains(short),
        };
        if !self.items.iter().any(is_used) {
            return Err(format!("nothing on the page uses {name}"));
        }
        Ok(write_step(line, name, text))
    }
}

fn step(line: usize, script: impl Into<String>, outcome: Outcome) -> Step {
    Step { line, script: script.into(), outcome }
}

fn write_step(line: usize, name: &str, text: &str) -> Step {
    let script =
        format!("mkdir -p \"$(dirname {name})\"\ncat >{name} <<'END_OF_FILE'\n{text}END_OF_FILE\n");
    step(line, script, Outcome::Fine)
}

/// Why something can't be run here.
fn lacking(needs: &str) -> Option<String> {
    let is_root = rustix::process::geteuid().is_root();
    needs.split(", ").find_map(|what| match what {
        "root" => (!is_root).then(|| "it needs root".to_owned()),
        "tap" => (!is_root || !Path::new("/dev/net/tun").exists())
            .then(|| "taps need root and /dev/net/tun".to_owned()),
        "kernel" => towpath_kernel::Kernel::open().err().map(|error| error.to_string()),
        command => {
            let found = Command::new("which").arg(command).output();
            let is_there = found.is_ok_and(|found| found.status.success());
            (!is_there).then(|| format!("{command} is not installed"))
        }
    })
}

/// Runs a page's steps in a folder of its own; gives what went otherwise.
fn run(page: &Path, objects: &Path, steps: &[Step]) -> Vec<String> {
    let name: String = page.display().to_string().replace(['/', '.'], "_");
    let bench = Bench::new(&format!("page_{name}"));
    furnish(&bench, objects);
    let mut script = ". ./prelude.sh\n".to_owned();
    for (number, step) in steps.iter().enumerate() {
        bench.file(&format!(".steps/{number}.sh"), &step.script);
        writeln!(script, "step {number}").expect("a string takes it");
    }
    script += "kill $(jobs -p) 2>/dev/null; wait\n";
    bench.file("page.sh", script);
    let ended = shell(&bench).output().expect("util-linux is everywhere");
    let mut found: Vec<String> =
        (0..).zip(steps).filter_map(|(at, step)| check(&bench, at, step)).collect();
    if !ended.status.success() && found.is_empty() {
        found.push(format!("0: {}", String::from_utf8_lossy(&ended.stderr)));
    }
    found
}

/// The difference between the expected and the actual result of a step.
fn check(bench: &Bench, number: usize, step: &Step) -> Option<String> {
    let read = |ending: &str| {
        std::fs::read_to_string(bench.path(&format!(".steps/{number}.{ending}")))
            .unwrap_or_default()
    };
    let (printed, status) = (read("out"), read("status"));
    let status: i32 = status.trim().parse().unwrap_or(-1);
    let shows_error = |lines: &[String]| {
        let is_one = |line: &String| ERRORS.iter().any(|word| line.trim_start().starts_with(word));
        lines.iter().any(is_one)
    };
    let (is_refused, difference) = match &step.outcome {
        Outcome::Fine => (false, None),
        Outcome::Prints(lines, mask) => (shows_error(lines), difference(lines, &printed, *mask)),
        Outcome::Shape(shown) => (false, json_difference(shown, &printed)),
    };
    let status = match (status, is_refused) {
        (-1, _) => Some("it did not end".to_owned()),
        (0, true) => Some("an error is shown, and it ended with 0".to_owned()),
        (0, false) | (_, true) => None,
        (status, false) => Some(format!("it ended with {status}")),
    };
    let why = status.or(difference)?;
    Some(format!("{}: {}{why}\n{printed}", step.line, step.script))
}

/// A page's folder: the repository as a reader has it, and `towpath` on the path.
fn furnish(bench: &Bench, objects: &Path) {
    for folder in [".steps", "bin", "build", "tmp", "lib", "run"] {
        std::fs::create_dir(bench.path(folder)).expect("the directory is fresh");
    }
    let link = |from: PathBuf, to: &str| {
        std::os::unix::fs::symlink(from, bench.path(to)).expect("the directory is fresh");
    };
    link(PathBuf::from(env!("CARGO_BIN_EXE_towpath")), "bin/towpath");
    if let Some(clang) = clang() {
        link(clang, "bin/clang");
    }
    link(objects.to_owned(), "build/programs");
    for folder in ["tests", "packaging", "crates", "scripts"] {
        link(top().join(folder), folder);
    }
    // Its files say where objects are from where they are themselves.
    mirror(&top().join("programs"), &bench.path("programs")).expect("the directory is fresh");
    bench.file("prelude.sh", include_str!("prelude.sh"));
}

/// Folders like these, with links to their files.
fn mirror(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => mirror(&entry.path(), &to)?,
            false => std::os::unix::fs::symlink(entry.path(), to)?,
        }
    }
    Ok(())
}

/// A compiler for BPF, whatever it is called.
fn clang() -> Option<PathBuf> {
    let found = |name: &str| Some(Command::new("which").arg(name).output().ok()?.stdout);
    let paths = ["clang", "clang-19", "clang-14"].into_iter().filter_map(found);
    let mut paths = paths.map(|path| String::from_utf8_lossy(&path).trim().to_owned());
    paths.find(|path| !path.is_empty()).map(PathBuf::from)
}

/// A shell that runs the page: as root in namespaces of its own, with `/tmp`, `/run` and `/var/lib`
/// in the page's folder.
fn shell(bench: &Bench) -> Command {
    let here = bench.path(".");
    let mut command = Command::new("timeout");
    command.args(["-k", "5", PAGE_SECONDS]);
    if rustix::process::geteuid().is_root() && !here.starts_with("/tmp") {
        let own = "ip link set lo up; mount --bind tmp /tmp && mount --bind run /run && \
                   mount --bind lib /var/lib && exec bash page.sh";
        // With processes of its own: none of them outlives the page.
        let apart = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
        command.arg("unshare").args(apart).args(["bash", "-c", own]);
    } else {
        command.args(["bash", "page.sh"]);
    }
    let paths = std::env::var("PATH").unwrap_or_default();
    let paths = format!("{}:{paths}", bench.path("bin").display());
    command.current_dir(here).env("PATH", paths).stdin(Stdio::null());
    command
}

/// README, the pages beside it, and those in `docs/`.
fn pages() -> Vec<PathBuf> {
    let beside = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(PathBuf::from);
    let mut found = Vec::new();
    for folder in ["docs", "docs/adr"] {
        for entry in std::fs::read_dir(top().join(folder)).expect("it is in the repository") {
            let path = Path::new(folder).join(entry.expect("it can be read").file_name());
            if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    beside.into_iter().chain(found).collect()
}

fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("it is there")
}

/// Beginnings of lines that report a failed command.
const ERRORS: [&str; 3] = ["error:", "refused ", "FAIL "];
const PAGE_SECONDS: &str = "120";
