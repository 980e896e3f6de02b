//! A program's standard output and error (`bpf_stream_vprintk`): the current contents, or also
//! everything that follows.

use std::sync::{Arc, Weak};
use std::time::Duration;

use towpath_objects::ProgramObject;
use towpath_xdp::StreamId;

use super::{event, lost};
use crate::model::messages::StreamText;

/// A reader of a program's stream. Reading consumes the text, as in the kernel.
#[derive(Debug)]
pub(crate) struct Follower {
    /// A weak reference, so that the reader does not keep the program alive.
    program: Weak<ProgramObject>,
    stream: StreamId,
    /// Whether the reader waits for more at the end of the text.
    follows: bool,
    /// Number of lost prints that has been reported.
    lost: u64,
}

impl Follower {
    pub(crate) fn new(program: &Arc<ProgramObject>, stream: StreamId, follows: bool) -> Follower {
        Follower { program: Arc::downgrade(program), stream, follows, lost: 0 }
    }

    /// The next text, as server-sent events; `None` at the end, or if the program is gone.
    pub(crate) async fn next(&mut self) -> Option<String> {
        loop {
            let mut out = String::new();
            {
                let program = self.program.upgrade()?;
                let streams = program.program().streams();
                let text = streams.read(self.stream, usize::MAX);
                let lost_now = streams.lost(self.stream);
                if !text.is_empty() {
                    let text = String::from_utf8_lossy(&text).into_owned();
                    event(&mut out, None, "text", &StreamText { text });
                }
                if lost_now > self.lost {
                    // The stream was full: the loss follows its text.
                    lost(&mut out, lost_now - self.lost, None);
                    self.lost = lost_now;
                }
            }
            if !out.is_empty() {
                return Some(out);
            }
            if !self.follows {
                return None;
            }
            tokio::time::sleep(PERIOD).await;
        }
    }
}

/// Interval at which the stream is read.
const PERIOD: Duration = Duration::from_millis(20);
