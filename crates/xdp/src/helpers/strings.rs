//! Strings: conversion to numbers, comparison and search.
//!
//! Kernel counterparts: `bpf_strtol` and friends in `kernel/bpf/helpers.c`, and the `bpf_str*`
//! kfuncs, which read up to [`STRING_BYTES_MAX`] bytes of any memory and answer an error number
//! instead of running past it.

use std::cell::{Ref, RefCell};

use memchr::{memchr, memchr2, memchr3, memrchr};
use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;
use towpath_bpf::proto::id;

use super::{Call, KfuncTable, Table, entry};
use crate::memory;
use crate::run::Run;

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
        Number::parse(&text, flags).and_then(|number| Ok((value(&number)?, number.consumed)));
    match parsed {
        Ok((value, consumed)) => {
            call.run.put(res, 8, value)?;
            Ok(consumed as u64)
        }
        Err(errno) => Ok(errno.to_reg()),
    }
}

/// A number as `__bpf_strtoull` reads it: blanks, a sign, digits.
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

/// The base (`_parse_integer_fixup_radix`) and the length of its prefix.
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

/// `bpf_strncmp(s1, s1_sz, s2)`: the second is text in a read-only map, which ends in it.
#[inline(always)]
fn strncmp(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [s1, len, s2, ..] = args;
    let len = u64::from(len as u32).min(STRING_BYTES_MAX as u64);
    if len == 0 {
        return Ok(0);
    }
    let first = call.run.grant(s1, len, false)?;
    for at in 0..len {
        // Most texts differ early.
        let a = memory::load(first.part(at, 1)) as u8;
        let b = call.run.get(s2.wrapping_add(at), 1)? as u8;
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

/// `bpf_strchrnul(s, c)`: the end of the text if it does not contain the character.
#[inline(always)]
fn strchrnul(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let found = text(call, args[0])
        .find(0, STRING_BYTES_MAX, |bytes| memchr2(args[1] as u8, 0, bytes))
        .and_then(|at| at.ok_or(Errno::E2BIG));
    Ok(reply(found.map(|at| at as i64)))
}

/// `bpf_strrchr(s, c)`: the last place.
#[inline(always)]
fn strrchr(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let text = text(call, args[0]);
    let found = text.len(STRING_BYTES_MAX).and_then(|len| match args[1] as u8 {
        0 => Ok(len),
        wanted => memrchr(wanted, &text.known.borrow()[..len]).ok_or(Errno::ENOENT),
    });
    Ok(reply(found.map(|at| at as i64)))
}

/// `bpf_strlen(s)`
#[inline(always)]
fn strlen(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(reply(text(call, args[0]).len(STRING_BYTES_MAX).map(|len| len as i64)))
}

/// `bpf_strnlen(s, count)`
#[inline(always)]
fn strnlen(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let count = usize::try_from(args[1]).unwrap_or(usize::MAX);
    let end = text(call, args[0]).find(0, count.min(STRING_BYTES_MAX), |bytes| memchr(0, bytes));
    let len = end.and_then(|end| match end {
        None if count > STRING_BYTES_MAX => Err(Errno::E2BIG),
        end => Ok(end.unwrap_or(count)),
    });
    Ok(reply(len.map(|len| len as i64)))
}

/// `bpf_strspn(s, accept)`: length of the initial part of `s` with only characters of `accept`.
#[inline(always)]
fn strspn(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    Ok(reply(span(&text(call, args[0]), &text(call, args[1]), true)))
}

/// `bpf_strcspn(s, reject)`: length of the initial part of `s` without characters of `reject`.
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
    run: &'a Run<'a>,
    addr: u64,
    /// Copy of the text read so far, because checking access costs more than reading.
    known: RefCell<Vec<u8>>,
}

fn text<'a>(call: &'a Call<'_, '_>, addr: u64) -> Text<'a> {
    Text::new(call.run, addr)
}

impl Drop for Text<'_> {
    fn drop(&mut self) {
        let mut known = self.known.take();
        known.clear();
        self.run.worker.texts.borrow_mut().push(known);
    }
}

