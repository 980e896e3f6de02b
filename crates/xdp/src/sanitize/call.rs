//! Inputs of a call: keys, values, records, numbers, memory that it reads.

use std::sync::LazyLock;

use towpath_bpf::insn::{Insn, PSEUDO_KFUNC_CALL, REG_COUNT};
use towpath_bpf::map::{MapType, Values};
use towpath_bpf::proto::{self, Arg, ArgKind, Flags, HelperProto, KArg, KfuncId, KfuncProto, id};
use towpath_maps::Map;

use super::Sanitizer;
use super::effect::{Callee, Pending};
use super::finding::Kind;
use super::memory_checks::Region;
use crate::helpers;
use crate::run::Run;

impl Sanitizer {
    /// Checks a call of a helper or kfunc before it is made.
    pub(super) fn call(&mut self, run: &Run<'_>, insn: Insn, regs: &[u64; REG_COUNT]) {
        let args = [regs[1], regs[2], regs[3], regs[4], regs[5]];
        let number = insn.imm.cast_unsigned();
        let callee = match insn.src {
            PSEUDO_KFUNC_CALL => Callee::Kfunc(number),
            _ => Callee::Helper(number),
        };
        for loaded in self.loaded_from[1..=5].iter().filter(|addr| **addr != 0) {
            self.habits.used(*loaded);
        }
        let mut pending = Pending::new(run, callee, args, self.place);
        match callee {
            Callee::Helper(id) => {
                if let Some(helper) = helper_proto(id) {
                    self.helper(run, helper, &mut pending);
                }
            }
            Callee::Kfunc(number) => {
                if let Some(kfunc) = helpers::kfunc_proto(number) {
                    self.kfunc(kfunc, &mut pending);
                }
            }
        }
        self.pending = Some(pending);
    }

    fn helper(&mut self, run: &Run<'_>, helper: &HelperProto, pending: &mut Pending) {
        let args = pending.args;
        let is_map = |arg: &Arg| arg.kind == ArgKind::ConstMapPtr;
        let map = helper.args.iter().position(is_map).and_then(|at| run.map_by_handle(args[at]));
        for (index, arg) in helper.args.iter().enumerate() {
            let region = |len: u64| Region {
                function: helper.name,
                argument: index as u8 + 1,
                addr: args[index],
                len,
            };
            match (arg.kind, map) {
                (ArgKind::Anything | ArgKind::ConstSize | ArgKind::ConstSizeOrZero, _) => {
                    self.number(helper.name, index as u8 + 1, narrow(helper.id, index));
                }
                (ArgKind::MapKey, Some(map)) => self.key(run, map, region(map.key_size().into())),
                (ArgKind::MapValue, Some(map)) => {
                    let region = region(map.value_size().into());
                    self.value(map, arg.flags, region, pending);
                }
                (ArgKind::Mem, _) if args[index] != 0 => {
                    let len = if arg.flags.has(Flags::FIXED) {
                        arg.size.into()
                    } else {
                        args.get(index + 1).map_or(0, |&len| u64::from(len as u32))
                    };
                    self.memory(run, helper.id, arg.flags, region(len), pending);
                }
                (ArgKind::RingbufMem, _) => self.submitted(helper, region(0)),
                (ArgKind::Dynptr, _) if arg.flags.has(Flags::UNINIT) => {
                    pending.outputs.push((args[index], DYNPTR_BYTES, true));
                }
                _ => {}
            }
        }
    }

    fn key(&mut self, run: &Run<'_>, map: &Map, region: Region) {
        if self.shadow.is_defined(region.addr, region.len) {
            return;
        }
        let mut len = region.len;
        // Only the bits within the length of a prefix matter.
        if map.kind() == MapType::LpmTrie
            && region.function != "bpf_map_update_elem"
            && self.shadow.is_defined(region.addr, PREFIX_BYTES)
        {
            let bits = run.get(region.addr, PREFIX_BYTES as u32).unwrap_or(u64::MAX);
            len = len.min(PREFIX_BYTES.saturating_add(bits.div_ceil(8)));
        }
        let def = map.def();
        let ty = def.btf.as_deref().map(|btf| (btf, def.key_type));
        let subject = format!("the key of map {}", map.name());
        self.region(Kind::Key, &subject, ty, Region { len, ..region });
    }

