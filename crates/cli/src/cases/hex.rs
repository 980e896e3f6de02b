//! Bytes as people write them: `45 00 00 54`, `4500.0054`; and patterns, in which `..` is any byte.

/// Expected bytes; `None` allows any value.
pub(super) type Pattern = Vec<Option<u8>>;

/// Reads bytes. Blanks, line ends, `:` and `-` are ignored.
pub(super) fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let pattern = pattern(text)?;
    let known: Option<Vec<u8>> = pattern.iter().copied().collect();
    known.ok_or_else(|| "`..` (any byte) is not possible here: every byte is needed".to_owned())
}

/// Reads bytes, some of which may be `..` for any value.
pub(super) fn pattern(text: &str) -> Result<Pattern, String> {
    let is_digit = |it: &char| !it.is_whitespace() && !matches!(it, ':' | '-' | '_');
    let digits: Vec<char> = text.chars().filter(is_digit).collect();
    if digits.len() % 2 == 1 {
        return Err(format!("{} hex digits: two make a byte", digits.len()));
    }
    let byte = |pair: &[char]| match *pair {
        ['.', '.'] => Ok(None),
        [high, low] => match (high.to_digit(16), low.to_digit(16)) {
            (Some(high), Some(low)) => Ok(Some((high << 4 | low) as u8)),
            _ => Err(format!("{high:?}{low:?} is not a byte in hex")),
        },
        _ => Err("a digit is missing".to_owned()),
    };
    digits.chunks(2).map(byte).collect()
}

/// A pattern as it is written.
pub(super) fn pattern_text(pattern: &[Option<u8>]) -> String {
    let byte = |byte: &Option<u8>| byte.map_or("..".to_owned(), |byte| format!("{byte:02x}"));
    pattern.iter().map(byte).collect()
}

/// Rows of sixteen bytes, each with its offset.
pub(super) fn rows(bytes: &[u8]) -> Vec<String> {
    let row = |(index, row): (usize, &[u8])| {
        let digits: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{:04x}  {}", index * 16, digits.join(" "))
    };
    bytes.chunks(16).enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_as_people_write_them() {
        assert_eq!(bytes("45 00\n0a:0b"), Ok(vec![0x45, 0, 0x0a, 0x0b]));
        assert_eq!(pattern("45..0a"), Ok(vec![Some(0x45), None, Some(0x0a)]));
        assert_eq!(pattern_text(&[Some(0x45), None]), "45..");
        assert!(bytes("45..").unwrap_err().contains("any byte"));
        assert!(bytes("450").unwrap_err().contains("two make a byte"));
        assert!(bytes("zz").unwrap_err().contains("not a byte"));
        assert_eq!(bytes(&towpath_daemon::globals::hex(&[0, 255, 18])), Ok(vec![0, 255, 18]));
        assert_eq!(
            rows(&[7; 17]),
            ["0000  07 07 07 07 07 07 07 07 07 07 07 07 07 07 07 07", "0010  07"]
        );
    }
}
