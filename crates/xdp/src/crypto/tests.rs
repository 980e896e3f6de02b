//! Known answers: FIPS-197, appendix C, and NIST SP 800-38A, appendix F.

use super::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let digit = |byte: u8| (byte as char).to_digit(16).expect("a digit") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Encrypts a text with a vector, in pieces of `piece` bytes; gives it with the vector afterwards.
fn applied(
    cipher: &Cipher,
    direction: Direction,
    text: &[u8],
    iv: &[u8],
    piece: usize,
) -> (Vec<u8>, [u8; BLOCK_BYTES]) {
    let mut bytes = text.to_vec();
    let mut iv: [u8; BLOCK_BYTES] = iv.try_into().expect("a block");
    bytes.chunks_mut(piece).for_each(|piece| cipher.apply(direction, piece, &mut iv));
    (bytes, iv)
}

#[test]
fn answers_of_fips_197() {
    let key: Vec<u8> = (0..32).collect();
    let text = hex("00112233445566778899aabbccddeeff");
    let answers = [
        (16, "69c4e0d86a7b0430d8cdb78070b4c55a"),
        (24, "dda97ca4864cdfe06eaf70a0ec0d7191"),
        (32, "8ea2b7ca516745bfeafc49904b496089"),
    ];
    for (key_bytes, answer) in answers {
        let cipher = Cipher::new(b"ecb(aes)", &key[..key_bytes]).expect("a cipher");
        let none = [0; BLOCK_BYTES];
        let (encrypted, _) = applied(&cipher, Direction::Encrypt, &text, &none, 16);
        assert_eq!(encrypted, hex(answer), "{key_bytes} bytes of key");
        let (back, _) = applied(&cipher, Direction::Decrypt, &encrypted, &none, 16);
        assert_eq!(back, text);
    }
}

const KEYS: [&str; 3] = [
    "2b7e151628aed2a6abf7158809cf4f3c",
    "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
    "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
];
const TEXT: &str = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
                    30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";
/// By mode: name, vector, and an answer for each key.
const ANSWERS: [(&[u8], &str, [&str; 3]); 3] = [
    (
        b"ecb(aes)",
        "00000000000000000000000000000000",
        [
            "3ad77bb40d7a3660a89ecaf32466ef97f5d3d58503b9699de785895a96fdbaaf\
             43b1cd7f598ece23881b00e3ed0306887b0c785e27e8ad3f8223207104725dd4",
            "bd334f1d6e45f25ff712a214571fa5cc974104846d0ad3ad7734ecb3ecee4eef\
             ef7afd2270e2e60adce0ba2face6444e9a4b41ba738d6c72fb16691603c18e0e",
            "f3eed1bdb5d2a03c064b5a7e3db181f8591ccb10d410ed26dc5ba74a31362870\
             b6ed21b99ca6f4f9f153e7b1beafed1d23304b7a39f9f3ff067d8d8f9e24ecc7",
        ],
    ),
    (
        b"cbc(aes)",
        "000102030405060708090a0b0c0d0e0f",
        [
            "7649abac8119b246cee98e9b12e9197d5086cb9b507219ee95db113a917678b2\
             73bed6b8e3c1743b7116e69e222295163ff1caa1681fac09120eca307586e1a7",
            "4f021db243bc633d7178183a9fa071e8b4d9ada9ad7dedf4e5e738763f69145a\
             571b242012fb7ae07fa9baac3df102e008b0e27988598881d920a9e64f5615cd",
            "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d\
             39f23369a9d9bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b",
        ],
    ),
    (
        b"ctr(aes)",
        "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
        [
            "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff\
             5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee",
            "1abc932417521ca24f2b0459fe7e6e0b090339ec0aa6faefd5ccc2c6f4ce8e94\
             1e36b26bd1ebc670d1bd1d665620abf74f78a7f6d29809585a97daec58c6b050",
            "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5\
             2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6",
        ],
    ),
];

#[test]
fn answers_of_sp_800_38a() {
    for (name, iv, answers) in ANSWERS {
        for (key, answer) in KEYS.iter().zip(answers) {
            let cipher = Cipher::new(name, &hex(key)).expect("a cipher");
            let (text, iv) = (hex(TEXT), hex(iv));
            let (encrypted, after) = applied(&cipher, Direction::Encrypt, &text, &iv, 64);
            assert_eq!(encrypted, hex(answer), "{cipher:?}, key {key}");
            assert_eq!(applied(&cipher, Direction::Decrypt, &encrypted, &iv, 64).0, text);
            // The vector leads from one piece to the next.
            for piece in [16, 32, 48] {
                let pieces = applied(&cipher, Direction::Encrypt, &text, &iv, piece);
                assert_eq!(pieces, (encrypted.clone(), after), "pieces of {piece}");
                let back = applied(&cipher, Direction::Decrypt, &encrypted, &iv, piece);
                assert_eq!(back.0, text, "pieces of {piece}");
            }
        }
    }
}

#[test]
fn a_stream_ends_anywhere_and_its_counter_carries() {
    let cipher = Cipher::new(b"ctr(aes)", &hex(KEYS[0])).expect("a cipher");
    let blocks = Cipher::new(b"ecb(aes)", &hex(KEYS[0])).expect("a cipher");
    let first = [0xff; BLOCK_BYTES];
    let (stream, after) = applied(&cipher, Direction::Encrypt, &[0; 20], &first, 20);
    // The first block is the encrypted vector, the second the encrypted zero.
    let none = [0; BLOCK_BYTES];
    assert_eq!(stream[..16], applied(&blocks, Direction::Encrypt, &first, &none, 16).0);
    assert_eq!(stream[16..], applied(&blocks, Direction::Encrypt, &none, &none, 16).0[..4]);
    assert_eq!(u128::from_be_bytes(after), 1);
    let shorter = applied(&cipher, Direction::Decrypt, &stream[..7], &first, 7).0;
    assert_eq!(shorter, [0; 7]);
}

#[test]
fn unknown_names_and_other_keys_are_refused() {
    for name in [&b"aes"[..], b"", b"gcm(aes)", b"ecb(des)", b"ecb(aes) ", b"ECB(aes)"] {
        let refused = Cipher::new(name, &[0; 16]).err();
        assert_eq!(refused, Some(Errno::EOPNOTSUPP), "{}", name.escape_ascii());
        assert!(!Cipher::is_known(name));
    }
    for key_bytes in [1, 15, 17, 23, 25, 31, 33, 256] {
        let refused = Cipher::new(b"cbc(aes)", &vec![0; key_bytes]).err();
        assert_eq!(refused, Some(Errno::EINVAL), "{key_bytes} bytes of key");
    }
}

#[test]
fn a_key_is_not_shown() {
    let cipher = Cipher::new(b"ecb(aes)", &[0xab; 16]).expect("a cipher");
    assert_eq!(format!("{cipher:?}"), "Cipher { mode: Ecb, .. }");
}
