//! Which values are equal, and which comparisons ask the same.
//!
//! The compiler may write one condition in several ways: `x + 5 == 0` is `x == -5`, and what is
//! compared in 32 bits once may be compared in 64 later.

use std::hash::{DefaultHasher, Hash, Hasher};

use iced_x86::ConditionCode;

/// The identity of a value: equal only for equal values.
///
/// It is the lower bytes of a sum: of a number and another value, of which only the lower bytes
/// of its sum with a number may count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Id {
    base: u64,
    inner: Sum,
    outer: Sum,
    /// What is above its bytes: 0, or what was there before.
    is_partial: bool,
}

/// So many bytes of a sum, and what is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Sum {
    plus: i64,
    bytes: u8,
}

/// What the last comparison was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Flags {
    /// The comparison itself.
    all: u64,
    /// Equal where two comparisons find the same pairs of numbers to be equal.
    equal: u64,
    /// It was with 0: no number is below that, and nothing overflows.
    is_with_zero: bool,
}

/// A comparison, and what of it holds.
pub(super) type Truth = (u64, ConditionCode);

/// An identity that is the same only for the same words.
pub(super) fn id(of: impl Hash) -> Id {
    Id { base: hash(of), inner: NOTHING, outer: NOTHING, is_partial: false }
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// What says that all of that holds, in this order.
pub(super) fn chain(of: &[Truth]) -> u64 {
    of.iter().fold(0, |before, truth| and_then(before, *truth))
}

pub(super) fn and_then(before: u64, truth: Truth) -> u64 {
    hash((before, truth))
}

impl Id {
    pub(super) fn number(value: i64) -> Id {
        Id { base: NUMBER, inner: NOTHING, outer: NOTHING, is_partial: false }.and_plus(value)
    }

    /// Of the sum with a constant.
    pub(super) fn and_plus(self, more: i64) -> Id {
        let mut id = self.whole();
        id.outer.plus = id.outer.plus.wrapping_add(more);
        id
    }

    /// Of the sum with a constant, of which only so many bytes are looked at.
    pub(super) fn and_plus_in(self, more: i64, bytes: usize) -> Id {
        let mut id = if usize::from(self.outer.bytes) < bytes { self.whole() } else { self };
        id.outer.plus = id.outer.plus.wrapping_add(more);
        id.low(bytes)
    }

    /// Of the sum of two, one of them that many times.
    pub(super) fn and_times(self, other: Id, times: u32) -> Id {
        let [mut a, mut b] = [self, other].map(Id::whole);
        let plus = std::mem::take(&mut a.outer.plus);
        let times_plus = std::mem::take(&mut b.outer.plus).wrapping_mul(times.into());
        let plus = plus.wrapping_add(times_plus);
        if b.as_number().is_some() {
            return a.and_plus(plus);
        }
        if a.as_number().is_some() && times == 1 {
            return b.and_plus(plus);
        }
        let (a, b) = if times == 1 { (a.min(b), a.max(b)) } else { (a, b) };
        id((a, b, times)).and_plus(plus)
    }

    /// How many of so many bytes may be others than 0.
    pub(super) fn width(self, bytes: usize) -> usize {
        if self.is_partial { bytes } else { bytes.min(self.outer.bytes.into()) }
    }

    /// Of the register that it is in, all of it.
    pub(super) fn whole(self) -> Id {
        if self.outer == (Sum { bytes: WHOLE, ..self.outer }) {
            return self;
        }
        if self.inner != NOTHING || self.is_partial {
            return id(self);
        }
        Id { inner: self.outer, outer: NOTHING, ..self }
    }

    /// Of its lower bytes.
    pub(super) fn low(self, bytes: usize) -> Id {
        let width = usize::from(self.outer.bytes);
        let kept = width.min(bytes);
        let mut id = Id { is_partial: self.is_partial && width < bytes, ..self };
        if kept <= self.inner.bytes.into() {
            id.outer.plus = id.outer.plus.wrapping_add(id.inner.plus);
            id.inner = NOTHING;
        }
        id.outer = Sum { plus: id.outer.plus & low_ones(kept), bytes: kept as u8 };
        id
    }

    /// Of a register that was only so far written.
    pub(super) fn partial(self, bytes: usize) -> Id {
        let low = self.low(bytes);
        Id { is_partial: bytes < 4 || low.is_partial, ..low }
    }

    fn as_number(self) -> Option<i64> {
        (self.base == NUMBER && self.inner == NOTHING).then_some(self.outer.plus)
    }

    /// The same question as whether it is that number, of fewer bytes.
    fn is(self, number: i64) -> (Id, i64) {
        let mut id = self;
        let of = |bytes: u8| low_ones(bytes.into());
        let rest = number.wrapping_sub(std::mem::take(&mut id.outer.plus)) & of(id.outer.bytes);
        if id.inner == NOTHING {
            return (id, rest);
        }
        if rest & of(id.inner.bytes) != rest {
            // It never is, however many bytes are looked at.
            id.outer = NOTHING;
            return (id, rest);
        }
        let inner = std::mem::replace(&mut id.inner, NOTHING);
        id.outer = Sum { plus: 0, ..inner };
        (id, rest.wrapping_sub(inner.plus) & of(inner.bytes))
    }
}

impl Flags {
    /// Of an instruction that is no comparison.
    pub(super) fn of(of: impl Hash) -> Flags {
        let all = hash(of);
        Flags { all, equal: all, is_with_zero: false }
    }

    /// Of a comparison of two numbers of that many bytes.
    pub(super) fn compared(a: Id, b: Id, bytes: usize) -> Flags {
        let [a, b] = [a, b].map(|id| id.low(bytes));
        let all = hash(("compared", a, b));
        // What a smaller value is in more bytes has them all 0.
        let whole = if a.inner == NOTHING { a.whole() } else { a };
        match b.as_number() {
            Some(number) if !a.is_partial => {
                Flags { all, equal: hash(whole.is(number)), is_with_zero: number == 0 }
            }
            _ => Flags { all, equal: all, is_with_zero: false },
        }
    }

    /// The same, where what is equal is the same question as in another comparison.
    pub(super) fn equal_as(self, other: Flags) -> Flags {
        Flags { equal: other.equal, ..self }
    }

    /// What it is that a condition says, in the one way that all the same are written in.
    pub(super) fn truth(self, holds: ConditionCode) -> Truth {
        use ConditionCode as C;
        let holds = match holds {
            C::a if self.is_with_zero => C::ne,
            C::be if self.is_with_zero => C::e,
            C::ge if self.is_with_zero => C::ns,
            C::l if self.is_with_zero => C::s,
            other => other,
        };
        let of = if matches!(holds, C::e | C::ne) { self.equal } else { self.all };
        (of, holds)
    }
}

/// Bytes of a register.
const WHOLE: u8 = 8;
const NOTHING: Sum = Sum { plus: 0, bytes: WHOLE };
/// What numbers are that amount to what is added.
const NUMBER: u64 = 0;
/// A word of which only so many bytes are ones.
fn low_ones(bytes: usize) -> i64 {
    if bytes < 8 { (1 << (8 * bytes)) - 1 } else { -1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether two comparisons are the same question.
    fn are_same(a: (Id, i64, usize), b: (Id, i64, usize)) -> bool {
        let truth = |(id, number, bytes): (Id, i64, usize)| {
            Flags::compared(id, Id::number(number), bytes).truth(ConditionCode::e)
        };
        truth(a) == truth(b)
    }

    #[test]
    fn a_sum_is_a_number_where_its_other_part_is_the_difference() {
        let value = id("value");
        for bytes in [4, 8] {
            let five_more = value.and_plus_in(5, bytes);
            assert!(are_same((five_more, 7, bytes), (value, 2, bytes)));
            assert!(!are_same((five_more, 7, bytes), (value, 7, bytes)));
        }
        // Of two bytes, which a sum in four may leave: then it never is.
        let two = value.low(2);
        for (more, number) in [(-5, 5), (0x1d, -0x1d)] {
            let sum = two.and_plus_in(more, 4).partial(4);
            assert!(are_same((sum, 0, 4), (two, number, 4)), "{more}");
            assert!(!are_same((sum, 1, 4), (two, number, 4)), "{more}");
            assert!(!are_same((sum, 0, 4), (value, number, 4)), "{more}");
        }
    }
}
