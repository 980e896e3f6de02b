//! SHA-256 (FIPS 180-4), for programs' tags and maps' hashes.

/// Bytes of a hash.
pub(crate) const HASH_BYTES: usize = 32;

/// The hash of some bytes.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; HASH_BYTES] {
    let mut state = START;
    let (blocks, rest) = bytes.as_chunks();
    blocks.iter().for_each(|block| compress(&mut state, block));
    let mut tail = rest.to_vec();
    tail.push(0x80);
    tail.resize(tail.len().next_multiple_of(64), 0);
    if tail.len() - rest.len() < 9 {
        tail.resize(tail.len() + 64, 0);
    }
    let length_at = tail.len() - 8;
    tail[length_at..].copy_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    tail.as_chunks().0.iter().for_each(|block| compress(&mut state, block));
    let mut hash = [0; HASH_BYTES];
    for (to, word) in hash.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *to = word.to_be_bytes();
    }
    hash
}

/// One block (section 6.2.2).
fn compress(state: &mut [u32; 8], block: &[u8; 64]) {
    let mut schedule = [0u32; 64];
    for (to, from) in schedule.iter_mut().zip(block.as_chunks().0) {
        *to = u32::from_be_bytes(*from);
    }
    for t in 16..64 {
        let (x, y) = (schedule[t - 15], schedule[t - 2]);
        let small0 = x.rotate_right(7) ^ x.rotate_right(18) ^ x >> 3;
        let small1 = y.rotate_right(17) ^ y.rotate_right(19) ^ y >> 10;
        let sum = schedule[t - 16].wrapping_add(small0).wrapping_add(schedule[t - 7]);
        schedule[t] = sum.wrapping_add(small1);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for (word, constant) in schedule.iter().zip(ROUNDS) {
        let big1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = e & f ^ !e & g;
        let first = h.wrapping_add(big1).wrapping_add(choice);
        let first = first.wrapping_add(constant).wrapping_add(*word);
        let big0 = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = a & b ^ a & c ^ b & c;
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(big0.wrapping_add(majority)));
    }
    for (to, from) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *to = to.wrapping_add(from);
    }
}

const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

const ROUNDS: [u32; 64] = [
    0x428a_2f98,
    0x7137_4491,
    0xb5c0_fbcf,
    0xe9b5_dba5,
    0x3956_c25b,
    0x59f1_11f1,
    0x923f_82a4,
    0xab1c_5ed5,
    0xd807_aa98,
    0x1283_5b01,
    0x2431_85be,
    0x550c_7dc3,
    0x72be_5d74,
    0x80de_b1fe,
    0x9bdc_06a7,
    0xc19b_f174,
    0xe49b_69c1,
    0xefbe_4786,
    0x0fc1_9dc6,
    0x240c_a1cc,
    0x2de9_2c6f,
    0x4a74_84aa,
    0x5cb0_a9dc,
    0x76f9_88da,
    0x983e_5152,
    0xa831_c66d,
    0xb003_27c8,
    0xbf59_7fc7,
    0xc6e0_0bf3,
    0xd5a7_9147,
    0x06ca_6351,
    0x1429_2967,
    0x27b7_0a85,
    0x2e1b_2138,
    0x4d2c_6dfc,
    0x5338_0d13,
    0x650a_7354,
    0x766a_0abb,
    0x81c2_c92e,
    0x9272_2c85,
    0xa2bf_e8a1,
    0xa81a_664b,
    0xc24b_8b70,
    0xc76c_51a3,
    0xd192_e819,
    0xd699_0624,
    0xf40e_3585,
    0x106a_a070,
    0x19a4_c116,
    0x1e37_6c08,
    0x2748_774c,
    0x34b0_bcb5,
    0x391c_0cb3,
    0x4ed8_aa4a,
    0x5b9c_ca4f,
    0x682e_6ff3,
    0x748f_82ee,
    0x78a5_636f,
    0x84c8_7814,
    0x8cc7_0208,
    0x90be_fffa,
    0xa450_6ceb,
    0xbef9_a3f7,
    0xc671_78f2,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_the_standard() {
        let hex = |bytes: &[u8]| -> String {
            sha256(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
        };
        assert_eq!(hex(b""), "e3b0c44298fc1c14");
        assert_eq!(hex(b"abc"), "ba7816bf8f01cfea");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two_blocks), "248d6a61d20638b8");
        assert_eq!(hex(&[b'a'; 1_000_000]), "cdc76e5c9914fb92");
    }
}
