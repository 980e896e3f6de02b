//! The frames of each action as bit masks, so that work on some frames of a burst needs no branch
//! for the others.

#![cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "safe code calls no instruction that compares many at once")
)]

use crate::verdict::Action;

/// Frames of each [`Action`], by its number: bit `i` of word `w` is frame `64 * w + i`. Each frame
/// has its bit once.
pub type ActionMasks = [u64; 5];

/// Replaces `masks` by those of a program's return values.
pub(super) fn fill(masks: &mut Vec<ActionMasks>, returned: &[u32]) {
    let (whole, rest) = returned.as_chunks::<WORD>();
    masks.clear();
    for word in whole {
        masks.push(of_word(word));
    }
    if !rest.is_empty() {
        let mut padded = [Action::Aborted as u32; WORD];
        padded[..rest.len()].copy_from_slice(rest);
        let mut last = of_word(&padded);
        last[Action::Aborted as usize] &= !0 >> (WORD - rest.len());
        masks.push(last);
    }
}

#[inline]
fn of_word(returned: &[u32; WORD]) -> ActionMasks {
    let mut masks = [0; 5];
    for (part, returned) in returned.as_chunks::<PART>().0.iter().enumerate() {
        let shift = part * PART;
        let [drop, pass, tx, redirect] = parts(returned);
        masks[Action::Drop as usize] |= u64::from(drop) << shift;
        masks[Action::Pass as usize] |= u64::from(pass) << shift;
        masks[Action::Tx as usize] |= u64::from(tx) << shift;
        masks[Action::Redirect as usize] |= u64::from(redirect) << shift;
    }
    // Every other return value counts as XDP_ABORTED.
    masks[Action::Aborted as usize] = !masks[1..].iter().fold(0, |all, mask| all | mask);
    masks
}

/// Bit masks of the positions of the values 1, 2, 3 and 4.
#[cfg(target_arch = "x86_64")]
#[inline]
fn parts(returned: &[u32; PART]) -> [u16; 4] {
    use std::arch::x86_64::*;
    let four = returned.as_ptr().cast::<__m128i>();
    // SAFETY: every x86-64 processor has SSE2, and 16 numbers are four times four, which may be
    // read from any address.
    unsafe {
        let low = _mm_packs_epi32(_mm_loadu_si128(four), _mm_loadu_si128(four.add(1)));
        let high = _mm_packs_epi32(_mm_loadu_si128(four.add(2)), _mm_loadu_si128(four.add(3)));
        // Saturation turns values that are not bytes into 0 or 255, which are not searched for.
        let bytes = _mm_packus_epi16(low, high);
        [
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(1))) as u16,
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(2))) as u16,
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(3))) as u16,
            _mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(4))) as u16,
        ]
    }
}

/// Bit masks of the positions of the values 1, 2, 3 and 4.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn parts(returned: &[u32; PART]) -> [u16; 4] {
    [1, 2, 3, 4].map(|number| {
        let bit = |(place, it): (usize, &u32)| u16::from(*it == number) << place;
        returned.iter().enumerate().map(bit).fold(0, |all, bit| all | bit)
    })
}

/// Frames of a word.
const WORD: usize = u64::BITS as usize;
/// Frames processed together.
const PART: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_frame_has_its_bit_at_its_action() {
        let any = [0, 1, 2, 3, 4, 5, 255, 256, 257, 0x1_0002, u32::MAX, 1 << 31, (1 << 31) + 1];
        for count in 0..200 {
            let returned: Vec<u32> = (0..count).map(|i| any[(i * 7 + i / 5) % any.len()]).collect();
            let mut masks = vec![[!0; 5]];
            fill(&mut masks, &returned);
            assert_eq!(masks.len(), count.div_ceil(WORD));
            for index in 0..masks.len() * WORD {
                let is = |action: usize| masks[index / WORD][action] >> (index % WORD) & 1 == 1;
                let found: Vec<usize> = (0..5).filter(|action| is(*action)).collect();
                let action = returned.get(index).map(|it| Action::from_returned(*it) as usize);
                assert_eq!(found, Vec::from_iter(action), "frame {index} of {count}");
            }
        }
    }
}
