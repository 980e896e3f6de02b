//! Formatted text for `bpf_trace_printk` and its relatives: the conversions the kernel lets
//! programs use (`bpf_bprintf_prepare`), and no others.

use std::fmt::Write;

use towpath_bpf::Errno;

use crate::run::Run;

/// Formats `args` by `format` (without its NUL). `EINVAL` for a conversion programs may not use,
/// or one without an argument.
pub(crate) fn format(run: &Run<'_>, format: &[u8], args: &[u64]) -> Result<String, Errno> {
    if !format.iter().all(|&byte| (b' '..=b'~').contains(&byte) || is_space(byte)) {
        return Err(Errno::EINVAL);
    }
    let mut out = String::new();
    let mut args = args.iter().copied();
    let mut rest = format;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match (first, rest.first()) {
            (b'%', Some(b'%')) => {
                out.push('%');
                rest = &rest[1..];
            }
            (b'%', _) => {
                let (spec, after) = Spec::parse(rest)?;
                let arg = args.next().ok_or(Errno::EINVAL)?;
                spec.print(run, arg, &mut out);
                rest = after;
            }
            _ => out.push(char::from(first)),
        }
        if out.len() > TEXT_BYTES_MAX {
            out.truncate(TEXT_BYTES_MAX);
            break;
        }
    }
    Ok(out)
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

    fn print(self, run: &Run<'_>, arg: u64, out: &mut String) {
        let (sign, digits) = match self.what {
            What::Signed { wide } => {
                let value = if wide { arg as i64 } else { i64::from(arg as i32) };
                (self.sign(value < 0), value.unsigned_abs().to_string())
            }
            What::Unsigned { wide } => ("", cut(arg, wide).to_string()),
            What::Hex { wide, upper: false } => ("", format!("{:x}", cut(arg, wide))),
            What::Hex { wide, upper: true } => ("", format!("{:X}", cut(arg, wide))),
            // `pointer_string`: full width unless the format gives one.
            What::Pointer if self.width == 0 => ("", format!("{arg:016x}")),
            What::Pointer => ("", format!("{arg:x}")),
            What::Char => ("", char::from(arg as u8).to_string()),
            What::Text => ("", text_at(run, arg)),
            What::Ipv4 { padded } => ("", ipv4_at(run, arg, padded)),
            What::Ipv6 { colons } => ("", ipv6_at(run, arg, colons)),
        };
        // The kernel formats addresses beforehand and loses their width on the way.
        let is_address = matches!(self.what, What::Ipv4 { .. } | What::Ipv6 { .. });
        let width = if is_address { 0 } else { self.width };
        let fill = width.saturating_sub(sign.len() + digits.len());
        let is_number =
            matches!(self.what, What::Signed { .. } | What::Unsigned { .. } | What::Hex { .. });
        if self.left {
            let _ = write!(out, "{sign}{digits}{:fill$}", "");
        } else if self.zero && is_number {
            let _ = write!(out, "{sign}{:0<fill$}{digits}", "");
        } else {
            let _ = write!(out, "{:fill$}{sign}{digits}", "");
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
            [b'K' | b'x' | b's' | b'S' | b'B', rest @ ..] => Ok((What::Pointer, rest)),
            [next, ..] if !is_space(*next) && !next.is_ascii_punctuation() => Err(Errno::EINVAL),
            rest => Ok((What::Pointer, rest)),
        }
    }
}

fn cut(arg: u64, wide: bool) -> u64 {
    if wide { arg } else { u64::from(arg as u32) }
}

/// The NUL-terminated string at an address, as far as it can be read; nothing otherwise.
fn text_at(run: &Run<'_>, addr: u64) -> String {
    let bytes = (0..TEXT_BYTES_MAX as u64).map_while(|at| {
        let mut byte = [0];
        run.read_unproved(addr.wrapping_add(at), &mut byte).ok()?;
        (byte[0] != 0).then_some(byte[0])
    });
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

fn ipv4_at(run: &Run<'_>, addr: u64, padded: bool) -> String {
    let mut bytes = [0; 4];
    // As in the kernel, what cannot be read prints as zeroes.
    let _unreadable = run.read_unproved(addr, &mut bytes);
    let parts = bytes.map(|b| if padded { format!("{b:03}") } else { b.to_string() });
    parts.join(".")
}

fn ipv6_at(run: &Run<'_>, addr: u64, colons: bool) -> String {
    let mut bytes = [0; 16];
    let _unreadable = run.read_unproved(addr, &mut bytes);
    let (pairs, _) = bytes.as_chunks::<2>();
    let parts: Vec<String> = pairs.iter().map(|[a, b]| format!("{a:02x}{b:02x}")).collect();
    parts.join(if colons { ":" } else { "" })
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
        format(&run, text.as_bytes(), &args)
    }

    /// Stands for the address of bytes that are all 7.
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
    fn what_programs_may_not_use_is_refused() {
        for text in ["%f", "%n", "%.5s", "%#x", "%*d", "%pZ", "%", "%l", "%hd", "\u{1}", "é"] {
            assert_eq!(formatted(text, &[1, 2]), Err(Errno::EINVAL), "{text}");
        }
        assert_eq!(formatted("%d %d", &[1]), Err(Errno::EINVAL), "too few arguments");
    }
}
