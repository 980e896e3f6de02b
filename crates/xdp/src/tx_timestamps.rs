//! Requests of programs for the time at which a frame was sent (`bpf_xdp_request_tx_timestamp`),
//! until it is known.
//!
//! The frame carries only the number of its request. The request ends with the frame: its sender
//! reports the time, and a frame that is given back before was not sent. Either is reported once,
//! in the ring that the program named; a ring that no longer has a user gets no record.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use towpath_bpf::Errno;
use towpath_maps::Map;

/// Requests of all frames of an arena.
#[derive(Debug, Default)]
pub struct TxTimestamps(Mutex<Requests>);

#[derive(Debug, Default)]
struct Requests {
    /// The requests, by number.
    places: Vec<Option<Request>>,
    free: Vec<u16>,
}

#[derive(Debug)]
struct Request {
    ring: Weak<Map>,
    /// The program's cookie for the frame.
    cookie: u64,
}

/// A frame that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The time at which its port took it, in nanoseconds of `CLOCK_TAI`.
    pub timestamp_ns: u64,
    /// The ifindex of the port.
    pub ifindex: u32,
}

impl TxTimestamps {
    /// Notes a request; returns its number. `EINVAL`: the map is no ring buffer; `ENOMEM`: all
    /// numbers are taken by requests of frames on their way.
    pub(crate) fn request(&self, ring: &Arc<Map>, cookie: u64) -> Result<u16, Errno> {
        ring.ringbuf().ok_or(Errno::EINVAL)?;
        let Requests { places, free } = &mut *self.0.lock();
        let request = Request { ring: Arc::downgrade(ring), cookie };
        if let Some(number) = free.pop() {
            places[usize::from(number)] = Some(request);
            return Ok(number);
        }
        let number = u16::try_from(places.len()).map_err(|_too_many| Errno::ENOMEM)?;
        places.push(Some(request));
        Ok(number)
    }

    /// Ends a request: its frame was sent, or is gone. A record for which the ring has no room is
    /// counted there as lost. The request is pending until the record can be read.
    pub fn end(&self, number: u16, sent: Option<Sent>) {
        let mut requests = self.0.lock();
        let request = requests.places.get_mut(usize::from(number)).and_then(Option::take);
        drop(requests);
        let Some(request) = request else {
            debug_assert!(false, "a request ends once");
            return;
        };
        request.report(sent);
        self.0.lock().free.push(number);
    }

    /// Requests that have not ended.
    pub fn pending(&self) -> usize {
        let requests = self.0.lock();
        requests.places.len() - requests.free.len()
    }
}

impl Request {
    fn report(self, sent: Option<Sent>) {
        let ring = self.ring.upgrade();
        if let Some(ring) = ring.as_ref().and_then(|map| map.ringbuf()) {
            let _counted = ring.output(&record(self.cookie, sent), 0);
        }
    }
}

/// `struct xdp_tx_timestamp` of `programs/include/hints.h`.
fn record(cookie: u64, sent: Option<Sent>) -> [u8; 24] {
    let Sent { timestamp_ns, ifindex } = sent.unwrap_or(Sent { timestamp_ns: 0, ifindex: 0 });
    let mut record = [0; 24];
    record[..8].copy_from_slice(&cookie.to_ne_bytes());
    record[8..16].copy_from_slice(&timestamp_ns.to_ne_bytes());
    record[16..20].copy_from_slice(&ifindex.to_ne_bytes());
    record
}

#[cfg(test)]
mod tests {
    use towpath_bpf::MapDef;
    use towpath_bpf::program::MapType;
    use towpath_maps::{CreateOptions, Domain};

    use super::*;
    use crate::{Arena, Frame, Pool};

    fn ring(bytes: u32) -> Arc<Map> {
        let def = MapDef::new("told", MapType::Ringbuf, 0, 0, bytes);
        Map::create(&def, &CreateOptions::new(Domain::new(1))).expect("a good ring")
    }

    fn told(ring: &Map) -> Vec<(u64, u64, u32)> {
        let word = |bytes: &[u8]| u64::from_ne_bytes(*bytes.first_chunk().expect("eight bytes"));
        let read = || ring.ringbuf().expect("a ring").read();
        std::iter::from_fn(read)
            .map(|it| (word(&it), word(&it[8..]), word(&it[16..]) as u32))
            .collect()
    }

    #[test]
    fn each_request_is_told_once() {
        let (requests, ring) = (TxTimestamps::default(), ring(4096));
        let numbers = [7, 8, 9].map(|cookie| requests.request(&ring, cookie).expect("room"));
        requests.end(numbers[1], Some(Sent { timestamp_ns: 123, ifindex: 4 }));
        requests.end(numbers[0], None);
        assert_eq!(told(&ring), [(8, 123, 4), (7, 0, 0)]);
        assert_eq!(requests.pending(), 1);
        // Numbers are used again.
        let again = requests.request(&ring, 10).expect("room");
        assert!(numbers[..2].contains(&again));
        // The ring no longer has a user.
        drop(ring);
        requests.end(numbers[2], None);
        requests.end(again, None);
        assert_eq!(requests.pending(), 0);
    }

    #[test]
    fn a_ring_that_is_full_loses_and_counts() {
        let (requests, ring) = (TxTimestamps::default(), ring(4096));
        for cookie in 0..1000 {
            let number = requests.request(&ring, cookie).expect("room");
            requests.end(number, None);
        }
        let kept = told(&ring).len() as u64;
        assert_eq!(kept + ring.ringbuf().expect("a ring").lost(), 1000);
        assert!(kept > 100, "{kept}");
        let array = MapDef::new("array", MapType::Array, 4, 8, 1);
        let array = Map::create(&array, &CreateOptions::new(Domain::new(1))).expect("an array");
        assert_eq!(requests.request(&array, 0), Err(Errno::EINVAL));
        let numbers: Vec<_> = (0..=u16::MAX).map(|_| requests.request(&ring, 0)).collect();
        assert!(numbers.iter().all(Result::is_ok));
        assert_eq!(requests.request(&ring, 0), Err(Errno::ENOMEM));
    }

    #[test]
    fn a_frame_that_goes_ends_its_request() {
        let arena = Arena::new(64).expect("there is memory");
        let (mut pool, ring) = (Pool::new(&arena), ring(4096));
        let asked = |frame: &mut Frame, cookie| {
            let number = arena.tx_timestamps().request(&ring, cookie).expect("room");
            frame.set_tx_request(number);
        };
        let mut frames = Vec::new();
        for (cookie, len) in [(1, 60), (2, 9000), (3, 60)] {
            let mut frame = pool.frame(&vec![0; len]).expect("it fits").expect("there are frames");
            asked(&mut frame, cookie);
            assert!(!frame.is_plain() && frame.has_tx_request());
            frames.push(frame);
        }
        // A frame is sent once: its copy has no request, and the frame that takes its place has
        // one.
        let copy = pool.copy(&frames[1]).expect("there are frames");
        assert!(!copy.has_tx_request());
        pool.give(copy);
        pool.linearize(&mut frames[1]);
        assert!(frames[1].has_tx_request() && !frames[1].has_frags());
        assert_eq!(told(&ring), []);
        let mut sent = frames.pop().expect("the last");
        assert!(sent.take_tx_request().is_some() && sent.take_tx_request().is_none());
        pool.give(sent);
        pool.give(frames.remove(0));
        pool.give_all(&mut frames);
        assert_eq!(told(&ring), [(1, 0, 0), (2, 0, 0)]);
        let again = pool.take().expect("there are frames");
        assert!(!again.has_tx_request());
        pool.give(again);
    }
}
