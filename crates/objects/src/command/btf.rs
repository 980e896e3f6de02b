//! `BPF_BTF_LOAD`.

use towpath_bpf::Errno;
use towpath_bpf::btf::Btf;

use super::log::{Refusal, UserLog};
use super::{BPF_F_TOKEN_FD, Call};
use crate::attr::btf_load as field;
use crate::caller::copy_in;
use crate::object::btf::BtfObject;
use crate::object::{Handle, Object};

impl Call<'_> {
    /// `bpf_btf_load`
    pub(super) fn btf_load(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let flags = self.u32(field::BTF_FLAGS);
        if flags & !BPF_F_TOKEN_FD != 0 {
            return Err(Errno::EINVAL);
        }
        self.check_token(flags, field::BTF_TOKEN_FD)?;
        let size = self.u32(field::BTF_SIZE);
        if size > BTF_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        let log = UserLog::new(
            self.u32(field::BTF_LOG_LEVEL),
            self.u64(field::BTF_LOG_BUF),
            self.u32(field::BTF_LOG_SIZE),
        )?;
        let bytes = copy_in(self.caller, self.u64(field::BTF), size as usize);
        let parsed = bytes.map_err(Refusal::from).and_then(parse);
        let text = parsed.as_ref().err().map_or("", |refusal| refusal.text.as_str());
        let (true_size, logged) = log.finish(self.caller, text);
        self.attr.answer_if_known(self.caller, field::BTF_LOG_TRUE_SIZE, true_size)?;
        logged?;
        let (btf, bytes) = parsed.map_err(|refusal| refusal.errno)?;
        let object = self.objects.btfs.create(|lease| BtfObject::new(lease, btf.into(), bytes))?;
        self.caller.install(Handle::new(Object::Btf(object)))
    }
}

fn parse(bytes: Vec<u8>) -> Result<(Btf, Vec<u8>), Refusal> {
    match Btf::parse(&bytes) {
        Ok(btf) => Ok((btf, bytes)),
        Err(error) => Err(Refusal::new(Errno::EINVAL, format!("{error}\n"))),
    }
}

/// Largest blob (`BTF_MAX_SIZE`).
const BTF_BYTES_MAX: u32 = 16 << 20;
