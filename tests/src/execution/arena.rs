//! Arenas as a process has touched them: every other page is there, on both sides the same.

use towpath_kernel::KernelMap;
use towpath_maps::Map;

use super::contents::Contents;

/// Pages looked at, from the first one on.
const PAGES: usize = 4;
const PAGE_BYTES: usize = 4096;

/// Offsets of the pages that are touched. What is read is touched too, so the others are not.
fn touched() -> impl Iterator<Item = usize> {
    (0..PAGES).step_by(2).map(|page| page * PAGE_BYTES)
}

/// Bytes that differ from their neighbours, and from page to page.
fn pattern(offset: usize) -> [u8; PAGE_BYTES] {
    std::array::from_fn(|at| (at * 37 + offset / PAGE_BYTES * 11 + (at >> 8) + 1) as u8)
}

/// Touches an arena of ours.
pub(super) fn touch(map: &Map) {
    let Some(arena) = map.arena() else { return };
    for offset in touched() {
        // What is too small for a page has none.
        let _small = arena.write(arena.user_start() + offset as u64, &pattern(offset));
    }
}

/// Touches one of the kernel's; other kinds are left alone.
pub(super) fn touch_in_kernel(map: &KernelMap) {
    for offset in touched() {
        let _small = map.write_arena(offset, &pattern(offset));
    }
}

/// The contents of those pages.
pub(super) fn read(copy: impl Fn(usize, &mut [u8]) -> bool) -> Option<Contents> {
    let page = |offset: usize| {
        let mut bytes = vec![0; PAGE_BYTES];
        copy(offset, &mut bytes).then(|| (offset.to_be_bytes().to_vec(), bytes))
    };
    Some(touched().filter_map(page).collect())
}
