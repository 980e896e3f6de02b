//! Redirect calls without the runtime, as on tier 1: where they lead is written where the runtime
//! looks for it.

use std::mem::offset_of;

use super::function::{Lowering, zero};
use super::symbols::Symbol;
use crate::machine_unsafe::{Machine, RedirectCell};
use crate::redirects::{Redirect, XDP_REDIRECT};
use crate::xir::{Alias, Arg, MapMeta, RuntimeFunction};

impl Lowering<'_> {
    /// What a redirect call returns, when all that it does can be done here.
    pub(super) fn redirect(&mut self, callee: RuntimeFunction, args: &[Arg]) -> Option<String> {
        let redirect = self.targets.redirect(self.function, callee, args, self.is_burst)?;
        let (kind, words) = match redirect {
            Redirect::Entry { map, entries, key, action } => {
                let key = self.value(key).to_owned();
                return Some(self.redirect_by(map, entries, &key, action));
            }
            Redirect::Interface { ifindex } => {
                let ifindex = self.value(ifindex).to_owned();
                let words = self.temporary(format_args!("and i64 {ifindex}, {}", u32::MAX));
                (RedirectCell::INTERFACE, words)
            }
            Redirect::Queue { map, rank } => {
                let rank = self.value(rank).to_owned();
                let high = self.temporary(format_args!("shl i64 {rank}, 32"));
                (RedirectCell::ENTRY, self.temporary(format_args!("or i64 {high}, {map}")))
            }
            Redirect::Broadcast { map, exclude_ingress } => {
                let words = u64::from(exclude_ingress) << 32 | u64::from(map);
                (RedirectCell::BROADCAST, words.to_string())
            }
        };
        self.lead(kind, &words, &zero());
        Some(XDP_REDIRECT.to_string())
    }

    /// `__bpf_xdp_redirect_map`: a miss forgets an earlier redirect and returns `action`.
    fn redirect_by(&mut self, map: u32, entries: Option<u32>, key: &str, action: u64) -> String {
        let [hit, miss, done] = std::array::from_fn(|_| self.new_label());
        let key = self.temporary(format_args!("and i64 {key}, {}", u32::MAX));
        let entry = match entries {
            Some(entries) => self.entry_at(map, entries, &key, &miss),
            None => {
                let args = [self.map_handle(map), key.clone()];
                self.call_direct(RuntimeFunction::TargetLookup, &args)
            }
        };
        let found = self.temporary(format_args!("icmp ne i64 {entry}, 0"));
        self.line(format_args!("br i1 {found}, label %{hit}, label %{miss}"));

        self.start(hit.clone());
        let high = self.temporary(format_args!("shl i64 {key}, 32"));
        let words = self.temporary(format_args!("or i64 {high}, {map}"));
        self.lead(RedirectCell::ENTRY, &words, &entry);
        self.line(format_args!("br label %{done}"));

        self.start(miss.clone());
        let cell = self.redirect_cell();
        // No burst has this number.
        self.put("i32 0", &cell, offset_of!(RedirectCell, burst));
        self.line(format_args!("br label %{done}"));

        self.start(done);
        self.temporary(format_args!("phi i64 [ {XDP_REDIRECT}, %{hit} ], [ {action}, %{miss} ]"))
    }

    /// The entry at an index of an array of them, 0 when it is empty; goes to `miss` when the index
    /// is past the last.
    fn entry_at(&mut self, map: u32, entries: u32, key: &str, miss: &str) -> String {
        let look = self.new_label();
        let inside = self.temporary(format_args!("icmp ult i64 {key}, {entries}"));
        self.line(format_args!("br i1 {inside}, label %{look}, label %{miss}"));

        self.start(look);
        let base = self.shared.symbol(Symbol::MapMeta(map, MapMeta::Targets));
        let place = self.temporary(format_args!("getelementptr i64, ptr {base}, i64 {key}"));
        let scope = self.shared.scopes.suffix(Alias::MapMeta(map));
        self.temporary(format_args!("load atomic i64, ptr {place} monotonic, align 8{scope}"))
    }

    /// The frame goes there, unless another call says otherwise.
    fn lead(&mut self, kind: u32, first: &str, second: &str) {
        let cell = self.redirect_cell();
        let burst = self.machine_field("i32", offset_of!(Machine, burst));
        self.put(&format!("i32 {burst}"), &cell, offset_of!(RedirectCell, burst));
        self.put(&format!("i32 {kind}"), &cell, offset_of!(RedirectCell, kind));
        let words = offset_of!(RedirectCell, words);
        self.put(&format!("i64 {first}"), &cell, words);
        self.put(&format!("i64 {second}"), &cell, words + 8);
    }

    /// Address of the running frame's cell.
    fn redirect_cell(&mut self) -> String {
        let cells = self.machine_field("ptr", offset_of!(Machine, redirects));
        let index = self.machine_field("i32", offset_of!(Machine, index));
        let index = self.temporary(format_args!("zext i32 {index} to i64"));
        let bytes = size_of::<RedirectCell>();
        let offset = self.temporary(format_args!("mul nuw i64 {index}, {bytes}"));
        self.temporary(format_args!("getelementptr inbounds i8, ptr {cells}, i64 {offset}"))
    }

    fn put(&mut self, value: &str, base: &str, offset: usize) {
        let place =
            self.temporary(format_args!("getelementptr inbounds i8, ptr {base}, i64 {offset}"));
        let scope = self.shared.scopes.suffix(Alias::Ctx);
        self.line(format_args!("store {value}, ptr {place}, align 4{scope}"));
    }
}
