//! The configuration file: parsing of TOML into settings of the daemon and a wanted state.
//!
//! Changes that wait for a restart are found by `Settings::differences` (`model/settings.rs`), and
//! for workers and frames by `Live::reconcile_within` (`live/mod.rs`).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value as Json};
use towpath_bpf::suggest;
use towpath_document::Problem;
use towpath_document::{Document, Position, typed};
use towpath_host::tables::HostState;

use crate::control::unread::{Unread, UnreadHost, UnreadProgram};
use crate::live::cpus;
use crate::live::keys::read_keys;
use crate::model::access;
use crate::model::ipsec::{SaState, suite};
use crate::model::kinds;
use crate::model::map_metric::{MapMetric, MapMetricKeys};
use crate::model::settings::{HttpSettings, Settings, StateSettings, Token};
use crate::model::state::{
    AttachState, ExecState, HookState, MigrateState, OnFailure, ProgramState, State, TrustState,
    WorkerState,
};
use crate::model::validate::WORKERS_MAX;

pub use crate::live::files::{ObjectFiles, sha256};
use crate::live::files::{load_tables, read_maps, read_text};
use crate::model::identity::free_key;
use crate::model::state::UNREAD;

/// The contents of a configuration file.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// Settings of the daemon itself.
    pub settings: Settings,
    /// The wanted state.
    pub state: State,
    /// Referenced files that could not be read, with the reasons; only at a start.
    pub unread: Unread,
}

/// All errors of a file.
#[derive(Debug, thiserror::Error)]
#[error("{}", .lines.join("\n"))]
pub struct FileError {
    /// One line for each error: `FILE:LINE:COLUMN: message`.
    pub lines: Vec<String>,
}

/// Reads and checks a file, and the object files that it names.
///
/// # Errors
///
/// Fails with all errors, not only the first.
pub fn load(path: &Path, objects: &ObjectFiles) -> Result<Loaded, FileError> {
    let text = read_text(path, CONFIG_BYTES_MAX);
    let text = text.map_err(|message| FileError { lines: vec![message] })?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    parse(&text, path, dir.unwrap_or(Path::new(".")), objects)
}

/// As [`load`], for a start of the daemon: unreadable object files, map files and host tables are
/// not errors, so that other ports work. Programs that need them have the hash [`UNREAD`].
///
/// # Errors
///
/// Fails with all other errors.
pub fn load_at_start(path: &Path, objects: &ObjectFiles) -> Result<Loaded, FileError> {
    let text = read_text(path, CONFIG_BYTES_MAX);
    let text = text.map_err(|message| FileError { lines: vec![message] })?;
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    parse_as(&text, path, dir.unwrap_or(Path::new(".")), objects, true)
}

/// As [`load`], for a text in memory; relative paths of object files begin at `dir`.
///
/// # Errors
///
/// Fails with all errors.
pub fn parse(
    text: &str,
    path: &Path,
    dir: &Path,
    objects: &ObjectFiles,
) -> Result<Loaded, FileError> {
    parse_as(text, path, dir, objects, false)
}

fn parse_as(
    text: &str,
    path: &Path,
    dir: &Path,
    objects: &ObjectFiles,
    is_start: bool,
) -> Result<Loaded, FileError> {
    let document = Document::parse(text)
        .map_err(|(place, message)| FileError { lines: vec![line(path, place, &message)] })?;
    let mut reader = Reader {
        dir,
        objects,
        problems: Vec::new(),
        origins: BTreeMap::new(),
        unread: is_start.then(Unread::default),
    };
    let mut loaded = reader.read(&document.json);
    let Reader { mut problems, origins, unread, .. } = reader;
    loaded.unread = unread.unwrap_or_default();
    if problems.is_empty() {
        problems = loaded.state.problems();
    }
    if problems.is_empty() {
        return Ok(loaded);
    }
    let tell = |problem: Problem| {
        let in_file = in_file(&problem.path, &origins);
        let place = document.place(&in_file);
        let text = Problem::new(in_file, problem.message).to_string();
        (place.map(|place| (place.line, place.column)), line(path, place, &text))
    };
    let mut placed: Vec<_> = problems.into_iter().map(tell).collect();
    placed.sort();
    Err(FileError { lines: placed.into_iter().map(|(_, line)| line).collect() })
}

fn line(path: &Path, place: Option<Position>, message: &str) -> String {
    match place {
        Some(Position { line, column }) => format!("{}:{line}:{column}: {message}", path.display()),
        None => format!("{}: {message}", path.display()),
    }
}

