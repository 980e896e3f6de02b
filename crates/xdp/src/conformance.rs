//! Bare instruction streams over a buffer, run by any executor, for the bpf_conformance suite.
//!
//! The interpreter runs a stream as it is. Compilers take verified programs only, so for them the
//! stream becomes a function of an XDP program: the buffer is the value of a map, and the
//! function's return value is stored behind it.

use std::sync::Arc;
use std::time::Duration;

use towpath_bpf::btf::{Btf, Linkage};
use towpath_bpf::insn::*;
use towpath_bpf::interp::{self, Fault, run_conformance};
use towpath_bpf::program::{AttachType, Function, MapType};
use towpath_bpf::{Errno, Insn, Linked, MapDef};
use towpath_jit::CodeCache;

use crate::compiled::Exec;
use crate::frame::{Frame, FrameError};
use crate::program::{LoadError, LoadOptions, Program};

/// Why a stream has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConformanceError {
    /// The interpreter failed, or the input is not a stream of instructions.
    #[error(transparent)]
    Interpreter(#[from] interp::ConformanceError),
    /// The verifier refused it; only verified programs are compiled.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It runs, but not by the requested executor.
    #[error("{wanted} does not run it: {why}")]
    NotCompiled {
        /// The requested executor.
        wanted: &'static str,
        /// The reason.
        why: String,
    },
    /// The run faulted.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// No frame could be made to run it on.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The buffer could not be read back.
    #[error("reading the buffer back: {0}")]
    Buffer(#[from] Errno),
}

/// Runs `program` (little-endian slots) with r1 = address of `memory`, r2 = its length, and returns
/// r0. `memory` is modified as by the program.
///
/// # Errors
///
/// [`ConformanceError`]; an interpreted stream may be one that no verifier would accept, a compiled
/// one may not.
pub fn run(program: &[u8], memory: &mut Vec<u8>, exec: Exec) -> Result<u64, ConformanceError> {
    if exec == Exec::Interp {
        return Ok(run_conformance(program, memory)?);
    }
    if program.is_empty() || !program.len().is_multiple_of(INSN_SIZE) {
        return Err(interp::ConformanceError::Length(program.len()).into());
    }
    let mut options = LoadOptions { workers: 1, exec, ..LoadOptions::default() };
    options.jit.cache = CodeCache::Off;
    let program = Program::from_linked(wrapped(program, memory), &options)?;
    if exec == Exec::Llvm {
        program.wait_for_tier2(TIER2_WAIT);
    }
    let status = program.exec_status();
    if status.runs != exec {
        let why = status.fallback.unwrap_or_else(|| "it took too long".to_owned());
        return Err(ConformanceError::NotCompiled { wanted: exec.name(), why });
    }
    program.run(&mut program.worker(0), &mut Frame::new(&[0; 64])?)?;
    let Some(map) = program.maps().map(0) else { return Err(Errno::ENOENT.into()) };
    let value = map.user().lookup(&0u32.to_ne_bytes(), 0)?;
    let (buffer, rest) = value.bytes().split_at(memory.len());
    memory.copy_from_slice(buffer);
    let mut r0 = [0; 8];
    r0.copy_from_slice(&rest[rest.len() - 8..]);
    Ok(u64::from_le_bytes(r0))
}

/// `int main() { *(u64 *)(memory + behind) = program(memory, len); return XDP_PASS; }`
fn wrapped(program: &[u8], memory: &[u8]) -> Linked {
    let behind = memory.len().next_multiple_of(8);
    let mut insns = address(1, 0).to_vec();
    insns.push(Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, memory.len() as i32));
    insns.push(Insn::new(BPF_JMP | BPF_CALL, 0, PSEUDO_CALL, 0, AFTER_CALL));
    insns.extend(address(1, behind as i32));
    insns.extend([
        Insn::new(BPF_STX | BPF_MEM | BPF_DW, 1, 0, 0, 0),
        Insn::new(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 2),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ]);
    let start = insns.len() as u32;
    insns.extend(program.chunks_exact(INSN_SIZE).map(|slot| {
        let mut bytes = [0; INSN_SIZE];
        bytes.copy_from_slice(slot);
        Insn::from_le_bytes(bytes)
    }));
    let mut buffer = MapDef::new("memory", MapType::Array, 4, behind as u32 + 8, 1);
    let mut initial = memory.to_vec();
    initial.resize(behind + 8, 0);
    buffer.initial = Some(initial);
    let function = |start, name: &str| Function {
        start,
        name: name.to_owned(),
        linkage: Linkage::Static,
        type_id: None,
    };
    Linked {
        name: "conformance".to_owned(),
        section: "xdp".to_owned(),
        attach: AttachType::Xdp,
        has_frags: false,
        license: "GPL".to_owned(),
        insns,
        functions: vec![function(0, "conformance"), function(start, "program")],
        lines: Vec::new(),
        maps: vec![buffer].into(),
        unresolved: Vec::new(),
        kfuncs: Vec::new(),
        btf: None,
        kernel_btf: Arc::new(Btf::default()),
    }
}

/// `register = memory + offset`
fn address(register: u8, offset: i32) -> [Insn; 2] {
    let load = Insn::new(BPF_LD | BPF_IMM | BPF_DW, register, PSEUDO_MAP_VALUE, 0, 0);
    [load, Insn::new(0, 0, 0, 0, offset)]
}

/// Number of the wrapper's slots after the call.
const AFTER_CALL: i32 = 5;
/// Longest wait for LLVM, more than any program of a suite takes.
const TIER2_WAIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(insns: &[Insn]) -> Vec<u8> {
        insns.iter().flat_map(|insn| insn.to_le_bytes()).collect()
    }

    #[test]
    fn a_stream_gives_the_same_in_interpreter_and_compiler() {
        let program = bytes(&[
            Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 0, 1, 0, 0),
            Insn::new(BPF_STX | BPF_ATOMIC | BPF_DW, 1, 2, 0, i32::from(BPF_ADD)),
            Insn::new(BPF_STX | BPF_MEM | BPF_B, 1, 2, 9, 0),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ]);
        for exec in [Exec::Interp, Exec::Jit] {
            let mut memory = vec![0x11; 10];
            let r0 = run(&program, &mut memory, exec).expect("a correct program");
            assert_eq!(r0, 0x1111_1111_1111_1111, "{exec:?}");
            assert_eq!(memory[0], 0x1b, "{exec:?}: the length was added");
            assert_eq!(memory[9], 10, "{exec:?}");
        }
    }

    #[test]
    fn what_is_no_program_is_refused_with_a_reason() {
        let mut memory = vec![];
        let outside = bytes(&[
            Insn::new(BPF_LDX | BPF_MEM | BPF_DW, 0, 1, 64, 0),
            Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
        ]);
        let error = run(&outside, &mut memory, Exec::Jit).expect_err("outside of the memory");
        assert!(error.to_string().contains("invalid access to map value"), "{error}");
        for odd in [&[][..], &[0; 7]] {
            assert!(run(odd, &mut memory, Exec::Jit).is_err());
        }
    }
}
