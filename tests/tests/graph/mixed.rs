//! Bursts on whose frames programs do not agree: each frame goes where its own verdict leads, and
//! those that go to the same place keep their order.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use towpath_bpf::program::MapType;
use towpath_engine::Hook;
use towpath_engine::port::{Device as _, Tx};
use towpath_ports::pair::{self, Pair};
use towpath_workload::random::Random;
use towpath_workload::small;
use towpath_xdp::{Frame, Pool};

use crate::counting::Sends;
use crate::{Lab, link, load, set_entry, wait_for};

/// Keeps the numbers of the frames that it is given.
#[derive(Debug, Default, Clone)]
struct Noting(Arc<Mutex<Vec<u32>>>);

impl Noting {
    fn take(&self) -> Vec<u32> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Tx for Noting {
    fn transmit(&mut self, frames: &mut Vec<Frame>, pool: &mut Pool) -> io::Result<()> {
        self.0.lock().extend(frames.iter().map(number));
        pool.give_all(frames);
        Ok(())
    }

    fn credit(&mut self) -> usize {
        usize::MAX
    }
}

/// Instructions in a packet for the programs, in its bytes from 14 on.
#[derive(Clone, Copy)]
struct Says {
    /// The second program's verdict where the map has no entry.
    otherwise: u8,
    key: u8,
    /// The first program's verdict.
    first: u8,
}

fn packet(says: Says, number: u32) -> Vec<u8> {
    let mut packet = crate::packet();
    packet[14..17].copy_from_slice(&[says.otherwise, says.key, says.first]);
    packet[20..24].copy_from_slice(&number.to_ne_bytes());
    packet
}

fn number(frame: &Frame) -> u32 {
    let bytes = frame.to_vec();
    u32::from_ne_bytes(bytes[20..24].try_into().unwrap())
}

/// The port that a frame goes to: the upper, its own port, or one of the map; `None` if dropped.
fn place(says: Says, goes_on: u32) -> Option<usize> {
    let verdict = match says.first {
        first if goes_on >> first & 1 == 1 => match says.key {
            key @ 0..KEYS => return Some(2 + usize::from(key % PORTS)),
            _ => says.otherwise,
        },
        first => first,
    };
    match verdict {
        2 => Some(0),
        3 => Some(1),
        _ => None,
    }
}

/// Keys of the map, and ports that they lead to: some share one, and they are more than a worker
/// deals a burst out to.
const KEYS: u8 = 12;
const PORTS: u8 = 10;

/// A burst in the way of a firewall, of one frame that is different, or of anything.
fn burst(random: &mut Random) -> Vec<Says> {
    let any = |random: &mut Random| Says {
        otherwise: random.below(4) as u8,
        key: random.below(usize::from(KEYS + 4)) as u8,
        first: *random.pick(&[0, 1, 2, 2, 2, 3]),
    };
    let len = random.below(64) + 1;
    let (one, kind) = (any(random), random.below(4));
    let mut all: Vec<Says> = match kind {
        0 => (0..len).map(|_| any(random)).collect(),
        1 => (0..len).map(|_| Says { first: *random.pick(&[1, 2]), ..one }).collect(),
        2 => {
            let keys = *random.pick(&[3, 8, KEYS.into()]);
            (0..len).map(|_| Says { key: random.below(keys) as u8, first: 2, ..one }).collect()
        }
        _ => vec![one; len],
    };
    if kind == 3 {
        let at = random.below(len);
        all[at] = any(random);
    }
    all
}

/// The second program gets frames that the first one passed, or also those that it dropped.
#[test]
fn mixed_bursts_go_where_each_frame_is_to_go() {
    for goes_on in [1 << 2, 1 << 2 | 1 << 1] {
        let (lab, mut random) = (Lab::new(), Random::new(u64::from(goes_on)));
        let (near, far) = Pair::new(pair::Options::default());
        let from = lab.add("near", 11, Box::new(near));
        let ports: [Noting; 1 + PORTS as usize] = Default::default();
        for (ifindex, port) in (12..).zip(&ports) {
            lab.add(&format!("to{ifindex}"), ifindex, Box::new(Sends(port.clone())));
        }
        lab.upper(from, "to12");
        let second = load(small::redirect_map_by_bytes(MapType::Devmap, 16));
        let port = |key| 13 + key % u32::from(PORTS);
        (0..KEYS.into()).for_each(|key| set_entry(&second, key, [port(key), 0]));
        let mut links = vec![link(&load(small::returns_byte(16))), link(&second)];
        (links[0].priority, links[0].chain_call_actions) = (1, goes_on);
        lab.engine.change(|config| config.set_links(from, Hook::Rx, links)).unwrap();

        let arena = lab.engine.arena();
        let mut pool = Pool::new(arena);
        let (mut tx, mut rx) = (far.open_tx(0, arena).unwrap(), far.open_rx(0, arena).unwrap());
        let (mut sent, mut back) = (0, Vec::new());
        for round in 0..300 {
            let all = burst(&mut random);
            let mut wanted: [Vec<u32>; 2 + PORTS as usize] = Default::default();
            let mut frames = Vec::new();
            for (number, &says) in (0..).zip(&all) {
                frames.extend(pool.frame(&packet(says, number)).unwrap());
                place(says, goes_on).into_iter().for_each(|place| wanted[place].push(number));
            }
            sent += frames.len() as u64;
            tx.transmit(&mut frames, &mut pool).unwrap();
            tx.flush(&mut pool).unwrap();
            wait_for("the burst", || lab.sum(from, |it| it.rx_packets.get()) == sent);
            wait_for("its frames", || lab.engine.conservation().is_settled());
            while rx.receive(&mut pool, &mut back, 64).unwrap() > 0 {}
            let returned: Vec<u32> = back.iter().map(number).collect();
            pool.give_all(&mut back);
            let mut found = ports.each_ref().map(Noting::take).to_vec();
            found.insert(1, returned);
            assert_eq!(found, wanted, "{goes_on} {round}");
        }
        drop(pool);
        lab.check_conservation();
    }
}
