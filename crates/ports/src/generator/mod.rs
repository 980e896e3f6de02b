//! `generator`: frames made from templates, at a rate or as fast as they are taken. Frames sent to
//! it are dropped, as by a sink.

mod field;
mod rx;

use std::io;
use std::sync::Arc;

use towpath_engine::port::{Device, Features, Rx, Tx};
use towpath_xdp::{Arena, FrameError, Pool};

pub use field::{Change, Field};

/// A source of frames (the kernel's pktgen).
#[derive(Debug, Clone)]
pub struct Generator {
    options: Arc<Options>,
}

/// Options of the generated frames.
#[derive(Debug, Clone)]
pub struct Options {
    /// Frames to make, in turn; at least one.
    pub templates: Vec<Vec<u8>>,
    /// Fields that change from frame to frame.
    pub fields: Vec<Field>,
    /// Frames per second and queue; `None` for as fast as they are taken.
    pub rate: Option<u64>,
    /// Frames sent together at a rate.
    pub burst: u32,
    /// Frames that a queue makes; `None` for no limit.
    pub count: Option<u64>,
    /// Receive queues; each makes its own frames.
    pub queues: u32,
    /// MTU in bytes: the largest payload of its frames.
    pub mtu: u32,
    /// Address of the port.
    pub mac: [u8; 6],
}

impl Options {
    /// Options for one frame, without limit, as fast as it is taken.
    pub fn new(template: Vec<u8>) -> Options {
        Options {
            templates: vec![template],
            fields: Vec::new(),
            rate: None,
            burst: 1,
            count: None,
            queues: 1,
            mtu: 65535,
            mac: [0x02, 0, 0, 0, 0, 0x67],
        }
    }
}

/// Errors of templates and fields.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// There is no template.
    #[error("a generator needs at least one frame template")]
    NoTemplate,
    /// A template that is not a valid frame.
    #[error("template {index}: {source}")]
    Template {
        /// Its index, from 0.
        index: usize,
        /// The reason.
        source: FrameError,
    },
    /// A field with an invalid width.
    #[error("fields[{index}] is {width} bytes wide: 1, 2, 4 and 8 are possible")]
    Width {
        /// Its index, from 0.
        index: usize,
        /// Its width in bytes.
        width: u8,
    },
    /// A field outside of a template.
    #[error("fields[{index}] ends at byte {end}, behind the end of a template of {len} bytes")]
    Outside {
        /// Its index, from 0.
        index: usize,
        /// One past its last byte.
        end: usize,
        /// Length of the shortest template.
        len: usize,
    },
    /// A field whose range is empty.
    #[error("fields[{index}]: its smallest value {min} is larger than its largest, {max}")]
    Range {
        /// Its index, from 0.
        index: usize,
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
    },
}

impl Generator {
    /// A generator with these options.
    ///
    /// # Errors
    ///
    /// Fails if a template or field is invalid.
    pub fn new(options: Options) -> Result<Generator, OptionsError> {
        let shortest = options.templates.iter().map(Vec::len).min();
        let len = shortest.ok_or(OptionsError::NoTemplate)?;
        for (index, template) in options.templates.iter().enumerate() {
            let checked = towpath_xdp::Frame::new(template).map(drop);
            checked.map_err(|source| OptionsError::Template { index, source })?;
        }
        for (index, field) in options.fields.iter().enumerate() {
            field.check(index, len)?;
        }
        Ok(Generator { options: Arc::new(options) })
    }
}

impl Device for Generator {
    fn kind(&self) -> &'static str {
        "generator"
    }

    fn queues(&self) -> u32 {
        self.options.queues
    }

    fn features(&self) -> Features {
        Features { zero_copy: true, ..Features::IN_PROCESS }
    }

    fn mac(&self) -> [u8; 6] {
        self.options.mac
    }

    fn mtu(&self) -> u32 {
        self.options.mtu
    }

    fn open_rx(&self, queue: u32, _arena: &Arc<Arena>) -> io::Result<Box<dyn Rx>> {
        Ok(Box::new(rx::Queue::new(&self.options, queue)))
    }

    fn open_tx(&self, worker: u32, arena: &Arc<Arena>) -> io::Result<Box<dyn Tx>> {
        crate::sink::Sink.open_tx(worker, arena)
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let rate = self.options.rate.map_or("unlimited".to_owned(), |rate| format!("{rate}/s"));
        vec![("templates", self.options.templates.len().to_string()), ("rate", rate)]
    }
}

/// A frame from a template; `None` only if the arena is used up.
fn frame_of(pool: &mut Pool, template: &[u8]) -> Option<towpath_xdp::Frame> {
    pool.frame(template).ok().flatten()
}
