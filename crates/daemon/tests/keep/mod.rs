//! Contents of a program's maps when another program replaces it.

use std::path::Path;

use serde_json::json;
use towpath_daemon::State;
use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::live::{Live, Report};
use towpath_maps::Map;
use towpath_objects::{Selector, Session};

use crate::running::{start_with, sum, wait_for};

const PORTS: &str = r#"
[[port]]
name = "gen"
kind = "generator"
rate = 20000
frames = ["02000000000202000000000108000000000000000000000000000000"]
upper = "out"
[[port]]
name = "out"
kind = "sink"
"#;

fn config(version: u32, more: &str) -> String {
    let object = format!("object = \"keeper_{version}.o\"\nprogram = \"keeper\"");
    format!("{PORTS}[[attach]]\nport = \"gen\"\n{object}\n{more}\n")
}

/// A daemon's engine and the objects it knows.
struct Running {
    live: Live,
    state: State,
    objects: std::sync::Arc<ObjectFiles>,
}

impl Running {
    fn start(more: &str) -> Running {
        let objects = std::sync::Arc::new(ObjectFiles::default());
        let (live, state, report) = start_with(&config(1, more), |_| {}, &objects);
        assert_eq!(report.failures, [], "{report:?}");
        let running = Running { live, state, objects };
        running.learn();
        running
    }

    /// Reloads a file that names another version of the program.
    fn reload(&mut self, version: u32, more: &str) -> Report {
        let text = config(version, more);
        let here = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/fixtures"));
        let file = parse(&text, Path::new("t.toml"), here, &self.objects).expect("it is fine");
        // As a file has it: the key is the object's and program's names.
        let mut state = file.state;
        let key = self.state.programs[0].key.clone();
        state.programs[0].key.clone_from(&key);
        state.attachments[0].program = key;
        self.state = state;
        self.live.reconcile(&self.state)
    }

    /// Waits until the program has seen some frames more.
    fn learn(&self) {
        let count = || sum(&self.live, "gen", |it| it.actions[2].get());
        let before = count();
        wait_for("frames", || count() >= before + 100);
    }

    fn map(&self, name: &str) -> std::sync::Arc<Map> {
        let program = self.live.programs().values().next().expect("it is loaded");
        std::sync::Arc::clone(program.program.maps().by_name(name).expect("it has one"))
    }

    /// A number of 8 bytes in a value, at an offset.
    fn number(&self, map: &str, key: &[u8], at: usize) -> Option<u64> {
        let value = self.map(map).user().lookup(key, 0).ok()?;
        let numbers = value.cpus().into_iter().map(|value| {
            u64::from_ne_bytes(*value[at..].first_chunk().expect("there are 8 bytes"))
        });
        Some(numbers.sum())
    }
}

const FLOW: [u8; 4] = 7u32.to_ne_bytes();
const ZERO: [u8; 4] = [0; 4];

#[test]
fn maps_of_the_same_shape_stay() {
    let mut running = Running::start("");
    let ids: Vec<u32> = ["flows", "totals"].map(|name| running.map(name).id()).into();
    let flows = running.number("flows", &FLOW, 0).expect("it was seen");
    let totals = running.number("totals", &ZERO, 0).expect("an array");
    running.map("flows").user().update(&9u32.to_ne_bytes(), &vec![9; 16].into(), 0).unwrap();
    let report = running.reload(2, "");
    assert_eq!(report.failures, [], "{report:?}");
    assert!(report.changes.iter().any(|line| line.contains("keeper: replaced")), "{report:?}");
    assert_eq!(ids, ["flows", "totals"].map(|name| running.map(name).id()));
    running.learn();
    assert!(running.number("flows", &FLOW, 0).expect("it stays") >= flows + 100);
    assert!(running.number("totals", &ZERO, 0).expect("it stays") >= totals + 100);
    assert_eq!(running.number("flows", &9u32.to_ne_bytes(), 0), Some(u64::from_ne_bytes([9; 8])));
}

#[test]
fn variables_stay_unless_their_first_values_changed() {
    let mut running = Running::start("");
    let seen = running.number(".bss", &ZERO, 0).expect("it has variables");
    running.map(".data").user().update(&ZERO, &vec![15, 0, 0, 0].into(), 0).unwrap();
    // The same program again.
    running.state.programs[0].generation += 1;
    let report = running.live.reconcile(&running.state.clone());
    assert_eq!(report.failures, [], "{report:?}");
    assert_eq!(running.map(".data").user().lookup(&ZERO, 0).unwrap().bytes(), [15, 0, 0, 0]);
    // A changed initial value in the object file counts.
    let report = running.reload(2, "");
    assert_eq!(running.map(".data").user().lookup(&ZERO, 0).unwrap().bytes(), [20, 0, 0, 0]);
    let told = report
        .changes
        .iter()
        .any(|line| line.starts_with("map .data starts with its initial contents"));
    assert!(told, "{report:?}");
    assert!(running.number(".bss", &ZERO, 0).expect("it stays") >= seen);
}

