//! Waiting times of frames: a histogram with buckets an eighth apart, in which old samples fade.

/// A histogram of times.
#[derive(Debug)]
pub struct Waits {
    counts: Box<[u32; BUCKETS]>,
    total: u32,
}

impl Default for Waits {
    fn default() -> Self {
        Waits { counts: Box::new([0; BUCKETS]), total: 0 }
    }
}

impl Waits {
    /// Adds a time in nanoseconds.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        if self.total >= FADES_AT {
            self.fade();
        }
    }

    /// Halves the weight of earlier samples.
    #[cold]
    fn fade(&mut self) {
        self.counts.iter_mut().for_each(|count| *count /= 2);
        self.total = self.counts.iter().sum();
    }

    /// The quantile `part` (0 to 1) of the times, rounded up by at most an eighth; 0 if there are
    /// none.
    pub fn quantile(&self, part: f64) -> u64 {
        let rank = (f64::from(self.total) * part).ceil() as u32;
        let mut seen = 0;
        let reached = self.counts.iter().position(|&count| {
            seen += count;
            seen >= rank.max(1)
        });
        reached.map_or(0, end_of)
    }
}

/// The bucket of a time: times below 8 ns have a bucket each; above, each doubling has eight.
#[inline]
fn bucket(ns: u64) -> usize {
    if ns < 8 {
        return ns as usize;
    }
    let shift = ns.ilog2() - 3;
    (shift as usize + 1) * 8 + (ns >> shift & 7) as usize
}

/// The longest time of a bucket.
fn end_of(bucket: usize) -> u64 {
    let (doublings, step) = (bucket / 8, (bucket % 8) as u64);
    if doublings == 0 {
        return step;
    }
    let shift = doublings as u32 - 1;
    // The last one ends where 64 bits do.
    ((8 + step) << shift) + ((1 << shift) - 1)
}

/// Number of buckets: eight for each doubling from 8 ns to all 64 bits, and those below.
const BUCKETS: usize = 8 * 62;
/// Number of samples after which all fade: about a tenth of a second at a million packets per
/// second.
const FADES_AT: u32 = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_a_bucket_that_is_not_much_longer() {
        let times = (0..2000).chain((11..64).flat_map(|bits| {
            let power = 1u64 << bits;
            [power - 1, power, power + power / 3]
        }));
        let mut last = (0, 0);
        for ns in times.chain([u64::MAX]) {
            let bucket = bucket(ns);
            let end = end_of(bucket);
            assert!(end >= ns && end - ns <= ns / 8, "{ns}: {bucket}, up to {end}");
            assert!(last.0 > ns || last.1 <= bucket, "{ns}");
            last = (ns, bucket);
        }
    }

    #[test]
    fn quantiles_follow_the_times_and_forget() {
        let mut waits = Waits::default();
        assert_eq!(waits.quantile(0.5), 0);
        (0..98).for_each(|_| waits.add(100));
        waits.add(1_000_000);
        waits.add(1_000_000);
        assert_eq!((waits.quantile(0.5), waits.quantile(0.98)), (103, 103));
        assert!(waits.quantile(0.99) >= 1_000_000);
        (0..4 * FADES_AT).for_each(|_| waits.add(5000));
        assert_eq!(waits.quantile(0.001), waits.quantile(0.999), "the first ones have faded");
    }
}
