//! The programs that tests attach, and their maps.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use towpath_bpf::{Env, Object};
use towpath_maps::Value;
use towpath_xdp::{LoadOptions, Program, Select};

use towpath_tests::sources;

/// Kinds of frames that `live.c` counts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Seen {
    Echo = 1,
    Echo6 = 2,
    Udp = 4,
    Vlan = 5,
}

/// Why programs cannot be compiled here.
pub(crate) fn unavailable() -> Option<String> {
    compiled().as_ref().err().cloned()
}

/// The file of an object, compiled once a run.
pub(crate) fn path(name: &str) -> PathBuf {
    compiled().as_ref().unwrap().join(format!("{name}.o"))
}

/// An object.
pub(crate) fn object(name: &str) -> Object {
    Object::open(&std::fs::read(path(name)).unwrap(), name).unwrap()
}

/// A program of `live.c`, for `workers` workers.
pub(crate) fn live(program: &str, workers: usize) -> Program {
    load("live", program, workers)
}

/// A program of some object.
pub(crate) fn load(name: &str, program: &str, workers: usize) -> Program {
    let options = LoadOptions { workers, ..LoadOptions::default() };
    let object = object(name);
    Program::load(&object, Select::Name(program), &Env::builtin(), &options).unwrap()
}

/// Sets an entry of an array or a devmap.
pub(crate) fn set(program: &Program, map: &str, key: u32, value: u32) {
    let map = program.maps().by_name(map).unwrap();
    let value = Value::One(value.to_ne_bytes().to_vec());
    map.user().update(&key.to_ne_bytes(), &value, 0).unwrap();
}

/// Frames and bytes of a kind that a program saw.
pub(crate) fn seen(program: &Program, kind: u32) -> [u64; 2] {
    counter(program, "seen", kind)
}

/// A pair of counters, summed over all CPUs.
pub(crate) fn counter(program: &Program, map: &str, key: u32) -> [u64; 2] {
    let map = program.maps().by_name(map).unwrap();
    let value = map.user().lookup(&key.to_ne_bytes(), 0).unwrap();
    sum(value.cpus().into_iter())
}

/// Sums pairs of 64-bit counters.
pub(crate) fn sum<'a>(cpus: impl Iterator<Item = &'a [u8]>) -> [u64; 2] {
    let mut sum = [0; 2];
    for cpu in cpus {
        for (sum, bytes) in sum.iter_mut().zip(cpu.as_chunks::<8>().0) {
            *sum += u64::from_ne_bytes(*bytes);
        }
    }
    sum
}

/// The folder of objects.
fn compiled() -> &'static Result<PathBuf, String> {
    static OBJECTS: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("netns");
        std::fs::create_dir_all(&out).map_err(|error| error.to_string())?;
        let top = sources::repository();
        for source in [
            "tests/data/netns/live.c",
            "tests/data/netns/tag.c",
            "tests/data/netns/fib.c",
            "tests/data/netns/fdb.c",
            "programs/echo.c",
        ] {
            compile(&top, &top.join(source), &out)?;
        }
        Ok(out)
    })
}

fn compile(top: &Path, source: &Path, out: &Path) -> Result<(), String> {
    let name = source.file_stem().unwrap_or_default();
    for clang in ["clang-19", "clang"] {
        let mut command = Command::new(clang);
        command.args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wno-unused-function", "-c"]);
        command.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
        command.arg("-I").arg(top.join("programs/include")).arg(source);
        command.arg("-o").arg(out.join(name).with_extension("o"));
        if let Ok(output) = command.output() {
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {text}", source.display());
            return Ok(());
        }
    }
    Err("clang is missing: scripts/install-deps.sh".to_owned())
}
