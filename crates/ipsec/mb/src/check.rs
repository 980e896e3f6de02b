//! Checks the library's results before it is used for packets.

use std::rc::Rc;

use towpath_ipsec::{
    AwsLc, Cryptography as _, Engine as _, Keys, Operation, Schedule, Status, Suite, Task, Work,
};

use crate::engine::IpsecMb;
use crate::library_unsafe::{Library, OpenError};

/// The first algorithms for which the library's results differ from those of AWS-LC, which seals
/// and opens the same packets, with right and wrong ICVs.
pub(crate) fn first_wrong(library: &Library) -> Result<Option<Suite>, OpenError> {
    let mut engine = IpsecMb::new(library, COUNT)?;
    let mut suites = Suite::all().filter(|it| matches!(it, Suite::CipherThenHmac(..)));
    Ok(suites.find(|&suite| !is_right(&mut engine, suite)))
}

fn is_right(engine: &mut IpsecMb<Probe>, suite: Suite) -> bool {
    let bytes = |len: usize, factor: usize| (1..=len).map(|it| (it * factor) as u8).collect();
    let (encryption, integrity) = (suite.encryption_key_len(), suite.integrity_key_len());
    let keys = Keys::new(bytes(encryption, 29), bytes(integrity, 31));
    let Ok(schedule) = Schedule::new(suite, keys).map(Rc::new) else { return false };
    let mut probes: Vec<_> = (0..COUNT).map(|index| Probe::new(&schedule, index)).collect();
    // After they were decrypted, their ICVs are wrong.
    for operation in [Operation::Seal, Operation::Open, Operation::Open] {
        let mut expected = probes.clone();
        for probe in expected.iter_mut().chain(&mut probes) {
            probe.work.operation = operation;
        }
        for Probe { schedule, work, bytes, status } in &mut expected {
            *status = AwsLc::run(schedule, work, bytes);
        }
        engine.submit(&mut probes);
        engine.flush();
        engine.complete(&mut probes);
        let is_same =
            |(one, other): (&Probe, &Probe)| one.status == other.status && one.bytes == other.bytes;
        if probes.len() != COUNT || !probes.iter().zip(&expected).all(is_same) {
            return false;
        }
    }
    true
}

/// A task with a copy of its own.
#[derive(Clone)]
struct Probe {
    schedule: Rc<Schedule>,
    work: Work,
    bytes: Vec<u8>,
    status: Status,
}

impl Probe {
    fn new(schedule: &Rc<Schedule>, index: usize) -> Probe {
        let cipher_len = 16 * (1 + index * index % 23);
        let (start, tag) = (24, 24 + cipher_len);
        let work = Work {
            operation: Operation::Seal,
            iv: [index as u8; 16],
            extra: [3; 16],
            extra_len: (index % 2) as u8 * 4,
            authenticate: 0..tag as u32,
            cipher: start..tag as u32,
            tag: tag as u32,
        };
        let len = tag + schedule.suite().icv_len();
        let bytes = (0..len).map(|it| (it * 7 + index) as u8).collect();
        Probe { schedule: Rc::clone(schedule), work, bytes, status: Status::Pending }
    }
}

impl Task for Probe {
    fn parts(&mut self) -> (&Schedule, &Work, &mut [u8]) {
        (&self.schedule, &self.work, &mut self.bytes)
    }

    fn set_status(&mut self, status: Status) {
        self.status = status;
    }
}

/// Number of packets: the lanes of the library fill up, and some packets are left.
const COUNT: usize = 21;
