//! Formatted text for `bpf_trace_printk` and its relatives: the conversions the kernel lets
//! programs use (`bpf_bprintf_prepare`), and no others.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use memchr::memchr;
use towpath_bpf::Errno;

use crate::run::Run;

/// Formats `args` by `format` (without its NUL) into `out`. `EINVAL` for a conversion programs may
/// not use, or one without an argument.
pub(crate) fn format(
    run: &Run<'_>,
    format: &[u8],
    args: &[u64],
    out: &mut Vec<u8>,
) -> Result<(), Errno> {
    if !format.iter().all(|&byte| (b' '..=b'~').contains(&byte) || is_space(byte)) {
        return Err(Errno::EINVAL);
    }
    let mut args = args.iter().copied();
    let mut rest = format;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match (first, rest.first()) {
            (b'%', Some(b'%')) => {
                out.push(b'%');
                rest = &rest[1..];
            }
            (b'%', _) => {
                let (spec, after) = Spec::parse(rest)?;
                let arg = args.next().ok_or(Errno::EINVAL)?;
                spec.print(run, arg, out);
                rest = after;
            }
            _ => out.push(first),
        }
        if out.len() > TEXT_BYTES_MAX {
            out.truncate(TEXT_BYTES_MAX);
            break;
        }
    }
    Ok(())
}

/// One conversion: flags, width and what is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Spec {
    left: bool,
    plus: bool,
    space: bool,
    zero: bool,
    width: usize,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Signed {
        wide: bool,
    },
    Unsigned {
        wide: bool,
    },
    Hex {
        wide: bool,
        upper: bool,
    },
    Char,
    Text,
    /// `%px`: the address itself.
    Address,
    /// `%p` and its other forms: a hashed value of the address.
    Pointer,
    /// `%pI4`, `%pi4`: the bytes at the address, the second form with leading zeroes.
    Ipv4 {
        padded: bool,
    },
    /// `%pI6`, `%pi6`: the second form without colons.
    Ipv6 {
        colons: bool,
    },
}

impl Spec {
    /// Parses what follows a `%`; returns it and the text behind it.
    fn parse(text: &[u8]) -> Result<(Spec, &[u8]), Errno> {
        let mut spec = Spec {
            left: false,
            plus: false,
            space: false,
            zero: false,
            width: 0,
            what: What::Char,
        };
        let mut rest = text;
        while let Some((&flag, after)) = rest.split_first() {
            match flag {
                b'0' => spec.zero = true,
                b'+' => spec.plus = true,
                b'-' => spec.left = true,
                b' ' => spec.space = true,
                _ => break,
            }
            rest = after;
        }
        while let Some((&digit, after)) = rest.split_first()
            && digit.is_ascii_digit()
        {
            spec.width = (spec.width * 10 + usize::from(digit - b'0')).min(TEXT_BYTES_MAX);
            rest = after;
        }
        let (what, rest) = What::parse(rest)?;
        Ok((Spec { what, ..spec }, rest))
    }

    fn print(self, run: &Run<'_>, arg: u64, out: &mut Vec<u8>) {
        let mut digits = Digits::default();
        match self.what {
            What::Signed { wide } => {
                let value = if wide { arg as i64 } else { i64::from(arg as i32) };
                self.pad(self.sign(value < 0), digits.decimal(value.unsigned_abs()), true, out);
            }
            What::Unsigned { wide } => self.pad("", digits.decimal(cut(arg, wide)), true, out),
            What::Hex { wide, upper } => {
                self.pad("", digits.hex(cut(arg, wide), upper, 1), true, out);
            }
            // `pointer_string`: full width unless the format gives one.
            What::Pointer | What::Address => {
                let number = if self.what == What::Pointer { stand_in(arg) } else { arg };
                match self.width {
                    0 => out.extend_from_slice(digits.hex(number, false, 16)),
                    _ => self.pad("", digits.hex(number, false, 1), false, out),
                }
            }
            What::Char => self.pad("", &[arg as u8], false, out),
            What::Text => self.pad("", &text_at(run, arg), false, out),
            // The kernel formats addresses beforehand and loses their width on the way.
            What::Ipv4 { padded } => ipv4_at(run, arg, padded, out),
            What::Ipv6 { colons } => ipv6_at(run, arg, colons, out),
        }
    }

    /// Writes sign and text as wide as the conversion says.
    fn pad(self, sign: &str, text: &[u8], is_number: bool, out: &mut Vec<u8>) {
        let fill = self.width.saturating_sub(sign.len() + text.len());
        let with = if self.zero && is_number { b'0' } else { b' ' };
        let fill_to = |out: &mut Vec<u8>, with| out.resize(out.len() + fill, with);
        if !self.left && with == b' ' {
            fill_to(out, with);
        }
        out.extend_from_slice(sign.as_bytes());
        if !self.left && with == b'0' {
            fill_to(out, with);
        }
        out.extend_from_slice(text);
        if self.left {
            fill_to(out, b' ');
        }
    }

