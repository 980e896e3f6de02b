//! The layout of `struct xfrm_state` by the types that a program was linked against.
//!
//! An object has the structure's size, and behind it, in the same object, the
//! `struct xfrm_replay_state_esn` to which its field `replay_esn` points. All fields that are not
//! listed here are zeros.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use towpath_bpf::btf::{Btf, TypeId};
use towpath_maps::Domain;

use crate::host::{EspLimits, EspState};
use crate::objects::{Class, Objects, Shape};

/// Layouts by types, each made once.
#[derive(Debug, Default)]
pub(crate) struct Layouts(Mutex<Vec<(Weak<Btf>, Arc<Layout>)>>);

/// Where the fields of a state are.
#[derive(Debug)]
pub(crate) struct Layout {
    /// Class of the objects.
    pub(crate) class: Arc<Class>,
    pub(crate) fields: Vec<Field>,
    /// Offset of the pointer to the extended replay state, and of that state in the object.
    pub(crate) esn_pointer: Option<u64>,
    pub(crate) esn_offset: u64,
}

/// A field in the object.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) offset: u64,
    /// 1, 2, 4 or 8; 16 for an address.
    pub(crate) bytes: u32,
    pub(crate) value: fn(&EspState) -> Value,
}

/// The value of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value {
    Number(u64),
    Address(IpAddr),
}

impl Layouts {
    /// The layout by these types; without types a program can read no field.
    pub(crate) fn layout(
        &self,
        btf: Option<&Arc<Btf>>,
        objects: &Objects,
        domain: &Domain,
    ) -> Arc<Layout> {
        let types = btf.map_or_else(Weak::new, Arc::downgrade);
        let mut known = self.0.lock();
        // A weak reference keeps the address, so that equal ones are the same types.
        if let Some((_, layout)) = known.iter().find(|(other, _)| other.ptr_eq(&types)) {
            return Arc::clone(layout);
        }
        let layout = Arc::new(Layout::new(btf.map(|btf| &**btf), objects, domain));
        known.retain(|(types, _)| types.strong_count() > 0);
        known.push((types, Arc::clone(&layout)));
        layout
    }
}

impl Layout {
    /// Whether the kernel keeps the sequence numbers of such an SA in the extended replay state, if
    /// an IKE daemon asks for them as strongSwan does.
    pub(crate) fn has_esn_state(state: &EspState) -> bool {
        state.esn || state.window > LEGACY_WINDOW_MAX
    }

    fn new(btf: Option<&Btf>, objects: &Objects, domain: &Domain) -> Layout {
        let composite = |name| btf.and_then(|btf| Some((btf, btf.find_composite(name)?)));
        let (state, esn) = (composite("xfrm_state"), composite("xfrm_replay_state_esn"));
        let size = |found: Option<(&Btf, TypeId)>, otherwise| {
            let size = found.and_then(|(btf, id)| btf.size_of(id));
            size.unwrap_or(otherwise).min(BYTES_MAX).next_multiple_of(8)
        };
        let (esn_offset, esn_bytes) = (size(state, STATE_BYTES), size(esn, 0));
        let bytes = (esn_offset + esn_bytes) as usize;
        let class = objects.class(Shape { bytes, ..Shape::default() }, domain);
        let mut fields = Vec::new();
        for (found, base, table) in [(state, 0, STATE), (esn, esn_offset, ESN)] {
            let Some((btf, id)) = found else { continue };
            fields.extend(table.iter().filter_map(|&(path, value)| {
                let (offset, bytes) = place(btf, id, path)?;
                Some(Field { offset: base + offset, bytes, value })
            }));
        }
        fields.retain(|field| field.offset + u64::from(field.bytes) <= bytes as u64);
        let pointer = state.and_then(|(btf, id)| place(btf, id, "replay_esn"));
        let esn_pointer = pointer.filter(|_| esn_bytes > 0).map(|(offset, _)| offset);
        Layout { class, fields, esn_pointer, esn_offset }
    }
}

/// Offset and size of a member, named by a path of member names.
fn place(btf: &Btf, id: TypeId, path: &str) -> Option<(u64, u32)> {
    let (mut id, mut bits) = (id, 0u32);
    for name in path.split('.') {
        let found = btf.member(id, name)?;
        bits = bits.checked_add(found.bit_offset)?;
        id = found.member.ty;
    }
    let bytes = u32::try_from(btf.size_of(id)?).ok()?;
    let is_known = matches!(bytes, 1 | 2 | 4 | 8 | 16) && bits.is_multiple_of(8);
    is_known.then_some((u64::from(bits / 8), bytes))
}

