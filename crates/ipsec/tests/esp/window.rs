//! The replay window beside a model that keeps all numbers it has seen.

use std::collections::HashSet;

use fastrand::Rng;
use towpath_ipsec::{Refusal, Window};

/// All that was accepted, without a limit of memory.
struct Model {
    seen: HashSet<u64>,
    top: u64,
    size: u64,
}

impl Model {
    fn accept(&mut self, sequence: u64) -> Result<(), Refusal> {
        if sequence + self.size <= self.top {
            return Err(Refusal::OutsideWindow);
        }
        if !self.seen.insert(sequence) {
            return Err(Refusal::Replayed);
        }
        self.top = self.top.max(sequence);
        Ok(())
    }
}

#[test]
fn random_sequences_of_32_bits() {
    for (size, steps) in sizes() {
        let mut random = Rng::with_seed(size.into());
        let mut window = Window::new(size, false, 0);
        let mut model = Model { seen: HashSet::from([0]), top: 0, size: size.into() };
        for _ in 0..steps {
            let sequence = next(&mut random, model.top, size.into()).min(u32::MAX.into()).max(1);
            check(&mut window, &mut model, sequence);
        }
    }
}

#[test]
fn random_sequences_across_the_end_of_32_bits() {
    for (size, steps) in sizes() {
        let mut random = Rng::with_seed(size.into());
        let start = (1 << 32) - 3 * u64::from(size);
        let mut window = Window::new(size, true, start);
        // The model's window has been received up to its start, as the other one's.
        let seen = (start - u64::from(size)..=start).collect();
        let mut model = Model { seen, top: start, size: size.into() };
        for _ in 0..steps {
            let sequence = next(&mut random, model.top, size.into());
            check(&mut window, &mut model, sequence);
        }
        assert!(model.top > 1 << 32, "the walk has crossed the boundary");
    }
}

/// RFC 4303, A2.2: a number that is too old is taken for one of the next 2^32.
#[test]
fn a_number_too_old_is_taken_for_a_later_one() {
    let window = Window::new(64, true, 5 << 32 | 1000);
    assert_eq!(window.infer(1000 - 63), Err(Refusal::Replayed));
    assert_eq!(window.infer(1000 - 64), Ok(6 << 32 | 936));
    assert_eq!(window.infer(1001), Ok(5 << 32 | 1001));
    let window = Window::new(64, true, 5 << 32 | 10);
    assert_eq!(window.infer(u32::MAX), Err(Refusal::Replayed));
    assert_eq!(window.infer(11), Ok(5 << 32 | 11));
    assert_eq!(Window::new(64, true, 10).infer(u32::MAX), Err(Refusal::OutsideWindow));
    assert_eq!(Window::new(64, true, u64::MAX).infer(3), Err(Refusal::OutsideWindow));
}

#[test]
fn without_a_window_all_numbers_but_zero_are_accepted() {
    let mut window = Window::new(0, false, 0);
    for sequence in [1, 1, 100, 5, 5] {
        assert_eq!(window.infer(sequence), Ok(sequence.into()));
        assert_eq!(window.accept(sequence.into()), Ok(()));
    }
    assert_eq!(window.infer(0), Err(Refusal::SequenceZero));
    assert_eq!(window.top(), 100);
}

#[test]
fn numbers_up_to_the_last_one_saved_are_not_accepted_again() {
    let mut window = Window::new(128, false, 1000);
    for sequence in 1001 - 128..=1000 {
        assert_eq!(window.accept(sequence), Err(Refusal::Replayed), "{sequence}");
    }
    (1001..1300).for_each(|sequence| assert_eq!(window.accept(sequence), Ok(()), "{sequence}"));
}

fn sizes() -> impl Iterator<Item = (u32, u32)> {
    [32, 33, 63, 64, 65, 100, 127, 128, 129, 1000, 2048, 4095, 4096]
        .into_iter()
        .map(|it| (it, 40_000))
}

/// Numbers near the top, around the window's lower end, and far ahead.
fn next(random: &mut Rng, top: u64, size: u64) -> u64 {
    match random.u8(..100) {
        0..50 => top + random.u64(1..4),
        50..80 => top.saturating_sub(random.u64(0..size + 3)),
        80..90 => top.saturating_sub(size).saturating_add(random.u64(0..4)),
        90..99 => top + random.u64(1..size),
        _ => top + random.u64(1..4 * size),
    }
}

fn check(window: &mut Window, model: &mut Model, sequence: u64) {
    let answer = model.accept(sequence);
    let inferred = window.infer(sequence as u32);
    match answer {
        // What is outside may be taken for a number of the next 2^32; it is never accepted here.
        Err(Refusal::OutsideWindow) => {
            assert_ne!(inferred, Ok(sequence));
            assert_eq!(window.accept(sequence), answer, "{sequence} at {}", model.top);
        }
        Err(reason) => {
            assert_eq!(inferred, Err(reason), "{sequence} at {}", model.top);
            assert_eq!(window.accept(sequence), answer, "{sequence} at {}", model.top);
        }
        Ok(()) => {
            assert_eq!(inferred, Ok(sequence), "at {}", model.top);
            assert_eq!(window.accept(sequence), Ok(()), "{sequence} at {}", model.top);
        }
    }
    assert_eq!(window.top(), model.top);
}
