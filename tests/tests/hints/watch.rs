//! Looks at frames as they come out of a device.

use std::sync::Arc;

use parking_lot::Mutex;
use towpath_engine::port::Device;
use towpath_ports::wrap::{Layer, Stage, Wrapped};
use towpath_xdp::frame::rx_metadata::{Origin, RxMetadata};
use towpath_xdp::{Frame, Pool};

use crate::WINDOW;
use crate::packets::number_of;
use crate::socket::Collecting;

/// The hints of a frame, and the place where it arrived.
pub(crate) type Seen = (RxMetadata, Origin);

/// The place where the source's frames arrive.
const SOURCE: Origin = Origin { ifindex: 1010, queue_index: 0 };

/// A layer that notes what the device below says, and lets no more through than the way takes.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    seen: Arc<Mutex<Vec<Option<RxMetadata>>>>,
    end: Arc<Collecting>,
}

impl Watch {
    pub(crate) fn new(count: usize, end: &Arc<Collecting>) -> Watch {
        Watch { seen: Arc::new(Mutex::new(vec![None; count])), end: Arc::clone(end) }
    }

    pub(crate) fn around(&self, device: Box<dyn Device>) -> Box<dyn Device> {
        Box::new(Wrapped::new(device, Arc::new(self.clone())))
    }

    pub(crate) fn seen(&self, number: usize) -> Option<Seen> {
        self.seen.lock()[number].map(|known| (known, SOURCE))
    }
}

impl Layer for Watch {
    fn rx(&self, _queue: u32) -> Box<dyn Stage> {
        Box::new(Watcher { watch: Some(self.clone()), passed: 0 })
    }

    fn tx(&self, _worker: u32) -> Box<dyn Stage> {
        Box::new(Watcher { watch: None, passed: 0 })
    }

    fn details(&self) -> (&'static str, String) {
        ("watch", String::new())
    }
}

struct Watcher {
    watch: Option<Watch>,
    /// Frames so far.
    passed: usize,
}

impl Stage for Watcher {
    fn room(&mut self, limit: usize) -> usize {
        let Some(watch) = &self.watch else { return limit };
        limit.min((watch.end.count() + WINDOW).saturating_sub(self.passed))
    }

    fn pass(&mut self, frames: &mut Vec<Frame>, start: usize, _pool: &mut Pool) {
        let Some(watch) = &self.watch else { return };
        let mut seen = watch.seen.lock();
        for frame in &frames[start..] {
            let place = frame.with_linear(number_of).and_then(|number| seen.get_mut(number));
            if let Some(place) = place {
                *place = frame.rx_metadata();
                self.passed += 1;
            }
        }
    }
}
