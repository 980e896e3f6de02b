//! Inline `bpf_xdp_adjust_head`: most frames have no metadata, and room in front.

use std::mem::offset_of;

use cranelift_codegen::ir::{self, InstBuilder, MemFlagsData, condcodes::IntCC, types};
use towpath_bpf::proto::id;

use super::lower::Lowering;
use crate::machine_unsafe::Packet;

impl Lowering<'_, '_> {
    /// Moves the frame's start if nothing else has to move; all other cases, errors included, go to
    /// the helper, whose arguments are `args`.
    pub(super) fn adjust_head(&mut self, args: &[ir::Value]) -> ir::Value {
        let [same, above, moves, ask, done] = std::array::from_fn(|_| self.builder.create_block());
        let result = self.builder.append_block_param(done, types::I64);
        self.builder.set_cold_block(ask);
        let packet = self.packet();
        let data = self.packet_word(packet, offset_of!(Packet, data));
        let meta = self.packet_word(packet, offset_of!(Packet, data_meta));
        let has_none = self.builder.ins().icmp(IntCC::Equal, data, meta);
        self.branch(has_none, [(same, &[]), (ask, &[])]);

        // Signed numbers: a start that would lie in front of the buffer is below its header, too.
        self.builder.switch_to_block(same);
        let delta = self.builder.ins().ireduce(types::I32, args[1]);
        let moved = self.builder.ins().iadd(data, delta);
        let lowest = self.builder.ins().iconst(types::I32, i64::from(Packet::DATA_MIN));
        let has_room = self.builder.ins().icmp(IntCC::SignedGreaterThanOrEqual, moved, lowest);
        self.branch(has_room, [(above, &[]), (ask, &[])]);

        self.builder.switch_to_block(above);
        let end = self.packet_word(packet, offset_of!(Packet, data_end));
        let highest = self.builder.ins().iadd_imm_s(end, -i64::from(Packet::BYTES_MIN));
        let is_long = self.builder.ins().icmp(IntCC::SignedLessThanOrEqual, moved, highest);
        self.branch(is_long, [(moves, &[]), (ask, &[])]);

        self.builder.switch_to_block(moves);
        for offset in [offset_of!(Packet, data), offset_of!(Packet, data_meta)] {
            self.builder.ins().store(MemFlagsData::trusted(), moved, packet, offset as i32);
        }
        let zero = self.iconst(0);
        self.builder.ins().jump(done, &[zero.into()]);

        self.builder.switch_to_block(ask);
        let helper = (self.environment.callees.helper)(id::XDP_ADJUST_HEAD) as usize as u64;
        let asked = self.call_with_machine(helper, args);
        self.builder.ins().jump(done, &[asked.into()]);

        self.builder.switch_to_block(done);
        result
    }

    fn packet_word(&mut self, packet: ir::Value, offset: usize) -> ir::Value {
        self.builder.ins().load(types::I32, MemFlagsData::trusted(), packet, offset as i32)
    }
}
