//! Which helpers work with which kinds of map (`check_map_func_compatibility`).
//!
//! The rule has two halves: some kinds of map admit only a few helpers, and some helpers admit only
//! a few kinds of map. Both must hold.

use crate::program::MapType;

use super::id::*;

/// Whether a helper may be called with a map of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapRule {
    /// Yes.
    Allowed,
    /// No: this kind of map admits only other helpers.
    KindForbids,
    /// No: this helper wants other kinds of map.
    HelperForbids,
}

/// Whether `helper` may be called with a map of kind `kind`.
pub fn map_rule(kind: MapType, helper: u32) -> MapRule {
    if kind_admits(kind).is_some_and(|helpers| !helpers.contains(&helper)) {
        return MapRule::KindForbids;
    }
    if helper_admits(helper).is_some_and(|kinds| !kinds.contains(&kind)) {
        return MapRule::HelperForbids;
    }
    MapRule::Allowed
}

/// The only helpers that a kind of map admits; `None` when the kind does not restrict them.
fn kind_admits(kind: MapType) -> Option<&'static [u32]> {
    Some(match kind {
        MapType::ProgArray => &[TAIL_CALL],
        MapType::PerfEventArray => &[PERF_EVENT_READ, PERF_EVENT_OUTPUT, PERF_EVENT_READ_VALUE],
        MapType::Ringbuf => &[
            RINGBUF_OUTPUT,
            RINGBUF_RESERVE,
            RINGBUF_QUERY,
            RINGBUF_RESERVE_DYNPTR,
            RINGBUF_SUBMIT_DYNPTR,
            RINGBUF_DISCARD_DYNPTR,
        ],
        MapType::UserRingbuf => &[USER_RINGBUF_DRAIN],
        MapType::StackTrace => &[GET_STACKID],
        MapType::CgroupArray => &[SKB_UNDER_CGROUP, CURRENT_TASK_UNDER_CGROUP],
        MapType::CgroupStorage | MapType::PercpuCgroupStorage => &[GET_LOCAL_STORAGE],
        MapType::Devmap | MapType::DevmapHash => &[REDIRECT_MAP, MAP_LOOKUP_ELEM],
        MapType::Cpumap => &[REDIRECT_MAP],
        MapType::Xskmap => &[REDIRECT_MAP, MAP_LOOKUP_ELEM],
        MapType::ArrayOfMaps | MapType::HashOfMaps => &[MAP_LOOKUP_ELEM],
        MapType::Sockmap => SOCKMAP,
        MapType::Sockhash => SOCKHASH,
        MapType::ReuseportSockarray => &[SK_SELECT_REUSEPORT],
        MapType::Queue | MapType::Stack => &[MAP_PEEK_ELEM, MAP_POP_ELEM, MAP_PUSH_ELEM],
        MapType::SkStorage => &[SK_STORAGE_GET, SK_STORAGE_DELETE, KPTR_XCHG],
        MapType::InodeStorage => &[INODE_STORAGE_GET, INODE_STORAGE_DELETE, KPTR_XCHG],
        MapType::TaskStorage => &[TASK_STORAGE_GET, TASK_STORAGE_DELETE, KPTR_XCHG],
        MapType::CgrpStorage => &[CGRP_STORAGE_GET, CGRP_STORAGE_DELETE, KPTR_XCHG],
        MapType::BloomFilter => &[MAP_PEEK_ELEM, MAP_PUSH_ELEM],
        MapType::StructOps | MapType::Arena | MapType::InsnArray => &[],
        MapType::Hash
        | MapType::Array
        | MapType::PercpuHash
        | MapType::PercpuArray
        | MapType::LruHash
        | MapType::LruPercpuHash
        | MapType::Rhash
        | MapType::LpmTrie => return None,
    })
}

/// The only kinds of map that a helper admits; `None` when the helper does not restrict them.
fn helper_admits(helper: u32) -> Option<&'static [MapType]> {
    use MapType::*;
    Some(match helper {
        TAIL_CALL => &[ProgArray],
        PERF_EVENT_READ | PERF_EVENT_OUTPUT | PERF_EVENT_READ_VALUE => &[PerfEventArray],
        RINGBUF_OUTPUT
        | RINGBUF_RESERVE
        | RINGBUF_QUERY
        | RINGBUF_RESERVE_DYNPTR
        | RINGBUF_SUBMIT_DYNPTR
        | RINGBUF_DISCARD_DYNPTR => &[Ringbuf],
        USER_RINGBUF_DRAIN => &[UserRingbuf],
        GET_STACKID => &[StackTrace],
        CURRENT_TASK_UNDER_CGROUP | SKB_UNDER_CGROUP => &[CgroupArray],
        REDIRECT_MAP => &[Devmap, DevmapHash, Cpumap, Xskmap],
        GET_LOCAL_STORAGE => &[CgroupStorage, PercpuCgroupStorage],
        MAP_PEEK_ELEM | MAP_PUSH_ELEM => &[Queue, Stack, BloomFilter],
        MAP_POP_ELEM => &[Queue, Stack],
        MAP_LOOKUP_PERCPU_ELEM => &[PercpuArray, PercpuHash, LruPercpuHash],
        TASK_STORAGE_GET | TASK_STORAGE_DELETE => &[TaskStorage],
        CGRP_STORAGE_GET | CGRP_STORAGE_DELETE => &[CgrpStorage],
        _ => return None,
    })
}

/// XDP programs may change sockmaps: no socket is locked where they run (`may_update_sockmap`).
const SOCKMAP: &[u32] = &[
    SK_REDIRECT_MAP,
    SOCK_MAP_UPDATE,
    MSG_REDIRECT_MAP,
    SK_SELECT_REUSEPORT,
    MAP_LOOKUP_ELEM,
    MAP_UPDATE_ELEM,
    MAP_DELETE_ELEM,
];
const SOCKHASH: &[u32] = &[
    SK_REDIRECT_HASH,
    SOCK_HASH_UPDATE,
    MSG_REDIRECT_HASH,
    SK_SELECT_REUSEPORT,
    MAP_LOOKUP_ELEM,
    MAP_UPDATE_ELEM,
    MAP_DELETE_ELEM,
];
