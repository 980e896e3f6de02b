//! Connection tracking kfuncs: see [`crate::conntrack`] for the table.
//!
//! Checks and error numbers follow `net/netfilter/nf_conntrack_bpf.c`: a refusal is a null pointer,
//! and the reason in `opts->error`.

use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_bpf::interp::{Code, Stop};
use towpath_maps::Domain;

use super::call::status;
use super::objects::give_up;
use super::time::coarse_ns;
use super::{Call, KfuncTable, entry};
use crate::conntrack::{
    Asking, Connection, IPS_ASSURED, IPS_CONFIRMED, IPS_SEEN_REPLY, Tuple, address,
};
use crate::host::sockets::{IPPROTO_TCP, IPPROTO_UDP, TUPLE_BYTES_V4, TUPLE_BYTES_V6};
use crate::objects::{Hidden, Objects, Shape};

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_xdp_ct_lookup", entry(lookup)),
    ("bpf_xdp_ct_alloc", entry(alloc)),
    ("bpf_ct_insert_entry", entry(insert)),
    ("bpf_ct_release", entry(release)),
    ("bpf_ct_set_timeout", entry(set_timeout)),
    ("bpf_ct_change_timeout", entry(set_timeout)),
    ("bpf_ct_set_status", entry(set_status)),
    ("bpf_ct_change_status", entry(set_status)),
    ("bpf_ct_set_nat_info", entry(set_nat_info)),
];

/// `bpf_xdp_ct_lookup(ctx, tuple, tuple_size, opts, opts_size)`
#[inline(always)]
fn lookup(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let found = request(call, args)?.and_then(|tuple| {
        let found = call.run.surroundings.conntrack.lookup(tuple, asking(call));
        found.ok_or(Errno::ENOENT)
    });
    match found {
        Ok((object, reply)) => {
            call.run.put(args[3] + OPTS_DIR, 1, u64::from(reply))?;
            Ok(object.addr())
        }
        Err(errno) => refuse(call, args, errno),
    }
}

/// `bpf_xdp_ct_alloc(ctx, tuple, tuple_size, opts, opts_size)`: an entry that expires ten seconds
/// after its insertion.
#[inline(always)]
fn alloc(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let made = request(call, args)?.and_then(|tuple| {
        let connection = connection(call);
        let (class, status) = (Arc::clone(&connection.class), connection.status);
        let (run, by) = (&*call.run, asking(call));
        let made = by.objects.allocate(&class, by.worker, run.maps.domain());
        let object = made.ok_or(Errno::ENOMEM)?;
        let conntrack = &run.surroundings.conntrack;
        if conntrack.begin(object, tuple, ALLOC_TIMEOUT_NS, status, by) {
            return Ok(object.addr());
        }
        by.objects.release(object, by.worker);
        Err(Errno::ENOMEM)
    });
    match made {
        Ok(addr) => Ok(addr),
        Err(errno) => refuse(call, args, errno),
    }
}

/// `bpf_ct_insert_entry(nfct)`: the entry, which is now in the table, or 0 if one of its tuples is
/// taken.
#[inline(always)]
fn insert(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let addr = args[0];
    let Some(object) = call.run.object(addr) else { return Ok(0) };
    let status = connection(call).status;
    if !call.run.surroundings.conntrack.insert(object, asking(call)) {
        give_up(call.run, addr);
        return Ok(0);
    }
    if let Some(offset) = status {
        let old = call.run.get(addr + offset, 8)?;
        call.run.put(addr + offset, 8, old | IPS_CONFIRMED)?;
    }
    Ok(addr)
}

/// `bpf_ct_release(nfct)`
#[inline(always)]
fn release(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    if let Some(object) = call.run.object(args[0]) {
        call.run.surroundings.conntrack.abandon(object);
        give_up(call.run, args[0]);
    }
    Ok(0)
}

/// `bpf_ct_set_timeout(nfct, timeout)` and `bpf_ct_change_timeout`: milliseconds.
#[inline(always)]
fn set_timeout(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let timeout_ns = u64::from(args[1] as u32) * NS_PER_MS;
    if let Some(object) = call.run.object(args[0]) {
        call.run.surroundings.conntrack.set_timeout(object, timeout_ns, asking(call));
    }
    Ok(0)
}

/// `bpf_ct_set_status(nfct, status)` and `bpf_ct_change_status`: some bits may only be set, others
/// are reserved for the table.
#[inline(always)]
fn set_status(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let Some(offset) = connection(call).status else { return Ok(0) };
    let (addr, new) = (args[0] + offset, u64::from(args[1] as u32));
    let old = call.run.get(addr, 8)?;
    let changed = old ^ new;
    let cleared = old & !new;
    if changed & IPS_OWN != 0 || cleared & (IPS_SEEN_REPLY | IPS_ASSURED) != 0 {
        return Ok(Errno::EBUSY.to_reg());
    }
    call.run.put(addr, 8, old | (new & !IPS_UNCHANGEABLE))?;
    Ok(0)
}

/// `bpf_ct_set_nat_info(nfct, addr, port, manip)`: accepted without effect; there is no stack here
/// that translates addresses.
#[inline(always)]
fn set_nat_info(_call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let known = args[3] <= 1;
    Ok(status(if known { Ok(()) } else { Err(Errno::EINVAL) }))
}

