//! Files that a configuration names and that can't be read when the daemon starts: it starts
//! without them, says so, and reads them as soon as they can be. What hangs on one drops until
//! then.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};
use towpath_host::tables::HostState;

use crate::live::files::{ObjectFiles, load_tables, read_maps};
use crate::live::news::News;
use crate::model::authors::Wanted;
use crate::model::failure::FailureCode;
use crate::model::state::{ProgramState, State};

/// What couldn't be read.
#[derive(Debug, Default, Clone)]
pub struct Unread {
    /// Of programs, by their place in the configuration.
    pub(crate) programs: BTreeMap<usize, UnreadProgram>,
    /// Tables of the host's.
    pub(crate) host: Option<UnreadHost>,
}

/// A program that has files that can't be read.
#[derive(Debug, Default, Clone)]
pub(crate) struct UnreadProgram {
    /// Its object file's and its map file's names, and why, of those that can't.
    pub(crate) why: BTreeMap<String, String>,
    /// Its file of maps, if that is one of them.
    pub(crate) maps: Option<PathBuf>,
    key: String,
    object: String,
    /// The object's hash that stands for its own: of what was saved, or [`UNREAD`].
    stand_in: String,
}

/// Tables that can't be read.
#[derive(Debug, Clone)]
pub(crate) struct UnreadHost {
    pub(crate) path: PathBuf,
    pub(crate) why: String,
    /// What programs see until then: what was saved, or nothing.
    pub(crate) stand_in: HostState,
}

/// Failures of files are told at once, and that they are over when their contents are in place.
struct Outcome<'a> {
    news: &'a News,
    over: Vec<(FailureCode, String)>,
}

impl Outcome<'_> {
    fn failed(&self, code: FailureCode, subject: &str, why: &str) {
        self.news.failed(code, subject, why);
    }

    fn recovered(&mut self, code: FailureCode, subject: &str) {
        self.over.push((code, subject.to_owned()));
    }
}

impl Unread {
    pub(crate) fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.host.is_none()
    }

    /// Takes what was saved in the place of what can't be read.
    pub(crate) fn stand_in(&mut self, file: &mut State, saved: &State) {
        for (at, unread) in &self.programs {
            let Some(program) = file.programs.get_mut(*at) else { continue };
            let is_it = |it: &&ProgramState| it.key == program.key && it.object == program.object;
            let Some(before) = saved.programs.iter().find(is_it) else { continue };
            program.sha256.clone_from(&before.sha256);
            if unread.maps.is_some() {
                program.maps.clone_from(&before.maps);
            }
        }
        if let Some(host) = &mut self.host {
            host.stand_in = saved.host.clone().unwrap_or_default();
            file.host = Some(host.stand_in.clone());
        }
    }

    /// Tells of them, now that their programs have their keys.
    pub(crate) fn tell(&mut self, file: &State, news: &News) {
        for (at, unread) in &mut self.programs {
            if let Some(program) = file.programs.get(*at) {
                unread.key.clone_from(&program.key);
                unread.object.clone_from(&program.object);
                unread.stand_in.clone_from(&program.sha256);
            }
            unread.why.iter().for_each(|(path, why)| news.failed(FailureCode::Object, path, why));
        }
        if let Some(UnreadHost { path, why, .. }) = &self.host {
            news.failed(FailureCode::Host, &path.display().to_string(), why);
        }
    }

    /// The configuration was read, with all its files.
    pub(crate) fn end(&mut self, news: &News) {
        let all = std::mem::take(self);
        for path in all.programs.into_values().flat_map(|unread| unread.why.into_keys()) {
            news.recovered(FailureCode::Object, &path);
        }
        if let Some(host) = all.host {
            news.recovered(FailureCode::Host, &host.path.display().to_string());
        }
    }

    /// Reads them again, for what is wanted and for what the file wants. Gives failures that are
    /// over when that is in its place.
    pub(crate) fn read_again(
        &mut self,
        wanted: &mut Wanted,
        objects: &ObjectFiles,
        news: &News,
    ) -> Vec<(FailureCode, String)> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut told = Outcome { news, over: Vec::new() };
        let (mut next, mut file) = (State::clone(wanted.state()), State::clone(wanted.file()));
        self.programs.retain(|_, unread| {
            let Some((hash, maps)) = unread.read(objects, &mut told) else { return true };
            for state in [&mut next, &mut file] {
                let mut programs = state.programs.iter_mut();
                let meant = |it: &&mut ProgramState| unread.is_of(it);
                let Some(program) = programs.find(meant) else { continue };
                program.sha256.clone_from(&hash);
                if unread.maps.is_some() {
                    program.maps = Some(maps.clone());
                }
            }
            false
        });
        if let Some(host) = &self.host
            && let Some(read) = host.read(&mut told)
        {
            for state in [&mut next, &mut file] {
                if state.host.as_ref() == Some(&host.stand_in) {
                    state.host = Some(read.clone());
                }
            }
            self.host = None;
        }
        *wanted = wanted.with(next, file);
        told.over
    }
}

impl UnreadProgram {
    /// Nobody meanwhile wanted another one.
    fn is_of(&self, program: &ProgramState) -> bool {
        let it = (&program.key, &program.object, &program.sha256);
        it == (&self.key, &self.object, &self.stand_in)
    }

    /// The object's hash, and what its file of maps says, if both can be read.
    fn read(
        &mut self,
        objects: &ObjectFiles,
        told: &mut Outcome<'_>,
    ) -> Option<(String, Map<String, Json>)> {
        let object = objects.open(Path::new(&self.object));
        let object = self.note(self.object.clone(), object, told);
        let maps = match self.maps.clone() {
            None => Some(Map::new()),
            Some(path) => self.note(path.display().to_string(), read_maps(&path), told),
        };
        Some((object?, maps?))
    }

    fn note<T>(
        &mut self,
        path: String,
        read: Result<T, String>,
        told: &mut Outcome<'_>,
    ) -> Option<T> {
        match read {
            Ok(read) => {
                if self.why.remove(&path).is_some() {
                    told.recovered(FailureCode::Object, &path);
                }
                Some(read)
            }
            Err(why) => {
                told.failed(FailureCode::Object, &path, &why);
                self.why.insert(path, why);
                None
            }
        }
    }
}

impl UnreadHost {
    fn read(&self, told: &mut Outcome<'_>) -> Option<HostState> {
        let subject = self.path.display().to_string();
        match load_tables(&self.path) {
            Ok(read) => {
                told.recovered(FailureCode::Host, &subject);
                Some(read)
            }
            Err(why) => {
                told.failed(FailureCode::Host, &subject, &why.to_string());
                None
            }
        }
    }
}
