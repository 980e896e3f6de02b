//! The C library: one source, compiled for the kernel's sockets and for ours.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::daemon::Daemon;

/// Compiles `examples/xsk_echo.c`; `None` when there is no compiler.
fn compile(compiler: &str, arguments: &[&str], out: &Path) -> Option<Output> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    Command::new(compiler)
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"])
        .arg(top.join("../../examples/xsk_echo.c"))
        .arg("-I")
        .arg(top.join("include"))
        .args(arguments)
        .arg("-o")
        .arg(out)
        .output()
        .ok()
}

#[track_caller]
fn assert_good(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A file that goes at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("xsk-{name}-{}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

#[test]
fn one_source_compiles_for_both() {
    let object = Scratch::new("echo.o");
    let has_libxdp = Path::new("/usr/include/xdp/xsk.h").exists();
    for compiler in ["gcc", "clang-19", "clang-14"] {
        let Some(ours) = compile(compiler, &["-c", "-DWITH_TOWPATH"], &object.0) else {
            println!("skipped: no {compiler}");
            continue;
        };
        assert_good(&ours);
        match compile(compiler, &["-c"], &object.0) {
            Some(theirs) if has_libxdp => assert_good(&theirs),
            _ => println!("skipped: no libxdp-dev"),
        }
    }
}

#[test]
fn a_c_program_echoes() {
    let program = Scratch::new("echo");
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    // As it is installed: programs ask for what the library calls itself.
    let installed = folder.join("libtowpath_xsk_client.so.0");
    let _there = std::os::unix::fs::symlink("libtowpath_xsk_capi.so", installed);
    let library = folder.to_str().unwrap();
    let link =
        ["-DWITH_TOWPATH", "-L", library, "-ltowpath_xsk_capi", &format!("-Wl,-rpath,{library}")];
    let Some(built) = compile("cc", &link, &program.0) else {
        println!("skipped: no C compiler");
        return;
    };
    assert_good(&built);
    let daemon = Daemon::start("c");
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&program.0);
        command.args(arguments).env("TOWPATH_XSK", &daemon.path).output().unwrap()
    };
    let output = run(&["loop0", "0", "200", "200"]);
    assert_good(&output);
    let said = String::from_utf8_lossy(&output.stdout);
    let bytes: u32 = (0..200).map(|number| 60 + number).sum();
    assert!(said.starts_with(&format!("200 packets, {bytes} bytes, sum ")), "{said}");
    for (arguments, why) in [
        (["eth7", "0", "1"], "socket: No such device"),
        (["loop0", "9", "1"], "socket: Invalid argument"),
    ] {
        let output = run(&arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(why), "{said}");
    }
    daemon.expect_sockets(0);
}
