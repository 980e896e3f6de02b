//! Stack use of whole call chains: 512 bytes at most, 256 below a tail call
//! (`check_max_stack_depth`).

use std::collections::HashMap;

use crate::errno::Errno;
use crate::insn::STACK_BYTES;

use super::env::{Result, Verifier};
use super::info::Subprog;
use super::state::FRAME_COUNT_MAX;

/// Largest stack use of the callers of a function with a tail call, in bytes.
const TAIL_CALL_STACK_MAX: u32 = 256;

/// A call or callback reference, with its caller's instruction.
#[derive(Clone, Copy)]
struct Edge {
    idx: usize,
    callee: usize,
    direct: bool,
}

impl Verifier<'_> {
    /// Checks every call chain from the entry and from each function that starts a stack.
    pub(crate) fn check_stack_depth(&mut self) -> Result<()> {
        let edges = self.call_edges();
        let roots: Vec<usize> = (0..self.learned.subprogs.len())
            .filter(|&index| index == 0 || self.learned.subprogs[index].starts_stack())
            .collect();
        // Most stack seen above each function, so that a function is visited again only at a
        // greater depth.
        let mut seen = HashMap::new();
        self.check_throws_in_callbacks()?;
        for root in roots {
            let mut chain = vec![root];
            self.walk_calls(&edges, &mut chain, 0, &mut seen)?;
        }
        Ok(())
    }

    /// Checks that no callback may throw, nor any function that it calls: an exception ends the
    /// program, and a helper that calls back could not clean up.
    fn check_throws_in_callbacks(&self) -> Result<()> {
        let throws = |subprog: &Subprog| {
            subprog.might_throw && (subprog.is_callback || subprog.is_exception_callback)
        };
        let Some(index) = self.learned.subprogs.iter().position(throws) else { return Ok(()) };
        let Subprog { start, end, .. } = self.learned.subprogs[index];
        let own = (start..end).find(|&idx| self.learned.aux[idx].throws);
        let idx = own.unwrap_or(start);
        let message = format!("bpf_throw kfunc cannot be called from callback subprog {index}");
        Err(self.reject_at(idx, Errno::EINVAL, message))
    }

    fn call_edges(&mut self) -> Vec<Vec<Edge>> {
        let mut edges = vec![Vec::new(); self.learned.subprogs.len()];
        for idx in 0..self.input.prog.insns.len() {
            let insn = self.insn_at(idx);
            let owner = self.subprog_of(idx);
            if insn.is_tail_call() {
                self.learned.subprogs[owner].has_tail_call = true;
            }
            let direct = insn.is_pseudo_call();
            if (direct || insn.is_func_ref())
                && let Some(callee) = self.callee(idx, &insn)
            {
                edges[owner].push(Edge { idx, callee, direct });
            }
        }
        edges
    }

    /// Bytes that one frame counts: machine code keeps the stack aligned to 16.
    pub(crate) fn frame_bytes(&self, subprog: usize) -> u32 {
        self.counted_stack(subprog).next_multiple_of(16)
    }

    fn walk_calls(
        &mut self,
        edges: &[Vec<Edge>],
        chain: &mut Vec<usize>,
        above: u32,
        seen: &mut HashMap<(usize, usize), u32>,
    ) -> Result<()> {
        let Some(&subprog) = chain.last() else { return Ok(()) };
        let start = self.learned.subprogs[subprog].start;
        if chain.len() > 1 && self.learned.subprogs[subprog].has_tail_call {
            if above >= TAIL_CALL_STACK_MAX {
                let message = format!(
                    "tail_calls are not allowed when call stack of previous frames is {above} bytes. Too large"
                );
                let hint = self.chain_hint(&chain[..chain.len() - 1], TAIL_CALL_STACK_MAX);
                return Err(self.rejection_at(Some(start), Errno::EACCES, message, &hint));
            }
            for &caller in chain.iter() {
                self.learned.subprogs[caller].tail_call_reachable = true;
            }
        }
        self.learned.subprogs[subprog].tail_call_reachable |=
            self.learned.subprogs[subprog].has_tail_call;
        let depth = above + self.frame_bytes(subprog);
        if depth > STACK_BYTES as u32 {
            let count = chain.len();
            let message = format!("combined stack size of {count} calls is {depth}. Too large");
            let hint = self.chain_hint(chain, STACK_BYTES as u32);
            return Err(self.rejection_at(Some(start), Errno::EACCES, message, &hint));
        }
        for edge in &edges[subprog] {
            if self.learned.subprogs[edge.callee].is_exception_callback {
                let message = format!("insn {} cannot call exception cb directly", edge.idx);
                return Err(self.reject_at(edge.idx, Errno::EINVAL, message));
            }
            // Async callbacks start on a stack of their own.
            if !edge.direct && self.learned.subprogs[edge.callee].is_async_callback {
                continue;
            }
            if chain.len() >= FRAME_COUNT_MAX {
                let message = format!("the call stack of {} frames is too deep !", chain.len() + 1);
                return Err(self.reject_at(edge.idx, Errno::E2BIG, message));
            }
            let key = (edge.callee, chain.len());
            let tail_calls = self.learned.subprogs[edge.callee].tail_call_reachable;
            if !tail_calls && seen.get(&key).is_some_and(|&deepest| deepest >= depth) {
                continue;
            }
            seen.insert(key, depth);
            chain.push(edge.callee);
            self.walk_calls(edges, chain, depth, seen)?;
            chain.pop();
        }
        Ok(())
    }
}
