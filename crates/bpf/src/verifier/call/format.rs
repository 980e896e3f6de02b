//! Format strings of `bpf_snprintf`: constant during verification, so checked then
//! (`bpf_bprintf_prepare`).

use crate::errno::Errno;

use super::super::env::{Result, Verifier};

impl Verifier<'_> {
    /// Checks that the format in r3 suits the number of values that r5 gives
    /// (`check_bpf_snprintf_call`).
    pub(super) fn check_snprintf(&self) -> Result<()> {
        let bytes = self.reg(5).var.tnum.value;
        if !bytes.is_multiple_of(8) {
            let message = format!("bpf_snprintf data of {bytes} bytes is not a multiple of 8");
            return Err(self.reject(Errno::EINVAL, message));
        }
        let text = self.const_str(3)?;
        if is_valid_format(&text, bytes / 8) {
            return Ok(());
        }
        Err(self.reject_hint(
            Errno::EINVAL,
            "Invalid format string",
            "one value per conversion; %d %i %u %x %X (l, ll, widths to 9 digits), %s, %c, %p \
             and its forms are known",
        ))
    }
}

/// Whether a format uses at most `count` values and only conversions of the kernel's formatter.
fn is_valid_format(text: &[u8], count: u64) -> bool {
    let printable = |byte: &u8| matches!(byte, b'\t'..=b'\r' | b' '..=b'~');
    if !text.iter().all(printable) {
        return false;
    }
    let mut rest = text;
    let mut used = 0;
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        rest = &rest[at + 1..];
        if let [b'%', tail @ ..] = rest {
            rest = tail;
            continue;
        }
        used += 1;
        let Some(tail) = conversion(rest).filter(|_| used <= count) else { return false };
        rest = tail;
    }
    true
}

/// The text after one conversion; `None` if the conversion is invalid.
fn conversion(text: &[u8]) -> Option<&[u8]> {
    let flags = text.iter().take_while(|byte| b"0+- ".contains(byte)).count();
    let text = &text[flags..];
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = &text[digits..];
    match text {
        [b'p', tail @ ..] => pointer(tail),
        [b's', tail @ ..] => ends(tail),
        [b'c', tail @ ..] => Some(tail),
        [b'l', b'l', kind, tail @ ..] | [b'l', kind, tail @ ..] | [kind, tail @ ..]
            if b"iduxX".contains(kind) =>
        {
            Some(tail)
        }
        _ => None,
    }
}

/// The text after `%p` alone, or after one of its forms.
fn pointer(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b'k' | b'u', b's', tail @ ..] => ends(tail),
        [b'i' | b'I', b'4' | b'6', tail @ ..] => Some(tail),
        [b'B' | b'K' | b'x' | b's' | b'S', tail @ ..] => Some(tail),
        _ => ends(text),
    }
}

/// The text, if the conversion ends here: at the end, or before a space or punctuation.
fn ends(text: &[u8]) -> Option<&[u8]> {
    let next = text.first();
    let ended = next.is_none_or(|b| b.is_ascii_whitespace() || b.is_ascii_punctuation());
    ended.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::is_valid_format;

    #[test]
    fn formats_follow_the_kernels_formatter() {
        assert!(is_valid_format(b"%d %08llx %pi4 100%% %s", 4));
        assert!(!is_valid_format(b"%d %d", 1), "a value is missing");
        assert!(is_valid_format(b"one", 3), "spare values are fine");
        for bad in ["%", "%z", "%pzz", "caf\u{e9}", "%f", "%sx"] {
            assert!(!is_valid_format(bad.as_bytes(), 1), "{bad}");
        }
    }
}
