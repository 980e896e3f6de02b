//! The strings of a blob, each converted to a [`Name`] once.

use super::{BtfError, Name};

/// String sections of base and blob, with the strings that were converted.
pub(crate) struct Strings<'a> {
    base: &'a [u8],
    own: &'a [u8],
    /// By offset: 1 + index in `made`; 0 for offsets that no name used yet.
    by_offset: Vec<u32>,
    made: Vec<Name>,
    empty: Name,
    /// Number of bytes that may still be copied: names that are each other's tails would add up to
    /// the square of the section's size.
    budget: usize,
}

impl<'a> Strings<'a> {
    pub(crate) fn new(base: &'a [u8], own: &'a [u8]) -> Result<Self, BtfError> {
        if [base, own].iter().any(|bytes| bytes.last().is_some_and(|&last| last != 0)) {
            return Err(BtfError::Strings("doesn't end with a NUL byte"));
        }
        let by_offset = vec![0; base.len() + own.len()];
        let budget = 4 * by_offset.len() + 4096;
        Ok(Strings { base, own, by_offset, made: Vec::new(), empty: Name::from(""), budget })
    }

    /// The string at an offset, or the reason why there is none.
    pub(crate) fn at(&mut self, offset: u32) -> Result<Name, &'static str> {
        if offset == 0 {
            return Ok(self.empty.clone());
        }
        let offset = offset as usize;
        let slot = *self.by_offset.get(offset).ok_or("lies outside the string section")?;
        if let Some(made) = (slot as usize).checked_sub(1).and_then(|index| self.made.get(index)) {
            return Ok(made.clone());
        }
        let tail = match offset.checked_sub(self.base.len()) {
            Some(offset) => self.own.get(offset..),
            None => self.base.get(offset..),
        };
        let text = tail.and_then(|tail| tail.split(|&byte| byte == 0).next());
        let text = text.ok_or("lies outside the string section")?;
        self.budget = self.budget.checked_sub(text.len()).ok_or("overlaps too many other names")?;
        // Source lines in Latin-1 occur, and the kernel accepts them.
        let name = Name::from(&*String::from_utf8_lossy(text));
        self.made.push(name.clone());
        self.by_offset[offset] = self.made.len() as u32;
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_made_once_and_ends_at_its_nul() {
        let mut strings = Strings::new(b"\0base\0", b"own\0").unwrap();
        assert_eq!(strings.at(1).as_deref(), Ok("base"));
        assert_eq!(strings.at(3).as_deref(), Ok("se"));
        let own = strings.at(6).unwrap();
        assert_eq!(&*own, "own");
        assert!(Name::ptr_eq(&own, &strings.at(6).unwrap()));
        assert!(strings.at(10).is_err());
        assert!(Strings::new(b"", b"\0open").is_err());
    }

    #[test]
    fn bytes_that_are_not_utf8_are_replaced() {
        let mut strings = Strings::new(b"\0", b"gr\xf6\xdfe\0gr\xc3\xb6\0").unwrap();
        assert_eq!(strings.at(1).as_deref(), Ok("gr\u{fffd}\u{fffd}e"));
        assert_eq!(strings.at(7).as_deref(), Ok("gr\u{f6}"));
        assert_eq!(strings.at(10).as_deref(), Ok("\u{fffd}"), "the second half of a character");
    }

    #[test]
    fn strings_that_are_each_others_tails_are_not_copied_endlessly() {
        let mut bytes = vec![b'a'; 1 << 16];
        bytes.push(0);
        let mut strings = Strings::new(&[], &bytes).unwrap();
        let refused = (1..1 << 16).find_map(|offset| strings.at(offset).err());
        assert_eq!(refused, Some("overlaps too many other names"));
    }
}
