//! Text: numbers out of it, comparing and searching it.
//!
//! Kernel counterparts: `bpf_strtol` and friends in `kernel/bpf/helpers.c`, and the `bpf_str*`
//! kfuncs, which read up to [`STRING_BYTES_MAX`] bytes of any memory and answer an error number
//! instead of running past it.

use std::cell::Cell;

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::{Call, KfuncTable, Table, entry};

pub(super) const TABLE: Table =
    &[(id::STRTOL, entry(strtol)), (id::STRTOUL, entry(strtoul)), (id::STRNCMP, entry(strncmp))];

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_strcmp", entry(strcmp)),
    ("bpf_strcasecmp", entry(strcasecmp)),
    ("bpf_strncasecmp", entry(strncasecmp)),
    ("bpf_strchr", entry(strchr)),
    ("bpf_strchrnul", entry(strchrnul)),
    ("bpf_strnchr", entry(strnchr)),
    ("bpf_strrchr", entry(strrchr)),
    ("bpf_strlen", entry(strlen)),
    ("bpf_strnlen", entry(strnlen)),
    ("bpf_strspn", entry(strspn)),
    ("bpf_strcspn", entry(strcspn)),
    ("bpf_strstr", entry(strstr)),
    ("bpf_strcasestr", entry(strcasestr)),
    ("bpf_strnstr", entry(strnstr)),
    ("bpf_strncasestr", entry(strncasestr)),
];

/// `bpf_strtol(buf, buf_len, flags, res)`: returns the characters consumed.
#[inline(always)]
fn strtol(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    to_number(call, args, |number| {
        let magnitude = number.magnitude;
        let in_range = magnitude <= i64::MAX as u64 + u64::from(number.negative);
        let value = if number.negative { magnitude.wrapping_neg() } else { magnitude };
        if in_range { Ok(value) } else { Err(Errno::ERANGE) }
    })
}

/// `bpf_strtoul(buf, buf_len, flags, res)`: a minus sign is an error.
#[inline(always)]
fn strtoul(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    to_number(
        call,
        args,
        |number| {
            if number.negative { Err(Errno::EINVAL) } else { Ok(number.magnitude) }
        },
    )
}

fn to_number(
    call: &mut Call<'_, '_>,
    args: [u64; 5],
    value: impl Fn(&Number) -> Result<u64, Errno>,
) -> Result<u64, Stop> {
    let [buf, len, flags, res, _] = args;
    let text = call.run.view(buf, len.min(STRING_BYTES_MAX as u64))?;
    let parsed =
        Number::parse(text, flags).and_then(|number| Ok((value(&number)?, number.consumed)));
    match parsed {
        Ok((value, consumed)) => {
            call.run.put(res, 8, value)?;
            Ok(consumed as u64)
        }
        Err(errno) => Ok(errno.to_reg()),
    }
}

/// What `__bpf_strtoull` reads: blanks, a sign, digits.
struct Number {
    magnitude: u64,
    negative: bool,
    consumed: usize,
}

impl Number {
    fn parse(text: &[u8], flags: u64) -> Result<Number, Errno> {
        let base = flags & BASE_MASK;
        if text.is_empty() || flags & !BASE_MASK != 0 || !matches!(base, 0 | 8 | 10 | 16) {
            return Err(Errno::EINVAL);
        }
        let blanks = text.iter().take_while(|byte| is_space(**byte)).count();
        let rest = &text[blanks..];
        let negative = rest.first() == Some(&b'-');
        let signed = blanks + usize::from(negative);
        let (base, prefix) = base_of(&text[signed..], base);
        let start = signed + prefix;
        let mut magnitude: u64 = 0;
        let mut consumed = start;
        for digit in text[start..].iter().map_while(|byte| digit(*byte, base)) {
            let next = magnitude.checked_mul(base).and_then(|value| value.checked_add(digit));
            magnitude = next.ok_or(Errno::ERANGE)?;
            consumed += 1;
        }
        if consumed == start {
            return Err(Errno::EINVAL);
        }
        Ok(Number { magnitude, negative, consumed })
    }
}

