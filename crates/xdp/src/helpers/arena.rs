//! Pages of arenas, and counts of maps.

use towpath_bpf::interp::Stop;

use super::call::status;
use super::{Call, KfuncTable, entry};

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_arena_alloc_pages", entry(alloc)),
    ("bpf_arena_free_pages", entry(free)),
    ("bpf_arena_reserve_pages", entry(reserve)),
    ("bpf_map_sum_elem_count", entry(element_count)),
];

/// `bpf_arena_alloc_pages(map, addr, page_cnt, node, flags)`: the first page, or 0.
fn alloc(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_arena_alloc_pages", &args, 1)?;
    let [_, addr, count, _, flags] = args;
    let pages = map.arena().filter(|_| flags == 0);
    Ok(pages.and_then(|arena| arena.alloc_pages(addr, count as u32)).unwrap_or(0))
}

/// `bpf_arena_free_pages(map, addr, page_cnt)`
fn free(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_arena_free_pages", &args, 1)?;
    if let Some(arena) = map.arena() {
        arena.free_pages(args[1], args[2] as u32);
    }
    Ok(0)
}

/// `bpf_arena_reserve_pages(map, addr, page_cnt)`
fn reserve(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_arena_reserve_pages", &args, 1)?;
    let reserved = map.arena().map(|arena| arena.reserve_pages(args[1], args[2] as u32));
    Ok(status(reserved.unwrap_or(Err(towpath_bpf::Errno::EINVAL))))
}

/// `bpf_map_sum_elem_count(map)`
fn element_count(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let map = call.map("bpf_map_sum_elem_count", &args, 1)?;
    Ok(map.count().unwrap_or(0))
}
