//! Listings of a program at stages of its compilation.

use std::sync::Arc;

use towpath_jit::{CompileError, Options};

use super::Program;
use super::load::Addresses;
use crate::compiled;

/// An intermediate form of a program during compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Form {
    /// XIR after all passes.
    Xir,
    /// Cranelift's form, before Cranelift's own passes.
    Clif,
    /// LLVM's form, after LLVM's passes.
    Llvm,
}

/// A copy of the machine code of one program.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MachineCode {
    /// The code.
    pub bytes: Vec<u8>,
    /// Its original address: jumps inside it are relative, so only symbols depend on it.
    pub address: u64,
    /// Offset and name of each function, in order of their offsets.
    pub functions: Vec<(usize, String)>,
    /// Offsets at which the code of each BPF instruction starts, with the instruction's slot, in
    /// order; none for LLVM's code.
    pub origins: Vec<(usize, u32)>,
}

impl Program {
    /// The program in one of the forms between bytecode and machine code, as text.
    ///
    /// # Errors
    ///
    /// Fails with the compiler's reason for a refusal. A program loaded without a proof is refused.
    pub fn listing(&self, form: Form, options: &Options) -> Result<String, CompileError> {
        let verified = self.verified.as_deref().ok_or(CompileError::Unverified)?;
        let addresses = self.addresses();
        let slots = self.surroundings.programs.slots(self.maps.maps());
        let environment = compiled::environment(verified, &addresses, &self.maps, &slots);
        match form {
            Form::Xir => Ok(towpath_jit::optimized(verified, &environment, options)?.to_string()),
            Form::Clif => towpath_jit::clif_text(verified, &environment, options),
            Form::Llvm => {
                let form = towpath_jit::LlvmForm::Optimized;
                towpath_jit::llvm_text(verified, &environment, options, form)
            }
        }
    }

    /// Its present machine code, with names. In the interpreter, the code that tier 1 would make.
    ///
    /// # Errors
    ///
    /// As [`Program::listing`].
    pub fn code_listing(&self, options: &Options) -> Result<MachineCode, CompileError> {
        let verified = self.verified.as_deref().ok_or(CompileError::Unverified)?;
        let addresses = self.addresses();
        let slots = self.surroundings.programs.slots(self.maps.maps());
        let environment = compiled::environment(verified, &addresses, &self.maps, &slots);
        let module = towpath_jit::optimized(verified, &environment, options)?;
        let compiled_now;
        let program = match self.machine_code() {
            Some(program) => program,
            None => {
                compiled_now = towpath_jit::Program::compile(verified, &environment, options)?;
                &compiled_now
            }
        };
        let (bytes, offsets) = program.code();
        let names = module.functions.iter().map(|function| function.name.clone());
        let names = names.chain(std::iter::repeat_n("(entry)".to_owned(), offsets.len()));
        let mut functions: Vec<(usize, String)> = offsets.iter().copied().zip(names).collect();
        functions.sort();
        let (bytes, origins) = (bytes.to_vec(), program.origins().to_vec());
        Ok(MachineCode { bytes, address: program.entry(), functions, origins })
    }

    fn addresses(&self) -> Addresses<'_> {
        let linked = self.code.linked();
        let kernel = linked.map(|linked| Arc::clone(&linked.kernel_btf));
        Addresses { maps: &self.maps, kernel: kernel.unwrap_or_default() }
    }
}
