//! A Debian kernel in a guest: its bonding driver as a partner, with two cables to us, and its
//! virtio-net driver at a port of ours.
//!
//! Needs, beside what the other tests here need, QEMU, busybox and a kernel image
//! (`scripts/install-deps.sh test`). A guest's processor is emulated where KVM doesn't work.

mod bonds;
mod offload;
mod scene;
mod switch;
mod vhost;
mod vm;
