//! The C library: `examples/udp_echo.c`, and every call with arguments that are wrong.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::kernel::Kernel;
use crate::lab::{Datagram, FAR, Lab, NEAR, at, wait_for};

#[test]
fn a_program_in_c_sends_datagrams_back() {
    let Some(program) = compiled("udp_echo", "examples/udp_echo.c") else { return };
    let Some(lab) = Lab::acquainted("") else { return };
    for (near, far) in [(NEAR[0], FAR[0]), (NEAR[2], FAR[2])] {
        let there = lab.kernel(&at(far, 0).to_string());
        let mut echo = program_of(&program)
            .arg(lab.options().path)
            .args(["p0", near, "7400"])
            .spawn()
            .unwrap();
        let stack = lab.stack();
        wait_for("answer", || {
            there.send_to(HELLO, at(near, 7400));
            !there.received().is_empty()
        });
        for number in 0..1000_u32 {
            let payload = [&number.to_ne_bytes()[..], &vec![7; number as usize % 1400]].concat();
            let sent = Datagram {
                payload,
                source: at(far, there.port()),
                destination: at(near, 7400),
                ecn: (number % 4) as u8,
            };
            there.send(&sent);
            let back = answer(&there);
            assert!(back.payload == sent.payload, "{number}");
            assert_eq!((back.source, back.ecn), (sent.destination, sent.ecn));
        }
        there.send_to(b"stop", at(near, 7400));
        assert_eq!(answer(&there).payload, b"stop");
        assert!(echo.wait().unwrap().success());
        wait_for("the free port", || stack.bind(at(near, 7400)).is_ok());
    }
}

/// The next datagram that is no answer to a greeting.
fn answer(there: &Kernel) -> Datagram {
    loop {
        let received = there.receive(1);
        if let Some(datagram) = received.into_iter().find(|it| it.payload != HELLO) {
            return datagram;
        }
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let Some(program) = compiled("udp_wrong", "tests/tests/udp/wrong.c") else { return };
    let Some(lab) = Lab::acquainted("") else { return };
    let output = program_of(&program).arg(lab.options().path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A program that is linked with the library; `None`, after a message, without a C compiler.
fn compiled(name: &str, source: &str) -> Option<PathBuf> {
    if !Command::new("cc").arg("--version").output().is_ok_and(|it| it.status.success()) {
        eprintln!("skipped: no C compiler");
        return None;
    }
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(top.join("crates/udp/include"))
        .arg(top.join(source))
        .arg(folder().join("libtowpath_udp_capi.so"))
        .arg("-o")
        .arg(&out)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(out)
}

fn program_of(path: &Path) -> Command {
    let mut command = Command::new(path);
    command.env("LD_LIBRARY_PATH", folder_of_installed());
    command
}

/// Where Cargo builds the library, with the tests.
fn folder() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().to_owned()
}

/// A folder with the library under the name that programs ask for.
fn folder_of_installed() -> PathBuf {
    let into = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("udp-{}", std::process::id()));
    std::fs::create_dir_all(&into).unwrap();
    let installed = into.join("libtowpath_udp.so.0");
    if !installed.exists() {
        let copy = into.join(format!("{:?}", std::thread::current().id()));
        std::fs::copy(folder().join("libtowpath_udp_capi.so"), &copy).unwrap();
        std::fs::rename(copy, installed).unwrap();
    }
    into
}

const HELLO: &[u8] = b"hello";