    fn sign(self, negative: bool) -> &'static str {
        match (negative, self.plus, self.space) {
            (true, ..) => "-",
            (false, true, _) => "+",
            (false, false, true) => " ",
            (false, false, false) => "",
        }
    }
}

impl What {
    fn parse(text: &[u8]) -> Result<(What, &[u8]), Errno> {
        match text {
            [b's', rest @ ..] => return Ok((What::Text, rest)),
            [b'c', rest @ ..] => return Ok((What::Char, rest)),
            [b'p', rest @ ..] => return What::parse_pointer(rest),
            _ => {}
        }
        let (wide, text) = match text {
            [b'l', b'l', rest @ ..] | [b'l', rest @ ..] => (true, rest),
            _ => (false, text),
        };
        match text {
            [b'd' | b'i', rest @ ..] => Ok((What::Signed { wide }, rest)),
            [b'u', rest @ ..] => Ok((What::Unsigned { wide }, rest)),
            [b'x', rest @ ..] => Ok((What::Hex { wide, upper: false }, rest)),
            [b'X', rest @ ..] => Ok((What::Hex { wide, upper: true }, rest)),
            _ => Err(Errno::EINVAL),
        }
    }

    fn parse_pointer(text: &[u8]) -> Result<(What, &[u8]), Errno> {
        match text {
            [b'k' | b'u', b's', rest @ ..] => Ok((What::Text, rest)),
            [b'I', b'4', rest @ ..] => Ok((What::Ipv4 { padded: false }, rest)),
            [b'i', b'4', rest @ ..] => Ok((What::Ipv4 { padded: true }, rest)),
            [b'I', b'6', rest @ ..] => Ok((What::Ipv6 { colons: true }, rest)),
            [b'i', b'6', rest @ ..] => Ok((What::Ipv6 { colons: false }, rest)),
            [b'x', rest @ ..] => Ok((What::Address, rest)),
            [b'K' | b's' | b'S' | b'B', rest @ ..] => Ok((What::Pointer, rest)),
            [next, ..] if !is_space(*next) && !next.is_ascii_punctuation() => Err(Errno::EINVAL),
            rest => Ok((What::Pointer, rest)),
        }
    }
}

/// The printed form of an address, constant for the process: 32 bits of a hash (`ptr_to_id`). NULL
/// and errors are printed unchanged (`IS_ERR_OR_NULL`).
fn stand_in(address: u64) -> u64 {
    static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    match address {
        0 | ERRORS.. => address,
        _ => SECRET.hash_one(address) & u64::from(u32::MAX),
    }
}

/// The lowest value that is an error number and not an address (`MAX_ERRNO`).
const ERRORS: u64 = u64::MAX - 4094;

fn cut(arg: u64, wide: bool) -> u64 {
    if wide { arg } else { u64::from(arg as u32) }
}

/// The digits of a number.
#[derive(Default)]
struct Digits([u8; 20]);

impl Digits {
    fn decimal(&mut self, mut number: u64) -> &[u8] {
        let mut start = self.0.len();
        loop {
            start -= 1;
            self.0[start] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                return &self.0[start..];
            }
        }
    }

    /// At least `least` digits.
    fn hex(&mut self, mut number: u64, upper: bool, least: usize) -> &[u8] {
        let digits = if upper { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
        let mut start = self.0.len();
        while number != 0 || start + least > self.0.len() {
            start -= 1;
            self.0[start] = digits[(number % 16) as usize];
            number /= 16;
        }
        &self.0[start..]
    }
}

/// The NUL-terminated string at an address, as far as it can be read; nothing otherwise.
fn text_at(run: &Run<'_>, addr: u64) -> Vec<u8> {
    let mut known = Vec::new();
    while known.len() < TEXT_BYTES_MAX {
        let looked_at = known.len();
        if !run.copy_more(addr, &mut known, TEXT_BYTES_MAX - looked_at) {
            break;
        }
        if let Some(end) = memchr(0, &known[looked_at..]) {
            known.truncate(looked_at + end);
            break;
        }
    }
    known.truncate(TEXT_BYTES_MAX);
    known
}

/// Bytes at an address. As in the kernel, unreadable bytes print as zeroes.
fn bytes_at<const LEN: usize>(run: &Run<'_>, addr: u64) -> [u8; LEN] {
    let mut there = Vec::new();
    run.copy_more(addr, &mut there, LEN);
    there.try_into().unwrap_or([0; LEN])
}