impl<'a> Text<'a> {
    #[inline]
    fn new(run: &'a Run<'a>, addr: u64) -> Text<'a> {
        let known = run.worker.texts.borrow_mut().pop().unwrap_or_default();
        Text { run, addr, known: RefCell::new(known) }
    }

    /// The byte at a position: `EFAULT` outside readable memory, `E2BIG` beyond the limit.
    /// Positions are asked for without gaps.
    #[inline]
    fn at(&self, position: usize) -> Result<u8, Errno> {
        let known = self.known.borrow().get(position).copied();
        match known {
            Some(byte) => Ok(byte),
            None => {
                self.extend()?;
                self.known.borrow().get(position).copied().ok_or(Errno::EFAULT)
            }
        }
    }

    /// Reads more of the text, within the same piece of memory.
    #[inline(never)]
    fn extend(&self) -> Result<(), Errno> {
        let mut known = self.known.borrow_mut();
        if known.len() >= STRING_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        // Most strings are short, so the copied length doubles each time.
        let most = known.len().max(STEP_BYTES).min(STRING_BYTES_MAX - known.len());
        self.run.copy_more(self.addr, &mut known, most).then_some(()).ok_or(Errno::EFAULT)
    }

    /// The first position from `from` on and before `limit` where `look` finds a match; `look` gets
    /// one piece of the text after another. `limit` is at most [`STRING_BYTES_MAX`].
    #[inline]
    fn find(
        &self,
        from: usize,
        limit: usize,
        look: impl Fn(&[u8]) -> Option<usize>,
    ) -> Result<Option<usize>, Errno> {
        let mut from = from;
        while from < limit {
            let known = self.known.borrow();
            if let Some(piece) = known.get(from..known.len().min(limit))
                && !piece.is_empty()
            {
                if let Some(at) = look(piece) {
                    return Ok(Some(from + at));
                }
                from += piece.len();
            } else {
                drop(known);
                self.extend()?;
            }
        }
        Ok(None)
    }

    /// The known bytes from a position on.
    #[inline]
    fn known_from(&self, position: usize) -> Ref<'_, [u8]> {
        Ref::map(self.known.borrow(), |known| known.get(position..).unwrap_or_default())
    }

    #[inline]
    fn len(&self, limit: usize) -> Result<usize, Errno> {
        self.find(0, limit, |bytes| memchr(0, bytes))?.ok_or(Errno::E2BIG)
    }
}

fn compare(
    first: &Text<'_>,
    second: &Text<'_>,
    limit: usize,
    equal: impl Fn(u8) -> u8,
) -> Result<i64, Errno> {
    let mut at = 0;
    while at < limit {
        at += alike(&first.known_from(at), &second.known_from(at)).min(limit - at);
        for at in at..limit.min(at + WORD_BYTES) {
            let (a, b) = (equal(first.at(at)?), equal(second.at(at)?));
            if a != b {
                return Ok(if a < b { -1 } else { 1 });
            }
            if a == 0 {
                return Ok(0);
            }
        }
        at = limit.min(at + WORD_BYTES);
    }
    if limit == STRING_BYTES_MAX { Err(Errno::E2BIG) } else { Ok(0) }
}

/// Length of the common initial part without NUL, in whole words.
fn alike(first: &[u8], second: &[u8]) -> usize {
    let words = first.as_chunks().0.iter().zip(second.as_chunks().0);
    let goes_on = |(a, b): &(&Word, &Word)| a == b && !has_nul(u64::from_ne_bytes(**a));
    words.take_while(goes_on).count() * WORD_BYTES
}

/// Bytes compared at once.
type Word = [u8; WORD_BYTES];

/// Whether one of the bytes is 0.
fn has_nul(word: u64) -> bool {
    let (low, high) =
        (u64::from_ne_bytes([0x01; WORD_BYTES]), u64::from_ne_bytes([0x80; WORD_BYTES]));
    word.wrapping_sub(low) & !word & high != 0
}

fn find_byte(text: &Text<'_>, limit: usize, wanted: u8, missing: Errno) -> Result<i64, Errno> {
    match text.find(0, limit, |bytes| memchr2(wanted, 0, bytes))? {
        Some(at) if text.at(at)? == wanted => Ok(at as i64),
        None if limit == STRING_BYTES_MAX => Err(Errno::E2BIG),
        _ => Err(missing),
    }
}

fn span(text: &Text<'_>, set: &Text<'_>, inside: bool) -> Result<i64, Errno> {
    let set_len = set.len(STRING_BYTES_MAX)?;
    let mut is_in_set = [false; 256];
    for byte in &set.known.borrow()[..set_len] {
        is_in_set[usize::from(*byte)] = true;
    }
    // Bytes that end the span; the text's end always does.
    let mut ends = is_in_set.map(|is_in_set| is_in_set != inside);
    ends[0] = true;
    let end = |bytes: &[u8]| bytes.iter().position(|byte| ends[usize::from(*byte)]);
    text.find(0, STRING_BYTES_MAX, end)?.map(|at| at as i64).ok_or(Errno::E2BIG)
}

fn search(
    text: &Text<'_>,
    wanted: &Text<'_>,
    limit: usize,
    equal: impl Fn(u8) -> u8,
) -> Result<i64, Errno> {
    let wanted_len = wanted.len(STRING_BYTES_MAX)?;
    let wanted = wanted.known.borrow();
    let wanted = &wanted[..wanted_len];
    let Some(&first) = wanted.first() else { return Ok(0) };
    let (lower, upper) = (equal(first), first.to_ascii_uppercase());
    // Without case folding, both are the same.
    let upper = if equal(upper) == lower { upper } else { lower };
    let mut start = 0;
    // Most positions fail at their first byte.
    while let Some(at) =
        text.find(start, (limit + 1).saturating_sub(wanted.len()), |b| memchr3(lower, upper, 0, b))?
    {
        if matches_at(text, at, wanted, &equal)? {
            return Ok(at as i64);
        }
        start = at + 1;
    }
    if limit == STRING_BYTES_MAX { Err(Errno::E2BIG) } else { Err(Errno::ENOENT) }
}

