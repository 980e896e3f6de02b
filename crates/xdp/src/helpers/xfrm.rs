//! `bpf_xdp_get_xfrm_state`: the SA with an SPI and destination, as a `struct xfrm_state`.
//!
//! Checks and error numbers follow `net/xfrm/xfrm_state_bpf.c`. A program gets an object of its own
//! ([`crate::objects`]) with the values at the time of the call ([`crate::xfrm`]): the kernel's
//! states change while a program reads them, and keys are in neither.

use std::net::IpAddr;
use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;

use super::Call;
use super::objects::give_up;
use crate::host::EspState;
use crate::xfrm::{Layout, Value};

/// `bpf_xdp_get_xfrm_state(ctx, opts, opts_size)`: the state, or 0 and the reason in `opts->error`.
#[inline(always)]
pub(super) fn state(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [_, opts, len, ..] = args;
    let found = match find(call, opts, len as u32)? {
        Ok(found) => make(call, &found)?,
        Err(errno) => Err(errno),
    };
    match found {
        Ok(addr) => Ok(addr),
        Err(errno) => {
            // A smaller structure has no place for the reason.
            if len as u32 >= ERROR_BYTES {
                call.write(opts, &(-errno.0).to_le_bytes())?;
            }
            Ok(0)
        }
    }
}

/// `bpf_xdp_xfrm_state_release(x)`
#[inline(always)]
pub(super) fn release(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    give_up(call.run, args[0]);
    Ok(0)
}

/// The SA that the options describe; the inner error is the program's.
fn find(call: &Call<'_, '_>, opts: u64, len: u32) -> Result<Result<EspState, Errno>, Stop> {
    if len != OPTS_BYTES {
        return Ok(Err(Errno::EINVAL));
    }
    let opts = call.read(opts, OPTS_BYTES as usize)?;
    let opts = opts.as_ref();
    let four = |at: usize| [opts[at], opts[at + 1], opts[at + 2], opts[at + 3]];
    let netns = i32::from_le_bytes(four(NETNS));
    if netns < CURRENT_NETNS {
        return Ok(Err(Errno::EINVAL));
    }
    if netns >= 0 {
        // No namespace has a number here.
        return Ok(Err(Errno::ENONET));
    }
    // States without a mark are found with any.
    let spi = u32::from_be_bytes(four(SPI));
    let family = u16::from_le_bytes([opts[FAMILY], opts[FAMILY + 1]]);
    let destination = match family {
        AF_INET => IpAddr::from(four(DESTINATION)),
        AF_INET6 => {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&opts[DESTINATION..DESTINATION + 16]);
            IpAddr::from(bytes)
        }
        _ => return Ok(Err(Errno::ENOENT)),
    };
    if opts[PROTOCOL] != IPPROTO_ESP {
        return Ok(Err(Errno::ENOENT));
    }
    let ports = call.run.worker.esp.iter();
    let found = ports.filter_map(|(_, port)| port.state(spi, destination)).next();
    Ok(found.ok_or(Errno::ENOENT))
}

/// A new object with the values of an SA; the inner error is the program's.
fn make(call: &mut Call<'_, '_>, state: &EspState) -> Result<Result<u64, Errno>, Stop> {
    if call.run.types.xfrm.is_none() {
        let (surroundings, domain) = (call.run.surroundings, call.run.maps.domain());
        let code = call.callbacks.code();
        let btf = code.linked().map(|linked| &linked.kernel_btf);
        let layout = surroundings.xfrm.layout(btf, &surroundings.objects, domain);
        call.run.types.xfrm = Some(layout);
    }
    let Some(layout) = call.run.types.xfrm.as_ref().map(Arc::clone) else {
        return Ok(Err(Errno::ENOMEM));
    };
    let run = &*call.run;
    let (worker, domain) = (run.worker.number() as usize, run.maps.domain());
    let made = run.surroundings.objects.allocate(&layout.class, worker, domain);
    let Some(object) = made else { return Ok(Err(Errno::ENOMEM)) };
    fill(call, &layout, object.addr(), state)?;
    Ok(Ok(object.addr()))
}

fn fill(call: &Call<'_, '_>, layout: &Layout, addr: u64, state: &EspState) -> Result<(), Stop> {
    for field in &layout.fields {
        match (field.value)(state) {
            Value::Number(number) => call.run.put(addr + field.offset, field.bytes, number)?,
            Value::Address(IpAddr::V4(it)) => call.write(addr + field.offset, &it.octets())?,
            Value::Address(IpAddr::V6(it)) => call.write(addr + field.offset, &it.octets())?,
        }
    }
    if let (Some(pointer), true) = (layout.esn_pointer, Layout::has_esn_state(state)) {
        call.run.put(addr + pointer, 8, addr + layout.esn_offset)?;
    }
    Ok(())
}

/// `sizeof(struct bpf_xfrm_state_opts)`, and offsets of its fields behind the error.
const OPTS_BYTES: u32 = 36;
const ERROR_BYTES: u32 = 4;
const NETNS: usize = 4;
const DESTINATION: usize = 12;
const SPI: usize = 28;
const PROTOCOL: usize = 32;
const FAMILY: usize = 34;
/// `BPF_F_CURRENT_NETNS`
const CURRENT_NETNS: i32 = -1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const IPPROTO_ESP: u8 = 50;