/// The base (`_parse_integer_fixup_radix`) and how long its prefix is.
fn base_of(text: &[u8], base: u64) -> (u64, usize) {
    let is_hex = matches!(text, [b'0', b'x' | b'X', ..]);
    let base = match (base, text) {
        (0, [b'0', b'x' | b'X', digit, ..]) if digit.is_ascii_hexdigit() => 16,
        (0, [b'0', ..]) => 8,
        (0, _) => 10,
        (base, _) => base,
    };
    (base, if base == 16 && is_hex { 2 } else { 0 })
}

fn digit(byte: u8, base: u64) -> Option<u64> {
    char::from(byte).to_digit(base as u32).map(u64::from)
}

/// `bpf_strncmp(s1, s1_sz, s2)`
#[inline(always)]
fn strncmp(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [s1, len, s2, ..] = args;
    let first = call.run.view(s1, u64::from(len as u32).min(STRING_BYTES_MAX as u64))?;
    for (index, &a) in first.iter().enumerate() {
        let b = call.run.get(s2.wrapping_add(index as u64), 1)? as u8;
        if a != b {
            return Ok((i64::from(a) - i64::from(b)) as u64);
        }
        if a == 0 {
            break;
        }
    }
    Ok(0)
}

/// `bpf_strcmp(s1, s2)`: -1, 0 or 1.
#[inline(always)]
fn strcmp(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(reply(compare(&text(call, args[0]), &text(call, args[1]), STRING_BYTES_MAX, same)))
}

/// `bpf_strcasecmp(s1, s2)`
#[inline(always)]
fn strcasecmp(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(reply(compare(&text(call, args[0]), &text(call, args[1]), STRING_BYTES_MAX, folded)))
}

/// `bpf_strncasecmp(s1, s2, len)`
#[inline(always)]
fn strncasecmp(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let limit = usize::try_from(args[2]).unwrap_or(usize::MAX).min(STRING_BYTES_MAX);
    Ok(reply(compare(&text(call, args[0]), &text(call, args[1]), limit, folded)))
}

/// `bpf_strchr(s, c)`
#[inline(always)]
fn strchr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(reply(find_byte(&text(call, args[0]), STRING_BYTES_MAX, args[1] as u8, Errno::ENOENT)))
}

/// `bpf_strnchr(s, count, c)`
#[inline(always)]
fn strnchr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let count = usize::try_from(args[1]).unwrap_or(usize::MAX).min(STRING_BYTES_MAX);
    Ok(reply(find_byte(&text(call, args[0]), count, args[2] as u8, Errno::ENOENT)))
}

/// `bpf_strchrnul(s, c)`: the end of the text where the character is not in it.
#[inline(always)]
fn strchrnul(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let text = text(call, args[0]);
    let position = (0..).find_map(|at| match text.at(at) {
        Err(errno) => Some(Err(errno)),
        Ok(byte) => (byte == args[1] as u8 || byte == 0).then_some(Ok(at as i64)),
    });
    Ok(reply(position.unwrap_or(Err(Errno::E2BIG))))
}

/// `bpf_strrchr(s, c)`: the last place.
#[inline(always)]
fn strrchr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let text = text(call, args[0]);
    let mut last = Err(Errno::ENOENT);
    let result = text.len(STRING_BYTES_MAX).and_then(|len| {
        for at in 0..=len {
            if text.at(at)? == args[1] as u8 {
                last = Ok(at as i64);
            }
        }
        last
    });
    Ok(reply(result))
}

/// `bpf_strlen(s)`
#[inline(always)]
fn strlen(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(reply(text(call, args[0]).len(STRING_BYTES_MAX).map(|len| len as i64)))
}

