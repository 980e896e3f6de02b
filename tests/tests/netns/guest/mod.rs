//! The Linux bonding driver as a partner: a Debian kernel in a guest, with two cables to us.
//!
//! Needs, beside what the other tests here need, QEMU, busybox and a kernel image
//! (`scripts/install-deps.sh test`). A guest's processor is emulated where KVM doesn't work.

mod bonds;
mod scene;
mod switch;
mod vm;
