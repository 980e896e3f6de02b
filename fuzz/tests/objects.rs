//! No command with any attribute makes the objects panic or hang, and none leaves a lock behind:
//! the next command is answered.

use std::sync::Arc;

use bolero::TypeGenerator;
use towpath_bpf::Errno;
use towpath_objects::{Device, Devices, Objects, Process, ProgramObject, Settings, XdpMode};

/// One call: small numbers in places where fields are, and pointers into the memory behind it.
#[derive(Debug, TypeGenerator)]
struct Call {
    command: u8,
    /// Offset in units of 4 bytes, and what is there.
    fields: Vec<(u8, Field)>,
    size: u16,
}

#[derive(Debug, TypeGenerator)]
enum Field {
    Small(u8),
    Any(u32),
    /// An address in the memory.
    Pointer(u16),
}

/// Devices 1 to 3, of which the odd ones run programs themselves.
#[derive(Debug)]
struct Three;

impl Devices for Three {
    fn device(&self, ifindex: u32) -> Option<Device> {
        let exists = (1..=3).contains(&ifindex);
        let uppers = if ifindex == 1 { vec![2] } else { Vec::new() };
        exists.then_some(Device { native: ifindex % 2 == 1, offload: false, queues: 1, uppers })
    }

    fn install(
        &self,
        _ifindex: u32,
        _mode: XdpMode,
        _program: Option<&Arc<ProgramObject>>,
    ) -> Result<(), Errno> {
        Ok(())
    }
}

#[test]
fn any_command_with_any_attribute() {
    bolero::check!().with_type::<(Vec<u8>, Vec<Call>)>().for_each(|(bytes, calls)| {
        let mut settings = Settings::new();
        settings.devices = Arc::new(Three);
        let objects = Objects::new(&settings);
        let mut process = Process::new(0);
        for call in calls.iter().take(32) {
            process.unmap();
            let mut memory = bytes.clone();
            memory.resize(MEMORY_BYTES, 0);
            let mut attr = [0; 256];
            for (at, field) in &call.fields {
                let at = usize::from(at % 48) * 4;
                let (number, wide) = match field {
                    Field::Small(number) => (u64::from(*number), false),
                    Field::Any(number) => (u64::from(*number), false),
                    Field::Pointer(offset) => (START + u64::from(*offset), true),
                };
                let len = if wide { 8 } else { 4 };
                attr[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
            }
            memory[..attr.len()].copy_from_slice(&attr);
            process.map_at(START, memory);
            let (command, size) = (u32::from(call.command % 40), u32::from(call.size % 512));
            let _ = objects.bpf(&mut process, command, START, size);
        }
        process.unmap();
        let next_id = 12;
        process.map_at(START, vec![0; 64]);
        let answer = objects.bpf(&mut process, next_id, START, 8);
        assert!(matches!(answer, Ok(0) | Err(Errno::ENOENT)), "{answer:?}");
    });
}

const START: u64 = 1 << 32;
const MEMORY_BYTES: usize = 1 << 16;
