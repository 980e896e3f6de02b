//! Population of the memory of large maps before the first flows arrive: a thread touches one huge
//! page at a time, while programs run. The kernel allocates this memory when a map is created;
//! here, creation takes no time, and the daemon starts at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use towpath_maps::Map;

use crate::control::Control;
use crate::live::memory::{available, gib};
use crate::model::messages::PopulationView;

/// Starts the thread, which populates existing and later maps, and ends with the daemon.
pub(crate) fn start(control: &Arc<Control>) {
    let control = Arc::downgrade(control);
    let thread = thread::Builder::new().name("maps' memory".to_owned());
    if let Err(error) = thread.spawn(move || watch(&control)) {
        tracing::warn!("the memory of maps is not allocated in advance: no thread: {error}");
    }
}

fn watch(control: &Weak<Control>) {
    loop {
        let Some(there) = control.upgrade() else { return };
        let maps = known(&there);
        let news = Arc::clone(&there.news);
        drop(there);
        news.unpopulated.lock().retain(|number, _| maps.iter().any(|(known, _)| known == number));
        for (number, map) in maps {
            if news.unpopulated.lock().contains_key(&number) {
                continue;
            }
            if let Err(why) = populate(&map) {
                let Some(there) = control.upgrade() else { return };
                let why = format!("map {}: {why}", label(&there, number));
                tracing::warn!("{why}");
                news.unpopulated.lock().insert(number, why);
            }
        }
        thread::sleep(PERIOD);
    }
}

/// All maps, by their numbers in this process. References are weak, so that a map can be freed
/// while its memory is populated.
fn known(control: &Control) -> Vec<(u32, Weak<Map>)> {
    let maps = control.read(|inner| inner.live.registry.maps());
    maps.iter().map(|map| (map.id(), Arc::downgrade(map))).collect()
}

/// A map's name and id for messages. The id differs from the map's number in this process.
fn label(control: &Control, number: u32) -> String {
    let maps = control.read(|inner| inner.session().maps());
    let object = maps.iter().find(|object| object.map().id() == number);
    object.map_or_else(String::new, |it| format!("{} (id {})", it.name(), it.id()))
}

/// Populates all memory of a map, if enough is available; holds the map for one step at a time.
fn populate(map: &Weak<Map>) -> Result<(), String> {
    for step in 0.. {
        let Some(map) = map.upgrade() else { return Ok(()) };
        let Some((done, all)) = map.population().filter(|(done, all)| done < all) else {
            return Ok(());
        };
        if step % CHECK_STEPS == 0
            && let Some(there) = available()
            && all - done + LEFT_BYTES > there
        {
            let (missing, there) = (gib(all - done), gib(there));
            return Err(format!(
                "{missing} of its memory are allocated at their first use: only {there} are \
                 available"
            ));
        }
        map.populate_step();
    }
    Ok(())
}

/// Progress of the population; `None` if it is complete.
pub(crate) fn view<'a>(
    maps: impl Iterator<Item = &'a Map>,
    unpopulated: &BTreeMap<u32, String>,
) -> Option<PopulationView> {
    let mut view = PopulationView::default();
    for map in maps.filter(|map| !unpopulated.contains_key(&map.id())) {
        if let Some((done, all)) = map.population().filter(|(done, all)| done < all) {
            view.maps += 1;
            view.bytes_done += done;
            view.bytes += all;
        }
    }
    (view.maps > 0).then_some(view)
}

/// Interval at which the thread looks for new maps.
const PERIOD: Duration = Duration::from_millis(100);
/// Steps between two checks of the available memory: 64 MiB.
const CHECK_STEPS: u32 = 32;
/// Memory in bytes that must stay available to other processes.
const LEFT_BYTES: u64 = 256 << 20;
const _: () = assert!(
    CHECK_STEPS as u64 * (2 << 20) < LEFT_BYTES,
    "no more is taken between two looks than is left"
);
