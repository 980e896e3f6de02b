//! Numbered frames on every lane, and what comes out of it: nothing that no wanted configuration
//! lets pass, nothing twice, nothing out of order.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::machine::Machine;
use crate::wire_unsafe::Wire;

/// What a frame is: programs decide by that.
pub(crate) const CLASSES: u8 = 8;
/// The class that is for an application, if there is one.
pub(crate) const TO_SOCKET: u8 = 5;
/// The class that goes by a device map.
pub(crate) const BY_MAP: u8 = 6;
/// An Ethernet type for experiments.
const PROTOCOL: u16 = 0x88b5;
/// How long frames that must pass are waited for.
const PATIENCE: Duration = Duration::from_secs(15);

/// A set of classes.
pub(crate) type Classes = u8;

/// All lanes' ends.
#[derive(Debug)]
pub(crate) struct Traffic {
    lanes: Vec<Lane>,
    /// Frames that came out.
    pub(crate) passed: u64,
    /// Frames that went in.
    pub(crate) sent: u64,
}

/// Where frames are put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Interface(String),
    /// A virtual machine, at this socket.
    Machine(PathBuf),
}

#[derive(Debug)]
enum Input {
    Wire(Wire),
    Machine(Machine),
}

impl Input {
    fn new(place: &Place) -> Input {
        match place {
            Place::Interface(name) => Input::Wire(Wire::sender(name)),
            Place::Machine(path) => Input::Machine(Machine::new(path)),
        }
    }

    fn look(&mut self) {
        match self {
            Input::Wire(wire) => wire.look(),
            Input::Machine(machine) => machine.look(),
        }
    }

    fn send(&mut self, frame: &[u8]) -> bool {
        match self {
            Input::Wire(wire) => wire.send(frame),
            Input::Machine(machine) => machine.send(frame),
        }
    }
}

#[derive(Debug)]
struct Lane {
    /// Frames go by the first that takes them.
    inputs: Vec<Input>,
    output: Wire,
    /// What may pass in each epoch.
    may: Vec<Classes>,
    next: [u64; CLASSES as usize],
    last: [u64; CLASSES as usize],
}

impl Traffic {
    /// Lanes between two interfaces each.
    pub(crate) fn new<'a>(ends: impl Iterator<Item = &'a (Vec<Place>, String)>) -> Traffic {
        let lane = |(inputs, output): &(Vec<Place>, String)| Lane {
            inputs: inputs.iter().map(Input::new).collect(),
            output: Wire::receiver(output, PROTOCOL),
            may: Vec::new(),
            next: [1; CLASSES as usize],
            last: [0; CLASSES as usize],
        };
        Traffic { lanes: ends.map(lane).collect(), passed: 0, sent: 0 }
    }

    /// From now on these may pass, and of what is under way what might before.
    pub(crate) fn allow(&mut self, may: impl Iterator<Item = Classes>) {
        self.lanes.iter_mut().zip(may).for_each(|(lane, may)| lane.may.push(may));
    }

    /// A lane's virtual machine is killed; another one comes.
    pub(crate) fn kill_machine(&mut self, lane: usize) {
        for input in &mut self.lanes[lane].inputs {
            if let Input::Machine(machine) = input {
                machine.kill();
            }
        }
    }

    /// A frame of each class into each lane; and looks at what came out.
    pub(crate) fn pump(&mut self) -> Outcome {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            lane.inputs.iter_mut().for_each(Input::look);
            lane.output.look();
            for class in 0..CLASSES {
                self.sent += u64::from(lane.send(number, class));
            }
        }
        self.receive()
    }

    /// Looks at what came out.
    fn receive(&mut self) -> Outcome {
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            self.passed += lane.receive().map_err(|why| format!("lane {number}: {why}"))?;
        }
        Ok(())
    }

    /// All of these classes must pass now; gives frames time to arrive.
    pub(crate) fn must_pass(&mut self, must: &[Classes]) -> Outcome {
        let start = Instant::now();
        loop {
            self.pump()?;
            let sent: Vec<_> = self.lanes.iter().map(|lane| lane.next).collect();
            for _ in 0..ROUNDS {
                self.receive()?;
                let missing = |(number, lane): (usize, &Lane)| {
                    let is_missing = |&class: &u8| {
                        let place = usize::from(class);
                        must[number] >> class & 1 == 1 && lane.last[place] + 1 < sent[number][place]
                    };
                    (0..CLASSES).find(is_missing).map(|class| (number, class))
                };
                let Some((lane, class)) = self.lanes.iter().enumerate().find_map(missing) else {
                    return Ok(());
                };
                if start.elapsed() > PATIENCE {
                    return Err(format!("lane {lane}: no frame of class {class} passes any more"));
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }
}

impl Lane {
    fn send(&mut self, lane: usize, class: u8) -> bool {
        let place = usize::from(class);
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&[2, 0, 0, 0, lane as u8, class]);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 1, class]);
        frame[12..14].copy_from_slice(&PROTOCOL.to_be_bytes());
        frame[14..22].copy_from_slice(&self.next[place].to_be_bytes());
        frame[22..30].copy_from_slice(&(self.may.len() as u64).to_be_bytes());
        let is_sent = self.inputs.iter_mut().any(|input| input.send(&frame));
        self.next[place] += u64::from(is_sent);
        is_sent
    }

    fn receive(&mut self) -> Outcome<u64> {
        let (mut frame, mut count) = ([0; 128], 0);
        while let Some(len) = self.output.receive(&mut frame) {
            if len >= 30 {
                count += 1;
                self.judge(&frame)?;
            }
        }
        Ok(count)
    }

    fn judge(&mut self, frame: &[u8; 128]) -> Outcome {
        let number = |at: usize| u64::from_be_bytes(*frame[at..].first_chunk().expect("8 bytes"));
        let (class, count, epoch) = (frame[5] % CLASSES, number(14), number(22) as usize);
        let since = epoch.checked_sub(1).and_then(|epoch| self.may.get(epoch..));
        let may = since.unwrap_or_default().iter().fold(0, |all, may| all | may);
        if may >> class & 1 == 0 {
            return Err(format!(
                "frame {count} of class {class} passed, sent in epoch {epoch} of {}: \
                 {may:#010b} may",
                self.may.len()
            ));
        }
        let last = &mut self.last[usize::from(class)];
        // What comes by two ways has no order.
        if count <= *last && self.inputs.len() == 1 {
            return Err(format!("frame {count} of class {class} came after {last}"));
        }
        *last = count.max(*last);
        Ok(())
    }
}

/// Looks before frames are sent again that must pass.
const ROUNDS: usize = 250;
