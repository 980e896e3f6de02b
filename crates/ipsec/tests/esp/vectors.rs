//! Published test vectors.

use std::sync::Arc;

use towpath_ipsec::{
    Aead, Cipher, Config, Direct, Direction, Engine, Hmac, Keys, Mode, Operation, Refusal, Sa,
    Schedule, Status, Suite, Task, Work,
};

use crate::common::{frame, hex, ip_packet, outer, receive, sa, to_hex};

/// An operation on bytes that are no packet.
pub(crate) struct Raw {
    schedule: Schedule,
    work: Work,
    pub(crate) bytes: Vec<u8>,
    status: Status,
}

impl Task for Raw {
    fn parts(&mut self) -> (&Schedule, &Work, &mut [u8]) {
        (&self.schedule, &self.work, &mut self.bytes)
    }

    fn set_status(&mut self, status: Status) {
        self.status = status;
    }
}

impl Raw {
    /// `text`, with room for an ICV behind it.
    pub(crate) fn new(suite: Suite, keys: Keys, iv: &[u8], extra: &[u8], text: &[u8]) -> Raw {
        let len = text.len() as u32;
        let mut work = Work {
            operation: Operation::Seal,
            iv: [0; 16],
            extra: [0; 16],
            extra_len: extra.len() as u8,
            authenticate: 0..len,
            cipher: 0..len,
            tag: len,
        };
        work.iv[..iv.len()].copy_from_slice(iv);
        work.extra[..extra.len()].copy_from_slice(extra);
        let schedule = Schedule::new(suite, keys).expect("keys of the right length");
        let bytes = [text, &vec![0; suite.icv_len()]].concat();
        Raw { schedule, work, bytes, status: Status::Pending }
    }

    pub(crate) fn run(self, operation: Operation) -> Raw {
        let mut engine = Direct::new(1);
        let mut tasks = vec![Raw { work: Work { operation, ..self.work.clone() }, ..self }];
        engine.submit(&mut tasks);
        engine.complete(&mut tasks);
        tasks.remove(0)
    }

    /// Seals, compares, and opens again.
    fn expect(self, sealed: &str) {
        let plain = self.bytes.clone();
        let raw = self.run(Operation::Seal);
        assert_eq!(raw.status, Status::Done);
        assert!(to_hex(&raw.bytes).starts_with(sealed), "{} not {sealed}", to_hex(&raw.bytes));
        let text = raw.work.cipher.clone();
        let raw = raw.run(Operation::Open);
        assert_eq!(raw.status, Status::Done);
        assert_eq!(raw.bytes[..text.end as usize], plain[..text.end as usize]);
    }
}

/// RFC 3602, section 4, cases 1 to 4, and NIST SP 800-38A, F.2.3 and F.2.5.
#[test]
fn aes_cbc() {
    let nist = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51\
                30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710";
    let long: Vec<u8> = (0xa0..0xe0).collect();
    let cases: [(&str, &str, Vec<u8>, &str); 6] = [
        (
            "06a9214036b8a15b512e03d534120006",
            "3dafba429d9eb430b422da802c9fac41",
            b"Single block msg".into(),
            "e353779c1079aeb82708942dbe77181a",
        ),
        (
            "c286696d887c9aa0611bbb3e2025a45a",
            "562e17996d093d28ddb3ba695a2e6f58",
            (0..32).collect(),
            "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1",
        ),
        (
            "6c3ea0477630ce21a2ce334aa746c2cd",
            "c782dc4c098c66cbd9cd27d825682c81",
            b"This is a 48-byte message (exactly 3 AES blocks)".into(),
            "d0a02b3836451753d493665d33f0e8862dea54cdb293abc7506939276772f8d5\
             021c19216bad525c8579695d83ba2684",
        ),
        (
            "56e47a38c5598974bc46903dba290349",
            "8ce82eefbea0da3c44699ed7db51b7d9",
            long,
            "c30e32ffedc0774e6aff6af0869f71aa0f3af07a9a31a9c684db207eb0ef8e4e\
             35907aa632c3ffdf868bb7b29d3d46ad83ce9f9a102ee99d49a53e87f4c3da55",
        ),
        (
            "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b",
            "000102030405060708090a0b0c0d0e0f",
            hex(nist),
            "4f021db243bc633d7178183a9fa071e8b4d9ada9ad7dedf4e5e738763f69145a\
             571b242012fb7ae07fa9baac3df102e008b0e27988598881d920a9e64f5615cd",
        ),
        (
            "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
            "000102030405060708090a0b0c0d0e0f",
            hex(nist),
            "f58c4c04d6e5f1ba779eabfb5f7bfbd69cfc4e967edb808d679f777bc6702c7d\
             39f23369a9d9bacfa530e26304231461b2eb05e2c39be9fcda6c19078c6a9d1b",
        ),
    ];
    for (key, iv, text, sealed) in cases {
        cbc(hex(key), &hex(iv), &text).expect(sealed);
    }
}

