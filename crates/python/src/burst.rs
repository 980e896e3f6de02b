//! Many packets at a time: the rows of an array.

use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use towpath::{Frame, Program};

use crate::error;
use crate::program::{Arrival, Lane};

/// Packets, one a row.
pub(crate) struct Rows {
    bytes: Vec<u8>,
    width: usize,
    lengths: Vec<u32>,
}

/// Where packets go when they were judged: rows again.
pub(crate) struct Kept {
    bytes: Vec<u8>,
    width: usize,
}

impl Rows {
    /// Copies an array of the shape (packets, bytes): nobody changes it meanwhile.
    pub(crate) fn read(
        py: Python<'_>,
        packets: &PyBuffer<u8>,
        lengths: Option<&PyBuffer<u32>>,
    ) -> PyResult<Rows> {
        let (count, width) = shape(packets)?;
        let lengths = match lengths {
            None => vec![width as u32; count],
            Some(lengths) => lengths.to_vec(py)?,
        };
        if lengths.len() != count || lengths.iter().any(|&length| length as usize > width) {
            let message = format!("lengths must be {count} numbers of at most {width}");
            return Err(PyValueError::new_err(message));
        }
        Ok(Rows { bytes: packets.to_vec(py)?, width, lengths })
    }

    /// Runs a program on all of them, in bursts.
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
    /// Room for as many packets, as wide as `out` is.
    pub(crate) fn new(py: Python<'_>, out: &PyBuffer<u8>, rows: &Rows) -> PyResult<Kept> {
        let (count, width) = shape(out)?;
        if out.readonly() || count != rows.lengths.len() {
            let message = format!("out must be a writable array of {} rows", rows.lengths.len());
            return Err(PyValueError::new_err(message));
        }
        Ok(Kept { bytes: out.to_vec(py)?, width })
    }

    fn put(&mut self, row: usize, frame: &Frame) {
        let room = &mut self.bytes[row * self.width..(row + 1) * self.width];
        let linear = &*frame.linear();
        if frame.len() == linear.len() {
            let length = linear.len().min(room.len());
            room[..length].copy_from_slice(&linear[..length]);
        } else {
            let packet = frame.to_vec();
            let length = packet.len().min(room.len());
            room[..length].copy_from_slice(&packet[..length]);
        }
    }

    pub(crate) fn write(&self, py: Python<'_>, out: &PyBuffer<u8>) -> PyResult<()> {
        out.copy_from_slice(py, &self.bytes)
    }
}

fn shape(array: &PyBuffer<u8>) -> PyResult<(usize, usize)> {
    match *array.shape() {
        [count, width] => Ok((count, width)),
        ref other => Err(PyValueError::new_err(format!(
            "an array of {} dimensions; expected two: packets, and their bytes",
            other.len()
        ))),
    }
}

fn packet_error(row: usize, error: &towpath::FrameError) -> PyErr {
    PyValueError::new_err(format!("packet {row}: {error}"))
}

/// Frames that are judged together.
const BURST: usize = 64;
