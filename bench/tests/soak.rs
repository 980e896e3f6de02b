//! The soak of sockets, for a moment: it checks itself.

#![forbid(unsafe_code)]

use std::process::Command;

#[test]
fn sockets_come_and_go_and_no_frame_is_lost() {
    let soak = env!("CARGO_BIN_EXE_soak");
    let output = Command::new(soak).args(["--sockets", "--seconds", "3"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains(": 0 missing"), "{said}");
}