/// RFC 3602, section 4, cases 5 to 8: ESP packets without integrity, their padding included.
#[test]
fn esp_packets_of_rfc_3602() {
    let (ping, tunnel) = ("90d382b410eeba7ad938c46cec1a82bf", "0123456789abcdef0123456789abcdef");
    let cases = [
        (
            ping,
            "e96e8c08ab465763fd098d45dd3ff893",
            "08000ebda70a00008e9c083db95b070008090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\
             202122232425262728292a2b2c2d2e2f3031323334353637\
             0102030405060708090a0b0c0d0e0e01",
            "f663c25d325c18c6a9453e194e120849a4870b66cc6b9965330013b4898dc856a4699e523a55db08\
             0b59ec3a8e4b7e52775b07d1db34ed9c538ab50c551b874aa269add047ad2d5913ac19b7cfbad4a6",
        ),
        (
            ping,
            "69d08df7d203329db093fc4924e5bd80",
            "0800b5e8a80a0500a69c083d0b660e0077777777777777777777777701020201",
            "f51995881ec4e0c4488987ce742e8109689bb379d2d750c0d915dca346a89f75",
        ),
        (
            tunnel,
            "f4e765244f6407adf13dc1380f673f37",
            "45000054090400004001f988c0a87b03c0a87bc808009f76a90a0100b49c083d02a2040008090a0b\
             0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f30313233\
             34353637 0102030405060708090a0a04",
            "773b5241a4c449225e4f3ce5ed611b0c237ca96cf74a93013c1b0ea1a0cf70f8e4ecaec78ac53aad\
             7a0f022b859243c647752e94a859352b8a4d4d2decd136e5c177f132ad3fbfb2201ac9904c74ee0a\
             109e0ca1e4dfe9d5a100b842f1c22f0d",
        ),
        (
            tunnel,
            "85d47224b5f3dd5d2101d4ea8dffab22",
            "45000044090c00004001f990c0a87b03c0a87bc80800d63caa0a0200c69c083da3de0300ffffffff\
             ffffffffffffffffffffffffffffffffffffffffffffffffffffffff 0102030405060708090a0a04",
            "15b92683819596a8047232cc00f7048fe45318e11f8a0f62ede3c3fc61203bb50f980a08c9843fd3\
             a1b06d5c07ff9639b7eb7dfb3512e5de435e7207ed971ef3d2726d9b5ef6affc6d17a0decbb13892",
        ),
    ];
    for (key, iv, text, sealed) in cases {
        cbc(hex(key), &hex(iv), &hex(text)).expect(sealed);
    }
}

fn cbc(key: Vec<u8>, iv: &[u8], text: &[u8]) -> Raw {
    let cipher = match key.len() {
        16 => Cipher::Aes128Cbc,
        24 => Cipher::Aes192Cbc,
        _ => Cipher::Aes256Cbc,
    };
    let suite = Suite::CipherThenHmac(cipher, Hmac::Sha1_96);
    Raw::new(suite, Keys::new(key, vec![1; 20]), iv, &[], text)
}

