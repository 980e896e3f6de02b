//! The user's choice about unset bytes.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;

use super::Sanitizer;
use crate::program::LoadOptions;
use crate::worker::Worker;

/// The treatment of unset bytes: `off`, `poison`, `poison:SEED` or `track`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sanitize {
    /// No treatment: unset bytes are zeros, or have the contents that an earlier run left.
    Off,
    /// The stack begins each run with bytes that follow from this seed, none of them 0.
    Poison(u32),
    /// Unset bits are tracked one by one, in the interpreter.
    Track,
}

impl Sanitize {
    /// Changes the options for loading programs as this choice needs it: with poison, compiled code
    /// keeps its stack in memory.
    pub fn prepare(self, options: &mut LoadOptions) {
        if matches!(self, Sanitize::Poison(_)) {
            options.jit.passes.without.insert(STACK_AS_VALUES.to_owned());
        }
    }

    /// Turns this treatment on for a worker, for programs that were loaded with
    /// [`Sanitize::prepare`].
    pub fn begin(self, worker: &mut Worker) {
        worker.set_sanitizer((self == Sanitize::Track).then(Sanitizer::new));
        worker.set_poison(match self {
            Sanitize::Poison(seed) => Some(seed),
            Sanitize::Off | Sanitize::Track => None,
        });
    }
}

impl fmt::Display for Sanitize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sanitize::Off => f.write_str("off"),
            Sanitize::Poison(seed) => write!(f, "poison:{seed}"),
            Sanitize::Track => f.write_str("track"),
        }
    }
}

/// The text is none of the choices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected off, poison, poison:SEED (a number below 2^32) or track")]
pub struct SanitizeError;

impl FromStr for Sanitize {
    type Err = SanitizeError;

    /// `poison` without a seed takes a random one.
    fn from_str(text: &str) -> Result<Sanitize, SanitizeError> {
        match (text, text.strip_prefix("poison:")) {
            ("off", _) => Ok(Sanitize::Off),
            ("track", _) => Ok(Sanitize::Track),
            ("poison", _) => Ok(Sanitize::Poison(RandomState::new().hash_one(0u8) as u32)),
            (_, Some(seed)) => seed.parse().ok().map(Sanitize::Poison).ok_or(SanitizeError),
            _ => Err(SanitizeError),
        }
    }
}

/// Bytes of a poisoned stack: the next eight of a sequence, none of them 0.
#[derive(Debug, Clone, Copy)]
pub struct Poison(u64);

impl Poison {
    /// The sequence of a seed.
    pub fn new(seed: u32) -> Poison {
        Poison(seed.into())
    }

    /// Fills memory with the next bytes of the sequence.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_word().to_le_bytes()[..chunk.len()]);
        }
    }

    /// The next eight bytes (splitmix64).
    pub fn next_word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^= word >> 31;
        let has_zero = word.wrapping_sub(ONES) & !word & (ONES << 7) != 0;
        if has_zero { word | ONES } else { word }
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
/// The compiler's pass that turns the stack into values; values that are never set are 0.
const STACK_AS_VALUES: &str = "stack-promote";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_written_as_they_are_read() {
        for text in ["off", "track", "poison:0", "poison:4294967295"] {
            assert_eq!(text.parse::<Sanitize>().expect("a choice").to_string(), text);
        }
        assert!(matches!("poison".parse(), Ok(Sanitize::Poison(_))));
        for text in ["", "on", "poison:", "poison:-1", "poison:4294967296", "Track"] {
            assert_eq!(text.parse::<Sanitize>(), Err(SanitizeError), "{text}");
        }
    }

    #[test]
    fn poison_follows_from_its_seed_and_has_no_zeros() {
        let bytes = |seed| {
            let mut bytes = vec![0; 100_003];
            Poison::new(seed).fill(&mut bytes);
            bytes
        };
        assert!(bytes(1) == bytes(1) && bytes(1) != bytes(2));
        assert!(!bytes(0).contains(&0) && !bytes(1).contains(&0));
    }
}