/// Whether the text continues with these bytes; `ENOENT` if it ends before.
fn matches_at(
    text: &Text<'_>,
    start: usize,
    wanted: &[u8],
    equal: &impl Fn(u8) -> u8,
) -> Result<bool, Errno> {
    for (offset, &byte) in wanted.iter().enumerate() {
        match text.at(start + offset)? {
            0 => return Err(Errno::ENOENT),
            found if equal(found) == equal(byte) => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
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

const WORD_BYTES: usize = 8;
/// Bytes of a string copied at first.
const STEP_BYTES: usize = 64;
/// Longest text the `bpf_str*` kfuncs look at (`XATTR_SIZE_MAX`).
const STRING_BYTES_MAX: usize = 65536;
/// `BPF_STRTOX_BASE_MASK`
const BASE_MASK: u64 = 0x1f;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Frame;
    use crate::program::testing;
    use crate::run::Run;

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

    /// A byte of text that ends at the end of memory.
    fn at(text: &[u8], position: usize) -> Result<u8, Errno> {
        text.get(position).copied().ok_or(Errno::EFAULT)
    }

    fn plain_compare(a: &[u8], b: &[u8], equal: fn(u8) -> u8) -> Result<i64, Errno> {
        for position in 0.. {
            let (a, b) = (equal(at(a, position)?), equal(at(b, position)?));
            if a != b || a == 0 {
                return Ok(i64::from(a > b) - i64::from(a < b));
            }
        }
        unreachable!("text ends")
    }

    fn plain_span(text: &[u8], set: &[u8], inside: bool) -> Result<i64, Errno> {
        let set = &set[..set.iter().position(|byte| *byte == 0).ok_or(Errno::EFAULT)?];
        for position in 0.. {
            let byte = at(text, position)?;
            if byte == 0 || set.contains(&byte) != inside {
                return Ok(position as i64);
            }
        }
        unreachable!("text ends")
    }

    fn plain_search(
        text: &[u8],
        wanted: &[u8],
        limit: usize,
        equal: fn(u8) -> u8,
    ) -> Result<i64, Errno> {
        let wanted = &wanted[..wanted.iter().position(|byte| *byte == 0).ok_or(Errno::EFAULT)?];
        'start: for start in 0..(limit + 1).saturating_sub(wanted.len()) {
            for (offset, byte) in wanted.iter().enumerate() {
                match at(text, start + offset)? {
                    0 => return Err(Errno::ENOENT),
                    found if equal(found) == equal(*byte) => {}
                    _ => continue 'start,
                }
            }
            return Ok(start as i64);
        }
        Err(Errno::ENOENT)
    }

    /// Random texts of few letters, in pieces of any length, with and without a NUL.
    #[test]
    fn texts_are_what_they_are_byte_by_byte() {
        let program = testing::program(&[], &[]);
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % below
        };
        for _ in 0..3000 {
            let letters = [b"abA\0", b"aabb", b"aaA\0"][next(3) as usize];
            let len = 14 + next(60) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| letters[next(4) as usize]).collect();
            bytes[len - 1 - next(3) as usize] = 0;
            let (from, wanted) = (next(len as u64) as usize, len - 1 - next(8) as usize);
            let limit = next(80) as usize;
            let (mut frame, mut worker) = (Frame::new(&bytes).unwrap(), program.worker(0));
            let start = frame.data_addr();
            let run = Run::new(&mut frame, &mut worker, program.maps(), program.surroundings());
            let text = |at: usize| Text::new(&run, start + at as u64);
            let (a, b) = (&bytes[from..], &bytes[wanted..]);
            for equal in [same, folded] {
                let compared = compare(&text(from), &text(wanted), STRING_BYTES_MAX, equal);
                assert_eq!(compared, plain_compare(a, b, equal), "{a:?} {b:?}");
                let found = search(&text(from), &text(wanted), limit, equal);
                assert_eq!(found, plain_search(a, b, limit, equal), "{a:?} {b:?} {limit}");
            }
            for inside in [true, false] {
                let found = span(&text(from), &text(wanted), inside);
                assert_eq!(found, plain_span(a, b, inside), "{a:?} {b:?}");
            }
            let end = a.iter().position(|byte| *byte == 0).ok_or(Errno::EFAULT);
            assert_eq!(text(from).len(STRING_BYTES_MAX), end, "{a:?}");
            let place = a.iter().take(limit).position(|byte| matches!(byte, 0 | b'b'));
            let expected = match place {
                Some(place) if a[place] == b'b' => Ok(place as i64),
                None if limit > a.len() => Err(Errno::EFAULT),
                _ => Err(Errno::ENOENT),
            };
            assert_eq!(find_byte(&text(from), limit, b'b', Errno::ENOENT), expected, "{a:?}");
        }
    }
}
