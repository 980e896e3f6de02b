//! `BPF_OBJ_PIN`, `BPF_OBJ_GET`.

use towpath_bpf::Errno;

use super::Call;
use crate::attr::obj as field;
use crate::caller::read_string;
use crate::object::{BPF_F_RDONLY, BPF_F_WRONLY, Handle, Mode, Object};

impl Call<'_> {
    /// `bpf_obj_pin`
    pub(super) fn pin(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        let directory = self.directory(BPF_F_PATH_FD)?;
        let handle = self.caller.handle(self.u32(field::BPF_FD));
        // Every kind of object is tried, and the last answer is the one that counts.
        let handle = handle.map_err(|_whatever| Errno::EINVAL)?;
        if matches!(handle.object, Object::Btf(_) | Object::Stats) {
            return Err(Errno::EINVAL);
        }
        let path = self.path(directory)?;
        self.objects.bpffs.pin(&path, handle.object)?;
        Ok(0)
    }

    /// `bpf_obj_get`
    pub(super) fn get(&mut self) -> Result<u32, Errno> {
        self.attr.ends_at(field::END)?;
        if self.u32(field::BPF_FD) != 0 {
            return Err(Errno::EINVAL);
        }
        let directory = self.directory(BPF_F_RDONLY | BPF_F_WRONLY | BPF_F_PATH_FD)?;
        let mode = Mode::from_flags(self.u32(field::FILE_FLAGS))?;
        let path = self.path(directory)?;
        let object = self.objects.bpffs.open(&path)?;
        let mode = match &object {
            Object::Map(_) => mode,
            Object::Link(_) if mode != Mode::ReadWrite => return Err(Errno::EINVAL),
            _ => Mode::ReadWrite,
        };
        self.caller.install(Handle { object, mode })
    }

    /// The directory that a relative path starts in; `known` are the flags a command takes.
    fn directory(&self, known: u32) -> Result<Option<u32>, Errno> {
        let (flags, directory) = (self.u32(field::FILE_FLAGS), self.u32(field::PATH_FD));
        let named = flags & BPF_F_PATH_FD != 0;
        if flags & !known != 0 || !named && directory != 0 {
            return Err(Errno::EINVAL);
        }
        Ok(named.then_some(directory))
    }

    /// `getname`
    fn path(&self, directory: Option<u32>) -> Result<String, Errno> {
        let path = read_string(self.caller, self.u64(field::PATHNAME), PATH_MAX)?;
        if path.len() == PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        // There are no names here that are not text.
        let path = String::from_utf8(path).map_err(|_not_text| Errno::ENOENT)?;
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        self.caller.absolute(directory, &path)
    }
}

/// `path_fd` is meant.
const BPF_F_PATH_FD: u32 = 1 << 14;
/// Longest path with its terminating zero.
const PATH_MAX: usize = 4096;