/// The path in the file that a path in the state came from.
fn in_file(path: &str, origins: &BTreeMap<String, String>) -> String {
    let end = path.find(['.']).unwrap_or(path.len());
    let (head, tail) = path.split_at(end);
    let head = match origins.get(head) {
        Some(origin) => origin.clone(),
        None => {
            let named = [
                ("ports[", "port["),
                ("bridges[", "bridge["),
                ("workers[", "worker["),
                ("sas[", "sa["),
                ("policies[", "policy["),
            ];
            let found = named.iter().find(|(ours, _)| head.starts_with(ours));
            found.map_or(head.to_owned(), |(ours, theirs)| head.replacen(ours, theirs, 1))
        }
    };
    let tail = tail.replacen(".options.", ".", 1);
    if head == "frames" { "engine.frames".to_owned() } else { format!("{head}{tail}") }
}

struct Reader<'a> {
    dir: &'a Path,
    objects: &'a ObjectFiles,
    problems: Vec<Problem>,
    /// Paths in the file, by paths in the state: `attach[1]` for `attachments[3]`.
    origins: BTreeMap<String, String>,
    /// Referenced files that cannot be read; `None` if these are errors.
    unread: Option<Unread>,
}

impl Reader<'_> {
    fn read(&mut self, json: &Map<String, Json>) -> Loaded {
        let mut loaded = Loaded { state: State::new(), ..Loaded::default() };
        let mut workers = None;
        for (key, value) in json {
            match key.as_str() {
                "api" => self.api(value, &mut loaded.settings),
                "xsk" => self.xsk(value, &mut loaded.settings),
                "metrics" => self.metrics(value, &mut loaded.settings),
                "state" => self.state(value, &mut loaded.settings),
                "engine" => {
                    let engine: Option<EngineKeys> = self.section(key, value);
                    loaded.state.frames = engine.as_ref().and_then(|engine| engine.frames);
                    loaded.state.stuck_ms = engine.as_ref().and_then(|engine| engine.stuck_ms);
                    workers = engine.and_then(|engine| engine.workers);
                }
                "host" => loaded.state.host = self.host(value),
                "worker" => loaded.state.workers = self.list(key, value, typed),
                "bridge" => loaded.state.bridges = self.list(key, value, typed),
                "port" => {
                    loaded.state.ports = self.list(key, value, |json| match json {
                        Json::Object(table) => kinds::port_from_table(table),
                        _ => Err(Problem::new("", "expected a table: [[port]]")),
                    });
                }
                "sa" => loaded.state.sas = self.sas(value),
                "policy" => loaded.state.policies = self.list(key, value, typed),
                "attach" => {
                    let attach: Vec<AttachKeys> = self.list(key, value, typed);
                    for (index, keys) in attach.iter().enumerate() {
                        self.attach(index, keys, &mut loaded.state);
                    }
                }
                _ => {
                    let hint = suggest::among(key, SECTIONS);
                    self.problems.push(Problem::new(key, format!("no such section{hint}")));
                }
            }
        }
        if let Some(workers) = workers {
            self.workers(workers, &mut loaded.state.workers);
        }
        loaded
    }

    /// Reads SAs, and checks that their keys can be read. At a start that is not needed: an SA
    /// without keys is a failure, and is tried again.
    fn sas(&mut self, value: &Json) -> Vec<SaState> {
        let dir = self.dir;
        let mut all: Vec<SaState> = self.list("sa", value, typed);
        let is_whole = value.as_array().is_some_and(|items| items.len() == all.len());
        for (index, sa) in all.iter_mut().enumerate() {
            let path = dir.join(&sa.key_file);
            let path = std::path::absolute(&path).unwrap_or(path);
            sa.key_file = path.display().to_string();
            if let (Ok(suite), None, true) = (suite(&sa.suite), &self.unread, is_whole)
                && let Err(message) = read_keys(&path, suite)
            {
                self.problems.push(Problem::new(format!("sa[{index}].key_file"), message));
            }
        }
        all
    }

    /// Sets the number of workers; `[[worker]]` describes the first of them.
    fn workers(&mut self, wanted: WorkersKey, workers: &mut Vec<WorkerState>) {
        let count = match wanted {
            WorkersKey::Word(WorkersWord::Auto) => cpus::workers().max(workers.len()),
            WorkersKey::Count(count) => count,
        };
        let message = match count {
            1..=WORKERS_MAX if workers.len() > count => {
                format!("there are {} [[worker]] sections, which are more", workers.len())
            }
            1..=WORKERS_MAX => return workers.resize(count, WorkerState::default()),
            _ => format!("expected \"auto\" or a number of workers, 1 to {WORKERS_MAX}"),
        };
        self.problems.push(Problem::new("engine.workers", message));
    }

    fn section<T: serde::de::DeserializeOwned>(&mut self, key: &str, value: &Json) -> Option<T> {
        match typed(value.clone()) {
            Ok(section) => Some(section),
            Err(problem) => {
                self.problems.push(problem.inside(key));
                None
            }
        }
    }

    fn list<T>(
        &mut self,
        key: &str,
        value: &Json,
        read: impl Fn(Json) -> Result<T, Problem>,
    ) -> Vec<T> {
        let Json::Array(items) = value else {
            let message = format!("expected [[{key}]], with two brackets: there may be several");
            self.problems.push(Problem::new(key, message));
            return Vec::new();
        };
        let mut list = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match read(item.clone()) {
                Ok(item) => list.push(item),
                Err(problem) => self.problems.push(problem.inside(&format!("{key}[{index}]"))),
            }
        }
        list
    }

    fn api(&mut self, value: &Json, settings: &mut Settings) {
        let Some(keys) = self.section::<ApiKeys>("api", value) else { return };
        if let Some(socket) = keys.socket {
            settings.socket = socket;
        }
        if let Some(mode) = keys.mode {
            self.mode("api.mode", &mode, &mut settings.mode);
        }
        settings.group = keys.group.and_then(|group| self.group("api.group", &group));
        let ApiKeys { http, token_file, http_names, .. } = keys;
        match http {
            Some(http) => settings.http = self.http(&http, token_file.as_deref(), http_names),
            None if token_file.is_some() || http_names.is_some() => {
                let message = "it has no effect without http = ADDRESS:PORT";
                self.problems.push(Problem::new("api", message.to_owned()));
            }
            None => {}
        }
    }

    fn http(
        &mut self,
        address: &str,
        token_file: Option<&Path>,
        names: Option<Vec<String>>,
    ) -> Option<HttpSettings> {
        let Ok(address) = address.parse::<SocketAddr>() else {
            let message =
                format!("\"{address}\" is not an address and port, like \"127.0.0.1:8480\"");
            self.problems.push(Problem::new("api.http", message));
            return None;
        };
        let path = token_file.map(|name| self.dir.join(name));
        let token = path.as_ref().map(|path| read_token(path)).transpose();
        let unread_token = path.filter(|_| token.is_err() && self.unread.is_some());
        let token = match token {
            Ok(token) => token,
            Err(_later) if unread_token.is_some() => None,
            Err(message) => {
                self.problems.push(Problem::new("api.token_file", message));
                return None;
            }
        };
        let has_token = token.is_some() || unread_token.is_some();
        if !has_token && !address.ip().is_loopback() {
            let message = format!(
                "{address} can be reached from other machines: that needs a token (token_file)"
            );
            self.problems.push(Problem::new("api.http", message));
        }
        Some(HttpSettings { address, token, unread_token, names: names.unwrap_or_default() })
    }

    fn xsk(&mut self, value: &Json, settings: &mut Settings) {
        let Some(keys) = self.section::<XskKeys>("xsk", value) else { return };
        settings.xsk = keys.socket;
        if let Some(mode) = keys.mode {
            self.mode("xsk.mode", &mode, &mut settings.xsk_mode);
        }
        settings.xsk_group = keys.group.and_then(|group| self.group("xsk.group", &group));
    }

    fn host(&mut self, value: &Json) -> Option<HostState> {
        let Json::Object(table) = value else { return self.section("host", value) };
        let Some(Json::String(name)) = table.get("tables") else {
            return self.section("host", value);
        };
        if table.len() > 1 {
            let message = "tables are in a file or here, not both".to_owned();
            self.problems.push(Problem::new("host.tables", message));
            return None;
        }
        let path = self.dir.join(name);
        match (load_tables(&path), &mut self.unread) {
            (Ok(read), _) => Some(read),
            (Err(why), Some(unread)) => {
                let stand_in = HostState::default();
                unread.host = Some(UnreadHost { path, why, stand_in: stand_in.clone() });
                Some(stand_in)
            }
            (Err(message), None) => {
                self.problems.push(Problem::new("host.tables", message));
                None
            }
        }
    }

    fn mode(&mut self, key: &str, text: &str, mode: &mut u32) {
        match access::parse_mode(text) {
            Ok(bits) => *mode = bits,
            Err(message) => self.problems.push(Problem::new(key, message)),
        }
    }

    fn group(&mut self, key: &str, name: &str) -> Option<u32> {
        match access::find_group(name) {
            Ok(group) => Some(group),
            Err(message) => {
                self.problems.push(Problem::new(key, message));
                None
            }
        }
    }

    fn metrics(&mut self, value: &Json, settings: &mut Settings) {
        let Some(keys) = self.section::<MetricsKeys>("metrics", value) else { return };
        match keys.listen.parse() {
            Ok(address) => settings.metrics = Some(address),
            Err(_no_address) => {
                let text = keys.listen;
                let message =
                    format!("\"{text}\" is not an address and port, like \"127.0.0.1:9464\"");
                self.problems.push(Problem::new("metrics.listen", message));
            }
        }
        for (index, keys) in keys.map.into_iter().enumerate() {
            let here = format!("metrics.map[{index}]");
            match MapMetric::new(keys) {
                Ok(metric) if settings.map_metrics.iter().any(|it| it.name() == metric.name()) => {
                    let message = format!(
                        "the name \"{}\" is taken: give this one another name",
                        metric.name()
                    );
                    self.problems.push(Problem::new(format!("{here}.name"), message));
                }
                Ok(metric) => settings.map_metrics.push(metric),
                Err(problem) => self.problems.push(problem.inside(&here)),
            }
        }
    }

    fn state(&mut self, value: &Json, settings: &mut Settings) {
        let Some(keys) = self.section::<StateKeys>("state", value) else { return };
        if keys.interval == 0 {
            let message = "contents are saved at most once a second".to_owned();
            self.problems.push(Problem::new("state.interval", message));
        }
        let interval = Duration::from_secs(keys.interval);
        settings.state = Some(StateSettings { dir: self.dir.join(keys.dir), interval });
    }

    /// Notes that a program's file cannot be read, or reports that as an error.
    fn unread_of(
        &mut self,
        at: usize,
        path: &str,
        message: String,
        key: &str,
    ) -> Option<&mut UnreadProgram> {
        let Some(unread) = &mut self.unread else {
            self.problems.push(Problem::new(key, message));
            return None;
        };
        let program = unread.programs.entry(at).or_default();
        program.why.insert(path.to_owned(), message);
        Some(program)
    }

    /// Initial contents of a program's maps. A program whose map file cannot be read is not loaded,
    /// since the file may determine what the program filters.
    fn maps(
        &mut self,
        at: usize,
        keys: &AttachKeys,
        sha256: &mut String,
        here: &str,
    ) -> Option<Map<String, Json>> {
        let name = match keys.maps.as_ref()? {
            MapsKey::Table(table) => return Some(table.clone()),
            MapsKey::File(name) => name,
        };
        let path = self.dir.join(name);
        let message = match read_maps(&path) {
            Ok(maps) => return Some(maps),
            Err(message) => message,
        };
        let unread =
            self.unread_of(at, &path.display().to_string(), message, &format!("{here}.maps"));
        if let Some(unread) = unread {
            unread.maps = Some(path);
            UNREAD.clone_into(sha256);
        }
        None
    }

    /// Converts an `[[attach]]` to one program, and an attachment for each port.
    fn attach(&mut self, index: usize, keys: &AttachKeys, state: &mut State) {
        let here = format!("attach[{index}]");
        let path = self.dir.join(&keys.object);
        let read = self.objects.open(&path);
        let object = std::path::absolute(&path).unwrap_or(path).display().to_string();
        let at = state.programs.len();
        let mut sha256 = read.unwrap_or_else(|message| {
            self.unread_of(at, &object, message, &format!("{here}.object"));
            UNREAD.to_owned()
        });
        let maps = self.maps(at, keys, &mut sha256, &here);
        let ports = match &keys.port {
            PortKey::One(port) => std::slice::from_ref(port),
            PortKey::Several(ports) => ports,
        };
        let section = keys.hook.section(keys.program.as_deref(), keys.section.as_deref());
        let base = match keys.program.as_ref().or(section.as_ref()) {
            Some(program) => format!("{}:{program}", keys.object.display()),
            None => keys.object.display().to_string(),
        };
        if let Some(name) = &keys.name
            && state.programs.iter().any(|it| it.name.as_ref() == Some(name))
        {
            let message = format!("the name \"{name}\" is taken");
            self.problems.push(Problem::new(format!("{here}.name"), message));
        }
        let key = free_key(keys.name.as_ref().unwrap_or(&base), &state.programs);
        self.origins.insert(format!("programs[{}]", state.programs.len()), here.clone());
        state.programs.push(ProgramState {
            key: key.clone(),
            name: keys.name.clone(),
            object,
            sha256,
            program: keys.program.clone(),
            section,
            set: keys.set.iter().map(|(name, value)| (name.clone(), plain(value))).collect(),
            map_sizes: keys.map_sizes.clone(),
            maps,
            shared_maps: keys.shared_maps.clone(),
            fresh_maps: keys.fresh_maps,
            map_migrate: keys.map_migrate.clone(),
            map_rename: keys.map_rename.clone(),
            lossy: keys.lossy,
            exec: keys.exec,
            trust: keys.trust,
            bound_to: ports.first().filter(|_| keys.dev_bound).cloned(),
            ..ProgramState::default()
        });
        for port in ports {
            self.origins.insert(format!("attachments[{}]", state.attachments.len()), here.clone());
            state.attachments.push(AttachState {
                program: key.clone(),
                port: port.clone(),
                hook: keys.hook,
                prio: keys.prio,
                actions: keys.actions.clone(),
                on_failure: keys.on_failure,
            });
        }
    }
}

