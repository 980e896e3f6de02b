//! The function that runs when the program throws (`__exception_cb(name)`): named by a tag of the
//! entry function, called by no instruction, verified on its own (`btf_find_exception_cb`).

use crate::btf::Linkage;
use crate::errno::Errno;

use super::env::{Result, Verifier};

/// Start of the tag; the function's name follows.
const TAG: &str = "exception_callback:";

impl Verifier<'_> {
    /// Finds the callback, which is then followed like a global function that was called.
    pub(crate) fn find_exception_callback(&mut self) -> Result<()> {
        let names = self.exception_callback_names();
        let Some(name) = names.first() else { return Ok(()) };
        if names.len() > 1 {
            let message = "multiple exception callback tags for main subprog";
            return Err(self.rejection_at(None, Errno::EEXIST, message.to_owned(), ""));
        }
        let function = self.input.prog.functions.iter().find(|function| function.name == *name);
        let Some(function) = function else {
            let message = format!("exception callback '{name}' is not in the program");
            return Err(self.rejection_at(None, Errno::EINVAL, message, ""));
        };
        if function.linkage != Linkage::Global {
            let message = format!("exception callback '{name}' must have global linkage");
            let hint = "remove `static` from it";
            return Err(self.rejection_at(None, Errno::EINVAL, message, hint));
        }
        let Some(index) = self.subprog_at(function.start as usize).filter(|&index| index != 0)
        else {
            let message = format!("exception callback '{name}' is no function of its own");
            return Err(self.rejection_at(None, Errno::EINVAL, message, ""));
        };
        let subprog = &mut self.learned.subprogs[index];
        (subprog.global, subprog.called, subprog.is_exception_callback) = (true, true, true);
        self.learned.exception_callback = Some(index);
        Ok(())
    }

    fn exception_callback_names(&self) -> Vec<String> {
        let Some(btf) = self.input.prog.btf.as_deref() else { return Vec::new() };
        let entry = self.input.prog.functions.iter().find(|function| function.start == 0);
        let Some(entry) = entry.and_then(|entry| entry.type_id) else { return Vec::new() };
        let names = btf.decl_tags(entry, -1).filter_map(|tag| tag.strip_prefix(TAG));
        names.map(str::to_owned).collect()
    }
}
