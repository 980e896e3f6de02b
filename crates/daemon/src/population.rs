//! Memory of large maps is there before the first flows come: a thread makes it be there, a huge
//! page at a time, beside the programs. The kernel allocates it when a map is created; here that
//! takes no time, and a daemon starts at once.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use towpath_maps::Map;

use crate::control::Control;
use crate::memory::{available, gib};

/// Begins with the maps that there are; those that come later follow. Ends with the daemon.
pub(crate) fn start(control: &Arc<Control>) {
    let control = Arc::downgrade(control);
    let thread = thread::Builder::new().name("maps' memory".to_owned());
    if let Err(error) = thread.spawn(move || watch(&control)) {
        tracing::warn!("memory of maps comes when it is used: no thread for it: {error}");
    }
}

fn watch(control: &Weak<Control>) {
    // Where there is not enough: memory comes when it is used.
    let mut left_alone = BTreeSet::new();
    loop {
        let Some(there) = control.upgrade() else { return };
        let maps = there.read(|inner| inner.live.registry.maps());
        drop(there);
        left_alone.retain(|id| maps.iter().any(|map| map.id() == *id));
        let maps: Vec<Weak<Map>> = maps.iter().map(Arc::downgrade).collect();
        for map in maps {
            if let Err((id, why)) = populate(&map, &left_alone) {
                tracing::warn!("{why}");
                left_alone.insert(id);
            }
        }
        thread::sleep(PERIOD);
    }
}

/// Makes all memory of a map be there, if there is enough; holds the map for a step at a time.
fn populate(map: &Weak<Map>, left_alone: &BTreeSet<u32>) -> Result<(), (u32, String)> {
    for step in 0.. {
        let Some(map) = map.upgrade() else { return Ok(()) };
        let population = map.population().filter(|(done, all)| done < all);
        let Some((done, all)) = population.filter(|_| !left_alone.contains(&map.id())) else {
            return Ok(());
        };
        if step % CHECK_STEPS == 0
            && let Some(there) = available()
            && all - done + LEFT_BYTES > there
        {
            let (name, missing) = (map.name(), gib(all - done));
            let why = format!(
                "map {name}: {missing} of its memory come when they are used: {} are available",
                gib(there)
            );
            return Err((map.id(), why));
        }
        map.populate_step();
    }
    Ok(())
}

/// How often it is looked for new maps.
const PERIOD: Duration = Duration::from_millis(100);
/// Steps after which it is looked how much memory there is: 64 MiB.
const CHECK_STEPS: u32 = 32;
/// What is left to others.
const LEFT_BYTES: u64 = 256 << 20;