fn ipv4_at(run: &Run<'_>, addr: u64, padded: bool, out: &mut Vec<u8>) {
    for (at, byte) in bytes_at::<4>(run, addr).into_iter().enumerate() {
        if at > 0 {
            out.push(b'.');
        }
        let mut digits = Digits::default();
        let digits = digits.decimal(byte.into());
        let zeroes = if padded { 3 - digits.len() } else { 0 };
        out.resize(out.len() + zeroes, b'0');
        out.extend_from_slice(digits);
    }
}

fn ipv6_at(run: &Run<'_>, addr: u64, colons: bool, out: &mut Vec<u8>) {
    for (at, byte) in bytes_at::<16>(run, addr).into_iter().enumerate() {
        if colons && at > 0 && at % 2 == 0 {
            out.push(b':');
        }
        out.extend_from_slice(Digits::default().hex(byte.into(), false, 2));
    }
}

fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Longest result (`MAX_BPRINTF_BUF`).
const TEXT_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use towpath_maps::{MapSet, SetOptions};

    use super::*;
    use crate::program::Surroundings;
    use crate::{Frame, Worker};

    fn formatted(text: &str, args: &[u64]) -> Result<String, Errno> {
        let (mut frame, mut worker) = (Frame::new(&[7; 64]).unwrap(), Worker::new(0));
        let maps = MapSet::create(&[], &SetOptions::new(1)).unwrap();
        let surroundings = Surroundings::default();
        let packet = frame.data_addr();
        let run = Run::new(&mut frame, &mut worker, &maps, &surroundings);
        let args: Vec<u64> =
            args.iter().map(|&arg| if arg == PACKET { packet } else { arg }).collect();
        let mut out = Vec::new();
        format(&run, text.as_bytes(), &args, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    /// The address of bytes that are all 7.
    const PACKET: u64 = 0x7ac_7ac_7ac;
    const MINUS_1: u64 = u64::MAX;

    /// Recorded from `bpf_snprintf` of a 6.18 kernel.
    #[test]
    fn conversions_are_the_kernels() {
        let minus_42 = -42i64 as u64;
        #[rustfmt::skip]
        let cases: &[(&str, &[u64], &str)] = &[
            ("%5d|%-5d|%05d", &[minus_42; 3], "  -42|-42  |-0042"),
            ("%+d|% d|%+d", &[42, 42, MINUS_1], "+42| 42|-1"),
            ("%x|%X|%08x|%-8x|", &[0xbeef; 4], "beef|BEEF|0000beef|beef    |"),
            ("%lld|%llu|%llx", &[MINUS_1; 3], "-1|18446744073709551615|ffffffffffffffff"),
            ("%d|%u|%x", &[MINUS_1; 3], "-1|4294967295|ffffffff"),
            ("%c%c|%3c|%-3c|", &[97, 98, 99, 100], "ab|  c|d  |"),
            ("%%|%d%%", &[5], "%|5%"),
            ("%+05d|%-05d|% 05d|", &[7; 3], "+0007|7    | 0007|"),
            ("%010llx|%+x|% x", &[0xabc, 5, 5], "0000000abc|5|5"),
            ("%px|%20px|", &[0xabc; 2], "0000000000000abc|                 abc|"),
            ("%ld|%li|%i|%lx", &[minus_42, 5, 5, 255], "-42|5|5|ff"),
            ("%010s|%05c|", &[0, 120], "          |    x|"),
            ("%pI4 %20pI4|", &[0, 0], "0.0.0.0 0.0.0.0|"),
            ("%pI4|%pi4", &[PACKET; 2], "7.7.7.7|007.007.007.007"),
            ("%pI6", &[PACKET], "0707:0707:0707:0707:0707:0707:0707:0707"),
        ];
        for (text, args, want) in cases {
            assert_eq!(formatted(text, args).as_deref(), Ok(*want), "{text}");
        }
    }

    #[test]
    fn addresses_are_printed_as_numbers_that_stand_for_them() {
        let address = 0x7f12_3456_789a;
        let text = formatted("%p %p %p", &[address, address, address + 8]).unwrap();
        let [one, again, other] = text.split(' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert_eq!((one, one.len(), &one[..8]), (again, 16, "00000000"), "{text}");
        assert!(one != other && !text.contains("3456789a"), "{text}");
        for form in ["%pK", "%ps", "%pS", "%pB"] {
            assert_eq!(formatted(form, &[address]).as_deref(), Ok(one), "{form}");
        }
        let known = formatted("%p %p", &[0, MINUS_1]);
        assert_eq!(known.as_deref(), Ok("0000000000000000 ffffffffffffffff"));
    }

    #[test]
    fn what_programs_may_not_use_is_refused() {
        for text in ["%f", "%n", "%.5s", "%#x", "%*d", "%pZ", "%", "%l", "%hd", "\u{1}", "é"] {
            assert_eq!(formatted(text, &[1, 2]), Err(Errno::EINVAL), "{text}");
        }
        assert_eq!(formatted("%d %d", &[1]), Err(Errno::EINVAL), "too few arguments");
    }
}
