//! What is in the maps before anything is measured: the same on both sides.

/// `FLOWS` of `bench/scale/flows.c`.
pub(crate) const FLOWS: u32 = 1_000_000;
/// `PLACES` there.
pub(crate) const PLACES: u32 = 131_072;
const PREFIXES: u32 = 300_000;

/// Calls `store` for every element: map, key and value.
pub(crate) fn fill(
    mut store: impl FnMut(&'static str, &[u8], &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let entry = [1u64.to_ne_bytes(), [0; 8]].concat();
    for number in 0..FLOWS {
        let key = flow(number);
        store("hash", &key, &entry)?;
        store("lru", &key, &entry)?;
        if number < PLACES {
            store("percpu_hash", &key, &entry)?;
        }
    }
    for number in 0..u64::from(PREFIXES) {
        let random = mix(number);
        // As in a table of the internet's routes, most have 24 bits.
        let bits = if random.is_multiple_of(2) { 24 } else { 12 + (random >> 1) as u32 % 21 };
        let address = (random >> 32) as u32;
        let key = [bits.to_ne_bytes(), address.to_ne_bytes()].concat();
        store("routes", &key, &number.to_ne_bytes())?;
    }
    // Every address has a route.
    store("routes", &[0; 8], &[0; 8])
}

/// `flow_of` of a number.
pub(crate) fn flow(number: u32) -> [u8; 16] {
    let mut key = [0; 16];
    key[..4].copy_from_slice(&number.to_ne_bytes());
    key[4..8].copy_from_slice(&0x0a00_0001u32.to_ne_bytes());
    key[10..12].copy_from_slice(&443u16.to_ne_bytes());
    key[12..].copy_from_slice(&6u32.to_ne_bytes());
    key
}

/// The first random number of a processor.
pub(crate) fn seed(cpu: usize) -> [u8; 8] {
    mix(cpu as u64 + 1).to_ne_bytes()
}

/// splitmix64
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
