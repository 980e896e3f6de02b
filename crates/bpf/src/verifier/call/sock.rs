//! Fields of sockets that helpers and maps give: `struct bpf_sock` and its relatives, as the
//! program sees them (`bpf_sock_is_valid_access` and siblings).

use crate::errno::Errno;

use super::super::env::{Access, Result, Verifier};
use super::super::reg::Base;
use super::super::show::type_name;

impl Verifier<'_> {
    /// Checks a load of `size` bytes at `off` of a socket (`check_sock_access`).
    pub(super) fn check_sock_field(
        &self,
        regno: u8,
        off: i32,
        size: u32,
        access: Access,
    ) -> Result<()> {
        let reg = self.reg(regno);
        let kind = type_name(reg.kind);
        if access == Access::Write {
            let message = format!("R{regno} cannot write into {kind}");
            return Err(self.reject(Errno::EACCES, message));
        }
        if reg.var.smin < 0 {
            let message = format!(
                "R{regno} min value is negative, either use unsigned index or do a if (index >=0) \
                 check."
            );
            return Err(self.reject(Errno::EACCES, message));
        }
        self.check_pointer_offset(reg, regno, true)?;
        let off = i64::from(off) + i64::from(reg.off);
        let valid = match reg.base() {
            Base::SockCommon => !(8..24).contains(&off) && sock_field(off, size),
            Base::Socket => sock_field(off, size),
            Base::TcpSock => tcp_sock_field(off, size),
            Base::XdpSock => off == 0 && size == 4,
            _ => false,
        };
        if valid {
            return Ok(());
        }
        let message = format!("R{regno} invalid {kind} access off={off} size={size}");
        Err(self.reject(Errno::EACCES, message))
    }
}

/// Whether a load fits `struct bpf_sock`: 32-bit fields, some readable in parts, `dst_port` of 16
/// bits.
fn sock_field(off: i64, size: u32) -> bool {
    if !(0..SOCK_SIZE).contains(&off) || off % i64::from(size) != 0 {
        return false;
    }
    match off {
        DST_PORT => matches!(size, 1 | 2 | 4),
        49 => size == 1,
        50..52 => false,
        4 | 8 | 12 | 24..48 | 52..73 | 76 => size <= 4,
        _ => size == 4,
    }
}

/// Whether a load fits `struct bpf_tcp_sock`: 32-bit fields, and two of 64 bits.
fn tcp_sock_field(off: i64, size: u32) -> bool {
    if !(0..TCP_SOCK_SIZE).contains(&off) || off % i64::from(size) != 0 {
        return false;
    }
    if BYTES_RECEIVED_AND_ACKED.contains(&off) { size == 8 } else { size == 4 }
}

const SOCK_SIZE: i64 = 80;
const DST_PORT: i64 = 48;
const TCP_SOCK_SIZE: i64 = 112;
const BYTES_RECEIVED_AND_ACKED: [i64; 2] = [80, 88];
