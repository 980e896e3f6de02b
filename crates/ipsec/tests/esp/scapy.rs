//! Packets exchanged with Scapy's `SecurityAssociation`, both ways. `IPSEC_SCAPY_PACKETS` is how
//! many packets each way there are.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use fastrand::Rng;
use towpath_ipsec::{Aead, Cipher, Direction, Hmac, Keys, Sa, Suite};

use crate::common::{Case, frame, hex, ip, receive, sa, send, to_hex, udp};

#[test]
fn scapy_reads_ours_and_we_read_scapys() {
    let Some(mut scapy) = Scapy::start() else { return };
    let wanted = std::env::var("IPSEC_SCAPY_PACKETS").ok().and_then(|text| text.parse().ok());
    let mut random = Rng::with_seed(27);
    let cases: Vec<Case> = Suite::all().flat_map(Case::all).filter(is_known).collect();
    let per_case = wanted.unwrap_or(PACKETS).div_ceil(cases.len());
    for case in &cases {
        let keys = Keys::new(
            (0..case.suite.encryption_key_len()).map(|_| random.u8(..)).collect(),
            (0..case.suite.integrity_key_len()).map(|_| random.u8(..)).collect(),
        );
        scapy.add_sa(case, &keys);
        let outbound = sa(case.config(Direction::Outbound, keys.clone()));
        let mut inbound = Vec::new();
        for number in 1..=per_case {
            exchange(&mut scapy, case, &outbound, &mut inbound, number, &mut random);
        }
        let receiver = sa(case.config(Direction::Inbound, keys));
        for (sent, packet) in inbound {
            assert_eq!(receive(&receiver, &sent), Ok(packet), "{case:?}");
        }
    }
}

/// One packet of ours to Scapy, and one of Scapy's into `inbound`.
fn exchange(
    scapy: &mut Scapy,
    case: &Case,
    outbound: &Arc<Sa>,
    inbound: &mut Vec<(Vec<u8>, Vec<u8>)>,
    number: usize,
    random: &mut Rng,
) {
    let payload: Vec<u8> = (0..random.usize(0..600)).map(|_| random.u8(..)).collect();
    let packet = frame(&ip(case, 17, &udp(random.u16(6000..), 6001, &payload)));
    let sent = send(outbound, &packet).expect("it can be sent");
    let opened = scapy.ask("decrypt", number, &sent[14..]);
    assert_eq!(to_hex(&opened), to_hex(&packet[14..]), "{case:?}");
    let ip = scapy.ask("encrypt", number, &packet[14..]);
    inbound.push((frame(&ip), packet));
}

/// Scapy 2.5 leaves the extended half of a sequence number out of HMACs.
fn is_known(case: &Case) -> bool {
    !case.esn || matches!(case.suite, Suite::Aead(_))
}

/// A Python process with Scapy, asked line by line.
struct Scapy {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Scapy {
    fn start() -> Option<Scapy> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/esp/scapy_peer.py");
        for python in ["python3", "/usr/bin/python3"] {
            let check = "import scapy.layers.ipsec, cryptography";
            let output = Command::new(python).args(["-c", check]).output();
            if !output.is_ok_and(|output| output.status.success()) {
                continue;
            }
            let mut process = Command::new(python)
                .arg(script)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("Python starts");
            let input = process.stdin.take().expect("a pipe");
            let output = BufReader::new(process.stdout.take().expect("a pipe"));
            return Some(Scapy { process, input, output });
        }
        eprintln!("skipped: no Python with Scapy and cryptography (python3-scapy)");
        None
    }

    fn add_sa(&mut self, case: &Case, keys: &Keys) {
        let (cipher, hmac) = names(case.suite);
        let bit = |value: bool| if value { "1" } else { "0" };
        let fields = [
            "sa",
            cipher,
            &or_dash(keys.encryption.bytes()),
            hmac,
            &or_dash(keys.integrity.bytes()),
            bit(case.is_tunnel),
            bit(case.is_outer_v6),
            bit(case.is_udp),
            bit(case.esn),
        ];
        assert_eq!(self.line(&fields.join(" ")), "ok");
    }

    fn ask(&mut self, what: &str, sequence: usize, bytes: &[u8]) -> Vec<u8> {
        hex(&self.line(&format!("{what} {sequence} {}", to_hex(bytes))))
    }

    fn line(&mut self, request: &str) -> String {
        writeln!(self.input, "{request}").expect("Scapy reads");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("Scapy answers");
        assert!(!answer.starts_with("error"), "{answer}");
        assert!(!answer.is_empty(), "Scapy ended at {request}");
        answer.trim().to_owned()
    }
}

impl Drop for Scapy {
    fn drop(&mut self) {
        let _ended = self.process.kill();
        let _ended = self.process.wait();
    }
}

fn or_dash(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".into() } else { to_hex(bytes) }
}

fn names(suite: Suite) -> (&'static str, &'static str) {
    match suite {
        Suite::Aead(Aead::Aes128Gcm | Aead::Aes256Gcm) => ("AES-GCM", "NULL"),
        Suite::Aead(Aead::ChaCha20Poly1305) => ("CHACHA20-POLY1305", "NULL"),
        Suite::CipherThenHmac(cipher, hmac) => {
            let cipher = if cipher == Cipher::Null { "NULL" } else { "AES-CBC" };
            let hmac = match hmac {
                Hmac::Sha1_96 => "HMAC-SHA1-96",
                Hmac::Sha256_128 => "SHA2-256-128",
                Hmac::Sha384_192 => "SHA2-384-192",
                Hmac::Sha512_256 => "SHA2-512-256",
            };
            (cipher, hmac)
        }
    }
}

/// Packets each way in a usual run.
const PACKETS: usize = 1000;
