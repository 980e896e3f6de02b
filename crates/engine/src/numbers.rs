//! Port numbers, and a hash table for lookups by number.

/// A port's number inside one engine. Numbers of removed ports are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PortId(pub u32);

/// A hash table with non-zero 32-bit keys, at most half full. Each redirected frame looks one key
/// up, e.g. in the table of ports by ifindex.
#[derive(Debug, Default)]
pub struct Numbers<T> {
    /// Slots: a power of two, at least 2, or none.
    entries: Box<[(u32, T)]>,
}

impl<T: Copy + Default> Numbers<T> {
    /// Makes a table of `things`.
    pub fn new(things: &[(u32, T)]) -> Numbers<T> {
        let size = (things.len() * 2).next_power_of_two().max(2);
        let mut entries = vec![(0, T::default()); size].into_boxed_slice();
        for &(number, thing) in things {
            let mut at = Self::place(number, size);
            while entries[at].0 != 0 {
                at = (at + 1) & (size - 1);
            }
            entries[at] = (number, thing);
        }
        Numbers { entries }
    }

    /// The value stored for a number.
    #[inline]
    pub fn get(&self, number: u32) -> Option<T> {
        let size = self.entries.len();
        let mut at = Self::place(number, size);
        loop {
            let (known, thing) = *self.entries.get(at)?;
            if known == number && number != 0 {
                return Some(thing);
            }
            if known == 0 {
                return None;
            }
            at = (at + 1) & (size - 1);
        }
    }

    /// The slot where a search starts, by Fibonacci hashing: the high bits of the product depend on
    /// all bits of the number, while its low bits are equal for multiples of a power of two.
    #[inline]
    fn place(number: u32, size: usize) -> usize {
        let mixed = u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> ((u64::BITS - size.trailing_zeros()) % u64::BITS)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found_by_ifindex() {
        assert_eq!(Numbers::<PortId>::default().get(1), None);
        let ports: Vec<_> = (1..100).map(|i| (i * 64, PortId(i))).collect();
        let table = Numbers::new(&ports);
        assert!(ports.iter().all(|&(ifindex, id)| table.get(ifindex) == Some(id)));
        assert_eq!((table.get(0), table.get(65), table.get(6400)), (None, None, None));
    }

    /// Keys with regular steps, many with equal low bits.
    #[test]
    fn numbers_are_where_the_search_begins() {
        for step in [1, 2, 3, 10, 64, 100, 256, 1000, 4096, 1 << 20] {
            let things: Vec<_> = (1..100).map(|i| (i * step, i)).collect();
            let table = Numbers::new(&things);
            let size = table.entries.len();
            let probes = |number: u32| {
                let place = table.entries.iter().position(|entry| entry.0 == number).unwrap();
                place.wrapping_sub(Numbers::<u32>::place(number, size)) % size + 1
            };
            let all: usize = things.iter().map(|&(number, _)| probes(number)).sum();
            assert!(all < 99 * 3 / 2, "multiples of {step}: {all} probes for 99 numbers");
        }
    }
}
