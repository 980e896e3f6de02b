//! Runs the binary in a directory of its own, and makes captures for it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A fresh directory and the fixtures.
pub(crate) struct Bench {
    dir: PathBuf,
}

/// The result of one run of the binary.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Bench {
    /// A directory named after the test.
    pub(crate) fn new(test: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        let _absent = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).expect("the target directory is writable");
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        for fixture in std::fs::read_dir(fixtures).expect("fixtures are in the repository") {
            let source = fixture.expect("it can be read").path();
            if source.extension().is_some_and(|extension| extension == "o")
                && let Some(name) = source.file_name()
            {
                std::fs::copy(&source, dir.join(name)).expect("the directory is there");
            }
        }
        Bench { dir }
    }

    /// Writes a file.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), contents).expect("the test's directory is writable");
    }

    /// Path of a file.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// A capture of 60-byte frames whose destination address ends with these bytes.
    pub(crate) fn capture(&self, name: &str, last_bytes: &[u8]) {
        let mut writer = towpath_capture::pcap::Writer::new(Vec::new()).expect("memory");
        for (index, byte) in last_bytes.iter().enumerate() {
            writer.write(&frame(*byte), 60, 1_000_000 * index as u64).expect("memory");
        }
        self.file(name, writer.finish().expect("memory"));
    }

    /// The binary with these arguments, not yet run.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_by(&[], arguments)
    }

    /// The same as arguments of another command.
    pub(crate) fn command_by(&self, by: &[&str], arguments: &[&str]) -> Command {
        let words = [by, &[env!("CARGO_BIN_EXE_towpath")], arguments].concat();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.dir).stdin(Stdio::null());
        command
    }

    /// Runs the binary.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        let Output { status, stdout, stderr } =
            self.command(arguments).output().expect("the binary was built");
        Ended {
            status: status.code().expect("no signal ended it"),
            stdout: String::from_utf8(stdout).expect("text"),
            stderr: String::from_utf8(stderr).expect("text"),
        }
    }

    /// Runs the binary, which must succeed, and reads the JSON document it prints.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let ended = self.run(&[&["--json"], arguments].concat());
        assert_eq!(ended.status, 0, "{ended:?}");
        serde_json::from_str(&ended.stdout).expect("one JSON document")
    }

    /// Runs the binary, which must fail with `status`, and gives what it says.
    pub(crate) fn refusal(&self, status: i32, arguments: &[&str]) -> String {
        let ended = self.run(arguments);
        assert_eq!(ended.status, status, "{ended:?}");
        assert!(ended.stderr.starts_with("error: "), "{ended:?}");
        ended.stderr
    }
}

/// A 60-byte frame to 02:00:00:00:00:BYTE.
pub(crate) fn frame(byte: u8) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, byte, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame
}