type Row = (&'static str, fn(&EspState) -> Value);

/// Fields of `struct xfrm_state`.
const STATE: &[Row] = &[
    ("id.daddr", |state| Value::Address(state.destination)),
    ("id.spi", |state| Value::Number(state.spi.to_be().into())),
    ("id.proto", |_| Value::Number(IPPROTO_ESP)),
    ("props.saddr", |state| Value::Address(state.source)),
    ("props.family", |state| {
        Value::Number(if state.destination.is_ipv4() { AF_INET } else { AF_INET6 })
    }),
    ("props.reqid", |state| Value::Number(state.reqid.into())),
    ("props.mode", |state| Value::Number(state.is_tunnel.into())),
    ("props.flags", |state| Value::Number(if state.esn { XFRM_STATE_ESN } else { 0 })),
    ("props.replay_window", |state| Value::Number(legacy(state, state.window.into()))),
    ("km.state", |state| {
        Value::Number(if state.is_expired { XFRM_STATE_EXPIRED } else { XFRM_STATE_VALID })
    }),
    ("dir", |state| Value::Number(if state.is_inbound { XFRM_SA_DIR_IN } else { XFRM_SA_DIR_OUT })),
    ("repl_mode", |state| {
        Value::Number(match (state.esn, Layout::has_esn_state(state)) {
            (true, _) => XFRM_REPLAY_MODE_ESN,
            (false, true) => XFRM_REPLAY_MODE_BMP,
            (false, false) => XFRM_REPLAY_MODE_LEGACY,
        })
    }),
    ("replay.oseq", |state| Value::Number(legacy(state, state.sent))),
    ("replay.seq", |state| Value::Number(legacy(state, state.received))),
    ("curlft.bytes", |state| Value::Number(state.bytes)),
    ("curlft.packets", |state| Value::Number(state.packets)),
    ("curlft.add_time", |state| Value::Number(state.added)),
    ("curlft.use_time", |state| Value::Number(state.used)),
    ("lastused", |state| Value::Number(state.used)),
    ("lft.soft_byte_limit", |state| limit(state.soft.bytes)),
    ("lft.hard_byte_limit", |state| limit(state.hard.bytes)),
    ("lft.soft_packet_limit", |state| limit(state.soft.packets)),
    ("lft.hard_packet_limit", |state| limit(state.hard.packets)),
    ("lft.soft_add_expires_seconds", |state| seconds(state.soft)),
    ("lft.hard_add_expires_seconds", |state| seconds(state.hard)),
];

/// Fields of `struct xfrm_replay_state_esn`.
const ESN: &[Row] = &[
    ("oseq", |state| Value::Number(state.sent & LOW)),
    ("seq", |state| Value::Number(state.received & LOW)),
    ("oseq_hi", |state| Value::Number(state.sent >> 32)),
    ("seq_hi", |state| Value::Number(state.received >> 32)),
    ("replay_window", |state| Value::Number(state.window.into())),
];

/// A value that an SA with an extended replay state has there.
fn legacy(state: &EspState, value: u64) -> u64 {
    if Layout::has_esn_state(state) { 0 } else { value }
}

/// `XFRM_INF` if there is no limit.
fn limit(limit: Option<u64>) -> Value {
    Value::Number(limit.unwrap_or(u64::MAX))
}

/// As in the kernel, 0 if there is no limit.
fn seconds(limits: EspLimits) -> Value {
    Value::Number(limits.seconds.unwrap_or(0))
}

/// If BTF lacks the structure, programs can't read its fields.
const STATE_BYTES: u64 = 816;
const BYTES_MAX: u64 = 2048;
/// The largest window of `struct xfrm_replay_state`.
const LEGACY_WINDOW_MAX: u32 = 32;
const LOW: u64 = 0xffff_ffff;
const IPPROTO_ESP: u64 = 50;
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;
const XFRM_STATE_ESN: u64 = 128;
const XFRM_STATE_VALID: u64 = 2;
const XFRM_STATE_EXPIRED: u64 = 4;
const XFRM_SA_DIR_IN: u64 = 1;
const XFRM_SA_DIR_OUT: u64 = 2;
const XFRM_REPLAY_MODE_LEGACY: u64 = 0;
const XFRM_REPLAY_MODE_BMP: u64 = 1;
const XFRM_REPLAY_MODE_ESN: u64 = 2;
