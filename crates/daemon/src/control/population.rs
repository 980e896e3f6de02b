//! Memory of large maps is there before the first flows come: a thread makes it be there, a huge
//! page at a time, beside the programs. The kernel allocates it when a map is created; here that
//! takes no time, and a daemon starts at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use towpath_maps::Map;

use crate::control::Control;
use crate::live::memory::{available, gib};
use crate::model::messages::PopulationView;

/// Begins with the maps that there are; those that come later follow. Ends with the daemon.
pub(crate) fn start(control: &Arc<Control>) {
    let control = Arc::downgrade(control);
    let thread = thread::Builder::new().name("maps' memory".to_owned());
    if let Err(error) = thread.spawn(move || watch(&control)) {
        tracing::warn!("memory of maps comes when it is used: no thread for it: {error}");
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

/// All maps, by their numbers in this process. A map that goes is not to wait for its memory, so
/// none is held.
fn known(control: &Control) -> Vec<(u32, Weak<Map>)> {
    let maps = control.read(|inner| inner.live.registry.maps());
    maps.iter().map(|map| (map.id(), Arc::downgrade(map))).collect()
}

/// Name and id of a map, as they are shown. Its number among the process's maps is another one.
fn label(control: &Control, number: u32) -> String {
    let maps = control.read(|inner| inner.session().maps());
    let object = maps.iter().find(|object| object.map().id() == number);
    object.map_or_else(String::new, |it| format!("{} (id {})", it.name(), it.id()))
}

/// Makes all memory of a map be there, if there is enough; holds the map for a step at a time.
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
                "{missing} of its memory come when they are used: {there} are available"
            ));
        }
        map.populate_step();
    }
    Ok(())
}

/// Memory of maps that is being made; none where all is there that is to come.
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

/// How often it is looked for new maps.
const PERIOD: Duration = Duration::from_millis(100);
/// Steps after which it is looked how much memory there is: 64 MiB.
const CHECK_STEPS: u32 = 32;
/// What is left to others.
const LEFT_BYTES: u64 = 256 << 20;
const _: () = assert!(
    CHECK_STEPS as u64 * (2 << 20) < LEFT_BYTES,
    "no more is taken between two looks than is left"
);
