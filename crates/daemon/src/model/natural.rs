//! Natural order of names: `eth2` sorts before `eth10`.

use std::cmp::Ordering;

/// Compares names piece by piece: digits by value, other text as it is.
pub fn natural(one: &str, other: &str) -> Ordering {
    let (mut left, mut right) = (one, other);
    while !left.is_empty() && !right.is_empty() {
        let (a, b) = (piece(&mut left), piece(&mut right));
        let (x, y) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
        let order = match (is_number(a), is_number(b)) {
            // Without leading zeros, the longer number is the larger one.
            (true, true) => x.len().cmp(&y.len()).then_with(|| x.cmp(y)),
            _ => a.cmp(b),
        };
        if order.is_ne() {
            return order;
        }
    }
    // Equal so far: the shorter name is first; names that differ only in zeros still differ.
    left.len().cmp(&right.len()).then_with(|| one.cmp(other))
}

/// Takes the longest prefix that consists only of digits, or contains none.
fn piece<'a>(rest: &mut &'a str) -> &'a str {
    let is_digit = is_number(rest);
    let end = rest.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(rest.len());
    let (piece, after) = rest.split_at(end);
    *rest = after;
    piece
}

fn is_number(piece: &str) -> bool {
    piece.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_and_every_two_names_have_an_order() {
        let ordered = [
            "",
            "1",
            "02",
            "2",
            "10",
            "a",
            "a1",
            "a01b",
            "a1b",
            "a2",
            "a10",
            "a10b2",
            "a10b11",
            "ab",
            "eth2",
            "eth10",
            "eth10.5",
            "eth10.40",
            "p99999999999999999999999",
            "é",
        ];
        for (place, one) in ordered.iter().enumerate() {
            for (other_place, other) in ordered.iter().enumerate() {
                assert_eq!(natural(one, other), place.cmp(&other_place), "{one} {other}");
            }
        }
    }
}