/// The tuple of a program's request, or the error for it.
fn request(call: &Call<'_, '_>, args: [u64; 5]) -> Result<Result<Tuple, Errno>, Stop> {
    let [_, tuple, tuple_len, opts, opts_len] = args;
    let (tuple_len, opts_len) = (tuple_len as u32 as usize, opts_len as u32 as usize);
    if !matches!(opts_len, OPTS_BYTES_OLD | OPTS_BYTES) {
        return Ok(Err(Errno::EINVAL));
    }
    let opts = call.run.view(opts, opts_len as u64)?;
    let zone = u16::from_le_bytes([opts[10], opts[11]]);
    let reserved_used = match opts_len {
        OPTS_BYTES => opts[13..16] != [0; 3],
        _ => zone != 0,
    };
    let netns = i32::from_le_bytes([opts[0], opts[1], opts[2], opts[3]]);
    let protocol = opts[8];
    if reserved_used || netns < -1 {
        return Ok(Err(Errno::EINVAL));
    }
    if !matches!(protocol, IPPROTO_TCP | IPPROTO_UDP) {
        return Ok(Err(Errno::EPROTO));
    }
    let address_len = match tuple_len {
        TUPLE_BYTES_V4 => 4,
        TUPLE_BYTES_V6 => 16,
        _ => return Ok(Err(Errno::EAFNOSUPPORT)),
    };
    if netns >= 0 {
        return Ok(Err(Errno::ENONET));
    }
    let bytes = call.run.view(tuple, tuple_len as u64)?;
    let (addresses, ports) = bytes.split_at(2 * address_len);
    let (source, destination) = addresses.split_at(address_len);
    let port = |at: usize| u16::from_le_bytes([ports[at], ports[at + 1]]);
    let is_v6 = tuple_len == TUPLE_BYTES_V6;
    let addresses = [address(source), address(destination)];
    Ok(Ok(Tuple::new(addresses, [port(0), port(2)], protocol, is_v6, zone)))
}

fn refuse(call: &Call<'_, '_>, args: [u64; 5], errno: Errno) -> Result<u64, Stop> {
    let [_, _, _, opts, opts_len] = args;
    if opts_len as u32 >= (OPTS_ERROR + 4) as u32 {
        call.run.put(opts + OPTS_ERROR, 4, (-errno.0) as u64)?;
    }
    Ok(0)
}

fn asking<'r>(call: &Call<'_, 'r>) -> Asking<'r> {
    let surroundings = call.run.surroundings;
    // As in the kernel, which counts in ticks.
    let now_ns = coarse_ns(call);
    Asking { objects: &surroundings.objects, worker: call.run.worker.number() as usize, now_ns }
}

/// The layout of connections for the program.
fn connection<'c>(call: &'c mut Call<'_, '_>) -> &'c Connection {
    if call.run.types.connection.is_none() {
        let (objects, domain) = (&call.run.surroundings.objects, call.run.maps.domain());
        call.run.types.connection = Some(class_of(&call.callbacks.code(), objects, domain));
    }
    call.run.types.connection.as_ref().expect("it was just put there")
}

/// The layout of connections by the BTF that a program was linked against.
#[cold]
pub(crate) fn class_of(code: &Code, objects: &Objects, domain: &Domain) -> Connection {
    let btf = code.linked().map(|linked| &linked.kernel_btf);
    let conn = btf.and_then(|btf| Some((btf, btf.find_composite("nf_conn")?)));
    let bytes = conn.and_then(|(btf, id)| btf.size_of(id)).unwrap_or(CONN_BYTES) as usize;
    let offset_of = |name| {
        let member = conn.and_then(|(btf, id)| btf.member(id, name));
        member.map(|member| u64::from(member.bit_offset) / 8)
    };
    let hidden_bytes = size_of::<Hidden>();
    let shape = Shape { bytes, hidden_bytes, is_counted: true, ..Shape::default() };
    let class = objects.class(shape, domain);
    Connection { class, status: offset_of("status"), mark: offset_of("mark") }
}

const OPTS_ERROR: u64 = 4;
const OPTS_DIR: u64 = 9;
/// `NF_BPF_CT_OPTS_SZ`
const OPTS_BYTES: usize = 16;
const OPTS_BYTES_OLD: usize = 12;
/// If BTF lacks the structure, programs can't read its fields.
const CONN_BYTES: u64 = 256;
const ALLOC_TIMEOUT_NS: u64 = 10_000 * NS_PER_MS;
const NS_PER_MS: u64 = 1_000_000;
/// `IPS_EXPECTED | IPS_CONFIRMED | IPS_DYING`: only the table sets them.
const IPS_OWN: u64 = 1 | IPS_CONFIRMED | 1 << 9;
/// `IPS_UNCHANGEABLE_MASK`: NAT, sequence adjustment, expectation, templates, offload.
const IPS_UNCHANGEABLE: u64 = 0x1 | 0x8 | 0x180 | 0x200 | 0x40 | 0x400 | 0x800 | 0x2000 | 0x4000;