/// `bpf_strnlen(s, count)`
#[inline(always)]
fn strnlen(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let text = text(call, args[0]);
    let count = usize::try_from(args[1]).unwrap_or(usize::MAX);
    let mut result = Ok(count as i64);
    for at in 0..count.min(STRING_BYTES_MAX + 1) {
        match text.at(at) {
            Ok(0) => {
                result = Ok(at as i64);
                break;
            }
            Ok(_) => {}
            Err(errno) => {
                result = Err(errno);
                break;
            }
        }
    }
    Ok(reply(result))
}

/// `bpf_strspn(s, accept)`: how long the start of `s` is that has only characters of `accept`.
#[inline(always)]
fn strspn(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(reply(span(&text(call, args[0]), &text(call, args[1]), true)))
}

/// `bpf_strcspn(s, reject)`: how long the start of `s` is that has none of `reject`.
#[inline(always)]
fn strcspn(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(reply(span(&text(call, args[0]), &text(call, args[1]), false)))
}

/// `bpf_strstr(s1, s2)`
#[inline(always)]
fn strstr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(reply(search(&text(call, args[0]), &text(call, args[1]), STRING_BYTES_MAX, same)))
}

/// `bpf_strcasestr(s1, s2)`
#[inline(always)]
fn strcasestr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(reply(search(&text(call, args[0]), &text(call, args[1]), STRING_BYTES_MAX, folded)))
}

/// `bpf_strnstr(s1, s2, len)`: within the first `len` bytes of `s1`.
#[inline(always)]
fn strnstr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let limit = usize::try_from(args[2]).unwrap_or(usize::MAX).min(STRING_BYTES_MAX);
    Ok(reply(search(&text(call, args[0]), &text(call, args[1]), limit, same)))
}

/// `bpf_strncasestr(s1, s2, len)`
#[inline(always)]
fn strncasestr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let limit = usize::try_from(args[2]).unwrap_or(usize::MAX).min(STRING_BYTES_MAX);
    Ok(reply(search(&text(call, args[0]), &text(call, args[1]), limit, folded)))
}

/// Text in memory that need not be readable.
struct Text<'a> {
    run: &'a crate::run::Run<'a>,
    addr: u64,
    /// Its start, as far as it was looked at: asking for permission costs more than looking.
    known: Cell<&'a [u8]>,
}

fn text<'a>(call: &'a Call<'_, '_>, addr: u64) -> Text<'a> {
    Text { run: call.run, addr, known: Cell::new(&[]) }
}

impl Text<'_> {
    /// The byte at a position: `EFAULT` outside readable memory, `E2BIG` beyond the limit.
    /// Positions are asked for without gaps.
    #[inline]
    fn at(&self, position: usize) -> Result<u8, Errno> {
        match self.known.get().get(position) {
            Some(&byte) => Ok(byte),
            None => self.more(position),
        }
    }

    #[cold]
    fn more(&self, position: usize) -> Result<u8, Errno> {
        if position >= STRING_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        let known = self.known.get();
        let step = |more: usize| {
            let more = more.min(STRING_BYTES_MAX - known.len());
            self.run.view_unproved(self.addr, known, more as u64)
        };
        self.known.set(WINDOWS.into_iter().find_map(step).ok_or(Errno::EFAULT)?);
        self.known.get().get(position).copied().ok_or(Errno::EFAULT)
    }

    fn len(&self, limit: usize) -> Result<usize, Errno> {
        for at in 0..limit {
            if self.at(at)? == 0 {
                return Ok(at);
            }
        }
        Err(Errno::E2BIG)
    }
}

fn compare(
    first: &Text<'_>,
    second: &Text<'_>,
    limit: usize,
    equal: impl Fn(u8) -> u8,
) -> Result<i64, Errno> {
    for at in 0..limit {
        let (a, b) = (equal(first.at(at)?), equal(second.at(at)?));
        if a != b {
            return Ok(if a < b { -1 } else { 1 });
        }
        if a == 0 {
            return Ok(0);
        }
    }
    if limit == STRING_BYTES_MAX { Err(Errno::E2BIG) } else { Ok(0) }
}

