//! The engine beside [`Direct`]: each task ends with the same status and the same bytes.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;
use towpath_ipsec::{
    Cipher, Config, Direct, Direction, Engine, Esp, Hmac, Job, Keys, Operation, OwnedBuffer,
    Refusal, Sa, Schedule, Status, Suite, Task, Work, finish_all,
};
use towpath_ipsec_mb::{IpsecMb, Library, OpenError};

#[test]
fn all_suites_and_sizes() {
    let Some(library) = library() else { return };
    let mut random = Rng::with_seed(1);
    for suite in Suite::all() {
        let schedule = schedule(suite, &mut random);
        let sizes = (0..200).chain([1407, 1408, 9000, 16383, 32768, 65392, 65520, 100_000]);
        let mut tasks: Vec<_> = sizes.map(|len| Packet::new(&schedule, len, &mut random)).collect();
        for operation in [Operation::Seal, Operation::Open, Operation::Open] {
            tasks.iter_mut().for_each(|task| task.work.operation = operation);
            tasks = same_as_direct(&library, tasks);
        }
    }
}

#[test]
fn whatever_is_asked_for() {
    let Some(library) = library() else { return };
    let mut random = Rng::with_seed(2);
    let suites: Vec<_> = Suite::all().collect();
    let schedules: Vec<_> = suites.iter().map(|&suite| schedule(suite, &mut random)).collect();
    for _ in 0..2000 {
        let count = random.usize(..100);
        // Few keys, so that batches of one algorithm are long, or all of them.
        let some = if random.bool() { 1 + random.usize(..2) } else { schedules.len() };
        let first = random.usize(..schedules.len());
        let mut tasks: Vec<_> = (0..count)
            .map(|_| {
                let schedule = &schedules[(first + random.usize(..some)) % schedules.len()];
                let len = 16 * random.usize(..20);
                Packet::new(schedule, len, &mut random)
            })
            .collect();
        if random.bool() {
            tasks = run(&mut Direct::new(count), tasks);
        }
        for task in &mut tasks {
            task.work.operation = [Operation::Seal, Operation::Open][random.usize(..2)];
            if random.u8(..4) == 0 {
                task.mutate(&mut random);
            }
        }
        same_as_direct(&library, tasks);
    }
}

#[test]
fn wrong_icvs_show_no_plaintext() {
    let Some(library) = library() else { return };
    let mut random = Rng::with_seed(3);
    for suite in Suite::all().filter(|it| !matches!(it, Suite::CipherThenHmac(Cipher::Null, _))) {
        let schedule = schedule(suite, &mut random);
        let plain: Vec<_> = (0..40).map(|_| Packet::new(&schedule, 64, &mut random)).collect();
        let mut sealed = run(&mut IpsecMb::new(&library, 64).expect("a manager"), plain.clone());
        for (index, task) in sealed.iter_mut().enumerate() {
            assert_eq!(task.status, Status::Done);
            task.work.operation = Operation::Open;
            let bit = random.usize(..suite.icv_len() * 8);
            let at = task.work.tag as usize + bit / 8;
            task.bytes[at] ^= u8::from(index % 2 == 0) << (bit % 8);
        }
        let opened = run(&mut IpsecMb::new(&library, 64).expect("a manager"), sealed);
        for (index, (task, plain)) in opened.iter().zip(&plain).enumerate() {
            let range = task.work.cipher.start as usize..task.work.cipher.end as usize;
            let is_plain = task.bytes[range.clone()] == plain.bytes[range];
            let expected = if index % 2 == 0 { Status::BadTag } else { Status::Done };
            assert_eq!((task.status, is_plain), (expected, index % 2 == 1), "{suite}");
        }
    }
}

#[test]
fn a_flush_completes_a_single_task() {
    let Some(library) = library() else { return };
    let mut random = Rng::with_seed(4);
    let schedule = schedule(CBC, &mut random);
    let mut engine = IpsecMb::new(&library, 8).expect("a manager");
    let mut tasks = vec![Packet::new(&schedule, 64, &mut random)];
    engine.submit(&mut tasks);
    assert!(tasks.is_empty());
    assert_eq!((engine.room(), engine.in_flight()), (7, 1));
    engine.flush();
    engine.complete(&mut tasks);
    assert_eq!(tasks.len(), 1);
    assert_eq!(tasks[0].status, Status::Done);
    assert_eq!((engine.room(), engine.in_flight()), (8, 0));
}

