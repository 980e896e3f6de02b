//! Plugin of the bpf_conformance suite: runs a bare instruction stream, interpreted or compiled.
//!
//! ```text
//! bpf_conformance [--exec interp|jit|llvm] [--program HEX] [MEMORY_HEX] [--debug]
//!                                                       (program on stdin when not given)
//! ```
//!
//! Prints r0 in hexadecimal. Memory is what r1 points to, r2 is its length. The compilers take only
//! what the verifier accepts, with the memory as a map's value.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is its interface")]

use std::io::Read;
use std::process::ExitCode;

use towpath_xdp::{Exec, conformance};

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(message) => return refuse(&message),
    };
    let program = match options.program.map_or_else(read_stdin, Ok) {
        Ok(program) => program,
        Err(error) => return refuse(&format!("stdin: {error}")),
    };
    let (program, mut memory) = match (parse_hex(&program), parse_hex(&options.memory)) {
        (Ok(program), Ok(memory)) => (program, memory),
        (Err(message), _) => return refuse(&format!("program: {message}")),
        (_, Err(message)) => return refuse(&format!("memory: {message}")),
    };
    if options.debug {
        eprintln!("{} instructions, {} bytes of memory", program.len() / 8, memory.len());
    }
    match conformance::run(&program, &mut memory, options.exec) {
        Ok(r0) => {
            println!("{r0:x}");
            ExitCode::SUCCESS
        }
        Err(error) => refuse(&error.to_string()),
    }
}

/// What the suite passes.
#[derive(Default)]
struct Options {
    program: Option<String>,
    memory: String,
    exec: Exec,
    debug: bool,
}

impl Options {
    fn parse(args: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut options = Options::default();
        let mut args = args;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--program" => {
                    options.program = Some(args.next().ok_or("--program needs a value (hex)")?);
                }
                "--exec" => options.exec = exec(args.next().as_deref())?,
                "--debug" => options.debug = true,
                "--elf" => return Err("--elf: give the instructions, not an ELF file".to_owned()),
                other if other.starts_with("--") => return Err(format!("{other}: unknown option")),
                _ => options.memory = arg,
            }
        }
        Ok(options)
    }
}

fn exec(name: Option<&str>) -> Result<Exec, String> {
    let all = [Exec::Interp, Exec::Jit, Exec::Llvm];
    let known = all.into_iter().find(|exec| Some(exec.name()) == name);
    known.ok_or_else(|| "--exec needs interp, jit or llvm".to_owned())
}

/// Bytes from hexadecimal digits; blanks between bytes are allowed.
fn parse_hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    if !digits.len().is_multiple_of(2) {
        return Err(format!("{} hexadecimal digits are not whole bytes", digits.len()));
    }
    let byte = |pair: &[char]| {
        let value = pair.iter().try_fold(0, |value, c| Some(value * 16 + c.to_digit(16)?));
        value
            .map(|value| value as u8)
            .ok_or_else(|| format!("{}{}: not hexadecimal", pair[0], pair[1]))
    };
    digits.chunks_exact(2).map(byte).collect()
}

fn read_stdin() -> std::io::Result<String> {
    let mut text = String::new();
    // A program has at most a million instructions; each byte is two digits and a blank.
    std::io::stdin().take(INPUT_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn refuse(message: &str) -> ExitCode {
    eprintln!("bpf_conformance: {message}");
    ExitCode::FAILURE
}

const INPUT_BYTES_MAX: u64 = 3 * 8 * 1_000_000;
