//! Frames as people paste them: hex digits in pairs, with or without blanks and colons between.

use std::fmt;

/// Place and cause of an error in hex text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BadHex {
    /// Number of the character, from 1.
    pub(super) column: usize,
    problem: Problem,
}

#[derive(Debug, PartialEq, Eq)]
enum Problem {
    Character(char),
    HalfByte,
}

impl fmt::Display for BadHex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problem {
            Problem::Character(found) => {
                write!(f, "{found:?} is not a hex digit: give a frame like 0200000000020200...")
            }
            Problem::HalfByte => write!(f, "half a byte: every byte has two hex digits"),
        }
    }
}

/// Reads a frame into `frame`, and replaces its contents.
pub(super) fn parse(text: &str, frame: &mut Vec<u8>) -> Result<(), BadHex> {
    frame.clear();
    let mut high = None;
    let mut columns = 0;
    for (index, character) in text.chars().enumerate() {
        columns = index + 1;
        let problem = |problem| Err(BadHex { column: columns, problem });
        match (character.to_digit(16), high) {
            (Some(digit), None) => high = Some(digit as u8),
            (Some(digit), Some(half)) => {
                frame.push(half << 4 | digit as u8);
                high = None;
            }
            (None, Some(_)) if is_separator(character) => return problem(Problem::HalfByte),
            (None, None) if is_separator(character) => {}
            (None, _) => return problem(Problem::Character(character)),
        }
    }
    match high {
        Some(_) => Err(BadHex { column: columns + 1, problem: Problem::HalfByte }),
        None => Ok(()),
    }
}

fn is_separator(character: char) -> bool {
    matches!(character, ' ' | '\t' | ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_digits_are_bytes() {
        for text in ["0aFF10", "0a:ff:10", " 0a ff\t10 "] {
            let mut frame = vec![1];
            assert_eq!(parse(text, &mut frame), Ok(()), "{text:?}");
            assert_eq!(frame, [0x0a, 0xff, 0x10]);
        }
    }

    #[test]
    fn what_is_wrong_is_told_with_its_column() {
        let table = [("0g", 2, "'g' is not a hex"), ("0a:f", 5, "half"), ("0 a", 2, "half")];
        for (text, column, message) in table {
            let refusal = parse(text, &mut Vec::new()).expect_err(text);
            assert_eq!(refusal.column, column, "{text}");
            assert!(refusal.to_string().starts_with(message), "{refusal}");
        }
    }
}