/// RFC 2202 (for RFC 2404) and RFC 4868, section 2.7.2, by keys as long as the suites need them.
#[test]
fn truncated_hmacs() {
    let jefe = |len: usize| b"Jefe".iter().copied().cycle().take(len).collect::<Vec<u8>>();
    let counting = |len: u8| (1..=len).collect::<Vec<u8>>();
    let want: &[u8] = b"what do ya want for nothing?";
    let cases: [(Hmac, Vec<u8>, &[u8], &str); 14] = [
        (Hmac::Sha1_96, vec![0x0b; 20], b"Hi There", "b617318655057264e28bc0b6"),
        (Hmac::Sha1_96, vec![0xaa; 20], &[0xdd; 50], "125d7342b9ac11cd91a39af4"),
        (Hmac::Sha1_96, vec![0x0c; 20], b"Test With Truncation", "4c1a03424b55e07fe7f27be1"),
        (Hmac::Sha256_128, vec![0x0b; 32], b"Hi There", "198a607eb44bfbc69903a0f1cf2bbdc5"),
        (Hmac::Sha256_128, jefe(32), want, "167f928588c5cc2eef8e3093caa0e87c"),
        (Hmac::Sha256_128, vec![0xaa; 32], &[0xdd; 50], "cdcb1220d1ecccea91e53aba3092f962"),
        (Hmac::Sha256_128, counting(32), &[0xcd; 50], "372efcf9b40b35c2115b1346903d2ef4"),
        (
            Hmac::Sha384_192,
            vec![0x0b; 48],
            b"Hi There",
            "b6a8d5636f5c6a7224f9977dcf7ee6c7fb6d0c48cbdee973",
        ),
        (Hmac::Sha384_192, jefe(48), want, "2c7353974f1842fd66d53c452ca42122b28c0b594cfb184d"),
        (
            Hmac::Sha384_192,
            vec![0xaa; 48],
            &[0xdd; 50],
            "809f439be00274321d4a538652164b53554a508184a0c316",
        ),
        (
            Hmac::Sha512_256,
            vec![0x0b; 64],
            b"Hi There",
            "637edc6e01dce7e6742a99451aae82df23da3e92439e590e43e761b33e910fb8",
        ),
        (
            Hmac::Sha512_256,
            jefe(64),
            want,
            "cb370917ae8a7ce28cfd1d8f4705d6141c173b2a9362c15df235dfb251b15454",
        ),
        (
            Hmac::Sha512_256,
            vec![0xaa; 64],
            &[0xdd; 50],
            "2ee7acd783624ca9398710f3ee05ae41b9f9b0510c87e49e586cc9bf961733d8",
        ),
        (
            Hmac::Sha512_256,
            counting(64),
            &[0xcd; 50],
            "5e6688e5a3daec826ca32eaea224eff5e700628947470e13ad01302561bab108",
        ),
    ];
    for (hmac, key, text, icv) in cases {
        let suite = Suite::CipherThenHmac(Cipher::Null, hmac);
        let sealed = to_hex(text) + icv;
        Raw::new(suite, Keys::new(Vec::new(), key), &[], &[], text).expect(&sealed);
    }
}

