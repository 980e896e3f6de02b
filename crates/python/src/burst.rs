//! Many packets at a time: the rows of an array.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use towpath::{Frame, Program};

use crate::error;
use crate::program::{Arrival, Lane};

/// Packets, one in each row.
pub(crate) struct Rows<'a> {
    bytes: &'a [u8],
    width: usize,
    lengths: Vec<u32>,
}

/// Packets after the run, in rows again.
pub(crate) struct Kept {
    bytes: Vec<u8>,
    width: usize,
}

impl<'a> Rows<'a> {
    /// `count` rows of bytes, and the length of each packet if it is shorter: 32-bit numbers.
    pub(crate) fn new(bytes: &'a [u8], count: usize, lengths: Option<&[u8]>) -> PyResult<Rows<'a>> {
        let width = bytes.len().checked_div(count).unwrap_or(0);
        let lengths = match lengths {
            None => vec![width as u32; count],
            Some(bytes) => bytes.as_chunks().0.iter().map(|&it| u32::from_ne_bytes(it)).collect(),
        };
        if lengths.len() != count || lengths.iter().any(|&length| length as usize > width) {
            let message = format!("lengths must be {count} numbers of at most {width}");
            return Err(PyValueError::new_err(message));
        }
        Ok(Rows { bytes, width, lengths })
    }

    /// Runs a program on all packets, in bursts.
    pub(crate) fn run(
        &mut self,
        program: &Program,
        lane: &mut Lane,
        arrival: Arrival,
        mut kept: Option<&mut Kept>,
    ) -> PyResult<(Vec<u8>, Vec<u8>)> {
        let mut returned = Vec::with_capacity(4 * self.lengths.len());
        let mut after = Vec::with_capacity(4 * self.lengths.len());
        lane.frames.resize_with(BURST, Frame::default);
        for (index, lengths) in self.lengths.chunks(BURST).enumerate() {
            let first = index * BURST;
            let Lane { worker, frames, burst } = &mut *lane;
            let frames = &mut frames[..lengths.len()];
            for (row, (frame, &length)) in frames.iter_mut().zip(lengths).enumerate() {
                let start = (first + row) * self.width;
                frame
                    .refill(&self.bytes[start..start + length as usize], 0)
                    .map_err(|error| packet_error(first + row, &error))?;
                frame.rx = arrival.rx(frame);
            }
            program.run_burst(worker, frames, burst).map_err(|fault| error::faulted(&fault))?;
            if let Some((_frame, fault)) = burst.faults().first() {
                return Err(error::faulted(fault));
            }
            for (row, frame) in frames.iter().enumerate() {
                returned.extend(burst.returned(row).to_ne_bytes());
                after.extend((frame.len() as u32).to_ne_bytes());
                if let Some(kept) = &mut kept {
                    kept.put(first + row, frame);
                }
            }
        }
        Ok((returned, after))
    }
}

impl Kept {
    /// Room for the same number of packets, with its present contents.
    pub(crate) fn new(bytes: &[u8], rows: &Rows<'_>) -> Kept {
        let width = bytes.len().checked_div(rows.lengths.len()).unwrap_or(0);
        Kept { bytes: bytes.to_owned(), width }
    }

    fn put(&mut self, row: usize, frame: &Frame) {
        let room = &mut self.bytes[row * self.width..(row + 1) * self.width];
        let length = frame.len().min(room.len());
        frame.copy_from(0, &mut room[..length]);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

fn packet_error(row: usize, error: &towpath::FrameError) -> PyErr {
    PyValueError::new_err(format!("packet {row}: {error}"))
}

/// Number of frames that are judged together.
const BURST: usize = 64;
