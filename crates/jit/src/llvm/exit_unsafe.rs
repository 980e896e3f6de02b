//! The end of the process while LLVM is at work: exit(3) runs the destructors of its library, under
//! the feet of the thread that compiles.
//!
//! The last registered handler is called first, so that this one comes before the destructors of
//! everything that was there when the library was opened. While it is being opened, and for statics
//! that LLVM makes when it is first used, this comes too late: the main thread waits before, if it
//! asked for a compilation, and so does a caller of [`crate::stop_compiling`].

#![expect(unsafe_code, reason = "a function that exit(3) calls")]

/// Has the end of the process wait for a compilation.
#[cfg(target_env = "gnu")]
pub(super) fn wait_at_exit() {
    // SAFETY: the function is valid for ever, and takes what it is called with. Without memory for
    // it the process ends as it does without us.
    unsafe { on_exit(before_exit, std::ptr::null_mut()) };
}

/// Other C libraries don't tell their functions how the process ends.
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
    // It does not come back from LLVM: then nothing of LLVM's may be taken down.
    // SAFETY: null stands for all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    // SAFETY: it ends the process, of which nothing is needed any more.
    unsafe { libc::_exit(status) };
}
