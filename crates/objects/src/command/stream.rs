//! `BPF_PROG_STREAM_READ_BY_FD`: what a program printed to its standard output or error.

use towpath_bpf::Errno;
use towpath_xdp::StreamId;

use super::Call;
use crate::attr::stream_read as field;

impl Call<'_> {
    /// `prog_stream_read`: the number of bytes that were copied, 0 when there are none. They are
    /// gone from the stream; after `EFAULT` all of them are still there (in the kernel those of the
    /// last print that was begun).
    pub(super) fn read_stream(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let handle = self.caller.handle(self.u32(field::PROG_FD))?;
        let program = handle.program()?;
        let stream = StreamId::from_number(self.u32(field::STREAM_ID).into());
        let stream = stream.ok_or(Errno::ENOENT)?;
        let (address, room) = (self.u64(field::BUF), self.u32(field::BUF_LEN) as usize);
        let streams = program.program().streams();
        let count = streams.hand_over(stream, room, |text| self.caller.write(address, text))?;
        debug_assert!(count <= room);
        Ok(count as u32)
    }
}
