//! Helpers and kfuncs: functions that programs can call.
//!
//! Each is a plain function `fn(&mut Call, [u64; 5]) -> Result<u64, Stop>` that takes the registers
//! r1..r5 and returns r0. The interpreter and compiled code call the same function. Unless the
//! program was verified, a helper trusts no register: [`Call`] checks every map, buffer and size
//! argument again, and anything the verifier should have refused ends the run with a
//! [`Violation`](towpath_bpf::interp::Violation).
//!
//! **To add a helper**: write the function in the file of its group (or a new file with a `TABLE`),
//! add a line `(id::NAME, entry(function))` to the group's `TABLE` (`moving(function)` if it can
//! change where the packet begins or ends), and list a new file's table in [`TABLES`]. Expected
//! failures are `Ok(Errno::EINVAL.to_reg())`; `Err` is for what no verified program can do.
//!
//! **To add a kfunc**: the same with its name, `("bpf_name", entry(function))`, in
//! [`KFUNC_TABLES`].
//!
//! State that must outlive a call goes into [`Run`](crate::run::Run) (one run), [`crate::Worker`]
//! (one thread) or [`crate::program::Surroundings`] (everything). Memory handed to the program is
//! registered in `Run::extras` as long as the program may touch it.

mod absent;
mod arena;
mod call;
mod checksum;
mod conntrack;
mod control;
pub(crate) mod cost;
mod crypto;
mod dynptr;
mod entry_unsafe;
mod esp;
mod fdb;
mod fib;
mod format;
mod hints;
mod iterators;
mod lists;
mod map;
mod mtu;
mod objects;
mod packet;
mod print;
mod probe;
mod queue;
mod redirect;
mod ring;
mod socket;
mod strings;
mod sync;
mod syncookie;
mod task;
mod time;
mod timer;
mod trace;
mod trees;
mod tx_timestamp;
mod views;
mod xfrm;

/// Functions that compiled code calls without a helper's arguments.
pub(crate) mod direct {
    pub(crate) use super::checksum::difference;
    pub(crate) use super::mtu::{Linear, check as check_mtu};
    pub(crate) use super::queue::{dequeue as packet_dequeue_checked, packet as packet_dequeue};
    pub(crate) use super::redirect::{to_interface as redirect, to_map as redirect_map};
    pub(crate) use super::ring::{commit as ring_commit, reserve_record as ring_reserve};
    pub(crate) use super::time::jiffies_now as jiffies;
}

use std::sync::LazyLock;

use towpath_bpf::proto::KfuncProto;

pub(crate) use call::Call;
pub(crate) use conntrack::class_of;
pub(crate) use entry_unsafe::Helper;
use entry_unsafe::{entry, moving};
pub(crate) use syncookie::CookieSecret;
pub(crate) use time::time;

/// Helpers of one group, by number.
pub(crate) type Table = &'static [(u32, Helper)];

/// Kfuncs of one group, by name.
pub(crate) type KfuncTable = &'static [(&'static str, Helper)];

/// All groups of helpers.
const TABLES: &[Table] = &[
    absent::TABLE,
    checksum::TABLE,
    control::TABLE,
    fib::TABLE,
    map::TABLE,
    objects::TABLE,
    packet::TABLE,
    print::TABLE,
    probe::TABLE,
    mtu::TABLE,
    redirect::TABLE,
    ring::TABLE,
    socket::TABLE,
    strings::TABLE,
    syncookie::TABLE,
    task::TABLE,
    time::TABLE,
    timer::TABLE,
    trace::TABLE,
    views::TABLE,
];

/// All groups of kfuncs.
const KFUNC_TABLES: &[KfuncTable] = &[
    absent::KFUNCS,
    arena::KFUNCS,
    conntrack::KFUNCS,
    control::KFUNCS,
    crypto::KFUNCS,
    esp::KFUNCS,
    fdb::KFUNCS,
    hints::KFUNCS,
    iterators::KFUNCS,
    lists::KFUNCS,
    objects::KFUNCS,
    packet::KFUNCS,
    print::KFUNCS,
    probe::KFUNCS,
    queue::KFUNCS,
    redirect::KFUNCS,
    strings::KFUNCS,
    sync::KFUNCS,
    task::KFUNCS,
    timer::KFUNCS,
    trees::KFUNCS,
    tx_timestamp::KFUNCS,
    views::KFUNCS,
];

/// The helper with this number.
pub(crate) fn helper(id: u32) -> Option<Helper> {
    static BY_ID: LazyLock<Vec<Option<Helper>>> = LazyLock::new(|| {
        let all = || TABLES.iter().flat_map(|table| table.iter());
        let len = all().map(|&(id, _)| id as usize + 1).max().unwrap_or(0);
        let mut by_id = vec![None; len];
        for &(id, helper) in all() {
            by_id[id as usize] = Some(helper);
        }
        by_id
    });
    BY_ID.get(id as usize).copied().flatten()
}

/// The kfunc with this number ([`kfunc_number`]).
pub(crate) fn kfunc(number: u32) -> Option<Helper> {
    static BY_NUMBER: LazyLock<Vec<Helper>> =
        LazyLock::new(|| kfuncs().map(|&(_, kfunc)| kfunc).collect());
    BY_NUMBER.get(number as usize).copied()
}

/// The prototype of the kfunc with this number.
pub(crate) fn kfunc_proto(number: u32) -> Option<&'static KfuncProto> {
    static BY_NUMBER: LazyLock<Vec<Option<&'static KfuncProto>>> =
        LazyLock::new(|| kfuncs().map(|&(name, _)| towpath_bpf::proto::kfunc(name)).collect());
    BY_NUMBER.get(number as usize).copied().flatten()
}

/// The number of a kfunc for [`kfunc`].
pub(crate) fn kfunc_number(name: &str) -> Option<u32> {
    kfuncs().position(|&(known, _)| known == name).map(|number| number as u32)
}

fn kfuncs() -> impl Iterator<Item = &'static (&'static str, Helper)> {
    KFUNC_TABLES.iter().flat_map(|table| table.iter())
}

#[cfg(test)]
mod tests;
