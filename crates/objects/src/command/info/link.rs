//! Information about a link.

use towpath_bpf::Errno;

use crate::command::Call;
use crate::object::link::LinkObject;

impl Call<'_> {
    /// `bpf_link_get_info_by_fd`
    pub(super) fn link_info(&mut self, link: &LinkObject) -> Result<u32, Errno> {
        let mut info = self.read_info(LINK_INFO_BYTES)?;
        info.put(TYPE, LINK_TYPE_XDP);
        info.put(ID, link.id());
        info.put(PROG_ID, link.program().id());
        info.put(XDP_IFINDEX, link.ifindex().unwrap_or(0));
        self.write_info(&info)
    }
}

/// `struct bpf_link_info`
const TYPE: usize = 0;
const ID: usize = 4;
const PROG_ID: usize = 8;
const XDP_IFINDEX: usize = 16;
const LINK_INFO_BYTES: usize = 64;
/// `BPF_LINK_TYPE_XDP`
const LINK_TYPE_XDP: u32 = 6;
