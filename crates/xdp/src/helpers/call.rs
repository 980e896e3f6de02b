//! One call of a helper: the run it happens in and checked access to its arguments.

use towpath_bpf::Errno;
use towpath_bpf::interp::{Callbacks, Stop, Violation};
use towpath_maps::Map;

use crate::memory::{self, Grant};
use crate::run::Run;

/// The context of a helper.
pub(crate) struct Call<'c, 'r> {
    /// The run: frame, worker, maps, memory.
    pub(crate) run: &'c mut Run<'r>,
    /// Calls functions of the program.
    pub(crate) callbacks: &'c mut dyn Callbacks<Run<'r>>,
}

impl<'r> Call<'_, 'r> {
    /// The map in argument `number` (1..=5).
    pub(crate) fn map(
        &self,
        function: &'static str,
        args: &[u64; 5],
        number: u8,
    ) -> Result<&'r Map, Stop> {
        let value = args[usize::from(number) - 1];
        self.run.map_by_handle(value).ok_or_else(|| {
            let why = "a map of this program";
            Violation::Argument { function, argument: number, value, why }.into()
        })
    }

    /// Copies `len` readable bytes.
    pub(crate) fn read(&self, addr: u64, len: usize) -> Result<Bytes, Stop> {
        copy(len, || self.run.grant(addr, len as u64, false))
    }

    /// As [`Call::read`], from an address that the verifier did not check.
    pub(crate) fn read_unproved(&self, addr: u64, len: usize) -> Result<Bytes, Stop> {
        copy(len, || Ok(self.run.grant_unproved(addr, len as u64, false)?))
    }

    /// Copies readable bytes to where the program may write.
    pub(crate) fn copy(&self, from: u64, to: u64, len: u64) -> Result<(), Stop> {
        if len > 0 {
            memory::transfer(self.run.grant(from, len, false)?, self.run.grant(to, len, true)?);
        }
        Ok(())
    }

    /// Copies bytes to writable memory.
    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) -> Result<(), Stop> {
        Ok(self.run.write(addr, bytes)?)
    }

    /// Calls a function of the program, unless the run is to end.
    pub(crate) fn callback(&mut self, function: u64, args: [u64; 5]) -> Result<u64, Stop> {
        self.run.may_go_on()?;
        self.callbacks.call(self.run, function, args)
    }
}

/// Copies the `len` bytes of a grant, which is requested before any allocation, as `len` may be an
/// arbitrary register value.
fn copy(len: usize, grant: impl FnOnce() -> Result<Grant, Box<Violation>>) -> Result<Bytes, Stop> {
    if len == 0 {
        return Ok(Bytes::zeroed(0));
    }
    let grant = grant()?;
    let mut bytes = Bytes::zeroed(len);
    memory::copy_out(grant, bytes.as_mut());
    Ok(bytes)
}

/// A result as r0: 0, or the negated error number.
pub(crate) fn status(result: Result<(), Errno>) -> u64 {
    match result {
        Ok(()) => 0,
        Err(errno) => errno.to_reg(),
    }
}

/// Bytes copied out of a program's memory; small ones without an allocation.
pub(crate) struct Bytes {
    small: [u8; SMALL_BYTES],
    large: Vec<u8>,
    len: usize,
}

impl Bytes {
    /// `len` zero bytes.
    pub(crate) fn zeroed(len: usize) -> Bytes {
        let large = if len > SMALL_BYTES { vec![0; len] } else { Vec::new() };
        Bytes { small: [0; SMALL_BYTES], large, len }
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        if self.len > SMALL_BYTES { &self.large } else { &self.small[..self.len] }
    }
}

impl AsMut<[u8]> for Bytes {
    fn as_mut(&mut self) -> &mut [u8] {
        if self.len > SMALL_BYTES { &mut self.large } else { &mut self.small[..self.len] }
    }
}

/// Most keys and values fit; larger ones take an allocation.
const SMALL_BYTES: usize = 128;
