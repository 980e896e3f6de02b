//! Maps, jump tables and packets that are made once, and filled again for each run.

use std::ops::ControlFlow;
use std::sync::Arc;

use towpath_bpf::MapDef;
use towpath_bpf::btf::Btf;
use towpath_bpf::interp::Limits;
use towpath_bpf::program::MapType;
use towpath_bpf::verifier::{self, Verified};
use towpath_maps::{AnyEnvironment, Map};
use towpath_xdp::program::Shared;
use towpath_xdp::{Exec, Frame, LoadError, LoadOptions, Program, Worker};

use crate::programs::hostile::{self, Sample};
use crate::random::Random;

/// What programs find around them; one for each thread.
#[derive(Debug)]
pub(super) struct World {
    shared: Shared,
    maps: Vec<Arc<Map>>,
    /// Maps for [`hostile::OUTER`].
    inner: Vec<Arc<Map>>,
    /// Maps for [`hostile::OUTER_ANY`], of several sizes.
    inner_any: Vec<Arc<Map>>,
    /// What is in the jump table beside the program itself.
    targets: Vec<Program>,
    pub(super) worker: Worker,
    pub(super) frame: Frame,
    /// Programs that ran here.
    pub(super) programs: usize,
}

impl World {
    /// Empty maps; the error says what can't be made.
    pub(super) fn new(kernel_btf: &Arc<Btf>) -> Result<World, String> {
        let options = LoadOptions {
            exec: Exec::Interp,
            limits: Limits { insns: INSNS_MAX },
            ..LoadOptions::default()
        };
        let shared = Shared::new(&options);
        let make = |def: &MapDef| {
            let any = Arc::new(AnyEnvironment);
            shared.create_map(def, kernel_btf, any).map_err(|error| error.to_string())
        };
        let maps: Vec<Arc<Map>> = hostile::maps().iter().map(make).collect::<Result<_, _>>()?;
        let inner = [hostile::inner(), hostile::inner()];
        let inner = inner.iter().map(make).collect::<Result<_, _>>()?;
        let inner_any = INNER_SIZES.map(hostile::inner_of);
        let inner_any = inner_any.iter().map(make).collect::<Result<_, _>>()?;
        let mut world = World {
            shared,
            maps,
            inner,
            inner_any,
            targets: Vec::new(),
            worker: Worker::with_seed(0, 0),
            frame: Frame::default(),
            programs: 0,
        };
        for insns in hostile::targets() {
            let sample = Sample::of(insns);
            let (linked, used) = sample.linked(kernel_btf);
            let proof = verifier::verify(linked, &verifier::Options::default());
            let proof = proof.map_err(|rejection| rejection.to_string())?;
            let target = world.load(proof, &used).map_err(|error| error.to_string())?;
            world.targets.push(target);
        }
        Ok(world)
    }

    /// A program over some of the maps. Call [`World::forget`] when it has run.
    pub(super) fn load(&self, proof: Verified, used: &[usize]) -> Result<Program, LoadError> {
        let leads_away = used.contains(&(hostile::PROGRAMS as usize));
        // A run knows the maps of the program it began with.
        let others = OF_TARGETS.iter().filter(|map| leads_away && !used.contains(map));
        let maps = used.iter().chain(others).map(|&map| Arc::clone(&self.maps[map]));
        self.shared.load(proof, maps.collect())
    }

    pub(super) fn forget(&self, program: &Program) {
        self.shared.forget(program);
    }

    /// Fills the maps that a program uses, and those that targets touch on its behalf.
    pub(super) fn fill(&self, program: &Program, used: &[usize], random: &mut Random) {
        let leads_away = used.contains(&(hostile::PROGRAMS as usize));
        for &map in used {
            self.fill_map(map, program, random);
        }
        for &map in OF_TARGETS {
            if leads_away && !used.contains(&map) {
                self.fill_map(map, program, random);
            }
        }
    }

    fn fill_map(&self, index: usize, program: &Program, random: &mut Random) {
        let map = &self.maps[index];
        match index as i32 {
            hostile::PROGRAMS => self.fill_programs(map, program, random),
            hostile::OUTER => fill_outer(map, &self.inner, random),
            hostile::OUTER_ANY => fill_outer(map, &self.inner_any, random),
            hostile::RING => {
                if let Some(ring) = map.ringbuf() {
                    ring.consume(|_| ControlFlow::Continue(()));
                }
            }
            hostile::ARENA => {}
            _ => fill_elements(map, random),
        }
    }

    /// Itself, others, nothing.
    fn fill_programs(&self, map: &Map, program: &Program, random: &mut Random) {
        for slot in 0..hostile::PROGRAM_SLOTS {
            match random.below(6) {
                0 => {
                    let _in_bounds = map.set_program(slot, program.id());
                }
                1..=3 => {
                    let _in_bounds = map.set_program(slot, random.pick(&self.targets).id());
                }
                _ => {
                    let _was_empty = map.user().delete(&slot.to_ne_bytes());
                }
            }
        }
    }
}

/// Every map of `inner`, and none, somewhere.
fn fill_outer(outer: &Map, inner: &[Arc<Map>], random: &mut Random) {
    for key in 0..hostile::INNER_ENTRIES {
        let key = key.to_ne_bytes();
        if random.one_in(4) {
            let _was_empty = outer.user().delete(&key);
        } else {
            let _has_room = outer.insert_inner(&key, random.pick(inner), 0);
        }
    }
    for map in inner {
        fill_elements(map, random);
    }
}

/// Numbers where programs look for them; in maps that need not have them all, some.
fn fill_elements(map: &Map, random: &mut Random) {
    let is_array = matches!(map.kind(), MapType::Array | MapType::PercpuArray);
    let keys = if is_array { map.max_entries().min(KEYS) } else { KEYS };
    let mut value = [0; VALUE_BYTES_MAX];
    let value = &mut value[..map.value_size() as usize];
    for key in 0..keys {
        let key = u64::from(key).to_ne_bytes();
        let key = &key[..map.key_size() as usize];
        let _was_not_there = map.delete(0, key);
        if !is_array && random.one_in(3) {
            continue;
        }
        value.chunks_mut(8).for_each(|word| fill_word(word, random));
        let _has_room = map.update(0, key, value, 0);
    }
}

/// A small number, or one at an edge.
pub(super) fn fill_word(word: &mut [u8], random: &mut Random) {
    let number = match random.below(4) {
        0 | 1 => random.below(70) as u64,
        2 => EDGES[random.below(EDGES.len())],
        _ => random.bits() >> random.below(64),
    };
    let bytes = number.to_ne_bytes();
    let len = word.len();
    word.copy_from_slice(&bytes[..len]);
}

const EDGES: [u64; 14] = [
    0,
    1,
    63,
    64,
    65,
    0x7f,
    0x80,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x8000_0000_0000_0000,
    u64::MAX,
];
/// Values of the maps in [`hostile::OUTER_ANY`]: fewer than the template says, as many, more.
const INNER_SIZES: [u32; 4] = [1, 2, 4, 9];
/// Maps of the programs in jump tables.
const OF_TARGETS: &[usize] =
    &[hostile::PROGRAMS as usize, hostile::SINGLE as usize, hostile::KEEPER as usize];
const KEYS: u32 = 8;
const VALUE_BYTES_MAX: usize = 64;
/// More instructions than any of these programs runs that does not loop for long.
const INSNS_MAX: u64 = 1 << 14;
