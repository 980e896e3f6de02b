//! Tail calls that keep the frame pointer in place.
//!
//! In front of a tail call Cranelift removes the function's frame, and the called function makes a
//! new one. So the caller's frame pointer is written to the stack and read back by each program of
//! a chain, and each time waits for the previous one: five cycles, as much as the rest of a tail
//! call. If a frame is nothing but that pointer, the next function would make the same one: the
//! jump goes behind the instructions that make it.

use cranelift_codegen::CompiledCode;

/// `push rbp; mov rbp, rsp`: the first instructions of functions.
const MAKE: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];
/// `mov rsp, rbp; pop rbp; jmp r10`.
const LEAVE: [u8; 7] = [0x48, 0x89, 0xec, 0x5d, 0x41, 0xff, 0xe2];
/// `add r10, 4; jmp r10`.
const HAND_ON: [u8; 7] = [0x49, 0x83, 0xc2, MAKE.len() as u8, 0x41, 0xff, 0xe2];

/// Makes a function's tail calls pass on its frame, if the frame allows it.
///
/// # Errors
///
/// Fails if the function does not begin as targets of tail calls must.
pub(super) fn hand_on_frames(code: &mut [u8], compiled: &CompiledCode) -> Result<(), String> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(());
    }
    if !code.starts_with(&MAKE) {
        return Err("it makes no frame".to_owned());
    }
    let layout = compiled.buffer.frame_layout();
    if layout.is_none_or(|layout| layout.frame_to_fp_offset > 0) {
        return Ok(());
    }
    for site in compiled.buffer.call_sites() {
        // `ret_addr` is behind the jump, as it is behind a call.
        let end = site.ret_addr as usize;
        let jump = end.checked_sub(LEAVE.len()).and_then(|start| code.get_mut(start..end));
        if let Some(jump) = jump.filter(|jump| **jump == LEAVE) {
            jump.copy_from_slice(&HAND_ON);
        }
    }
    Ok(())
}
