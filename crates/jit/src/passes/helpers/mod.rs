//! Cheaper forms of helpers: checksum differences of constant sizes become sums, queries of the
//! machine's state loads, and other helpers that programs call for each packet direct calls of the
//! runtime's functions.

mod checksum;

use towpath_bpf::proto::id;

use super::Context;
use super::emit::{Emitter, call, rewrite};
use crate::trust::Trust;
use crate::xir::{
    Alias, Arg, AtomicOp, BinaryOp, CtxField, Function, Op, Place, RuntimeFunction, Type, UnaryOp,
    Width,
};

pub(super) fn lower(function: &mut Function, context: Context<'_>) {
    rewrite(function, context, |emitter, op| match op {
        Op::CallHelper { id, args } => emitter.helper(*id, args),
        _ => None,
    });
}

impl Emitter<'_> {
    fn helper(&mut self, helper: u32, args: &[Arg]) -> Option<Op> {
        let direct = |function, args: &[Arg]| Some(call(function, args.to_vec()));
        match (helper, args) {
            (id::CSUM_DIFF, [from, from_size, to, to_size, seed]) => {
                let sizes = (self.constant_of(from_size), self.constant_of(to_size));
                match self.csum_diff(from, sizes.0, to, sizes.1, seed) {
                    Some(op) => Some(op),
                    None => direct(RuntimeFunction::CsumDiff, args),
                }
            }
            (id::GET_SMP_PROCESSOR_ID, _) => {
                let worker = self.value(Type::I32, Op::WorkerId);
                Some(Op::Unary(UnaryOp::Zext, worker))
            }
            (id::GET_NUMA_NODE_ID, _) => Some(Op::Const(0)),
            (id::XDP_GET_BUFF_LEN, _) => Some(self.frame_len()),
            (id::KTIME_GET_NS, _) => direct(RuntimeFunction::Ktime, &[]),
            (id::JIFFIES64, _) => direct(RuntimeFunction::Jiffies, &[]),
            (id::GET_PRANDOM_U32, _) => direct(RuntimeFunction::Random, &[]),
            (id::REDIRECT, _) => direct(RuntimeFunction::Redirect, args),
            (id::REDIRECT_MAP, _) => direct(RuntimeFunction::RedirectMap, args),
            (id::XDP_LOAD_BYTES, [_, args @ ..]) if self.is_buffer(args.get(1)) => {
                direct(RuntimeFunction::LoadBytes, args)
            }
            (id::XDP_STORE_BYTES, [_, args @ ..]) if self.is_buffer(args.get(1)) => {
                direct(RuntimeFunction::StoreBytes, args)
            }
            (id::CHECK_MTU, [_, args @ ..]) if self.is_buffer(args.get(1)) => {
                direct(RuntimeFunction::CheckMtu, args)
            }
            (id::KPTR_XCHG, [Arg::Value(place), Arg::Value(new)]) if self.is_believed() => {
                let place =
                    Place { base: *place, offset: 0, width: Width::W64, alias: Alias::Other };
                let is_null = self.constant_of(&args[1]) == Some(0);
                let op = if is_null { AtomicOp::Take } else { AtomicOp::Exchange };
                Some(Op::AtomicRmw { place, op, value: *new })
            }
            (id::RINGBUF_RESERVE, [map, size, flags])
                if self.is_believed() && self.constant_of(flags) == Some(0) =>
            {
                direct(RuntimeFunction::RingReserve, &[map.clone(), size.clone()])
            }
            (id::RINGBUF_SUBMIT, [record, _flags]) if self.is_believed() => {
                direct(RuntimeFunction::RingSubmit, std::slice::from_ref(record))
            }
            (id::RINGBUF_DISCARD, [record, _flags]) if self.is_believed() => {
                direct(RuntimeFunction::RingDiscard, std::slice::from_ref(record))
            }
            (id::SPIN_LOCK, _) => direct(RuntimeFunction::SpinLock, args),
            (id::SPIN_UNLOCK, _) => direct(RuntimeFunction::SpinUnlock, args),
            _ => None,
        }
    }

    /// Whether a buffer needs no check: it is named stack bytes, or the verifier is trusted.
    fn is_buffer(&self, arg: Option<&Arg>) -> bool {
        let is_stack = matches!(arg, Some(Arg::StackRead(_) | Arg::StackReadWrite(_)));
        is_stack || (arg.is_some() && self.is_believed())
    }

    /// Whether facts of the verifier need no check.
    fn is_believed(&self) -> bool {
        self.context.trust == Trust::Verified
    }

    /// `data_end - data`, plus the bytes in frags.
    fn frame_len(&mut self) -> Op {
        let data = self.value(Type::I64, Op::CtxLoad(CtxField::Data));
        let data_end = self.value(Type::I64, Op::CtxLoad(CtxField::DataEnd));
        let linear = self.binary(BinaryOp::Sub, data_end, data);
        let frags = self.value(Type::I32, Op::CtxLoad(CtxField::FragsLen));
        let frags = self.zext(frags);
        Op::Binary(BinaryOp::Add, linear, frags)
    }
}
