//! A program, and its runs.

use std::sync::Arc;

use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pythonize::depythonize;
use towpath::{Burst, CallError, Exec, Frame, RxInfo, Worker};
use towpath_document::typed;
use towpath_testing::{Hints, Watch};

use crate::burst;
use crate::error;
use crate::object::Shared;

/// A program that is ready to run.
#[pyclass(frozen, module = "towpath._native")]
pub(crate) struct Program {
    program: towpath::Program,
    shared: Arc<Shared>,
}

/// The result of a run.
#[pyclass(frozen, get_all, module = "towpath._native")]
pub(crate) struct Run {
    returned: u32,
    target: Option<String>,
    data: Py<PyBytes>,
    metadata: Py<PyBytes>,
}

/// State for runs on one CPU.
pub(crate) struct Lane {
    pub(crate) worker: Worker,
    pub(crate) frames: Vec<Frame>,
    pub(crate) burst: Burst,
}

/// Place where packets arrive: ifindex, queue, and the CPU that runs the program.
#[derive(Clone, Copy, FromPyObject)]
pub(crate) struct Arrival(u32, u32, usize);

impl Program {
    pub(crate) fn new(program: towpath::Program, shared: Arc<Shared>) -> Program {
        Program { program, shared }
    }

    /// A watch for coverage, if coverage is requested and the run can be watched.
    fn watch(&self, lane: &mut Lane) -> Option<Arc<Watch>> {
        let is_seen = self.shared.coverage.is_some() && self.program.exec() == Exec::Interp;
        let watch = is_seen.then(Arc::<Watch>::default);
        lane.worker.set_observer(watch.clone().map(|watch| watch as _));
        watch
    }

    fn reached(&self, watch: Option<&Watch>) {
        if let (Some(coverage), Some(watch)) = (&self.shared.coverage, watch) {
            coverage.add(&self.program, watch);
        }
    }
}

#[pymethods]
impl Program {
    #[getter]
    fn name(&self) -> &str {
        self.program.name()
    }

    /// The executor of the program, and the reason if it isn't the requested one.
    fn exec(&self) -> (&'static str, Option<String>) {
        (self.program.exec().name(), self.program.exec_status().fallback)
    }

    /// Runs the program on one packet.
    fn run(
        &self,
        py: Python<'_>,
        packet: &[u8],
        metadata: &[u8],
        arrival: Arrival,
        hints: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Run> {
        let mut frame = Frame::with_metadata(&[metadata, packet].concat(), metadata.len())
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        frame.rx = arrival.rx(&frame);
        if let Some(hints) = hints {
            let hints: Hints = typed(depythonize(hints)?)
                .map_err(|problem| PyValueError::new_err(problem.inside("hints").to_string()))?;
            hints.put_on(&mut frame);
        }
        let verdict = py.detach(|| {
            let mut state = self.shared.ready(&self.program)?;
            let lane = arrival.lane(&mut state.lanes)?;
            let watch = self.watch(lane);
            let verdict = self.program.run(&mut lane.worker, &mut frame);
            self.reached(watch.as_deref());
            verdict.map_err(|fault| error::faulted(&fault))
        })?;
        let all = frame.to_vec_with_metadata();
        let (metadata, data) = all.split_at(frame.metadata_len());
        Ok(Run {
            returned: verdict.returned,
            target: verdict.target.as_ref().map(ToString::to_string),
            data: PyBytes::new(py, data).unbind(),
            metadata: PyBytes::new(py, metadata).unbind(),
        })
    }

    /// Runs the program on rows of bytes. Returns the return values and the packets' new lengths,
    /// both as 32-bit numbers in this machine's byte order, and `out` with the packets, cut to the
    /// length of its rows.
    fn run_burst<'py>(
        &self,
        py: Python<'py>,
        packets: (&[u8], usize),
        lengths: Option<&[u8]>,
        out: Option<&[u8]>,
        arrival: Arrival,
    ) -> PyResult<BurstParts<'py>> {
        let mut rows = burst::Rows::new(packets.0, packets.1, lengths)?;
        let mut kept = out.map(|out| burst::Kept::new(out, &rows));
        let (returned, lengths) = py.detach(|| {
            let mut state = self.shared.ready(&self.program)?;
            let lane = arrival.lane(&mut state.lanes)?;
            let watch = self.watch(lane);
            let ran = rows.run(&self.program, lane, arrival, kept.as_mut());
            self.reached(watch.as_deref());
            ran
        })?;
        let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
        Ok((bytes(&returned), bytes(&lengths), kept.map(|kept| bytes(kept.bytes()))))
    }

    /// Calls it with a context; gives its result, and the context as it left it.
    fn call<'py>(
        &self,
        py: Python<'py>,
        context: &[u8],
        cpu: usize,
    ) -> PyResult<(u32, Bound<'py, PyBytes>)> {
        let mut context = context.to_vec();
        let returned = py.detach(|| {
            let mut state = self.shared.ready(&self.program)?;
            let lane = Arrival(0, 0, cpu).lane(&mut state.lanes)?;
            let watch = self.watch(lane);
            let returned = self.program.call(&mut lane.worker, &mut context);
            self.reached(watch.as_deref());
            returned.map_err(|error| match error {
                CallError::Fault(fault) => error::faulted(&fault),
                error => PyValueError::new_err(error.to_string()),
            })
        })?;
        Ok((returned, PyBytes::new(py, &context)))
    }
}

/// Return values, lengths, and packets.
type BurstParts<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

impl Lane {
    pub(crate) fn new(cpu: u32) -> Lane {
        Lane { worker: Worker::new(cpu), frames: Vec::new(), burst: Burst::default() }
    }
}

impl Arrival {
    pub(crate) fn rx(self, frame: &Frame) -> RxInfo {
        RxInfo { ifindex: self.0, queue_index: self.1, ..frame.rx }
    }

    fn lane(self, lanes: &mut [Lane]) -> PyResult<&mut Lane> {
        let count = lanes.len();
        let lane = lanes.get_mut(self.2);
        lane.ok_or_else(|| PyIndexError::new_err(format!("CPU {} of {count}", self.2)))
    }
}
