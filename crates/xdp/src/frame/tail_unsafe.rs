//! Moves many frames from one vector's end to another's at once: `extend(drain(..))` moves one
//! after the other, at half a nanosecond each.

#![expect(unsafe_code, reason = "no safe function moves a part of a vector in one piece")]

use super::Frame;

/// Moves the last `count` frames of `from` to the end of `to`, in their order.
///
/// # Panics
///
/// If there are fewer than `count` frames.
#[inline]
pub(super) fn move_last(from: &mut Vec<Frame>, count: usize, to: &mut Vec<Frame>) {
    assert!(count <= from.len(), "{count} of {} frames", from.len());
    let keep = from.len() - count;
    to.reserve(count);
    let end = to.len();
    // SAFETY: frames that are there are read, to room that there is. They have no owner until `to`
    // is made longer by them; two vectors don't overlap.
    unsafe {
        from.set_len(keep);
        let first = from.as_ptr().add(keep);
        to.as_mut_ptr().add(end).copy_from_nonoverlapping(first, count);
        to.set_len(end + count);
    }
}

/// `cargo +nightly miri test -p towpath-xdp frame::tail` runs these.
#[cfg(test)]
mod tests {
    use super::*;

    fn frames(numbers: std::ops::Range<u8>) -> Vec<Frame> {
        numbers.map(|number| Frame::new(&[number; 60]).expect("it fits")).collect()
    }

    #[test]
    fn they_keep_their_order() {
        let (mut from, mut to) = (frames(0..5), frames(10..12));
        move_last(&mut from, 0, &mut to);
        assert_eq!((from.len(), to.len()), (5, 2));
        move_last(&mut from, 3, &mut to);
        move_last(&mut from, 2, &mut to);
        let numbers: Vec<u8> = to.iter().map(|frame| frame.to_vec()[0]).collect();
        assert!(from.is_empty());
        assert_eq!(numbers, [10, 11, 2, 3, 4, 0, 1]);
    }

    #[test]
    #[should_panic(expected = "2 of 1 frames")]
    fn there_must_be_so_many() {
        move_last(&mut frames(0..1), 2, &mut Vec::new());
    }
}