#[test]
fn another_shape_is_refused_until_it_is_said_what_becomes_of_entries() {
    let mut running = Running::start("");
    let before = running.map("flows").id();
    let report = running.reload(3, "");
    let [failure] = &report.failures[..] else { panic!("{report:?}") };
    for part in ["flows has changed: value_size was 16 and is 24", "--map-migrate flows=copy"] {
        assert!(failure.why.contains(part), "{failure:?}");
    }
    assert_eq!(running.map("flows").id(), before, "the old one goes on");
    running.learn();

    let packets = running.number("flows", &FLOW, 0).expect("it was seen");
    let report = running.reload(3, "map_migrate = { flows = \"copy\" }");
    assert_eq!(report.failures, [], "{report:?}");
    assert!(report.changes.contains(&"map flows: 1 entries copied".to_owned()), "{report:?}");
    // Behind `owner` now, found by its name.
    assert!(running.number("flows", &FLOW, 8).expect("it was copied") >= packets);

    let report = running.reload(4, "map_migrate = { flows = \"drop\" }");
    assert_eq!(report.failures, [], "{report:?}");
    running.learn();
    assert_eq!(running.map("flows").count(), Some(1), "it starts empty");
}

#[test]
fn fresh_maps_start_empty() {
    let mut running = Running::start("");
    let before = running.map("totals").id();
    let report = running.reload(2, "fresh_maps = true");
    assert_eq!(report.failures, [], "{report:?}");
    assert_ne!(running.map("totals").id(), before);
}

#[test]
fn jump_tables_lead_to_the_new_programs_and_keep_what_came_from_outside() {
    let mut running = Running::start("");
    let registry = std::sync::Arc::clone(running.live.registry());
    let mut session = Session::new(&registry, 0);
    let own = running.live.links()[0].program;
    let (table, foreign) = (Selector::Name("stages".to_owned()), Selector::Id(own));
    let to = towpath_objects::Reference::Program(foreign);
    // The program itself is one of the object's: it goes with it.
    session.refer(&table, &2u32.to_ne_bytes(), &to, 0).expect("it is a program");
    let slot = |running: &Running, slot| running.map("stages").program(slot);
    let (first, second) = (slot(&running, 0), slot(&running, 2));
    assert!(first.is_some() && second.is_some());
    let report = running.reload(2, "");
    assert_eq!(report.failures, [], "{report:?}");
    assert!(slot(&running, 0).is_some() && slot(&running, 0) != first, "it has the new one");
    assert_eq!(slot(&running, 2), None);
    running.learn();
    assert_eq!(sum(&running.live, "gen", |it| it.actions[0].get()), 0, "no slot was empty");
}

#[test]
fn maps_pinned_by_name_outlive_their_programs_and_are_refused_with_another_shape() {
    let mut running = Running::start("");
    let pins = |running: &Running| -> Vec<String> {
        running.live.registry().pins().into_iter().map(|(path, _)| path).collect()
    };
    assert_eq!(pins(&running), ["/sys/fs/bpf/pinned_totals"]);
    let id = running.map("pinned_totals").id();
    let before = running.number("pinned_totals", &ZERO, 0).expect("it counted");
    let mut nothing = running.state.clone();
    (nothing.programs, nothing.attachments) = (Vec::new(), Vec::new());
    assert_eq!(running.live.reconcile(&nothing).failures, []);
    let report = running.reload(2, "fresh_maps = true");
    assert_eq!(report.failures, [], "{report:?}");
    assert_eq!(running.map("pinned_totals").id(), id);
    running.learn();
    assert!(running.number("pinned_totals", &ZERO, 0).expect("it stays") >= before + 100);

    running.live.registry().unlink("/sys/fs/bpf/pinned_totals").expect("it is there");
    let mut session = Session::new(running.live.registry(), 0);
    let other = session.create_map("other", "hash", 4, 4, 16, 0).expect("there is memory");
    session.pin(&Selector::Id(other), "/sys/fs/bpf/pinned_totals").expect("the name is free");
    let report = running.reload(1, "");
    let [failure] = &report.failures[..] else { panic!("{report:?}") };
    assert!(failure.why.contains("value_size was 4 and is 8"), "{failure:?}");
}

#[test]
fn maps_are_shared_by_id_or_pin() {
    let mut running = Running::start("");
    let mut session = Session::new(running.live.registry(), 0);
    let id = session.create_map("mine", "hash", 4, 16, 64, 0).expect("there is memory");
    session.pin(&Selector::Id(id), "/sys/fs/bpf/mine").expect("the name is free");
    let report = running.reload(2, "shared_maps = { flows = \"/sys/fs/bpf/mine\" }");
    assert_eq!(report.failures, [], "{report:?}");
    running.learn();
    assert!(session.lookup(&Selector::Id(id), &FLOW).is_ok());
    let report = running.reload(1, "shared_maps = { flow = \"7\" }");
    assert!(report.failures[0].why.contains("no map \"flow\"; did you mean"), "{report:?}");
    let report = running.reload(1, "shared_maps = { flows = \"/sys/fs/bpf/none\" }");
    assert!(report.failures[0].why.contains("there is no map"), "{report:?}");
}

#[test]
fn a_reload_changes_in_maps_what_the_file_changed() {
    let totals = |contents: &str| format!("maps = {{ flows = {contents} }}");
    let mut running = Running::start(&totals(
        "[{ key = 1, value = { packets = 1 } }, { key = 2, value = { packets = 2 } }]",
    ));
    let key = |number: u32| number.to_ne_bytes();
    let value = |number: u64| {
        let mut bytes = number.to_ne_bytes().to_vec();
        bytes.resize(16, 0);
        towpath_maps::Value::from(bytes)
    };
    running.map("flows").user().update(&key(1), &value(100), 0).unwrap();
    let report = running.reload(
        1,
        &totals("[{ key = 1, value = { packets = 1 } }, { key = 3, value = { packets = 3 } }]"),
    );
    assert_eq!(report.failures, [], "{report:?}");
    let now: Vec<_> = (1..=3).map(|number| running.number("flows", &key(number), 0)).collect();
    assert_eq!(json!(now), json!([100, null, 3]));
}