#[test]
fn a_full_engine_takes_no_more() {
    let Some(library) = library() else { return };
    let mut random = Rng::with_seed(5);
    let schedule = schedule(CBC, &mut random);
    let mut engine = IpsecMb::new(&library, 100).expect("a manager");
    let mut tasks: Vec<_> = (0..150).map(|_| Packet::new(&schedule, 64, &mut random)).collect();
    engine.submit(&mut tasks);
    assert_eq!((tasks.len(), engine.room(), engine.in_flight()), (50, 0, 100));
    engine.submit(&mut tasks);
    assert_eq!(tasks.len(), 50);
    let mut done = Vec::new();
    engine.flush();
    engine.complete(&mut done);
    engine.submit(&mut tasks);
    engine.flush();
    engine.complete(&mut done);
    assert_eq!((tasks.len(), done.len(), engine.in_flight()), (0, 150, 0));
    assert!(done.iter().all(|task| task.status == Status::Done));
}

/// Packets go out by one engine and come in by the other, in order.
#[test]
fn esp_between_both_engines() {
    let Some(library) = library() else { return };
    let mut random = Rng::with_seed(6);
    for (suite, esn) in Suite::all().flat_map(|suite| [(suite, false), (suite, true)]) {
        let sas: Vec<_> = (0..3).map(|_| pair(suite, esn, &mut random)).collect();
        let mut mb = IpsecMb::new(&library, 256).expect("a manager");
        let mut direct = Direct::new(256);
        for mb_sends in [true, false] {
            let plain: Vec<_> = (0..150).map(|number| frame(number, &mut random)).collect();
            let mut jobs: Vec<Job<OwnedBuffer>> = Vec::new();
            for (number, packet) in plain.iter().enumerate() {
                let mut sa = sas[number % sas.len()].0.lock(0);
                sa.encap(OwnedBuffer::new(packet), &mut jobs).expect("it fits");
            }
            let jobs = if mb_sends { run(&mut mb, jobs) } else { run(&mut direct, jobs) };
            let sent = finished(jobs);
            let mut jobs = Vec::new();
            for (number, result) in sent.into_iter().enumerate() {
                let buffer = result.expect("it is sent");
                let esp = Esp::of_frame(buffer.as_ref()).expect("ESP");
                let mut sa = sas[number % sas.len()].1.lock(0);
                sa.decap(buffer, &esp, &mut jobs).expect("it is new");
            }
            let jobs = if mb_sends { run(&mut direct, jobs) } else { run(&mut mb, jobs) };
            let received: Vec<_> = finished(jobs)
                .into_iter()
                .map(|result| result.expect("it is received").as_ref().to_vec())
                .collect();
            assert_eq!(received, plain, "{suite}, esn {esn}");
        }
    }
}

/// An operation on a packet of its own.
#[derive(Clone)]
struct Packet {
    schedule: Arc<Schedule>,
    work: Work,
    bytes: Vec<u8>,
    status: Status,
}

impl Packet {
    /// A packet as in ESP, with `len` bytes to encrypt.
    fn new(schedule: &Arc<Schedule>, len: usize, random: &mut Rng) -> Packet {
        let suite = schedule.suite();
        let start = random.usize(..80);
        let cipher = start + 8 + suite.iv_len();
        let tag = cipher + len;
        let bytes = (0..tag + suite.icv_len() + random.usize(..8)).map(|_| random.u8(..)).collect();
        let extra_len = match suite {
            Suite::Aead(_) => 8,
            Suite::CipherThenHmac(..) => random.u8(..2) * 4,
        };
        let work = Work {
            operation: Operation::Seal,
            iv: std::array::from_fn(|_| random.u8(..)),
            extra: std::array::from_fn(|_| random.u8(..)),
            extra_len,
            authenticate: start as u32..tag as u32,
            cipher: cipher as u32..tag as u32,
            tag: tag as u32,
        };
        Packet { schedule: Arc::clone(schedule), work, bytes, status: Status::Pending }
    }

