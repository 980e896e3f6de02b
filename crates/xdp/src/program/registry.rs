//! Programs by id: what program arrays and maps of targets hold.

use std::sync::{Arc, PoisonError, RwLock};

use towpath_bpf::interp::Code;

use crate::compiled::{Compilation, Compiled};

/// All programs that maps may name, by id. Ids start at 1 and are never reused.
///
/// A map holds only ids, because `crates/maps` knows no programs.
#[derive(Debug, Default)]
pub struct Programs {
    /// By id, less one; empty once it was removed.
    entries: RwLock<Vec<Option<Entry>>>,
}

/// One program in the forms it can run in.
#[derive(Debug, Clone)]
struct Entry {
    code: Arc<Code>,
    compiled: Option<Arc<Compiled>>,
}

impl Programs {
    /// Gives a program an id.
    pub(crate) fn add(&self, code: Arc<Code>, compiled: Option<Arc<Compiled>>) -> u32 {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.push(Some(Entry { code, compiled }));
        entries.len() as u32
    }

    /// Has a program run in the interpreter from now on.
    pub(crate) fn interpret(&self, id: u32) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(Some(entry)) = (id as usize).checked_sub(1).and_then(|at| entries.get_mut(at)) {
            entry.compiled = None;
        }
    }

    /// Forgets a program that no map names any more.
    pub(crate) fn remove(&self, id: u32) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = (id as usize).checked_sub(1).and_then(|at| entries.get_mut(at)) {
            *entry = None;
        }
    }

    /// The program with an id.
    pub fn get(&self, id: u32) -> Option<Arc<Code>> {
        Some(self.entry(id)?.code)
    }

    /// The program with an id, if it is compiled.
    pub(crate) fn compiled(&self, id: u32) -> Option<Compilation> {
        let Entry { code, compiled } = self.entry(id)?;
        Some((code, compiled?))
    }

    fn entry(&self, id: u32) -> Option<Entry> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        entries.get((id as usize).checked_sub(1)?)?.clone()
    }
}
