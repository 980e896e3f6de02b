//! Arguments of functions that helpers and kfuncs call (`set_*_callback_state`).

use crate::errno::Errno;
use crate::map::Shape;
use crate::proto::{HelperProto, KfuncId, Ties, id};

use super::super::env::{Result, Verifier};
use super::super::reg::{Base, BtfRef, BtfSource, DynptrKind, Flags, MapRef, Payload, Reg};
use super::super::state::Frame;
use super::dynptr::dynptr_reg;
use super::graph::element;
use super::meta::CallMeta;

impl Verifier<'_> {
    /// Follows the callback of a helper.
    pub(super) fn call_back_from_helper(
        &mut self,
        helper: &HelperProto,
        meta: &CallMeta,
    ) -> Result<()> {
        let subprog = self.callback_of(meta)?;
        // The call whose end invalidates the function's arguments, in the form of `Reg::frame`.
        let is_tied = helper.ties.has(Ties::CALLBACK);
        let call = if is_tied { self.path.cur.frames.len() as u32 + 1 } else { 0 };
        match helper.id {
            id::FOR_EACH_MAP_ELEM => {
                self.check_for_each(meta)?;
                self.push_callback_call(subprog, false, false, |_, caller, callee| {
                    let map = caller.regs[1];
                    set_map_args(callee, &map);
                    callee.regs[2].frame = call;
                    callee.regs[4] = caller.regs[3];
                    callee.callback_ret_range = (0, 1);
                    Ok(())
                })
            }
            id::LOOP => self.call_back_from_loop(subprog),
            id::TIMER_SET_CALLBACK => {
                self.push_callback_call(subprog, true, false, |_, caller, callee| {
                    set_map_args(callee, &caller.regs[1]);
                    callee.in_async_callback = true;
                    callee.callback_ret_range = (0, 0);
                    Ok(())
                })
            }
            id::FIND_VMA => {
                let vma = self.kernel_struct("vm_area_struct")?;
                self.push_callback_call(subprog, false, false, |_, caller, callee| {
                    callee.regs[1] = caller.regs[1];
                    callee.regs[2] = Reg::pointer(Base::BtfId, Flags::NONE, Payload::Btf(vma));
                    callee.regs[3] = caller.regs[4];
                    callee.callback_ret_range = (0, 1);
                    Ok(())
                })
            }
            id::USER_RINGBUF_DRAIN => {
                self.push_callback_call(subprog, false, false, |v, caller, callee| {
                    callee.regs[1] = dynptr_reg(DynptrKind::Local, true);
                    callee.regs[1].id = v.new_id();
                    callee.regs[1].frame = call;
                    callee.regs[2] = caller.regs[3];
                    callee.callback_ret_range = (0, 1);
                    Ok(())
                })
            }
            _ => Err(self.internal("a helper that should not call back")),
        }
    }

    /// Follows the callback of a kfunc.
    pub(super) fn call_back_from_kfunc(&mut self, kfunc: KfuncId, meta: &CallMeta) -> Result<()> {
        let subprog = self.callback_of(meta)?;
        match kfunc {
            KfuncId::RbtreeAddImpl => {
                let Some(node) = meta.root.as_ref().and_then(element) else {
                    return Err(self.internal("a tree of nothing"));
                };
                self.push_callback_call(subprog, false, false, |v, _, callee| {
                    for regno in [1, 2] {
                        let mut reg = node;
                        v.set_non_owning(&mut reg)?;
                        callee.regs[regno] = reg;
                    }
                    callee.callback_ret_range = (0, 1);
                    Ok(())
                })
            }
            KfuncId::WqSetCallbackImpl => {
                self.push_callback_call(subprog, true, true, |_, caller, callee| {
                    set_map_args(callee, &caller.regs[1]);
                    callee.in_async_callback = true;
                    callee.callback_ret_range = (0, 0);
                    Ok(())
                })
            }
            _ => self.push_callback_call(subprog, true, true, |_, caller, callee| {
                set_map_args(callee, &caller.regs[3]);
                callee.in_async_callback = true;
                callee.callback_ret_range = (i32::MIN, i32::MAX);
                Ok(())
            }),
        }
    }

    /// Follows the callback of `bpf_loop`: the bound decides whether it runs again.
    fn call_back_from_loop(&mut self, subprog: usize) -> Result<()> {
        self.mark_chain_precision(1)?;
        // Linux 6.18 takes a pointer for 0 here, and never verifies the function.
        let bound = if self.reg(1).is_scalar() { self.reg(1).var.umax } else { u64::MAX };
        if u64::from(self.path.cur.frame().callback_depth) >= bound {
            self.path.cur.frame_mut().callback_depth = 0;
            return Ok(());
        }
        self.push_callback_call(subprog, false, false, |_, caller, callee| {
            callee.regs[1] = Reg::UNKNOWN;
            callee.regs[2] = caller.regs[3];
            callee.callback_ret_range = (0, 1);
            Ok(())
        })
    }

    fn callback_of(&self, meta: &CallMeta) -> Result<usize> {
        meta.subprog.ok_or_else(|| self.internal("a callback argument without a function"))
    }

    fn check_for_each(&self, meta: &CallMeta) -> Result<()> {
        match self.meta_map(meta)?.kind.spec().shape {
            Shape::Array | Shape::Table => return Ok(()),
            Shape::Opaque
            | Shape::TableOfHandles
            | Shape::Trie
            | Shape::Handles
            | Shape::Programs
            | Shape::Targets => {}
        }
        Err(self.reject(Errno::ENOTSUPP, "callback function not allowed for map"))
    }

    /// A structure of the kernel, by name.
    pub(super) fn kernel_struct(&self, name: &str) -> Result<BtfRef> {
        match self.input.prog.kernel_btf.find_composite(name) {
            Some(id) => Ok(BtfRef { source: BtfSource::Kernel, id }),
            None => {
                let message = format!("kernel type information has no struct {name}");
                Err(self.reject_hint(
                    Errno::EINVAL,
                    message,
                    "the type information the program was linked against lacks it: link against \
                     a kernel's (--btf)",
                ))
            }
        }
    }
}

/// Sets map, key and value as arguments of callbacks about an element of a map.
fn set_map_args(callee: &mut Frame, from: &Reg) {
    let map = from.map().unwrap_or(MapRef { index: 0, inner: false });
    let payload = Payload::Map { map, uid: 0 };
    callee.regs[1] = Reg::pointer(Base::ConstMapPtr, Flags::NONE, payload);
    callee.regs[2] = Reg::pointer(Base::MapKey, Flags::NONE, payload);
    callee.regs[3] = Reg::pointer(Base::MapValue, Flags::NONE, payload);
}
