//! Relocations in position-independent code of the two machines.
//!
//! x86-64: System V psABI 1.0, table 4.9. AArch64: ELF for the Arm 64-bit Architecture, 5.7.

use object::elf::{self, RelocationType};

/// A place to write an address to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patch {
    /// Kind of relocation, of this machine.
    pub(super) r_type: RelocationType,
    /// Address of the place.
    pub(super) place: u64,
    /// Address that it has to refer to, addend included.
    pub(super) target: u64,
}

/// Size of a jump to a function at any distance, in bytes.
pub(super) const STUB_BYTES: usize = 16;

/// Whether the relocation refers to the symbol's entry in the table of addresses.
pub(super) fn uses_table(r_type: RelocationType) -> bool {
    if cfg!(target_arch = "aarch64") {
        matches!(r_type, elf::R_AARCH64_ADR_GOT_PAGE | elf::R_AARCH64_LD64_GOT_LO12_NC)
    } else {
        matches!(
            r_type,
            elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX
        )
    }
}

/// Whether it is a call or jump that only reaches nearby code.
pub(super) fn is_near_call(r_type: RelocationType) -> bool {
    if cfg!(target_arch = "aarch64") {
        matches!(r_type, elf::R_AARCH64_CALL26 | elf::R_AARCH64_JUMP26)
    } else {
        r_type == elf::R_X86_64_PLT32
    }
}

/// Writes a jump to the address in the table entry at `entry`.
pub(super) fn stub(bytes: &mut [u8], place: u64, entry: u64) -> Result<(), String> {
    if cfg!(target_arch = "aarch64") {
        // ldr x16, entry; br x16
        let distance = near(entry, place, 21)? as u32;
        put_u32(bytes, 0x5800_0010 | (distance >> 2 & 0x7_ffff) << 5)?;
        put_u32(&mut bytes[4..], 0xd61f_0200)
    } else {
        // jmp *entry(%rip), relative to the end of the instruction
        let distance = near(entry, place + 6, 32)? as i32;
        bytes[..2].copy_from_slice(&[0xff, 0x25]);
        put_u32(&mut bytes[2..], distance as u32)
    }
}

/// Writes one relocation to the start of `bytes`.
///
/// # Errors
///
/// Fails if the kind is unknown, or if the target is too far away.
pub(super) fn apply(bytes: &mut [u8], patch: Patch) -> Result<(), String> {
    if cfg!(target_arch = "aarch64") { aarch64(bytes, patch) } else { x86_64(bytes, patch) }
}

fn x86_64(bytes: &mut [u8], Patch { r_type, place, target }: Patch) -> Result<(), String> {
    match r_type {
        elf::R_X86_64_64 => put_u64(bytes, target),
        elf::R_X86_64_PC64 => put_u64(bytes, target.wrapping_sub(place)),
        elf::R_X86_64_PC32
        | elf::R_X86_64_PLT32
        | elf::R_X86_64_GOTPCREL
        | elf::R_X86_64_GOTPCRELX
        | elf::R_X86_64_REX_GOTPCRELX => put_u32(bytes, near(target, place, 32)? as u32),
        _ => Err(format!("relocation {r_type} is unknown")),
    }
}

fn aarch64(bytes: &mut [u8], Patch { r_type, place, target }: Patch) -> Result<(), String> {
    let page = |address: u64| address & !0xfff;
    match r_type {
        elf::R_AARCH64_ABS64 => put_u64(bytes, target),
        elf::R_AARCH64_PREL64 => put_u64(bytes, target.wrapping_sub(place)),
        elf::R_AARCH64_PREL32 => put_u32(bytes, near(target, place, 32)? as u32),
        elf::R_AARCH64_CALL26 | elf::R_AARCH64_JUMP26 => {
            let words = near(target, place, 28)? >> 2;
            set_bits(bytes, words as u32 & 0x03ff_ffff)
        }
        elf::R_AARCH64_ADR_PREL_PG_HI21 | elf::R_AARCH64_ADR_GOT_PAGE => {
            let pages = (near(page(target), page(place), 33)? >> 12) as u32;
            set_bits(bytes, (pages & 3) << 29 | (pages >> 2 & 0x7_ffff) << 5)
        }
        elf::R_AARCH64_ADD_ABS_LO12_NC | elf::R_AARCH64_LDST8_ABS_LO12_NC => low(bytes, target, 0),
        elf::R_AARCH64_LDST16_ABS_LO12_NC => low(bytes, target, 1),
        elf::R_AARCH64_LDST32_ABS_LO12_NC => low(bytes, target, 2),
        elf::R_AARCH64_LDST64_ABS_LO12_NC | elf::R_AARCH64_LD64_GOT_LO12_NC => {
            low(bytes, target, 3)
        }
        elf::R_AARCH64_LDST128_ABS_LO12_NC => low(bytes, target, 4),
        _ => Err(format!("relocation {r_type} is unknown")),
    }
}

