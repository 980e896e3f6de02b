//! Tells the binary which commit it is built of.
//!
//! Release builds only: development builds would be linked again after every commit.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=PROFILE");
    if std::env::var("PROFILE").as_deref() != Ok("release") {
        println!("cargo::rerun-if-changed=build.rs");
        return;
    }
    // Written whenever HEAD moves, by a commit or by changing to another one.
    let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]);
    println!("cargo::rerun-if-changed={}", log.as_deref().unwrap_or("build.rs"));
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=TOWPATH_COMMIT={commit}");
    }
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
