//! A program's code in all forms between object file and machine code: plain data, shared by the
//! daemon and its client.

use serde::{Deserialize, Serialize};
use towpath_bpf::Linked;
use towpath_bpf::disasm::Disasm;
use towpath_bpf::program::Line;
use towpath_maps::MapSet;
use towpath_xdp::program::{Form, MachineCode};
use towpath_xdp::{CompileError, Program};
use utoipa::ToSchema;

use crate::model::globals::hex;

/// Forms of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum CodeForm {
    /// Linked instructions, with maps, subprograms and types resolved.
    Xlated,
    /// Linked instructions with their C lines.
    Source,
    /// The compiler's own representation, after all passes.
    Xir,
    /// The compiler's input to Cranelift.
    Clif,
    /// LLVM IR after LLVM's passes.
    Llvm,
    /// The current machine code.
    Jited,
}

/// A program's code.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum CodeView {
    /// Instructions.
    Insns(InsnsView),
    /// Text of a compiler representation.
    Text(TextView),
    /// Machine code.
    Machine(MachineView),
}

/// Instructions.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct InsnsView {
    /// Name of the program.
    pub program: String,
    /// Section of the program.
    pub section: String,
    /// The instructions.
    pub insns: Vec<InsnView>,
}

/// An instruction.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct InsnView {
    /// Number of the instruction.
    pub insn: usize,
    /// Name of the function that begins here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Bytes of the instruction, in hex.
    pub bytes: String,
    /// Disassembly.
    pub text: String,
    /// The C line that begins here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceView>,
}

/// A C line.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SourceView {
    /// The file.
    pub file: String,
    /// The line number.
    pub line: u32,
    /// The column.
    pub column: u32,
    /// Text of the line.
    pub text: String,
}

/// The text of a compiler representation.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TextView {
    /// Name of the program.
    pub program: String,
    /// `xir`, `clif` or `llvm`.
    pub form: CodeForm,
    /// The text.
    pub text: String,
}

/// Machine code.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MachineView {
    /// Name of the program.
    pub program: String,
    /// The code, in hex.
    pub code: String,
    /// Offset and name of each function, in order.
    pub functions: Vec<(usize, String)>,
    /// Maps whose addresses occur in the code.
    pub maps: Vec<MapPlace>,
    /// C lines by code offset, in order; empty for programs without line information.
    #[serde(default)]
    pub lines: Vec<LineView>,
}

/// A C line, with the offset at which its code begins.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LineView {
    /// Offset in bytes from the start of the code.
    pub offset: usize,
    /// The line.
    pub source: SourceView,
}

/// Addresses of a map.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MapPlace {
    /// Name of the map.
    pub name: String,
    /// Address of the map.
    pub handle: u64,
    /// Address and size in bytes of an array's values.
    pub values: Option<(u64, u64)>,
}

impl CodeView {
    /// The code of a loaded program.
    ///
    /// # Errors
    ///
    /// Fails if the program cannot be compiled, or LLVM is not available.
    pub fn of(program: &Program, form: CodeForm) -> Result<CodeView, CompileError> {
        let linked = program.verified().map(|it| it.linked()).ok_or(CompileError::Unverified)?;
        let options = towpath_xdp::program::LoadOptions::default().jit;
        let as_text = match form {
            CodeForm::Xlated | CodeForm::Source => {
                return Ok(CodeView::Insns(InsnsView::of(linked, form == CodeForm::Source)));
            }
            CodeForm::Jited => {
                let code = program.code_listing(&options)?;
                let machine = MachineView::of(linked, &code, program.maps());
                return Ok(CodeView::Machine(machine));
            }
            CodeForm::Xir => Form::Xir,
            CodeForm::Clif => Form::Clif,
            CodeForm::Llvm => Form::Llvm,
        };
        let text = program.listing(as_text, &options)?;
        Ok(CodeView::Text(TextView { program: program.name().to_owned(), form, text }))
    }
}

impl InsnsView {
    /// The instructions of a linked program.
    pub fn of(linked: &Linked, with_source: bool) -> InsnsView {
        let mut insns = Vec::with_capacity(linked.insns.len());
        let mut slot = 0;
        while let (Some(insn), Some(text)) = (linked.insns.get(slot), Disasm::of(linked, slot)) {
            let function = linked.functions.iter().find(|it| it.start as usize == slot);
            let slots = if insn.is_ld_imm64() { 2 } else { 1 };
            let end = (slot + slots).min(linked.insns.len());
            let bytes = linked.insns[slot..end].iter().flat_map(|insn| insn.to_le_bytes());
            insns.push(InsnView {
                insn: slot,
                function: function.map(|function| function.name.clone()),
                bytes: bytes.map(|byte| format!("{byte:02x}")).collect(),
                text: text.to_string(),
                source: source_starting_at(linked, slot).filter(|_| with_source),
            });
            slot = end;
        }
        InsnsView { program: linked.name.clone(), section: linked.section.clone(), insns }
    }
}

/// The C line whose first instruction is at `slot`.
fn source_starting_at(linked: &Linked, slot: usize) -> Option<SourceView> {
    let line = linked.line_of(slot)?;
    (line.insn as usize == slot).then(|| SourceView::of(line))
}

impl SourceView {
    fn of(line: &Line) -> SourceView {
        let Line { insn: _, file, text, line, column } = line;
        let (file, text) = (file.to_string(), text.to_string());
        SourceView { file, line: *line, column: *column, text }
    }
}

impl MachineView {
    /// The machine code, with the meaning of its addresses.
    pub fn of(linked: &Linked, code: &MachineCode, maps: &MapSet) -> MachineView {
        let place = |map: &std::sync::Arc<towpath_maps::Map>| {
            let is_array = map.kind().is_array();
            let first = is_array.then(|| map.lookup(0, &0u32.to_ne_bytes())).flatten();
            let bytes = u64::from(map.value_size().next_multiple_of(8));
            MapPlace {
                name: map.name().to_owned(),
                handle: map.handle(),
                values: first.map(|it| (it.as_ptr() as u64, bytes * u64::from(map.max_entries()))),
            }
        };
        let line_of = |slot: u32| linked.line_of(slot as usize).map(|line| (line.insn, line));
        let lines =
            code.origins.iter().filter_map(|&(offset, slot)| Some((offset, line_of(slot)?)));
        let mut lines: Vec<_> = lines.collect();
        // Instructions of the same line are adjacent.
        lines.dedup_by_key(|(_, (first, _))| *first);
        let line = |&(offset, (_, line)): &(usize, (u32, &Line))| LineView {
            offset,
            source: SourceView::of(line),
        };
        MachineView {
            lines: lines.iter().map(line).collect(),
            program: linked.name.clone(),
            code: hex(&code.bytes),
            functions: code.functions.clone(),
            maps: maps.maps().iter().map(place).collect(),
        }
    }
}
