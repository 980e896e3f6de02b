//! The call graph: callers, sizes of functions, and the stack of call chains.

use towpath_bpf::insn::STACK_BYTES;

use super::Call;
use crate::xir::{Dominators, Function, Module, Op};

/// Frames start at multiples of this.
const FRAME_ALIGN: u32 = 16;

/// The calls of a module, kept up to date while they disappear.
pub(super) struct Graph {
    /// Calls of each function, in order of their blocks.
    pub(super) calls: Vec<Vec<Call>>,
    /// Instructions of each function.
    pub(super) sizes: Vec<usize>,
    /// How often each function is called.
    called: Vec<usize>,
    /// Functions that are handed over as callbacks.
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

    /// How often a function's code is asked for.
    pub(super) fn uses(&self, callee: u32) -> usize {
        self.called[callee as usize] + usize::from(self.referred[callee as usize])
    }

    /// All functions, each behind those it calls. The verifier refuses recursion.
    pub(super) fn callees_first(&self) -> Vec<u32> {
        let mut order = Vec::with_capacity(self.calls.len());
        let mut seen = vec![false; self.calls.len()];
        for root in 0..self.calls.len() as u32 {
            // Depth first without recursion: a function and how many of its calls were visited.
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

    /// Where a callee's frame goes in the caller's: below what the caller's own bytecode uses, not
    /// below what it has taken in already. All of that has ended when another call begins.
    fn frame(&self, module: &Module, caller: usize) -> u32 {
        module.functions[caller].own_stack_bytes.next_multiple_of(FRAME_ALIGN)
    }

    /// Whether all chains of calls still fit the stack when the callee's frame is the caller's.
    pub(super) fn stack_fits(&self, module: &Module, caller: usize, call: &Call) -> bool {
        let bytes = |function: usize| module.functions[function].stack_bytes;
        let aligned = |bytes: u32| bytes.next_multiple_of(FRAME_ALIGN);
        let order = self.callees_first();
        // What each function needs for itself and those it calls.
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

    /// The callee is about to become part of the caller; gives its frame pointer's distance from
    /// the caller's.
    pub(super) fn take_in(&mut self, module: &Module, caller: usize, call: &Call) -> i16 {
        let callee = call.callee as usize;
        self.sizes[caller] += self.sizes[callee];
        self.called[callee] -= 1;
        // They are elsewhere in the caller, but that is asked for no more.
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
        // Two frames and what they hold fit the stack, so this fits too.
        -(self.frame(module, caller) as i16)
    }
}