    fn value(&mut self, map: &Map, flags: Flags, region: Region, pending: &mut Pending) {
        let asks = map.kind().values() == Values::Members;
        if flags.has(Flags::UNINIT) && !asks {
            pending.outputs.push((region.addr, region.len, true));
        } else if region.addr != 0 && !self.shadow.is_defined(region.addr, region.len) {
            let def = map.def();
            let ty = def.btf.as_deref().map(|btf| (btf, def.value_type));
            let subject = format!("the value for map {}", map.name());
            self.region_but(Kind::Value, &subject, ty, region, &special_bytes(map, self.kernel()));
        }
    }

    fn memory(
        &mut self,
        run: &Run<'_>,
        helper: u32,
        flags: Flags,
        region: Region,
        pending: &mut Pending,
    ) {
        if helper == id::FIB_LOOKUP {
            return self.fib(run, region, pending);
        }
        if flags.has(Flags::UNINIT) {
            let always = !matches!(helper, id::XDP_LOAD_BYTES);
            pending.outputs.push((region.addr, region.len, always));
            return;
        }
        let (kind, what) = match helper {
            id::RINGBUF_OUTPUT | id::PERF_EVENT_OUTPUT => (Kind::Record, "the record"),
            id::XDP_STORE_BYTES => (Kind::Packet, "data stored into the packet"),
            _ => (Kind::Argument, "the memory that it reads"),
        };
        self.region(kind, what, None, region);
        if flags.has(Flags::WRITE) {
            pending.outputs.push((region.addr, region.len, false));
        }
    }

    /// `bpf_fib_lookup` reads some members of its parameters, by family and flags
    /// (`bpf_ipv4_fib_lookup`, `bpf_ipv6_fib_lookup` in the kernel's net/core/filter.c).
    fn fib(&mut self, run: &Run<'_>, region: Region, pending: &mut Pending) {
        let Region { addr, len, .. } = region;
        pending.outputs.push((addr, len, false));
        if self.shadow.is_defined(addr, len) || len < FIB_BYTES {
            return;
        }
        let family = run.get(addr, 1).unwrap_or(0);
        let flags = pending.args[3];
        let mut parts = vec![(0, 12, "family, l4_protocol, ports, tot_len and ifindex")];
        let (flow, source, target) = if family == AF_INET { (1, 4, 4) } else { (4, 16, 16) };
        parts.push((12, flow, "tos or flowinfo"));
        if flags & FIB_SRC == 0 {
            parts.push((16, source, "the source address"));
        }
        parts.push((32, target, "the destination address"));
        if flags & FIB_TBID != 0 {
            parts.push((48, 4, "tbid"));
        }
        if flags & FIB_MARK != 0 {
            parts.push((52, 4, "mark"));
        }
        for (offset, len, name) in parts {
            let subject = format!("{name} in the parameters");
            let part = Region { addr: addr + offset, len, ..region };
            self.region(Kind::Argument, &subject, None, part);
        }
    }

    fn submitted(&mut self, helper: &HelperProto, region: Region) {
        let known = self.records.iter().find(|known| known.0 == region.addr).copied();
        if let (id::RINGBUF_SUBMIT, Some((_, len, _))) = (helper.id, known) {
            self.region(Kind::Record, "the record", None, Region { len, ..region });
        }
    }

    fn number(&mut self, function: &'static str, argument: u8, mask: u64) {
        let register = usize::from(argument);
        if self.bits[register] & mask != 0 {
            let message =
                format!("argument {argument} of {function} depends on bytes that were never set");
            self.of_register(Kind::Argument, register, argument, message);
        }
    }