/// Key, nonce, plaintext with its ESP trailer, associated data, ciphertext, tag.
type AeadCase = [&'static str; 6];

/// draft-mcgrew-gcm-test-01, all vectors with keys of 128 and 256 bits: as operations, and as
/// packets of an SA. The nonce is salt and IV, the associated data SPI and (extended) sequence
/// number.
#[test]
fn aes_gcm_in_esp() {
    for case in GCM {
        let suite = match hex(case[0]).len() {
            16 => Suite::Aead(Aead::Aes128Gcm),
            _ => Suite::Aead(Aead::Aes256Gcm),
        };
        check_aead(suite, &case, Mode::Transport);
    }
}

/// RFC 7634, appendix A: a packet in tunnel mode.
#[test]
fn chacha20_poly1305_in_esp() {
    let mode = Mode::Tunnel(towpath_ipsec::Tunnel::default());
    check_aead(Suite::Aead(Aead::ChaCha20Poly1305), &CHACHA, mode);
}

fn check_aead(suite: Suite, case: &AeadCase, mode: Mode) {
    let [key, nonce, text, aad, ciphertext, tag] = case.map(hex);
    let keys = Keys::new([&key[..], &nonce[..4]].concat(), Vec::new());
    let sealed = to_hex(&ciphertext) + &to_hex(&tag);
    Raw::new(suite, keys.clone(), &nonce, &aad, &text).expect(&sealed);

    let inbound = inbound(suite, keys, &aad, mode);
    let low = &aad[aad.len() - 4..];
    let esp = [&aad[..4], low, &nonce[4..], &ciphertext, &tag].concat();
    let (from, to) = outer(false);
    let packet = frame(&ip_packet(from, to, 50, &esp));
    let padding = usize::from(text[text.len() - 2]);
    let payload = &text[..text.len() - 2 - padding];
    let expected = match mode {
        Mode::Transport => frame(&ip_packet(from, to, text[text.len() - 1], payload)),
        Mode::Tunnel(_) => frame(payload),
    };
    let received = receive(&inbound, &packet);
    if aad[..4] == [0; 4] {
        assert_eq!(received, Err(Refusal::ReservedSpi));
        return;
    }
    assert_eq!(received, Ok(expected));
    assert_eq!(receive(&inbound, &packet), Err(Refusal::Replayed));
}

/// An SA that expects the packet with this SPI and sequence number next.
fn inbound(suite: Suite, keys: Keys, aad: &[u8], mode: Mode) -> Arc<Sa> {
    let spi = u32::from_be_bytes(aad[..4].try_into().expect("4 bytes"));
    let (from, to) = outer(false);
    // The SPI of one vector is a reserved one, and no packet of an SA has it.
    let mut config = Config::inbound(spi.max(256), from, to, suite, keys);
    assert_eq!(config.direction, Direction::Inbound);
    config.mode = mode;
    config.replay.esn = aad.len() == 12;
    if config.replay.esn {
        let sequence = u64::from_be_bytes(aad[4..].try_into().expect("8 bytes"));
        config.replay.last = sequence - 1;
    }
    sa(config)
}

const GCM: [AeadCase; 13] = [
    [
        "4c80cdefbb5d10da906ac73c3613a634",
        "2e443b684956ed7e3b244cfe",
        "45000048699a000080114db7c0a80102c0a801010a9bf15638d3010000010000000000000\
         45f736970045f756470037369700963796265726369747902646b000021000101020201",
        "000043218765432100000000",
        "fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f1\
         4a3f3cf65925bf1f4a13c5d15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732",
        "459018148f6cbe722fd04796562dfdb4",
    ],
    [
        "feffe9928665731c6d6a8f9467308308",
        "cafebabefacedbaddecaf888",
        "4500003e698f000080114dccc0a80102c0a801010a980035002a2343b2d00100000100000\
         0000000037369700963796265726369747902646b00000100010001",
        "0000a5f80000000a",
        "deb22cd9b07c72c16e3a65beeb8df304a5a5897d33ae530f1ba76d5d114d2a5c3de81827c\
         10e9a4f51330d0eec416642cfbb85a5b47e48a4ec3b9ba95d918bd1",
        "83b70d3aa8bc6ee4c309e9d85a41ad4a",
    ],
    [
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        "112233440102030405060708",
        "4500003069a6400080062690c0a801029389155e0a9e008b2dc57ee000000000700240002\
         0bf0000020405b40101040201020201",
        "4a2cbfe300000002",
        "ff425c9b724599df7a3bcd510194e00d6a78107f1b0b1cbf06efae9d65a5d763748a63798\
         5771d347f0545659f14e99def842d8e",
        "b335f4eecfdbf831824b4c4915956c96",
    ],
    [
        "3de09874b388e6491988d0c3607eae1f",
        "57690e434e280000a2fca1a3",
        "4500003c99c300008001cb7c40679318010101010800085c0200430061626364656667686\
         96a6b6c6d6e6f707172737475767761626364656667686901020201",
        "42f67e3f1010101010101010",
        "fba2caa4853cf9f0f22cb10d86dd83b0fec75691cf1a04b00d1138ec9c35791765acbd870\
         1ad79845bf9fe3fba487bc91755e6662b4c8d0d1f5e22739530320a",
        "e0d731cc978ecafaeae88f00e80d6e48",
    ],
    [
        "3de09874b388e6491988d0c3607eae1f",
        "57690e434e280000a2fca1a3",
        "4500001c42a200008001441f406793b6e00000020a00f5ff01020201",
        "42f67e3f1010101010101010",
        "fba2ca845e5df9f0f22c3e6e86dd831e1fc65792cd1af9130e1379ed",
        "369f071f35e034be95f112e4e7d05d35",
    ],
    [
        "abbccddef00112233445566778899aab",
        "decaf888cafedebaceface74",
        "4500004933ba00007f119106c3fb1d10c2b1d326c02831ce0035dd7b800302d500004e200\
         01e8c18d75b81dc91baa0476b91b924b280389d92c963bac046ec959b6266c04722b14923\
         010101",
        "000001000000000000000001",
        "18a6fd42f72cbf4ab2a2ea901f73d814e3e7f243d95412e1c349c1d2fbec168f9190feeba\
         f2cb01984e65863965d7472b79da345e0e780191f0d2f0e0f496c226f2127b27db35724e7\
         845d68",
        "651f57e65f354f75ff17015769623436",
    ],
    [
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        "73616c74616e640169766563",
        "45080028732c00004006e9f90a0106120a01038f06b88023dd6bafbecb71260250101f646\
         d540001",
        "17405e67156f3126dd0db99b",
        "f2d69ecdbd5a0d5b8d5ef38bad4da58d1f278fde98ef67549d524a3018d9a57ff4d3a31ce\
         673119e",
        "451626c2415771e3b7eebca614c89b35",
    ],
    [
        "3de09874b388e6491988d0c3607eae1f",
        "57690e434e280000a2fca1a3",
        "45000049333e00007f119182c3fb1d10c2b1d326c02831ce0035cb458003025b000001e00\
         01e8c18d65759d52284a0352c71475c8880391c764d6e5ee0496b325ae270c03899493915\
         010101",
        "42f67e3f1010101010101010",
        "fba2cad12fc1f9f00d3cebf305410db83d7784b607323d220f24b0a97d54182800cadb0f6\
         8d99ef0e0c0c89ae9bea8884e52d65bc1afd0740f742444747b5b39ab533163aad4550ee5\
         160975",
        "cdb608c5769189609763b8e18caa81e2",
    ],
    [
        "abbccddef00112233445566778899aababbccddef00112233445566778899aab",
        "73616c74616e640169766563",
        "636973636f0172756c657301746865016e6574776501646566696e6501746865746563686\
         e6f6c6f67696573017468617477696c6c01646566696e65746f6d6f72726f7701020201",
        "17405e67156f3126dd0db99b",
        "d4b7ed86a1777f2ea13d6973d324c69e7b43f826fb56831226508bebd2dceb18d0a6df10e\
         5487df074113e14c641024e3e6773d91a62ee429b043a10e3efe6b012a49363412364f8",
        "c0cac587f249e56b11e24f30e44ccc76",
    ],
    [
        "7d773d00c144c525ac619d18c84a3f47",
        "d966426743457e9182443bc6",
        "01020201",
        "335467aeffffffff",
        "437f866b",
        "cb3f699fe9b0822bac961c4504bef270",
    ],
    [
        "abbccddef00112233445566778899aab",
        "decaf888cafedebaceface74",
        "746f016265016f72016e6f7401746f0162650001",
        "000001000000000000000001",
        "29c9fc69a197d038ccdd14e2ddfcaa0543332164",
        "412503524303ed3c6c5f283843af8c3e",
    ],
    [
        "6c6567616c697a656d6172696a75616e61616e64646f69746265666f72656961",
        "7475726e333021696765746d",
        "45000030da3a00008001df3bc0a80005c0a800010800c6cd0200070061626364656667686\
         96a6b6c6d6e6f707172737401020201",
        "796b6963ffffffffffffffff",
        "f97ab2aa356d8edce17644ac8c78e25dd24dedbb29ebf1b64a274b39b49c3a864cd3d78ca\
         4ae68a32b42458fb57dbe821dcc63b9",
        "d0937ba2945f669368661a329fb4c053",
    ],
    [
        "00000000000000000000000000000000",
        "000000000000000000000000",
        "4500003c99c500008001cb7a40679318010101010800075c0200440061626364656667686\
         96a6b6c6d6e6f707172737475767761626364656667686901020201",
        "0000000000000001",
        "4688daf2f973a392732909c331d56d60f694abaa414b5e7ff5fdcdfff5e9a284456476492\
         719ffb64de7d9dca1e1d894bc3bd57873ed4d181d19d4d5c8c18af3",
        "f821d496eeb096e98ad2b69e4799c71d",
    ],
];

const CHACHA: AeadCase = [
    "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
    "a0a1a2a31011121314151617",
    "45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec10000736270809\
     0a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f\
     303132333435363701020204",
    "0102030400000005",
    "24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c614ee8099d528\
     44eb61aa95dfab4c02f72aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb\
     94e664da9165b82829f641e0",
    "76aaa8266b7fb0f7b11b369907e1ad43",
];
