//! Lines of `bpf_trace_printk`, from all programs to all listeners.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError};
use towpath_objects::Objects;

use super::{event, lost};
use crate::model::messages::PrintedLine;

/// Distributes lines to all listeners. Without listeners, lines are not kept, and no thread runs.
#[derive(Debug, Clone)]
pub(crate) struct Hub(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    chunks: broadcast::Sender<Chunk>,
    /// Whether a thread reads the trace.
    runs: Mutex<bool>,
}

/// Lines in the format of the API.
#[derive(Debug, Clone)]
struct Chunk {
    /// Number of the first line, counting lost ones before it, and number of the line after the
    /// last.
    numbers: (u64, u64),
    text: Arc<str>,
}

/// A listener.
#[derive(Debug)]
pub(crate) struct Heard {
    chunks: broadcast::Receiver<Chunk>,
    /// Expected number of the next line; unset at first.
    next: Option<u64>,
}

impl Default for Hub {
    fn default() -> Hub {
        let chunks = broadcast::Sender::new(CHUNKS_KEPT);
        Hub(Arc::new(Shared { chunks, runs: Mutex::default() }))
    }
}

impl Hub {
    /// Subscribes to lines from now on.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub(crate) fn listen(&self, objects: &Arc<Objects>) -> std::io::Result<Heard> {
        let mut runs = self.0.runs.lock();
        let heard = Heard { chunks: self.0.chunks.subscribe(), next: None };
        if !*runs {
            let (shared, objects) = (Arc::clone(&self.0), Arc::downgrade(objects));
            let body = move || shared.pump(&objects);
            let _detached = std::thread::Builder::new().name("tracelog".to_owned()).spawn(body)?;
            *runs = true;
        }
        Ok(heard)
    }
}

impl Shared {
    /// Reads the trace until there are no more listeners. Does not keep the daemon alive.
    fn pump(&self, objects: &Weak<Objects>) {
        let (mut number, mut lost_before) = (0, None);
        while let Some(objects) = objects.upgrade() {
            let trace = &objects.shared().surroundings().trace;
            if self.chunks.receiver_count() == 0 {
                let mut runs = self.runs.lock();
                // A listener that subscribed meanwhile relies on this thread.
                if self.chunks.receiver_count() == 0 {
                    trace.keep(false);
                    *runs = false;
                    return;
                }
            }
            if lost_before.is_none() {
                // Discards lines from before the first listener.
                trace.take_lines();
                trace.keep(true);
            }
            let (lines, lost_now) = (trace.take_lines(), trace.lost());
            let first = number + lost_now - lost_before.replace(lost_now).unwrap_or(lost_now);
            let mut text = String::new();
            let mut next = first;
            for line in lines {
                let view = PrintedLine {
                    number: next,
                    time: line.time.as_secs_f64(),
                    worker: line.worker,
                    program: line.program,
                    text: line.text.trim_end_matches('\n').to_owned(),
                };
                event(&mut text, Some(next), "line", &view);
                next += 1;
            }
            if next != number {
                // The only error is that there are no listeners.
                let _listeners =
                    self.chunks.send(Chunk { numbers: (first, next), text: text.into() });
            }
            number = next;
            drop(objects);
            std::thread::sleep(PERIOD);
        }
        *self.runs.lock() = false;
    }
}

impl Heard {
    /// The next lines, as server-sent events; `None` when the daemon ends.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            match self.chunks.recv().await {
                Ok(Chunk { numbers: (first, next), text }) => {
                    let mut out = String::new();
                    let missed = first - self.next.replace(next).unwrap_or(first);
                    if missed > 0 {
                        lost(&mut out, missed, None);
                    }
                    out.push_str(&text);
                    return Some(out);
                }
                // The numbers of the next chunk reveal how many lines were missed.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Interval at which lines are collected.
const PERIOD: Duration = Duration::from_millis(10);
/// Chunks that a listener may lag behind.
const CHUNKS_KEPT: usize = 64;
