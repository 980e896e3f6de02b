//! A walk over a map's elements that can be suspended and resumed.

use towpath_bpf::Errno;
use towpath_maps::Value;

use super::{ApiError, exactly, refused};
use crate::object::Handle;

/// Keys in the map's order, each with its value, if it has one: slots may be empty.
///
/// It ends after the last key. If elements come and go meanwhile it may start over, and has no end
/// of its own: the caller stops after as many keys as the map can hold.
#[derive(Debug)]
pub struct Walk {
    handle: Handle,
    last: Option<Vec<u8>>,
}

impl Walk {
    pub(super) fn new(handle: Handle, after: Option<Vec<u8>>) -> Walk {
        Walk { handle, last: after }
    }

    fn key(&self) -> Result<Vec<u8>, Errno> {
        match self.last.as_deref() {
            None => self.handle.next_key(None),
            Some(last) => self.handle.next_key(Some(&exactly(last))),
        }
    }
}

impl Iterator for Walk {
    type Item = Result<(Vec<u8>, Option<Value>), ApiError>;

    fn next(&mut self) -> Option<Self::Item> {
        let key = match self.key() {
            Ok(key) => key,
            Err(Errno::ENOENT) => return None,
            Err(errno) => return Some(Err(refused("the map can't be walked", errno))),
        };
        let value = self.handle.lookup(&exactly(&key), &exactly(&[]), 0);
        self.last = Some(key.clone());
        Some(Ok((key, value.ok().flatten())))
    }
}
