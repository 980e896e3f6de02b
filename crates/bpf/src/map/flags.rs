//! Flag values of `bpf.h`, under the kernel's names.

/// Update: create or replace.
pub const BPF_ANY: u64 = 0;
/// Update: only create.
pub const BPF_NOEXIST: u64 = 1;
/// Update: only replace.
pub const BPF_EXIST: u64 = 2;
/// Look-up and update hold the value's `bpf_spin_lock` while copying.
pub const BPF_F_LOCK: u64 = 4;

/// Creation: allocate elements when they are needed.
pub const BPF_F_NO_PREALLOC: u32 = 1 << 0;
/// Creation: an LRU list for each CPU instead of a common one.
pub const BPF_F_NO_COMMON_LRU: u32 = 1 << 1;
/// Creation: `numa_node` is meaningful.
pub const BPF_F_NUMA_NODE: u32 = 1 << 2;
/// Creation: user space may only read.
pub const BPF_F_RDONLY: u32 = 1 << 3;
/// Creation: user space may only write.
pub const BPF_F_WRONLY: u32 = 1 << 4;
/// Creation: stack traces hold build ids.
pub const BPF_F_STACK_BUILD_ID: u32 = 1 << 5;
/// Creation: the hash seed is 0, so that iteration order is repeatable.
pub const BPF_F_ZERO_SEED: u32 = 1 << 6;
/// Creation: programs may only read.
pub const BPF_F_RDONLY_PROG: u32 = 1 << 7;
/// Creation: programs may only write.
pub const BPF_F_WRONLY_PROG: u32 = 1 << 8;
/// Creation: storage is copied to accepted sockets.
pub const BPF_F_CLONE: u32 = 1 << 9;
/// Creation: user space may map the values into its memory.
pub const BPF_F_MMAPABLE: u32 = 1 << 10;
/// Creation: perf events stay after the descriptor that set them is closed.
pub const BPF_F_PRESERVE_ELEMS: u32 = 1 << 11;
/// Creation: an inner map of a different size may take its place.
pub const BPF_F_INNER_MAP: u32 = 1 << 12;
/// Creation: a link pins the map (struct_ops).
pub const BPF_F_LINK: u32 = 1 << 13;
/// Creation: the arena faults on absent pages instead of adding them.
pub const BPF_F_SEGV_ON_FAULT: u32 = 1 << 17;
/// Creation: arena pointers are not converted to user addresses.
pub const BPF_F_NO_USER_CONV: u32 = 1 << 18;

/// Ring buffer: do not wake the consumer.
pub const BPF_RB_NO_WAKEUP: u64 = 1;
/// Ring buffer: wake the consumer always.
pub const BPF_RB_FORCE_WAKEUP: u64 = 2;

/// Creation flags that restrict user space and programs (`BPF_F_ACCESS_MASK`).
pub const ACCESS_MASK: u32 = BPF_F_RDONLY | BPF_F_WRONLY | BPF_F_RDONLY_PROG | BPF_F_WRONLY_PROG;
