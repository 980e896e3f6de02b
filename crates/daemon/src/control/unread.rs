//! Referenced files that cannot be read at the start: the daemon starts without them, reports them,
//! and reads them as soon as possible. Ports that depend on them drop all frames until then.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};
use towpath_host::tables::HostState;

use crate::live::files::{ObjectFiles, load_tables, read_maps};
use crate::live::news::News;
use crate::model::authors::Wanted;
use crate::model::failure::FailureCode;
use crate::model::state::{ProgramState, State};

/// Referenced files that could not be read.
#[derive(Debug, Default, Clone)]
pub struct Unread {
    /// Programs with such files, by their index in the configuration.
    pub(crate) programs: BTreeMap<usize, UnreadProgram>,
    /// Host tables, if their file is one of them.
    pub(crate) host: Option<UnreadHost>,
}

/// A program with an object file or a map file that cannot be read.
#[derive(Debug, Default, Clone)]
pub(crate) struct UnreadProgram {
    /// The reasons, by the path of the file.
    pub(crate) why: BTreeMap<String, String>,
    /// Path of the map file, if that cannot be read.
    pub(crate) maps: Option<PathBuf>,
    key: String,
    object: String,
    /// Hash that is used in place of the object file's: the saved one, or
    /// [`UNREAD`](crate::model::state::UNREAD).
    stand_in: String,
}

/// Host tables whose file cannot be read.
#[derive(Debug, Clone)]
pub(crate) struct UnreadHost {
    pub(crate) path: PathBuf,
    pub(crate) why: String,
    /// Tables that programs see until then: the saved ones, or empty ones.
    pub(crate) stand_in: HostState,
}

/// Reports failures at once, and recoveries after the contents have been applied.
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

    /// Uses the saved versions of files that cannot be read.
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

    /// Reports the files, once their programs have keys.
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

    /// Ends all failures after the configuration was read with all its files.
    pub(crate) fn end(&mut self, news: &News) {
        let all = std::mem::take(self);
        for path in all.programs.into_values().flat_map(|unread| unread.why.into_keys()) {
            news.recovered(FailureCode::Object, &path);
        }
        if let Some(host) = all.host {
            news.recovered(FailureCode::Host, &host.path.display().to_string());
        }
    }

    /// Reads the files again, for the wanted state and for the file's. Returns failures that are
    /// over once the contents are applied.
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
    /// Whether the program is still the unread one, and has not been changed meanwhile.
    fn is_of(&self, program: &ProgramState) -> bool {
        let it = (&program.key, &program.object, &program.sha256);
        it == (&self.key, &self.object, &self.stand_in)
    }

    /// The hash of the object file, and the contents of the map file, if both can be read.
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
