//! Elements by rank, the lowest first: the order of the ranked queues.
//!
//! As proposed for the kernel ("xdp: Add packet queueing and scheduling capabilities", July 2022):
//! two windows of as many ranks as the map says lie one behind the other, and each rank has a
//! bucket, first in, first out. When the first window is used up it becomes the one behind the
//! second. Buckets in use are marked by bits, and words of these bits by further bits, so that no
//! operation takes longer with more elements.

use towpath_bpf::Errno;

/// Elements that are numbers below a capacity, in the order of their ranks.
#[derive(Debug)]
pub struct Ranks {
    capacity: u32,
    /// Ranks in a window, a power of two.
    range: u32,
    /// The lowest rank of the first window.
    lowest: u64,
    /// Index of the first of the two windows.
    first: usize,
    windows: [Window; 2],
    /// For each element, the next one in its bucket, or the next unused one.
    next: Box<[u32]>,
    /// The head of the list of elements that are unused again, their number, and the first element
    /// that was never used: memory is touched when it is needed.
    unused: u32,
    unused_count: u32,
    fresh: u32,
    count: u32,
}

/// The buckets of a window's ranks.
#[derive(Debug)]
struct Window {
    buckets: Box<[Bucket]>,
    /// A bit for each bucket in use, then a bit for each word of those that is not 0, and so on;
    /// the last is one word.
    levels: Vec<Box<[u64]>>,
    count: u32,
}

/// Elements of one rank. Valid while its bit is set.
#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    oldest: u32,
    newest: u32,
}

/// An element and its rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranked {
    /// The element's number.
    pub element: u32,
    /// Its rank, or the last one for which there was a bucket.
    pub rank: u64,
}

impl Ranks {
    /// Room for `capacity` elements, and two windows of `range` ranks (a power of two).
    pub fn new(capacity: u32, range: u32) -> Ranks {
        assert!(range.is_power_of_two(), "the map's definition was checked");
        Ranks {
            capacity,
            range,
            lowest: 0,
            first: 0,
            windows: [Window::new(range), Window::new(range)],
            next: vec![0; capacity as usize].into(),
            unused: 0,
            unused_count: 0,
            fresh: 0,
            count: 0,
        }
    }

    /// Number of elements.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The largest number of elements.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Adds an element, behind those of its rank; returns its number. Ranks past both windows count
    /// as the last one of the second. `ERANGE`: the rank is below the windows; `EOVERFLOW`: there
    /// is no room for more elements.
    #[inline]
    pub fn push(&mut self, rank: u64) -> Result<u32, Errno> {
        let Some(ahead) = rank.checked_sub(self.lowest) else { return Err(Errno::ERANGE) };
        if self.count == self.capacity {
            return Err(Errno::EOVERFLOW);
        }
        let element = self.take_unused();
        let range = u64::from(self.range);
        let (which, bucket) = match ahead.checked_sub(range) {
            None => (self.first, ahead),
            Some(behind) => (1 - self.first, behind.min(range - 1)),
        };
        let window = &mut self.windows[which];
        if let Some(before) = window.append(bucket as u32, element) {
            self.next[before as usize] = element;
        }
        self.count += 1;
        debug_assert_eq!(self.windows.iter().map(|it| it.count).sum::<u32>(), self.count);
        Ok(element)
    }

    /// Takes the element that comes next. Its number may be used again.
    #[inline]
    pub fn pop(&mut self) -> Option<Ranked> {
        if self.count == 0 {
            return None;
        }
        if self.windows[self.first].count == 0 {
            self.first = 1 - self.first;
            self.lowest = self.lowest.saturating_add(self.range.into());
        }
        let (bucket, element) = self.windows[self.first].take_oldest(&self.next);
        self.next[element as usize] = self.unused;
        (self.unused, self.unused_count) = (element, self.unused_count + 1);
        self.count -= 1;
        Some(Ranked { element, rank: self.lowest + u64::from(bucket) })
    }

    /// The element that comes next; it stays.
    pub fn peek(&self) -> Option<Ranked> {
        let (window, ahead) = match (self.count, self.windows[self.first].count) {
            (0, _) => return None,
            (_, 0) => (1 - self.first, self.range),
            _ => (self.first, 0),
        };
        let window = &self.windows[window];
        let bucket = window.lowest();
        let element = window.buckets[bucket as usize].oldest;
        Some(Ranked { element, rank: self.lowest + u64::from(ahead) + u64::from(bucket) })
    }

    #[inline]
    fn take_unused(&mut self) -> u32 {
        if self.unused_count == 0 {
            self.fresh += 1;
            return self.fresh - 1;
        }
        let element = self.unused;
        (self.unused, self.unused_count) = (self.next[element as usize], self.unused_count - 1);
        element
    }
}

