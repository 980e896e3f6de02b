//! What a daemon that starts finds: object files, and what was saved before.

use std::collections::BTreeMap;
use std::path::Path;

use crate::control::News;
use crate::failure::FailureCode;
use crate::file::{Loaded, ObjectFiles, UNREAD};
use crate::identity;
use crate::live::{Live, Returning};
use crate::saved::Store;
use crate::state::{ProgramState, State};

/// Object files that can't be read, with the hashes that stand for them by now: others that were
/// saved, or none.
pub(crate) fn unread(loaded: &Loaded, news: &News) -> BTreeMap<String, String> {
    let hash = |path: &String| {
        let program = loaded.state.programs.iter().find(|it| it.object == *path);
        (path.clone(), program.map(|it| it.sha256.clone()).unwrap_or_default())
    };
    for (path, why) in &loaded.unread {
        news.failed(FailureCode::Object, path, why);
    }
    loaded.unread.keys().map(hash).collect()
}

/// What was saved in a directory, as far as the file did not change since, and who saves more.
pub(crate) fn saved(
    dir: &Path,
    file: &mut State,
    live: &mut Live,
    objects: &ObjectFiles,
    news: &News,
) -> Result<(State, Store), String> {
    let (store, document, troubles) = Store::open(dir)?;
    for line in troubles {
        news.failed(FailureCode::Saved, &format!("{}", dir.display()), line);
    }
    let Some(document) = document else { return Ok((file.clone(), store)) };
    store.read_objects(&document, objects);
    identity::adopt(&document.file, file);
    for program in file.programs.iter_mut().filter(|it| it.sha256 == UNREAD) {
        let is_it = |it: &&ProgramState| it.key == program.key && it.object == program.object;
        if let Some(before) = document.file.programs.iter().find(is_it) {
            program.sha256.clone_from(&before.sha256);
        }
    }
    let mut wanted = document.wanted.rebase(&document.file, file);
    let unfit = wanted.take_unfit(file);
    if !unfit.is_empty() {
        let aside = store.copy_aside().map_err(|error| format!("[state]: {error}"))?;
        for (what, why) in unfit {
            let why = format!("{why}: what was saved is kept in {}", aside.display());
            news.failed(FailureCode::Saved, &format!("saved {what}"), why);
        }
    }
    live.bring_back(Returning::new(document, store.maps()));
    Ok((wanted, store))
}
