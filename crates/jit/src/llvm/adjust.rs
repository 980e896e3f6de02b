//! Inline `bpf_xdp_adjust_head`: most frames have no metadata, and room in front.

use std::mem::offset_of;

use towpath_bpf::proto::id;

use super::function::Lowering;
use super::module::LIKELY;
use super::symbols::Symbol;
use crate::machine_unsafe::{Machine, Packet};
use crate::xir::Alias;

impl Lowering<'_> {
    /// Moves the frame's start if nothing else has to move; all other cases, errors included, go to
    /// the helper, whose arguments are `args`.
    pub(super) fn adjust_head(&mut self, args: &[String; 5]) -> String {
        let packet = self.machine_field("ptr", offset_of!(Machine, packet));
        let [data, meta, end] =
            [offset_of!(Packet, data), offset_of!(Packet, data_meta), offset_of!(Packet, data_end)]
                .map(|offset| self.private_field("i32", &packet, offset));
        let delta = self.temporary(format_args!("trunc i64 {} to i32", args[1]));
        let moved = self.temporary(format_args!("add i32 {data}, {delta}"));
        let highest = self.temporary(format_args!("sub i32 {end}, {}", Packet::BYTES_MIN));
        // Signed numbers: a start that would lie in front of the buffer is below its header, too.
        let ask = self.new_label();
        self.unless(&format!("icmp eq i32 {data}, {meta}"), &ask);
        self.unless(&format!("icmp sge i32 {moved}, {}", Packet::DATA_MIN), &ask);
        self.unless(&format!("icmp sle i32 {moved}, {highest}"), &ask);
        for offset in [offset_of!(Packet, data), offset_of!(Packet, data_meta)] {
            let place = self
                .temporary(format_args!("getelementptr inbounds i8, ptr {packet}, i64 {offset}"));
            let scope = self.shared.scopes.suffix(Alias::Ctx);
            self.line(format_args!("store i32 {moved}, ptr {place}, align 4{scope}"));
        }
        let (from, done) = (self.label.clone(), self.new_label());
        self.line(format_args!("br label %{done}"));

        self.start(ask.clone());
        let asked = self.call_with_machine(Symbol::Helper(id::XDP_ADJUST_HEAD), args);
        self.line(format_args!("br label %{done}"));

        self.start(done);
        self.temporary(format_args!("phi i64 [ 0, %{from} ], [ {asked}, %{ask} ]"))
    }

    /// Continues if the comparison holds, as it usually does, and jumps to `otherwise` if not.
    fn unless(&mut self, comparison: &str, otherwise: &str) {
        let holds = self.temporary(format_args!("{comparison}"));
        let next = self.new_label();
        self.line(format_args!("br i1 {holds}, label %{next}, label %{otherwise}, !prof {LIKELY}"));
        self.start(next);
    }
}