impl Window {
    fn new(range: u32) -> Window {
        let mut levels = Vec::new();
        let mut bits = range as usize;
        loop {
            let words = bits.div_ceil(64);
            levels.push(vec![0; words].into_boxed_slice());
            if words == 1 {
                break;
            }
            bits = words;
        }
        Window { buckets: vec![Bucket::default(); range as usize].into(), levels, count: 0 }
    }

    /// Puts an element behind the newest one of a bucket, and gives that one, if there is one.
    #[inline]
    fn append(&mut self, bucket: u32, element: u32) -> Option<u32> {
        self.count += 1;
        let place = &mut self.buckets[bucket as usize];
        if self.levels[0][bucket as usize / 64] >> (bucket % 64) & 1 == 1 {
            return Some(std::mem::replace(&mut place.newest, element));
        }
        *place = Bucket { oldest: element, newest: element };
        let mut bit = bucket as usize;
        for level in &mut self.levels {
            let word = &mut level[bit / 64];
            let was_empty = *word == 0;
            *word |= 1 << (bit % 64);
            if !was_empty {
                break;
            }
            bit /= 64;
        }
        None
    }

    /// The first bucket in use; there is one.
    #[inline]
    fn lowest(&self) -> u32 {
        debug_assert!(self.count > 0, "somebody is in it");
        let down = self.levels.iter().rev();
        let bucket = down.fold(0, |at, level| at * 64 + level[at].trailing_zeros() as usize);
        bucket as u32
    }

    /// Takes the oldest element of the first bucket in use; returns both.
    #[inline]
    fn take_oldest(&mut self, next: &[u32]) -> (u32, u32) {
        let bucket = self.lowest();
        self.count -= 1;
        let place = &mut self.buckets[bucket as usize];
        let element = place.oldest;
        if element != place.newest {
            place.oldest = next[element as usize];
            return (bucket, element);
        }
        let mut bit = bucket as usize;
        for level in &mut self.levels {
            let word = &mut level[bit / 64];
            *word &= !(1 << (bit % 64));
            if *word != 0 {
                break;
            }
            bit /= 64;
        }
        (bucket, element)
    }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    /// The proposal, written down plainly.
    struct Model {
        lowest: u64,
        range: u64,
        capacity: usize,
        /// Rank as it counts, number of the push, element.
        elements: Vec<(u64, u64, u32)>,
    }

    impl Model {
        fn counted(&self, rank: u64) -> Result<u64, Errno> {
            if rank < self.lowest {
                return Err(Errno::ERANGE);
            }
            if self.elements.len() == self.capacity {
                return Err(Errno::EOVERFLOW);
            }
            Ok(rank.min(self.lowest.saturating_add(2 * self.range - 1)))
        }

        fn pop(&mut self) -> Option<Ranked> {
            let (at, _) = self.elements.iter().enumerate().min_by_key(|(_, it)| (it.0, it.1))?;
            let (rank, _, element) = self.elements.remove(at);
            if rank >= self.lowest + self.range {
                self.lowest += self.range;
            }
            Some(Ranked { element, rank })
        }
    }

    #[test]
    fn random_operations_agree_with_the_proposal() {
        for (range, capacity) in [(1u32, 3u32), (8, 5), (64, 100), (128, 40), (8192, 300)] {
            let mut ranks = Ranks::new(capacity, range);
            let (range, capacity) = (u64::from(range), capacity as usize);
            let mut model = Model { lowest: 0, range, capacity, elements: Vec::new() };
            let mut random = Rng::with_seed(range);
            for step in 0..20_000 {
                if random.u64(..16) < 8 {
                    let rank = model.lowest.saturating_sub(1) + random.u64(..3 * range);
                    let (counted, pushed) = (model.counted(rank), ranks.push(rank));
                    assert_eq!(counted.err(), pushed.err(), "{range} {step}");
                    if let (Ok(counted), Ok(element)) = (counted, pushed) {
                        assert!(model.elements.iter().all(|it| it.2 != element), "it is new");
                        model.elements.push((counted, step, element));
                    }
                } else {
                    let next = ranks.peek();
                    let popped = ranks.pop();
                    assert_eq!((next, popped), (popped, model.pop()), "{range} {step}");
                }
                assert_eq!(ranks.count() as usize, model.elements.len());
            }
        }
    }

    #[test]
    fn windows_move_when_the_first_is_used_up() {
        let mut ranks = Ranks::new(8, 4);
        for rank in [5, 0, 100] {
            ranks.push(rank).expect("there is room");
        }
        let popped = |ranks: &mut Ranks| ranks.pop().map(|it| it.rank);
        assert_eq!(popped(&mut ranks), Some(0));
        assert_eq!(popped(&mut ranks), Some(5), "the second window is the first now");
        assert_eq!(ranks.push(3), Err(Errno::ERANGE));
        assert_eq!(popped(&mut ranks), Some(7), "100 was cut off where the windows ended");
        assert_eq!((popped(&mut ranks), ranks.peek()), (None, None));
        ranks.push(4).expect("an empty queue keeps its window");
    }
}
