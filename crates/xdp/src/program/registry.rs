//! Programs by id: what program arrays and maps of targets hold.

use std::sync::{Arc, PoisonError, RwLock};

use towpath_bpf::interp::Code;

/// All programs that maps may name, by id. Ids start at 1 and are never reused.
///
/// A map holds only ids, because `crates/maps` knows no programs.
#[derive(Debug, Default)]
pub struct Programs {
    codes: RwLock<Vec<Arc<Code>>>,
}

impl Programs {
    /// Gives a program an id.
    pub fn add(&self, code: Arc<Code>) -> u32 {
        let mut codes = self.codes.write().unwrap_or_else(PoisonError::into_inner);
        codes.push(code);
        codes.len() as u32
    }

    /// The program with an id.
    pub fn get(&self, id: u32) -> Option<Arc<Code>> {
        let codes = self.codes.read().unwrap_or_else(PoisonError::into_inner);
        codes.get((id as usize).checked_sub(1)?).cloned()
    }
}
