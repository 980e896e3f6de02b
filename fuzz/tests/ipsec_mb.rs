//! The engine `ipsec-mb` does with any work on any bytes what the engine `aws-lc` does.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use towpath_ipsec::{Direct, Engine, Keys, Operation, Schedule, Status, Suite, Task, Work};
use towpath_ipsec_mb::{IpsecMb, Library, OpenError};

/// Key, operation, numbers of the work, and the packet.
type Input = (u8, bool, [u16; 5], u8, Vec<u8>);

#[test]
fn any_work_on_any_bytes() {
    let library = match Library::open() {
        Ok(library) => library,
        Err(error @ (OpenError::Missing(_) | OpenError::Processor)) => {
            return eprintln!("skipped: {error}");
        }
        Err(error) => panic!("{error}"),
    };
    let context = AssertUnwindSafe((library, Suite::all().map(schedule).collect::<Vec<_>>()));
    bolero::check!().with_type::<(u8, Vec<Input>)>().for_each(|(copies, inputs)| {
        let (library, schedules) = &*context;
        // Batches of one algorithm must be long enough for the library.
        let inputs = inputs.iter().flat_map(|it| vec![it; 1 + usize::from(copies % 6)]);
        let tasks: Vec<_> = inputs.map(|input| Packet::new(schedules, input)).collect();
        let expected = run(&mut Direct::new(tasks.len()), tasks.clone());
        let mut engine = IpsecMb::new(library, tasks.len()).expect("a manager");
        let found = run(&mut engine, tasks);
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.work, expected.work, "tasks keep their order");
            assert_eq!(found.status, expected.status, "{:?}", found.work);
            assert_eq!(found.bytes, expected.bytes, "{:?}", found.work);
        }
    });
}

#[derive(Clone)]
struct Packet {
    schedule: Arc<Schedule>,
    work: Work,
    bytes: Vec<u8>,
    status: Status,
}

impl Packet {
    fn new(schedules: &[Arc<Schedule>], input: &Input) -> Packet {
        let (key, is_open, numbers, extra_len, bytes) = input;
        let schedule = &schedules[usize::from(*key) % schedules.len()];
        let mut bytes = bytes.clone();
        // Most numbers are within the packet, and most ranges are in order.
        let len = bytes.len() as u32 + 2;
        let [a, b, c, d, tag] = numbers.map(|number| u32::from(number) % len);
        let tag = if *extra_len > 127 { tag } else { a.max(b).max(c).max(d) };
        if *extra_len > 63 {
            bytes.resize(tag as usize + schedule.suite().icv_len(), 0);
        }
        let cipher = a.min(b)..a.max(b) - (a.max(b) - a.min(b)) % 16;
        let work = Work {
            operation: if *is_open { Operation::Open } else { Operation::Seal },
            iv: [*key; 16],
            extra: [7; 16],
            extra_len: extra_len % 18,
            authenticate: if *extra_len % 2 == 0 { c..tag } else { c..d },
            cipher,
            tag,
        };
        Packet { schedule: Arc::clone(schedule), work, bytes, status: Status::Pending }
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

fn schedule(suite: Suite) -> Arc<Schedule> {
    let bytes = |len| (0..len as u8).collect();
    let keys = Keys::new(bytes(suite.encryption_key_len()), bytes(suite.integrity_key_len()));
    Arc::new(Schedule::new(suite, keys).expect("keys of the right length"))
}

fn run(engine: &mut dyn Engine<Packet>, mut tasks: Vec<Packet>) -> Vec<Packet> {
    let mut done = Vec::new();
    engine.submit(&mut tasks);
    engine.flush();
    engine.complete(&mut done);
    done
}
