//! Connection tracking kfuncs: see [`crate::conntrack`] for the table.
//!
//! Checks and error numbers follow `net/netfilter/nf_conntrack_bpf.c`: a refusal is a null pointer,
//! and the reason in `opts->error`.

use towpath_bpf::Errno;
use towpath_bpf::interp::{Callbacks, Stop};

use super::call::status;
use super::time::monotonic_ns;
use super::{Call, KfuncTable, entry};
use crate::conntrack::Tuple;
use crate::run::Run;

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
        let surroundings = call.run.surroundings;
        let (found, expired) = surroundings.conntrack.lookup(&tuple, monotonic_ns(call));
        if let Some(expired) = expired {
            surroundings.objects.release(expired, call.run.maps.domain());
        }
        let (addr, reply) = found.ok_or(Errno::ENOENT)?;
        if surroundings.objects.acquire(addr) { Ok((addr, reply)) } else { Err(Errno::ENOENT) }
    });
    match found {
        Ok((addr, reply)) => {
            call.write(args[3] + OPTS_DIR, &[u8::from(reply)])?;
            Ok(addr)
        }
        Err(errno) => refuse(call, args, errno),
    }
}

/// `bpf_xdp_ct_alloc(ctx, tuple, tuple_size, opts, opts_size)`: an entry that lives ten seconds
/// once it is inserted.
#[inline(always)]
fn alloc(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let bytes = Fields::of(call).bytes;
    let made = request(call, args)?.and_then(|tuple| {
        let surroundings = call.run.surroundings;
        let addr = surroundings.objects.allocate(bytes, None).ok_or(Errno::ENOMEM)?;
        if surroundings.conntrack.begin(addr, tuple, ALLOC_TIMEOUT_NS) {
            return Ok(addr);
        }
        surroundings.objects.release(addr, call.run.maps.domain());
        Err(Errno::ENOMEM)
    });
    match made {
        Ok(addr) => Ok(addr),
        Err(errno) => refuse(call, args, errno),
    }
}

/// `bpf_ct_insert_entry(nfct)`: the entry, now in the table too, or 0 when its place is taken.
#[inline(always)]
fn insert(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let addr = args[0];
    let surroundings = call.run.surroundings;
    if !surroundings.conntrack.insert(addr, monotonic_ns(call)) {
        surroundings.objects.release(addr, call.run.maps.domain());
        return Ok(0);
    }
    // The table's own reference, beside the one the program goes on with.
    let _alive = surroundings.objects.acquire(addr);
    if let Some(offset) = Fields::of(call).status {
        let old = call.run.get(addr + offset, 8)?;
        call.run.put(addr + offset, 8, old | IPS_CONFIRMED)?;
    }
    Ok(addr)
}

/// `bpf_ct_release(nfct)`
#[inline(always)]
fn release(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let surroundings = call.run.surroundings;
    if !surroundings.conntrack.is_inserted(args[0]) {
        surroundings.conntrack.abandon(args[0]);
    }
    surroundings.objects.release(args[0], call.run.maps.domain());
    Ok(0)
}

/// `bpf_ct_set_timeout(nfct, timeout)` and `bpf_ct_change_timeout`: milliseconds.
#[inline(always)]
fn set_timeout(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let timeout = u64::from(args[1] as u32) * NS_PER_MS;
    call.run.surroundings.conntrack.set_timeout(args[0], timeout, monotonic_ns(call));
    Ok(0)
}

/// `bpf_ct_set_status(nfct, status)` and `bpf_ct_change_status`: some bits may only be set, others
/// are the table's.
#[inline(always)]
fn set_status(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let Some(offset) = Fields::of(call).status else { return Ok(0) };
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

/// `bpf_ct_set_nat_info(nfct, addr, port, manip)`: accepted; no stack of ours translates addresses.
#[inline(always)]
fn set_nat_info(_call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let known = args[3] <= 1;
    Ok(status(if known { Ok(()) } else { Err(Errno::EINVAL) }))
}

/// The tuple a program asks about, or why it may not.
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
    let address = |bytes: &[u8]| {
        let mut whole = [0; 16];
        whole[..bytes.len()].copy_from_slice(bytes);
        u128::from_le_bytes(whole)
    };
    Ok(Ok(Tuple {
        source: address(&addresses[..address_len]),
        destination: address(&addresses[address_len..]),
        source_port: [ports[0], ports[1]],
        destination_port: [ports[2], ports[3]],
        is_v6: tuple_len == TUPLE_BYTES_V6,
        protocol,
        zone,
    }))
}

fn refuse(call: &Call<'_, '_>, args: [u64; 5], errno: Errno) -> Result<u64, Stop> {
    let [_, _, _, opts, opts_len] = args;
    if opts_len as u32 >= (OPTS_ERROR + 4) as u32 {
        call.write(opts + OPTS_ERROR, &(-errno.0).to_le_bytes())?;
    }
    Ok(0)
}

/// Where a `struct nf_conn` has its fields, by the BTF the program was linked against.
struct Fields {
    bytes: usize,
    status: Option<u64>,
}

impl Fields {
    fn of(call: &mut Call<'_, '_>) -> Fields {
        let (bytes, status) = match call.run.types.connection {
            Some(known) => known,
            None => *call.run.types.connection.insert(Fields::ask(call.callbacks)),
        };
        Fields { bytes, status }
    }

    fn ask(callbacks: &dyn Callbacks<Run<'_>>) -> (usize, Option<u64>) {
        let code = callbacks.code();
        let btf = code.linked().map(|linked| &linked.kernel_btf);
        let conn = btf.and_then(|btf| Some((btf, btf.find_composite("nf_conn")?)));
        let size = conn.and_then(|(btf, id)| btf.size_of(id)).unwrap_or(CONN_BYTES);
        let status = conn.and_then(|(btf, id)| btf.member(id, "status"));
        (size as usize, status.map(|(_, bits)| u64::from(bits) / 8))
    }
}

const OPTS_ERROR: u64 = 4;
const OPTS_DIR: u64 = 9;
/// `NF_BPF_CT_OPTS_SZ`
const OPTS_BYTES: usize = 16;
const OPTS_BYTES_OLD: usize = 12;
const TUPLE_BYTES_V4: usize = 12;
const TUPLE_BYTES_V6: usize = 36;
const IPPROTO_TCP: u8 = 6;
const IPPROTO_UDP: u8 = 17;
/// When BTF does not know the structure nobody reads fields of it.
const CONN_BYTES: u64 = 256;
const ALLOC_TIMEOUT_NS: u64 = 10_000 * NS_PER_MS;
const NS_PER_MS: u64 = 1_000_000;
const IPS_SEEN_REPLY: u64 = 1 << 1;
const IPS_ASSURED: u64 = 1 << 2;
const IPS_CONFIRMED: u64 = 1 << 3;
/// `IPS_EXPECTED | IPS_CONFIRMED | IPS_DYING`: only the table sets them.
const IPS_OWN: u64 = 1 | IPS_CONFIRMED | 1 << 9;
/// `IPS_UNCHANGEABLE_MASK`: NAT, sequence adjustment, expectation, templates, offload.
const IPS_UNCHANGEABLE: u64 = 0x1 | 0x8 | 0x180 | 0x200 | 0x40 | 0x400 | 0x800 | 0x2000 | 0x4000;
