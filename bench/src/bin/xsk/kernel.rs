//! The kernel's AF_XDP in copy mode on a veth, received by the same application.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use std::os::fd::AsFd as _;
use towpath_bench::world::{WORKER_CPU, World, index, pin, rate};
use towpath_kernel::{AttachMode, Steering, Unserved};

use crate::application::{Application, Shape};

/// Why there is nothing to compare with.
pub(crate) fn unavailable() -> Option<String> {
    if let Err(why) = towpath_kernel::Kernel::open() {
        return Some(why.to_string());
    }
    // Everything that is made here goes with this thread.
    let isolated = towpath_kernel::isolate_network();
    isolated.err().map(|errno| format!("a network namespace: {errno}"))
}

/// Frames a second that an application receives. The kernel makes them on the first core, and the
/// application has the second.
pub(crate) fn receive_rate(window: Duration, shape: Shape) -> anyhow::Result<f64> {
    let world = World::new(64)?;
    let near = index("near")?;
    let (mut application, socket) = Application::open_kernel(near, shape)?;
    let steering = Steering::new(1, Unserved::Pass)?;
    steering.set(0, socket.as_fd())?;
    let _link = steering.attach(near, AttachMode::Native)?;
    let received = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let (count, told) = (Arc::clone(&received), Arc::clone(&stop));
    let thread = std::thread::spawn(move || {
        pin(WORKER_CPU);
        while !told.load(Ordering::Relaxed) {
            match application.turn() {
                0 => std::hint::spin_loop(),
                more => drop(count.fetch_add(more as u64, Ordering::Relaxed)),
            }
        }
    });
    let sender = world.sender()?;
    let found = rate(window, || Ok(received.load(Ordering::Relaxed)));
    drop(sender);
    stop.store(true, Ordering::Relaxed);
    thread.join().map_err(|_panic| anyhow::anyhow!("the application panicked"))?;
    found
}
