//! Measures the cost of a packet: of its headers with the engine `null`, and of the whole packet
//! with `aws-lc` beside the bare cryptography of the same bytes.
//!
//! ```console
//! $ cargo run --release -p towpath-ipsec --example speed
//! ```
//!
//! With the argument `headers` only the first part runs.

#![expect(clippy::print_stdout, reason = "it prints its results")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use towpath_ipsec::{
    Aead, Buffer, Cipher, Config, Direct, Direction, Engine, Esp, Hmac, Job, Keys, LocalSa, Locked,
    Null, Operation, OwnedBuffer, Sa, Schedule, Status, Suite, Task, Work, finish_all,
};

fn main() {
    println!("headers alone (null), ns a packet, bursts of {BURST}:");
    for len in [64, 1408] {
        let [encap, decap] = packets(Suite::Aead(Aead::Aes128Gcm), len, &mut Null::new(BURST));
        println!("  {len:5} bytes  encap {encap:6.1}  decap {decap:6.1}");
    }
    if std::env::args().nth(1).as_deref() == Some("headers") {
        return;
    }
    println!(
        "inner packets of 1408 and 64 bytes, Gbit/s (and ns a packet); bare is the same bytes:"
    );
    let suites = [
        Suite::CipherThenHmac(Cipher::Aes128Cbc, Hmac::Sha1_96),
        Suite::CipherThenHmac(Cipher::Aes256Cbc, Hmac::Sha256_128),
        Suite::CipherThenHmac(Cipher::Null, Hmac::Sha1_96),
        Suite::Aead(Aead::Aes128Gcm),
        Suite::Aead(Aead::Aes256Gcm),
        Suite::Aead(Aead::ChaCha20Poly1305),
    ];
    for suite in suites {
        for len in [1408, 64] {
            let ours = packets(suite, len, &mut Direct::new(BURST));
            let bare = bare(suite, len);
            print!("  {:32} {len:5}", suite.to_string());
            for (name, ours, bare) in [("seal", ours[0], bare[0]), ("open", ours[1], bare[1])] {
                let rate = |ns: f64| len as f64 * 8.0 / ns;
                print!("  {name} {:5.1} ({ours:6.0} ns)", rate(ours));
                print!(", bare {:5.1} ({bare:6.0} ns), {:.2}x", rate(bare), bare / ours);
            }
            println!();
        }
    }
}

/// Nanoseconds a packet for sending and for receiving: medians of all rounds. Each burst goes out
/// and comes back as it was, so nothing is copied.
fn packets(
    suite: Suite,
    len: usize,
    engine: &mut dyn Engine<Job<Box<OwnedBuffer>, LocalSa>>,
) -> [f64; 2] {
    let [outbound, inbound] =
        [Direction::Outbound, Direction::Inbound].map(|it| LocalSa::from(sa(suite, it)));
    let mut buffers: Vec<_> = (0..BURST).map(|_| Box::new(OwnedBuffer::new(&frame(len)))).collect();
    let (mut jobs, mut sent) = (Vec::with_capacity(BURST), Vec::with_capacity(BURST));
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let mut ns = [0.0; 2];
        for _ in 0..BURSTS {
            let start = Instant::now();
            let mut locked = Locked::new(&outbound, 0);
            for buffer in buffers.drain(..) {
                locked.encap(buffer, &mut jobs).expect("it fits");
            }
            drop(locked);
            run(engine, &mut jobs);
            finish_all(&mut jobs, 0, |it| sent.push(it.expect("it was sealed").buffer));
            let middle = Instant::now();
            let mut locked = Locked::new(&inbound, 0);
            for buffer in sent.drain(..) {
                let esp = Esp::of_frame(buffer.bytes()).expect("ESP");
                locked.decap(buffer, &esp, &mut jobs).expect("it is new");
            }
            drop(locked);
            run(engine, &mut jobs);
            finish_all(&mut jobs, 0, |it| buffers.push(it.expect("it was opened").buffer));
            ns[0] += (middle - start).as_nanos() as f64;
            ns[1] += middle.elapsed().as_nanos() as f64;
        }
        rounds.iter_mut().zip(ns).for_each(|(all, ns)| all.push(ns / (BURSTS * BURST) as f64));
    }
    rounds.map(median)
}

fn run(
    engine: &mut dyn Engine<Job<Box<OwnedBuffer>, LocalSa>>,
    jobs: &mut Vec<Job<Box<OwnedBuffer>, LocalSa>>,
) {
    engine.submit(jobs);
    engine.flush();
    engine.complete(jobs);
}

/// Bytes and one operation on them, without a packet.
struct Bare {
    schedule: Arc<Schedule>,
    work: Work,
    bytes: Vec<u8>,
}

impl Task for Bare {
    fn parts(&mut self) -> (&Schedule, &Work, &mut [u8]) {
        (&self.schedule, &self.work, &mut self.bytes)
    }

    fn set_status(&mut self, status: Status) {
        assert_eq!(status, Status::Done);
    }
}

/// As [`packets`], of as many bytes as there are in the packet.
fn bare(suite: Suite, len: usize) -> [f64; 2] {
    let schedule = Arc::new(Schedule::new(suite, keys(suite)).expect("the lengths are right"));
    let header = 8 + suite.iv_len();
    let tag = header + (len + 2).next_multiple_of(suite.block_len());
    let work = Work {
        operation: Operation::Seal,
        iv: [7; 16],
        extra: [1; 16],
        extra_len: if matches!(suite, Suite::Aead(_)) { 8 } else { 0 },
        authenticate: 0..tag as u32,
        cipher: header as u32..tag as u32,
        tag: tag as u32,
    };
    let mut engine = Direct::new(BURST);
    let mut tasks: Vec<_> = (0..BURST)
        .map(|_| Bare {
            schedule: Arc::clone(&schedule),
            work: work.clone(),
            bytes: vec![9; tag + suite.icv_len()],
        })
        .collect();
    let mut rounds = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let mut ns = [0.0; 2];
        for _ in 0..BURSTS {
            for (ns, operation) in ns.iter_mut().zip([Operation::Seal, Operation::Open]) {
                tasks.iter_mut().for_each(|task| task.work.operation = operation);
                let start = Instant::now();
                engine.submit(&mut tasks);
                engine.complete(&mut tasks);
                *ns += start.elapsed().as_nanos() as f64;
                black_box(&mut tasks);
            }
        }
        rounds.iter_mut().zip(ns).for_each(|(all, ns)| all.push(ns / (BURSTS * BURST) as f64));
    }
    rounds.map(median)
}

fn sa(suite: Suite, direction: Direction) -> Arc<Sa> {
    let (from, to) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let mut config = Config { direction, ..Config::outbound(0x1000, from, to, suite, keys(suite)) };
    config.replay.esn = true;
    Arc::new(Sa::new(1, config, 0).expect("a good description"))
}

fn keys(suite: Suite) -> Keys {
    Keys::new(vec![5; suite.encryption_key_len()], vec![6; suite.integrity_key_len()])
}

/// An Ethernet frame with an IPv4 packet of `len` bytes.
fn frame(len: usize) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.resize(14 + len, 0x5a);
    frame
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const BURST: usize = 32;
const BURSTS: usize = 300;
const ROUNDS: usize = 15;
