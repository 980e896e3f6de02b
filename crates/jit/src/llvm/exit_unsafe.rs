//! The end of the process during a compilation: exit(3) runs the destructors of LLVM's library
//! while the compiling thread still uses it.
//!
//! The last registered handler is called first, so this one comes before the destructors of all
//! objects that existed when the library was opened. While it is being opened, and for statics that
//! LLVM makes at its first use, this is too late: the main thread waits earlier, if it asked for a
//! compilation, and so does a caller of [`crate::stop_compiling`].

#![expect(unsafe_code, reason = "a function that exit(3) calls")]

/// Makes the end of the process wait for a compilation.
#[cfg(target_env = "gnu")]
pub(super) fn wait_at_exit() {
    // SAFETY: the function is valid for ever, and has the parameters that it is called with.
    // Without memory for the registration the process ends as it would without this.
    unsafe { on_exit(before_exit, std::ptr::null_mut()) };
}

/// Other C libraries don't tell their functions the exit status of the process.
#[cfg(not(target_env = "gnu"))]
pub(super) fn wait_at_exit() {}

#[cfg(target_env = "gnu")]
unsafe extern "C" {
    fn on_exit(
        function: extern "C" fn(libc::c_int, *mut libc::c_void),
        argument: *mut libc::c_void,
    ) -> libc::c_int;
}

#[cfg(target_env = "gnu")]
extern "C" fn before_exit(status: libc::c_int, _argument: *mut libc::c_void) {
    if crate::stop_compiling() {
        return;
    }
    // The thread does not return from LLVM: then LLVM's objects must not be destroyed.
    // SAFETY: null stands for all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: it ends the process, whose state is not needed any more.
    unsafe { libc::_exit(status) };
}
