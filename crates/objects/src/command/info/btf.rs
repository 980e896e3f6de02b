//! Information about a BTF blob.

use towpath_bpf::Errno;

use crate::command::Call;
use crate::object::btf::BtfObject;

impl Call<'_> {
    /// `btf_get_info_by_fd`
    pub(super) fn btf_info(&mut self, btf: &BtfObject) -> Result<u32, Errno> {
        let mut info = self.read_info(BTF_INFO_BYTES)?;
        let bytes = btf.bytes();
        let wanted = (info.u32(BTF_SIZE) as usize).min(bytes.len());
        self.caller.write(info.u64(BTF), &bytes[..wanted])?;
        info.put(ID, btf.id());
        info.put(BTF_SIZE, bytes.len() as u32);
        info.put(KERNEL_BTF, 0);
        let (name, name_len) = (info.u64(NAME), info.u32(NAME_LEN));
        if (name == 0) != (name_len == 0) {
            return Err(Errno::EINVAL);
        }
        info.put(NAME_LEN, 0);
        if name != 0 {
            // Only the kernel's own have a name.
            self.caller.write(name, &[0])?;
        }
        self.write_info(&info)
    }
}

/// `struct bpf_btf_info`
const BTF: usize = 0;
const BTF_SIZE: usize = 8;
const ID: usize = 12;
const NAME: usize = 16;
const NAME_LEN: usize = 24;
const KERNEL_BTF: usize = 28;
const BTF_INFO_BYTES: usize = 32;
