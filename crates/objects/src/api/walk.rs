//! A walk over a map's elements, which whoever walks may leave and take up again.

use towpath_bpf::Errno;
use towpath_maps::Value;

use super::{ApiError, exactly, refused};
use crate::object::Handle;

/// Keys in the map's order, each with its value, if it has one: slots may be empty.
///
/// It ends behind the last key. Where elements come and go meanwhile it may begin anew, and has no
/// end of its own: who walks stops after as many keys as the map holds at most.
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
