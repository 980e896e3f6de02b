//! A limit of frames per second: a token bucket. On receive, excess frames stay in the queue; on
//! transmit they are dropped.

use std::time::Instant;

use towpath_xdp::{Frame, Pool};

use super::{Layer, Stage};

/// Limits in frames per second; `None` for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limit {
    /// Receive limit of each queue.
    pub rx: Option<u64>,
    /// Transmit limit of each worker.
    pub tx: Option<u64>,
    /// Frames that may pass at once after a pause.
    pub burst: u32,
}

impl Layer for Limit {
    fn rx(&self, _queue: u32) -> Box<dyn Stage> {
        Box::new(Bucket::new(self.rx, self.burst))
    }

    fn tx(&self, _worker: u32) -> Box<dyn Stage> {
        Box::new(Bucket::new(self.tx, self.burst))
    }

    fn details(&self) -> (&'static str, String) {
        let show = |limit: Option<u64>| limit.map_or("none".to_owned(), |rate| format!("{rate}/s"));
        ("limit", format!("in {}, out {}", show(self.rx), show(self.tx)))
    }
}

struct Bucket {
    rate: Option<u64>,
    burst: f64,
    tokens: f64,
    filled: Option<Instant>,
}

impl Bucket {
    fn new(rate: Option<u64>, burst: u32) -> Bucket {
        let burst = f64::from(burst.max(1));
        Bucket { rate, burst, tokens: burst, filled: None }
    }
}

impl Stage for Bucket {
    fn room(&mut self, limit: usize) -> usize {
        let Some(rate) = self.rate else { return limit };
        let now = Instant::now();
        let past = now.duration_since(self.filled.replace(now).unwrap_or(now)).as_secs_f64();
        self.tokens = (self.tokens + past * rate as f64).min(self.burst);
        limit.min(self.tokens as usize)
    }

    fn pass(&mut self, frames: &mut Vec<Frame>, start: usize, _pool: &mut Pool) {
        self.tokens -= (frames.len() - start) as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_runs_dry_and_fills_again() {
        let arena = towpath_xdp::Arena::new(8).unwrap();
        let mut pool = Pool::new(&arena);
        let mut bucket = Bucket::new(Some(1000), 2);
        assert_eq!(bucket.room(64), 2);
        let mut frames = vec![pool.frame(&[1; 20]).unwrap().unwrap()];
        bucket.pass(&mut frames, 0, &mut pool);
        bucket.pass(&mut frames, 0, &mut pool);
        assert_eq!(bucket.room(64), 0);
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(bucket.room(64), 2);
        assert_eq!(Bucket::new(None, 0).room(64), 64);
    }
}