/// Writes the offset in a page, in units of the access, into an instruction's 12-bit immediate.
fn low(bytes: &mut [u8], target: u64, shift: u32) -> Result<(), String> {
    set_bits(bytes, ((target & 0xfff) as u32 >> shift) << 10)
}

/// The distance, if it fits `bits` signed bits.
fn near(target: u64, place: u64, bits: u32) -> Result<i64, String> {
    let distance = target.wrapping_sub(place) as i64;
    let limit = 1i64 << (bits - 1);
    if (-limit..limit).contains(&distance) {
        Ok(distance)
    } else {
        Err(format!("{distance} bytes are too far"))
    }
}

fn put_u64(bytes: &mut [u8], value: u64) -> Result<(), String> {
    let place = bytes.get_mut(..8).ok_or("a relocation behind the end")?;
    place.copy_from_slice(&value.to_le_bytes());
    Ok(())
}

fn put_u32(bytes: &mut [u8], value: u32) -> Result<(), String> {
    let place = bytes.get_mut(..4).ok_or("a relocation behind the end")?;
    place.copy_from_slice(&value.to_le_bytes());
    Ok(())
}

/// Sets bits of an instruction that are 0 so far.
fn set_bits(bytes: &mut [u8], bits: u32) -> Result<(), String> {
    let place = bytes.get_mut(..4).ok_or("a relocation behind the end")?;
    for (byte, more) in place.iter_mut().zip(bits.to_le_bytes()) {
        *byte |= more;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_from_the_place() {
        let mut bytes = [0; 4];
        let patch = Patch { r_type: elf::R_X86_64_PC32, place: 0x1000, target: 0x0ffc };
        x86_64(&mut bytes, patch).expect("near");
        assert_eq!(i32::from_le_bytes(bytes), -4);
        let patch = Patch { target: 0x1_0000_0000_0000, ..patch };
        assert!(x86_64(&mut bytes, patch).expect_err("far").contains("too far"));
    }

    #[test]
    fn arm_immediates_are_spread_over_the_instruction() {
        // adrp x0, 0x3000 from 0x1000: two pages ahead.
        let mut bytes = 0x9000_0000u32.to_le_bytes();
        let patch =
            Patch { r_type: elf::R_AARCH64_ADR_PREL_PG_HI21, place: 0x1000, target: 0x3008 };
        aarch64(&mut bytes, patch).expect("near");
        assert_eq!(u32::from_le_bytes(bytes), 0xd000_0000);
        // ldr x0, [x0, #8]
        let mut bytes = 0xf940_0000u32.to_le_bytes();
        let patch = Patch { r_type: elf::R_AARCH64_LD64_GOT_LO12_NC, ..patch };
        aarch64(&mut bytes, patch).expect("near");
        assert_eq!(u32::from_le_bytes(bytes), 0xf940_0400);
        // bl one instruction back
        let mut bytes = 0x9400_0000u32.to_le_bytes();
        let patch = Patch { r_type: elf::R_AARCH64_CALL26, place: 0x1000, target: 0x0ffc };
        aarch64(&mut bytes, patch).expect("near");
        assert_eq!(u32::from_le_bytes(bytes), 0x97ff_ffff);
    }
}
