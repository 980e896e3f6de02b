//! Measures the engine beside `aws-lc`: the same bytes, without packets and their headers.
//!
//! ```console
//! $ cargo run --release -p towpath-ipsec-mb --example mb_speed
//! ```
//!
//! With the argument `bursts` it measures one suite with bursts of different lengths.

#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "it prints its results")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use towpath_ipsec::{
    Aead, Cipher, Direct, Engine, Hmac, Keys, Operation, Schedule, Status, Suite, Task, Work,
};
use towpath_ipsec_mb::{IpsecMb, Library, OpenError};

fn main() -> Result<(), OpenError> {
    let start = Instant::now();
    let library = Library::open()?;
    println!("libipsec-mb {}, opened in {:.1} ms", library.version(), ms(start));
    println!("Gbit/s (and ns a packet), median of {ROUNDS} rounds:");
    let suites = [
        Suite::CipherThenHmac(Cipher::Aes128Cbc, Hmac::Sha1_96),
        Suite::CipherThenHmac(Cipher::Aes256Cbc, Hmac::Sha256_128),
        Suite::CipherThenHmac(Cipher::Aes256Cbc, Hmac::Sha512_256),
        Suite::CipherThenHmac(Cipher::Null, Hmac::Sha1_96),
        Suite::Aead(Aead::Aes128Gcm),
    ];
    if std::env::args().nth(1).as_deref() == Some("bursts") {
        for burst in [1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64] {
            compare(&library, suites[0], 1408, burst)?;
        }
        return Ok(());
    }
    for suite in suites {
        for len in [1408, 64] {
            compare(&library, suite, len, 64)?;
        }
    }
    Ok(())
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1000.0
}

fn compare(library: &Library, suite: Suite, len: usize, burst: usize) -> Result<(), OpenError> {
    let mut rounds = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        let mb = measure(&mut IpsecMb::new(library, burst)?, suite, len, burst);
        let direct = measure(&mut Direct::new(burst), suite, len, burst);
        rounds.iter_mut().zip(mb.into_iter().chain(direct)).for_each(|(all, ns)| all.push(ns));
    }
    let [seal, open, direct_seal, direct_open] = rounds.map(median);
    let rate = |ns: f64| len as f64 * 8.0 / ns;
    println!(
        "  {:32} {len:5} B, bursts of {burst:2}   seal {:5.1} ({seal:5.0} ns), aws-lc {:5.1}   \
         open {:5.1} ({open:5.0} ns), aws-lc {:5.1}",
        suite.to_string(),
        rate(seal),
        rate(direct_seal),
        rate(open),
        rate(direct_open),
    );
    Ok(())
}

/// Bytes and one operation on them.
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

/// Nanoseconds a packet to seal and to open.
fn measure(engine: &mut dyn Engine<Bare>, suite: Suite, len: usize, burst: usize) -> [f64; 2] {
    let keys = Keys::new(vec![5; suite.encryption_key_len()], vec![6; suite.integrity_key_len()]);
    let schedule = Arc::new(Schedule::new(suite, keys).expect("the lengths are right"));
    let header = 8 + suite.iv_len();
    let tag = header + len.next_multiple_of(suite.block_len());
    let work = Work {
        operation: Operation::Seal,
        iv: [7; 16],
        extra: [1; 16],
        extra_len: if matches!(suite, Suite::Aead(_)) { 8 } else { 0 },
        authenticate: 0..tag as u32,
        cipher: header as u32..tag as u32,
        tag: tag as u32,
    };
    let task = || {
        let bytes = vec![9; tag + suite.icv_len()];
        Bare { schedule: Arc::clone(&schedule), work: work.clone(), bytes }
    };
    let mut tasks: Vec<_> = (0..burst).map(|_| task()).collect();
    let mut ns = [0.0; 2];
    let bursts = PACKETS / burst;
    for _ in 0..bursts {
        for (ns, operation) in ns.iter_mut().zip([Operation::Seal, Operation::Open]) {
            tasks.iter_mut().for_each(|task| task.work.operation = operation);
            let start = Instant::now();
            engine.submit(&mut tasks);
            engine.flush();
            engine.complete(&mut tasks);
            *ns += start.elapsed().as_nanos() as f64;
            black_box(&mut tasks);
        }
    }
    ns.map(|ns| ns / (bursts * burst) as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

const ROUNDS: usize = 5;
const PACKETS: usize = 10_000;
