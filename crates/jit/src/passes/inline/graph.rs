//! The call graph: callers, sizes of functions, and the stack of call chains.

use towpath_bpf::insn::STACK_BYTES;

use super::Call;
use crate::xir::{Dominators, Function, Module, Op};

/// Alignment of frames, in bytes.
const FRAME_ALIGN: u32 = 16;

/// The calls of a module, updated when calls are inlined.
pub(super) struct Graph {
    /// Calls of each function, in order of their blocks.
    pub(super) calls: Vec<Vec<Call>>,
    /// Number of instructions of each function.
    pub(super) sizes: Vec<usize>,
    /// Number of calls of each function.
    called: Vec<usize>,
    /// Whether each function is passed as a callback.
    referred: Vec<bool>,
}

impl Graph {
    pub(super) fn new(module: &Module) -> Self {
        let count = module.functions.len();
        let mut graph = Graph {
            calls: Vec::with_capacity(count),
            sizes: Vec::with_capacity(count),
            called: vec![0; count],
            referred: vec![false; count],
        };
        for function in &module.functions {
            graph.add(function);
        }
        graph
    }

    fn add(&mut self, function: &Function) {
        let (mut calls, mut size) = (Vec::new(), 0);
        for &block in Dominators::new(function).order() {
            let insts = &function.block(block).insts;
            size += insts.len();
            for (position, &inst) in insts.iter().enumerate() {
                match function.inst(inst).op {
                    Op::Call { function: callee, .. } => {
                        calls.push(Call { callee, block, position });
                        self.called[callee as usize] += 1;
                    }
                    Op::FunctionRef(callee) => self.referred[callee as usize] = true,
                    _ => {}
                }
            }
        }
        self.calls.push(calls);
        self.sizes.push(size);
    }

    /// Number of uses of a function's code.
    pub(super) fn uses(&self, callee: u32) -> usize {
        self.called[callee as usize] + usize::from(self.referred[callee as usize])
    }

    /// All functions, each behind those it calls. The verifier refuses recursion.
    pub(super) fn callees_first(&self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.calls.len());
        let mut seen = vec![false; self.calls.len()];
        for root in 0..self.calls.len() as u32 {
            // Depth first without recursion: a function and the number of its calls visited so far.
            let mut path = vec![(root, 0)];
            while let Some((function, visited)) = path.pop() {
                if visited == 0 && std::mem::replace(&mut seen[function as usize], true) {
                    continue;
                }
                match self.calls[function as usize].get(visited) {
                    Some(call) => path.extend([(function, visited + 1), (call.callee, 0)]),
                    None => order.push(function),
                }
            }
        }
        order
    }

    /// Position of a callee's frame in the caller's: below the stack that the caller's own bytecode
    /// uses, but not below frames of other inlined callees, which have ended when another call
    /// begins.
    fn frame(&self, module: &Module, caller: usize) -> u32 {
        module.functions[caller].own_stack_bytes.next_multiple_of(FRAME_ALIGN)
    }

    /// Whether all chains of calls still fit the stack if the callee's frame is part of the
    /// caller's.
    pub(super) fn stack_fits(&self, module: &Module, caller: usize, call: &Call) -> bool {
        let bytes = |function: usize| module.functions[function].stack_bytes;
        let aligned = |bytes: u32| bytes.next_multiple_of(FRAME_ALIGN);
        let order = self.callees_first();
        // Stack bytes that each function needs for itself and its callees.
        let mut below = vec![0; order.len()];
        for &function in &order {
            let function = function as usize;
            let callees = self.calls[function].iter().map(|call| below[call.callee as usize]);
            let deepest = callees.max().unwrap_or(0);
            let own = match function == caller {
                true => {
                    let callee = self.frame(module, caller) + bytes(call.callee as usize);
                    bytes(caller).max(callee)
                }
                false => bytes(function),
            };
            below[function] = aligned(own) + deepest;
        }
        below.into_iter().all(|bytes| bytes <= STACK_BYTES as u32)
    }

    /// Updates the graph for a callee that becomes part of the caller; gives the offset of its
    /// frame pointer from the caller's.
    pub(super) fn take_in(&mut self, module: &Module, caller: usize, call: &Call) -> i16 {
        let callee = call.callee as usize;
        self.sizes[caller] += self.sizes[callee];
        self.called[callee] -= 1;
        // The calls have another place in the caller, which is not used any more.
        let taken: Vec<Call> = self.calls[callee].clone();
        for call in &taken {
            self.called[call.callee as usize] += 1;
        }
        self.calls[caller].retain(|other| other != call);
        self.calls[caller].extend(taken);
        if self.uses(call.callee) == 0 {
            for call in std::mem::take(&mut self.calls[callee]) {
                self.called[call.callee as usize] -= 1;
            }
        }
        // Both frames fit the stack, so this fits, too.
        -(self.frame(module, caller) as i16)
    }
}