fn find_byte(text: &Text<'_>, limit: usize, wanted: u8, missing: Errno) -> Result<i64, Errno> {
    for at in 0..limit {
        match text.at(at)? {
            byte if byte == wanted => return Ok(at as i64),
            0 => return Err(missing),
            _ => {}
        }
    }
    if limit == STRING_BYTES_MAX { Err(Errno::E2BIG) } else { Err(missing) }
}

fn span(text: &Text<'_>, set: &Text<'_>, inside: bool) -> Result<i64, Errno> {
    let set_len = set.len(STRING_BYTES_MAX)?;
    let set: Vec<u8> = (0..set_len).map(|at| set.at(at)).collect::<Result<_, _>>()?;
    for at in 0..STRING_BYTES_MAX {
        let byte = text.at(at)?;
        if byte == 0 || set.contains(&byte) != inside {
            return Ok(at as i64);
        }
    }
    Err(Errno::E2BIG)
}

fn search(
    text: &Text<'_>,
    wanted: &Text<'_>,
    limit: usize,
    equal: impl Fn(u8) -> u8,
) -> Result<i64, Errno> {
    let wanted_len = wanted.len(STRING_BYTES_MAX)?;
    let wanted = &wanted.known.get()[..wanted_len];
    let first = wanted.first().map(|byte| equal(*byte));
    let mut start = 0;
    while start + wanted.len() <= limit {
        // Most positions fail at once.
        let skipped = text.known.get().get(start..).map_or(0, |rest| {
            let stop = |byte: &u8| Some(equal(*byte)) == first || *byte == 0 || first.is_none();
            rest.iter().position(stop).unwrap_or(rest.len())
        });
        start += skipped.min(limit - wanted.len() - start);
        let mut matches = true;
        for (offset, &byte) in wanted.iter().enumerate() {
            match text.at(start + offset)? {
                0 => return Err(Errno::ENOENT),
                found if equal(found) == equal(byte) => {}
                _ => {
                    matches = false;
                    break;
                }
            }
        }
        if matches {
            return Ok(start as i64);
        }
        start += 1;
    }
    if limit == STRING_BYTES_MAX { Err(Errno::E2BIG) } else { Err(Errno::ENOENT) }
}

fn same(byte: u8) -> u8 {
    byte
}

fn folded(byte: u8) -> u8 {
    byte.to_ascii_lowercase()
}

fn reply(result: Result<i64, Errno>) -> u64 {
    match result {
        Ok(value) => value as u64,
        Err(errno) => errno.to_reg(),
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// How many bytes more are asked for, until they are had.
const WINDOWS: [usize; 5] = [512, 128, 32, 8, 1];
/// Longest text the `bpf_str*` kfuncs look at (`XATTR_SIZE_MAX`).
const STRING_BYTES_MAX: usize = 65536;
/// `BPF_STRTOX_BASE_MASK`
const BASE_MASK: u64 = 0x1f;

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str, base: u64) -> Result<(u64, bool, usize), Errno> {
        Number::parse(text.as_bytes(), base).map(|n| (n.magnitude, n.negative, n.consumed))
    }

    #[test]
    fn numbers_stop_at_the_first_other_character() {
        assert_eq!(parsed("  -12x", 10), Ok((12, true, 5)));
        assert_eq!(parsed("0x1fg", 0), Ok((31, false, 4)));
        assert_eq!(parsed("017", 0), Ok((15, false, 3)));
        assert_eq!(parsed("x", 10), Err(Errno::EINVAL));
        assert_eq!(parsed("1", 7), Err(Errno::EINVAL));
        assert_eq!(parsed("99999999999999999999", 10), Err(Errno::ERANGE));
    }
}
