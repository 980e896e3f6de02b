//! The operations of a map kind. For a missing operation, the kind's row has the answer to users,
//! and its list of helpers excludes programs; so the defaults here are never used.

use std::ops::ControlFlow;
use std::ptr::NonNull;

use towpath_bpf::Errno;

use crate::access::Span;
use crate::memory::Region;
use crate::user::Value;

/// Stands for a user thread in place of a worker's number.
pub(crate) const USER: usize = usize::MAX;

/// One element as `bpf_for_each_map_elem` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Address of the key in the map; `None` for arrays, whose keys exist only as numbers.
    pub key_address: Option<NonNull<u8>>,
    /// Address of the value.
    pub value: NonNull<u8>,
}

/// Called for each element; `Break` ends the walk.
pub(crate) type Visit<'a> = dyn FnMut(Element<'_>) -> ControlFlow<()> + 'a;

/// A kind of map. Keys have the right size when they come here.
pub(crate) trait Store: Send + Sync {
    /// Memory that programs may access.
    fn spans(&self) -> Vec<Span> {
        Vec::new()
    }

    /// Memory that the kernel would have allocated when the map was created; it is populated in the
    /// background. Nothing for maps that grow.
    fn preallocated(&self) -> Vec<&Region> {
        Vec::new()
    }

    /// Address of the value, for a program on `worker` (`map_lookup_elem`).
    fn lookup(&self, _worker: usize, _key: &[u8]) -> Option<NonNull<u8>> {
        None
    }

    /// Address of the value of another CPU (`map_lookup_percpu_elem`).
    fn lookup_percpu(&self, _key: &[u8], _cpu: u32) -> Option<NonNull<u8>> {
        None
    }

    /// Stores one value, for a program on `worker` (`map_update_elem`).
    fn update(&self, _worker: usize, _key: &[u8], _value: &[u8], _flags: u64) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Removes an element (`map_delete_elem`).
    fn delete(&self, _worker: usize, _key: &[u8]) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// `map_push_elem`
    fn push(&self, _value: &[u8], _flags: u64) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// `map_pop_elem`
    fn pop(&self, _out: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// `map_peek_elem`
    fn peek(&self, _out: &mut [u8]) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// `map_for_each_callback`: the number of elements visited.
    fn for_each(&self, _worker: usize, _visit: &mut Visit<'_>) -> Result<u64, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Shows the element whose value an address lies in, if there is one; not for per-CPU kinds.
    fn element_at(&self, _address: u64, _visit: &mut dyn FnMut(Element<'_>)) {}

    /// The value as user space sees it.
    fn read(&self, _key: &[u8], _locked: bool) -> Result<Value, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// Stores a value from user space.
    fn write(&self, key: &[u8], value: &Value, flags: u64) -> Result<(), Errno> {
        match value {
            Value::One(bytes) => self.update(USER, key, bytes, flags),
            Value::PerCpu(_) => Err(Errno::EINVAL),
        }
    }

    /// Removes an element and gives its value back.
    fn take(&self, _key: &[u8], _locked: bool) -> Result<Value, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// The key after `key`, or the first one (`map_get_next_key`).
    fn next_key(&self, _key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    /// All values of a kind without keys, the oldest first.
    fn queued(&self) -> Vec<Value> {
        Vec::new()
    }

    /// Elements in the map now; `None` when the kind doesn't count.
    fn count(&self) -> Option<u64> {
        None
    }
}
