//! Start of a daemon from object files and the saved state.

use std::path::Path;

use crate::control::file::Loaded;
use crate::control::saved::Store;
use crate::live::files::ObjectFiles;
use crate::live::news::News;
use crate::live::{Live, Returning, is_same_program};
use crate::model::authors::Wanted;
use crate::model::failure::FailureCode;
use crate::model::identity;
use crate::model::saved::Document;
use crate::model::state::UNREAD;
use crate::model::state::{ProgramState, State};

/// Merges the saved state in a directory with the configuration file. Returns the wanted state, and
/// the store for further saving.
pub(crate) fn saved(
    dir: &Path,
    loaded: &mut Loaded,
    live: &mut Live,
    objects: &ObjectFiles,
    news: &News,
) -> Result<(Wanted, Store), String> {
    let Loaded { state: file, unread, .. } = loaded;
    let (store, document, troubles) = Store::open(dir)?;
    for (subject, why) in troubles {
        news.failed(FailureCode::Saved, &subject, why);
    }
    let Some(mut document) = document else {
        return Ok((Wanted::of_file(std::mem::take(file)), store));
    };
    store.read_objects(&document, objects);
    identity::adopt(&document.file, &document.wanted, file);
    unread.stand_in(file, &document.file);
    let Document { wanted, file: before, authors, .. } = &document;
    let before = Wanted::restored(wanted.clone(), before.clone(), authors);
    let (wanted, notes) = before.reloaded(std::mem::take(file));
    notes.iter().for_each(|note| news.change(note));
    let (wanted, unfit) = wanted.fitted();
    if !unfit.is_empty() {
        let kept = match store.copy_aside() {
            Ok(aside) => format!("what was saved is kept in {}", aside.display()),
            Err(error) => format!("what was saved can't be kept: {error}"),
        };
        for (what, why) in unfit {
            let why = format!("{why}: {kept}");
            news.failed(FailureCode::Saved, &format!("saved {what}"), why);
        }
    }
    note_running(&mut document, wanted.state());
    live.bring_back(Returning::new(document, store.maps()));
    Ok((wanted, store))
}

/// Notes programs that ran and have changed in the file since. A start loads them first, so that
/// the new programs replace them by the rules of a reload.
fn note_running(document: &mut Document, wanted: &State) {
    let Document { wanted: before, running, .. } = document;
    for program in &before.programs {
        let is_it = |other: &&ProgramState| other.key == program.key;
        let next = wanted.programs.iter().find(is_it);
        let is_changed = next.is_some_and(|next| !is_same_program(program, next));
        if is_changed && program.sha256 != UNREAD && running.iter().all(|it| !is_it(&it)) {
            running.push(program.clone());
        }
    }
}