    fn mutate(&mut self, random: &mut Rng) {
        let len = self.bytes.len();
        let any = |random: &mut Rng| match random.u8(..8) {
            0 => u32::MAX,
            1 => 0,
            2 => len as u32,
            _ => random.u32(..len as u32 + 20),
        };
        let change = |range: &mut Range<u32>, random: &mut Rng| match random.u8(..3) {
            0 => range.start = any(random),
            1 => range.end = any(random),
            _ => *range = any(random)..any(random),
        };
        match random.u8(..8) {
            0 => change(&mut self.work.authenticate, random),
            1 => change(&mut self.work.cipher, random),
            2 => self.work.tag = any(random),
            3 => self.work.extra_len = random.u8(..),
            4 => self.bytes.truncate(random.usize(..=len)),
            5 => self.bytes.clear(),
            _ if len > 0 => self.bytes[random.usize(..len)] ^= 1 << random.u8(..8),
            _ => self.work.iv[0] ^= 1,
        }
    }
}

impl Task for Packet {
    fn parts(&mut self) -> (&Schedule, &Work, &mut [u8]) {
        (&self.schedule, &self.work, &mut self.bytes)
    }

    fn set_status(&mut self, status: Status) {
        self.status = status;
    }
}

/// Runs tasks by both engines, and compares the results.
fn same_as_direct(library: &Library, tasks: Vec<Packet>) -> Vec<Packet> {
    let works: Vec<_> = tasks.iter().map(|task| task.work.clone()).collect();
    let expected = run(&mut Direct::new(tasks.len()), tasks.clone());
    let found = run(&mut IpsecMb::new(library, tasks.len()).expect("a manager"), tasks);
    assert_eq!(found.len(), expected.len());
    for ((found, expected), work) in found.iter().zip(&expected).zip(works) {
        assert_eq!(found.work, work, "tasks keep their order");
        let suite = found.schedule.suite();
        assert_eq!(found.status, expected.status, "{suite}, {work:?}");
        assert!(found.bytes == expected.bytes, "{suite}, {work:?}");
    }
    found
}

fn run<T: Task>(engine: &mut impl Engine<T>, mut tasks: Vec<T>) -> Vec<T> {
    let mut done = Vec::new();
    engine.submit(&mut tasks);
    assert!(tasks.is_empty(), "the engine has room");
    engine.flush();
    engine.complete(&mut done);
    assert_eq!(engine.in_flight(), 0);
    done
}

fn finished(mut jobs: Vec<Job<OwnedBuffer>>) -> Vec<Result<OwnedBuffer, Refusal>> {
    let mut all = Vec::new();
    finish_all(&mut jobs, 0, |result| {
        all.push(result.map(|it| it.buffer).map_err(|refused| refused.reason));
    });
    all
}

fn schedule(suite: Suite, random: &mut Rng) -> Arc<Schedule> {
    Arc::new(Schedule::new(suite, keys(suite, random)).expect("keys of the right length"))
}

fn keys(suite: Suite, random: &mut Rng) -> Keys {
    let mut bytes = |len| (0..len).map(|_| random.u8(..)).collect();
    Keys::new(bytes(suite.encryption_key_len()), bytes(suite.integrity_key_len()))
}

/// Both ends of an SA.
fn pair(suite: Suite, esn: bool, random: &mut Rng) -> (Arc<Sa>, Arc<Sa>) {
    let keys = keys(suite, random);
    let end = |direction| {
        let (from, to) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let mut config = Config::outbound(0x1000, from, to, suite, keys.clone());
        config.direction = direction;
        config.replay.esn = esn;
        config.replay.window = 1024;
        Arc::new(Sa::new(1, config, 0).expect("a good description"))
    };
    (end(Direction::Outbound), end(Direction::Inbound))
}

/// A frame with an IPv4 packet.
fn frame(number: usize, random: &mut Rng) -> Vec<u8> {
    let len = 24 + random.usize(..1400);
    let mut frame = vec![2; 12];
    frame.extend([8, 0, 0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 64, 253, 0, 0]);
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend((number as u32).to_be_bytes());
    frame.resize_with(14 + len, || random.u8(..));
    frame
}

/// The library; `None` where it isn't installed.
#[expect(clippy::print_stderr, reason = "tells what was skipped")]
fn library() -> Option<Library> {
    match Library::open() {
        Ok(library) => Some(library),
        Err(error @ (OpenError::Missing(_) | OpenError::Processor)) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const CBC: Suite = Suite::CipherThenHmac(Cipher::Aes128Cbc, Hmac::Sha1_96);