    fn kfunc(&mut self, kfunc: &'static KfuncProto, pending: &mut Pending) {
        let args = pending.args;
        match kfunc.id {
            KfuncId::ResSpinLock | KfuncId::ResSpinLockIrqsave => self.locks += 1,
            KfuncId::ResSpinUnlock | KfuncId::ResSpinUnlockIrqrestore => {
                self.locks = self.locks.saturating_sub(1);
            }
            _ => {}
        }
        for (index, param) in kfunc.params.iter().enumerate().take(args.len()) {
            let argument = index as u8 + 1;
            let size = || args.get(index + 1).map_or(0, |&len| u64::from(len as u32));
            let mut written = |len: u64, always| pending.outputs.push((args[index], len, always));
            match param.kind {
                KArg::Scalar | KArg::Const | KArg::Size { .. } => {
                    self.number(kfunc.name, argument, u64::MAX);
                }
                KArg::MemSize { .. } if param.name == "bpf_tuple" => {
                    let (addr, len) = (args[index], size());
                    let region = Region { function: kfunc.name, argument, addr, len };
                    self.region(Kind::Argument, "the tuple that it reads", None, region);
                }
                KArg::MemSize { .. } if kfunc.id == KfuncId::CryptoCtxCreate => {
                    // Type, and the two lengths behind the key: what is read in any case.
                    let read = [(0, 16), (400, 8)];
                    for (offset, len) in read.into_iter().filter(|it| it.0 + it.1 <= size()) {
                        let addr = args[index].wrapping_add(offset);
                        let region = Region { function: kfunc.name, argument, addr, len };
                        self.region(Kind::Argument, "the parameters", None, region);
                    }
                }
                KArg::MemSize { .. } if args[index] != 0 => written(size(), true),
                // The reason why there is no context, or 0.
                KArg::Mem(len) => {
                    written(len.into(), kfunc.id == KfuncId::CryptoCtxCreate);
                }
                KArg::DynptrUninit => written(DYNPTR_BYTES, true),
                KArg::Iter(iter) => written(iter.slots() as u64 * 8, true),
                KArg::IrqFlag => written(8, true),
                _ => {}
            }
        }
    }
}

/// A mask of the bits of a number argument that the helper uses.
fn narrow(helper: u32, index: usize) -> u64 {
    match (helper, index) {
        (id::REDIRECT, 0)
        | (id::XDP_ADJUST_HEAD | id::XDP_ADJUST_META | id::XDP_ADJUST_TAIL, 1) => LOW,
        (id::TAIL_CALL, 2) | (id::XDP_LOAD_BYTES | id::XDP_STORE_BYTES, 1 | 3) => LOW,
        (id::CHECK_MTU, 1 | 3) | (id::CSUM_DIFF, _) => LOW,
        _ => u64::MAX,
    }
}

/// Bytes of a value that are not copied when it is put into its map: locks, timers, kptrs.
fn special_bytes(map: &Map, kernel: Option<&towpath_bpf::btf::Btf>) -> Vec<(u64, u64)> {
    let Some(kernel) = kernel else { return Vec::new() };
    let fields = towpath_bpf::verifier::special_fields(map.def(), kernel);
    fields.iter().map(|field| (field.offset.into(), field.size.into())).collect()
}

/// The prototype of a helper, by a table look-up.
fn helper_proto(id: u32) -> Option<&'static HelperProto> {
    static BY_ID: LazyLock<Vec<Option<&'static HelperProto>>> = LazyLock::new(|| {
        let len = proto::helpers().map(|it| it.id as usize + 1).max().unwrap_or(0);
        let mut by_id = vec![None; len];
        proto::helpers().for_each(|it| by_id[it.id as usize] = Some(it));
        by_id
    });
    BY_ID.get(id as usize).copied().flatten()
}

const LOW: u64 = 0xffff_ffff;
const PREFIX_BYTES: u64 = 4;
const DYNPTR_BYTES: u64 = 16;
/// `struct bpf_fib_lookup`
const FIB_BYTES: u64 = 64;
const AF_INET: u64 = 2;
const FIB_TBID: u64 = 1 << 3;
const FIB_SRC: u64 = 1 << 4;
const FIB_MARK: u64 = 1 << 5;
