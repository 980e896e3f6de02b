//! Lines of `bpf_trace_printk`, from all programs to all listeners.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::broadcast::{self, error::RecvError};
use towpath_objects::Objects;

use super::{event, lost};
use crate::model::messages::PrintedLine;

/// Hands lines to everybody who listens. Nothing is kept, and nothing runs here, while nobody does.
#[derive(Debug, Clone)]
pub(crate) struct Hub(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    chunks: broadcast::Sender<Chunk>,
    /// Somebody empties the trace.
    runs: Mutex<bool>,
}

/// Lines as the API sends them.
#[derive(Debug, Clone)]
struct Chunk {
    /// The number of the first line, had none before it been lost; and that after the last.
    numbers: (u64, u64),
    text: Arc<str>,
}

/// One who listens.
#[derive(Debug)]
pub(crate) struct Heard {
    chunks: broadcast::Receiver<Chunk>,
    /// The number that comes next, once there was one.
    next: Option<u64>,
}

impl Default for Hub {
    fn default() -> Hub {
        let chunks = broadcast::Sender::new(CHUNKS_KEPT);
        Hub(Arc::new(Shared { chunks, runs: Mutex::default() }))
    }
}

impl Hub {
    /// Lines from now on.
    ///
    /// # Errors
    ///
    /// There is no thread for it.
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
    /// Empties the trace until nobody listens any more. It keeps no daemon alive.
    fn pump(&self, objects: &Weak<Objects>) {
        let (mut number, mut lost_before) = (0, None);
        while let Some(objects) = objects.upgrade() {
            let trace = &objects.shared().surroundings().trace;
            if self.chunks.receiver_count() == 0 {
                let mut runs = self.runs.lock();
                // Whoever came meanwhile counts on it.
                if self.chunks.receiver_count() == 0 {
                    trace.keep(false);
                    *runs = false;
                    return;
                }
            }
            if lost_before.is_none() {
                // What is there is from before.
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
                // Whoever has left meanwhile needs it no more.
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
    /// The next lines, as server-sent events; none when the daemon ends.
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
                // The next chunk's number says how many lines that were.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// How often lines are collected.
const PERIOD: Duration = Duration::from_millis(10);
/// Chunks that a listener may be behind.
const CHUNKS_KEPT: usize = 64;