/// Reads the token, which grants full access. A file that every user can read is refused.
pub(crate) fn read_token(path: &Path) -> Result<Token, String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = read_text(path, TOKEN_BYTES_MAX)?;
    let meta = std::fs::metadata(path).map_err(|error| said(&error))?;
    if meta.permissions().mode() & 0o004 != 0 {
        return Err(said(&"every user can read it: chmod 600"));
    }
    Token::new(&text).map_err(|why| said(&why))
}

/// The value of a global variable as text, in the format of `--set`.
fn plain(value: &Json) -> String {
    match value {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EngineKeys {
    workers: Option<WorkersKey>,
    frames: Option<usize>,
    stuck_ms: Option<u64>,
}

/// The key `workers`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged, expecting = "expected \"auto\" or a number of workers, 1 to 256")]
enum WorkersKey {
    Count(usize),
    Word(WorkersWord),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum WorkersWord {
    Auto,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApiKeys {
    socket: Option<PathBuf>,
    mode: Option<String>,
    group: Option<String>,
    http: Option<String>,
    token_file: Option<PathBuf>,
    http_names: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct XskKeys {
    socket: Option<PathBuf>,
    mode: Option<String>,
    group: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MetricsKeys {
    listen: String,
    #[serde(default)]
    map: Vec<MapMetricKeys>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StateKeys {
    #[serde(default = "state_dir")]
    dir: PathBuf,
    #[serde(default = "state_interval")]
    interval: u64,
}

fn state_dir() -> PathBuf {
    PathBuf::from(STATE_DIR)
}

fn state_interval() -> u64 {
    STATE_INTERVAL_SECONDS
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttachKeys {
    port: PortKey,
    name: Option<String>,
    object: PathBuf,
    program: Option<String>,
    section: Option<String>,
    #[serde(default)]
    hook: HookState,
    prio: Option<u32>,
    actions: Option<Vec<String>>,
    #[serde(default)]
    on_failure: OnFailure,
    #[serde(default)]
    set: Map<String, Json>,
    #[serde(default)]
    map_sizes: BTreeMap<String, u32>,
    maps: Option<MapsKey>,
    #[serde(default)]
    shared_maps: BTreeMap<String, String>,
    #[serde(default)]
    fresh_maps: bool,
    #[serde(default)]
    map_migrate: BTreeMap<String, MigrateState>,
    #[serde(default)]
    map_rename: BTreeMap<String, String>,
    #[serde(default)]
    lossy: bool,
    exec: Option<ExecState>,
    #[serde(default)]
    trust: TrustState,
    #[serde(default)]
    dev_bound: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a port's name, or a list of names")]
enum PortKey {
    One(String),
    Several(Vec<String>),
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected the name of a map file, or a table of maps")]
enum MapsKey {
    File(PathBuf),
    Table(Map<String, Json>),
}

const SECTIONS: [&str; 12] = [
    "api", "xsk", "metrics", "state", "engine", "host", "worker", "bridge", "port", "attach", "sa",
    "policy",
];
/// Default directory of `[state]`.
const STATE_DIR: &str = "/var/lib/towpath";
const STATE_INTERVAL_SECONDS: u64 = 60;
const CONFIG_BYTES_MAX: u64 = 16 << 20;
const TOKEN_BYTES_MAX: u64 = 4096;
const _: () = assert!(TOKEN_BYTES_MAX < CONFIG_BYTES_MAX);
