//! A program's standard output and error (`bpf_stream_vprintk`), as far as they go or as they come.

use std::sync::{Arc, Weak};
use std::time::Duration;

use towpath_objects::ProgramObject;
use towpath_xdp::StreamId;

use super::{event, lost};
use crate::model::messages::StreamText;

/// One who reads a stream of a program. What it reads nobody else gets, as in the kernel.
#[derive(Debug)]
pub(crate) struct Follower {
    /// It keeps no program alive.
    program: Weak<ProgramObject>,
    stream: StreamId,
    /// Goes on when all was read.
    follows: bool,
    /// Of what was lost the reader knows so much.
    lost: u64,
}

impl Follower {
    pub(crate) fn new(program: &Arc<ProgramObject>, stream: StreamId, follows: bool) -> Follower {
        Follower { program: Arc::downgrade(program), stream, follows, lost: 0 }
    }

    /// What comes next, as server-sent events; none at the end, or when the program is gone.
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
                    // What comes after a full stream comes after what is lost.
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

/// How often it looks whether there is more.
const PERIOD: Duration = Duration::from_millis(20);
