//! Functions and modules: blocks, and their instructions and values.

use super::ir::{Block, Inst, InstData, Op, Terminator, Type, Value};

/// A block: parameters, instructions, and its terminator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockData {
    /// Values that every jump to the block supplies.
    pub params: Vec<Value>,
    /// Instructions in order.
    pub insts: Vec<Inst>,
    /// End of the block.
    pub end: Terminator,
}

/// One function of a program.
#[derive(Debug, Clone)]
pub struct Function {
    /// Name of the C function.
    pub name: String,
    /// First BPF instruction slot.
    pub start: u32,
    /// Bytes of BPF stack that it uses, without callees but with those that were inlined.
    pub stack_bytes: u32,
    /// The part of these bytes that its own bytecode uses.
    pub own_stack_bytes: u32,
    /// Functions that were inlined into this one.
    pub inlined: Vec<Inlined>,
    /// Blocks that are single-block loops with a number of rounds that is known in front of them.
    pub counted: Vec<Block>,
    /// Blocks by number; the first is the entry, whose parameters are the function's.
    pub blocks: Vec<BlockData>,
    /// Instructions by number; those that are in no block are dead.
    pub insts: Vec<InstData>,
    /// Types by value number.
    pub values: Vec<Type>,
}

/// A function that was inlined into another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inlined {
    /// First BPF instruction slot, by which facts of the verifier are found.
    pub start: u32,
    /// Offset of its frame pointer from that of the function that contains it.
    pub frame: i16,
}

/// A whole program, with the entry function first.
#[derive(Debug, Clone)]
pub struct Module {
    /// Functions, in the order of the linked program's.
    pub functions: Vec<Function>,
    /// The entry function in the form for the program's own bursts, if that differs: as a target of
    /// tail calls it runs for bursts of another program, in which maps have other numbers.
    pub own: Option<Function>,
    /// Whether its machine code masks addresses against speculation, and has barriers.
    pub masked: bool,
}

impl Module {
    /// All functions, in either form.
    pub fn all(&self) -> impl Iterator<Item = &Function> {
        self.functions.iter().chain(&self.own)
    }

    /// All functions, in either form, mutable.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Function> {
        self.functions.iter_mut().chain(&mut self.own)
    }

    /// The entry function for the program's own bursts.
    pub fn own_entry(&self) -> Option<&Function> {
        self.own.as_ref().or(self.functions.first())
    }

    /// Whether it contains a tail call.
    pub fn has_tail_calls(&self) -> bool {
        self.functions.iter().any(Function::has_tail_calls)
    }

    /// Instructions that are in a block, over all functions.
    pub fn live_insts(&self) -> usize {
        let blocks = self.functions.iter().flat_map(|function| &function.blocks);
        blocks.map(|block| block.insts.len()).sum()
    }
}

impl Function {
    /// Whether it contains a tail call.
    pub fn has_tail_calls(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block.end, Terminator::TailCall { .. }))
    }

    /// A function without blocks.
    pub fn new(name: impl Into<String>) -> Self {
        Function {
            name: name.into(),
            start: 0,
            stack_bytes: 0,
            own_stack_bytes: 0,
            inlined: Vec::new(),
            counted: Vec::new(),
            blocks: Vec::new(),
            insts: Vec::new(),
            values: Vec::new(),
        }
    }

    /// The entry block.
    pub const ENTRY: Block = Block(0);

    /// Adds a block whose end is unreachable so far.
    pub fn add_block(&mut self) -> Block {
        let data = BlockData { params: vec![], insts: vec![], end: Terminator::Unreachable };
        self.blocks.push(data);
        Block(self.blocks.len() as u32 - 1)
    }

    /// Adds a parameter behind a block's other ones.
    pub fn add_param(&mut self, block: Block, ty: Type) -> Value {
        let value = self.add_value(ty);
        self.block_mut(block).params.push(value);
        value
    }

    /// Appends an instruction that defines a value.
    pub fn push(&mut self, block: Block, origin: u32, ty: Type, op: Op) -> Value {
        let result = self.add_value(ty);
        self.push_data(block, InstData { op, result: Some(result), origin });
        result
    }

    /// Appends an instruction without a result.
    pub fn push_effect(&mut self, block: Block, origin: u32, op: Op) {
        self.push_data(block, InstData { op, result: None, origin });
    }

    /// Adds a value, which the caller has to define.
    pub fn add_value(&mut self, ty: Type) -> Value {
        self.values.push(ty);
        Value(self.values.len() as u32 - 1)
    }

    /// Adds an instruction that is in no block yet.
    pub fn add_inst(&mut self, data: InstData) -> Inst {
        self.insts.push(data);
        Inst(self.insts.len() as u32 - 1)
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> Type {
        self.values[value.0 as usize]
    }

    /// A block's contents.
    pub fn block(&self, block: Block) -> &BlockData {
        &self.blocks[block.0 as usize]
    }

    /// A block's contents, mutable.
    pub fn block_mut(&mut self, block: Block) -> &mut BlockData {
        &mut self.blocks[block.0 as usize]
    }

    /// An instruction.
    pub fn inst(&self, inst: Inst) -> &InstData {
        &self.insts[inst.0 as usize]
    }

    /// An instruction, mutable.
    pub fn inst_mut(&mut self, inst: Inst) -> &mut InstData {
        &mut self.insts[inst.0 as usize]
    }

    /// All block numbers.
    pub fn block_ids(&self) -> impl Iterator<Item = Block> + use<> {
        (0..self.blocks.len() as u32).map(Block)
    }

    /// The values that a block defines: its parameters, then its instructions' results.
    pub fn defined_in(&self, block: Block) -> impl Iterator<Item = Value> {
        let data = self.block(block);
        let results = data.insts.iter().filter_map(|&inst| self.inst(inst).result);
        data.params.iter().copied().chain(results)
    }

    fn push_data(&mut self, block: Block, data: InstData) {
        let inst = self.add_inst(data);
        self.block_mut(block).insts.push(inst);
    }
}
