//! Messages about a configuration use its own words: a file with every key that exists, with each
//! key misspelt, left out, and given values of other types.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::LazyLock;

use toml::{Table, Value};
use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::kinds::{COMMON_KEYS, KINDS};

/// A path in the file: `port[2].fault.loss`.
type Place = Vec<Step>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// Everything that may be written, in the fixtures of the command's tests. Only their owner may
/// read keys, so that their file is made here.
static WHOLE: LazyLock<String> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("towpath-words-{}.key", std::process::id()));
    let file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&path);
    file.and_then(|mut file| file.write_all("07".repeat(20).as_bytes())).expect("there is room");
    include_str!("config_words.toml").replace("KEY_FILE", &path.display().to_string())
});

fn lines(text: &str) -> Vec<String> {
    let here = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/fixtures"));
    let loaded = parse(text, Path::new("t.toml"), here, &ObjectFiles::default());
    loaded.err().map(|error| error.lines).unwrap_or_default()
}

fn whole() -> Value {
    Value::Table(WHOLE.parse::<Table>().expect("it is TOML"))
}

/// All places of a document.
fn places(value: &Value, here: &Place, found: &mut Vec<Place>) {
    let mut inside = |step: Step, value: &Value| {
        let place = [&here[..], &[step]].concat();
        found.push(place.clone());
        places(value, &place, found);
    };
    match value {
        Value::Table(table) => {
            table.iter().for_each(|(key, it)| inside(Step::Key(key.clone()), it));
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(at, it)| inside(Step::Index(at), it));
        }
        _ => {}
    }
}

fn at<'a>(value: &'a mut Value, place: &[Step]) -> &'a mut Value {
    place.iter().fold(value, |value, step| match step {
        Step::Key(key) => value.get_mut(key.as_str()).expect("it is there"),
        Step::Index(index) => value.get_mut(index).expect("it is there"),
    })
}

fn shown(place: &[Step]) -> String {
    place.iter().fold(String::new(), |text, step| match step {
        Step::Key(key) if text.is_empty() => key.clone(),
        Step::Key(key) => format!("{text}.{key}"),
        Step::Index(index) => format!("{text}[{index}]"),
    })
}

/// A document and what is to be told of it: the place, and words that name what is wrong.
struct Mutant {
    text: String,
    place: String,
    what: String,
}

/// Values of every type; one of them is the value's own.
fn values() -> Vec<Value> {
    let table = Table::from_iter([("zz".to_owned(), Value::Integer(1))]);
    vec![
        Value::String("zz zz".to_owned()),
        Value::Integer(-7),
        Value::Integer(i64::MAX),
        Value::Float(1.5),
        Value::Boolean(true),
        Value::Array(vec![Value::Integer(-7)]),
        Value::Array(vec![Value::Array(Vec::new())]),
        Value::Table(Table::new()),
        Value::Table(table),
    ]
}

fn mutants() -> Vec<Mutant> {
    let (whole, mut all, mut mutants) = (whole(), Vec::new(), Vec::new());
    places(&whole, &Vec::new(), &mut all);
    for place in &all {
        let mut put = |change: &dyn Fn(&mut Value), place: &[Step], what: &str| {
            let mut document = whole.clone();
            change(&mut document);
            let text = toml::to_string(&document).expect("it is TOML");
            mutants.push(Mutant { text, place: shown(place), what: what.to_owned() });
        };
        for value in values() {
            put(&|document| *at(document, place) = value.clone(), place, &value.to_string());
        }
        let Some((Step::Key(key), parent)) = place.split_last() else { continue };
        let misspelt = format!("{key}x");
        let here = [parent, &[Step::Key(misspelt.clone())]].concat();
        let rename = |document: &mut Value| {
            let table = at(document, parent).as_table_mut().expect("keys are in tables");
            let value = table.remove(key).expect("it is there");
            table.insert(misspelt.clone(), value);
        };
        put(&rename, &here, "");
        let remove = |document: &mut Value| {
            at(document, parent).as_table_mut().expect("keys are in tables").remove(key);
        };
        put(&remove, parent, "");
    }
    mutants
}

/// Words of the language that this is written in, and of the library that reads it.
const JARGON: &[&str] = &[
    "u8",
    "u16",
    "u32",
    "u64",
    "usize",
    "i8",
    "i16",
    "i32",
    "i64",
    "f32",
    "f64",
    "bool",
    "boolean",
    "struct",
    "enum",
    "variant",
    "field",
    "untagged",
    "deserialize",
    "newtype",
    "tuple",
    "unit",
    "sequence",
    "identifier",
    "Option",
    "Vec",
    "None",
    "Some",
    "PathBuf",
    "invalid type",
    "invalid value",
    "invalid length",
    "data did not match",
    "os error",
];

fn has_jargon(line: &str) -> Option<&'static str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    JARGON.iter().copied().find(|word| {
        line.match_indices(word).any(|(start, _)| {
            let (before, after) = (&line[..start], &line[start + word.len()..]);
            !before.ends_with(is_part) && !after.starts_with(is_part)
        })
    })
}

#[test]
fn a_whole_file_is_taken() {
    assert_eq!(lines(&WHOLE), [""; 0]);
}

#[test]
fn every_mistake_is_told_by_its_line_and_key_and_without_jargon() {
    let (mut told, mut wrong) = (BTreeSet::new(), Vec::new());
    let mutants = mutants();
    for Mutant { text, place, what } in &mutants {
        for line in lines(text) {
            let numbers: Vec<&str> = line.splitn(4, ':').collect();
            let number = numbers.get(1).and_then(|it| it.parse::<usize>().ok()).unwrap_or(0);
            let in_file = numbers[0] == "t.toml" && (1..=text.lines().count()).contains(&number);
            let has_words = has_jargon(line.split(" not the text").next().unwrap_or_default());
            if !in_file || has_words.is_some() {
                wrong.push(format!("{place} = {what}: {has_words:?}: {line}"));
            }
            told.insert(format!("{place} = {what} => {line}"));
        }
    }
    if let Some(path) = std::env::var_os("TOWPATH_MESSAGES") {
        let all = told.iter().fold(String::new(), |all, line| all + line + "\n");
        std::fs::write(path, all).expect("it can be written");
    }
    assert!(mutants.len() > 2000, "only {}", mutants.len());
    assert!(told.len() > 1000, "only {}", told.len());
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), told.len(), wrong.join("\n"));
}

/// The daemon itself lists the existing keys, in its answer to an unknown key.
#[test]
fn the_file_has_every_key() {
    let (whole, mut all) = (whole(), Vec::new());
    places(&whole, &Vec::new(), &mut all);
    // It is enough if one of several tables of a kind has the key.
    let kind = |place: &[Step]| {
        let keys = place.iter().filter(|step| matches!(step, Step::Key(_))).cloned();
        shown(&keys.collect::<Vec<_>>())
    };
    let there: BTreeSet<String> = all.iter().map(|place| kind(place)).collect();
    let mut missing = BTreeSet::new();
    for place in [Vec::new()].iter().chain(&all) {
        let mut document = whole.clone();
        let Value::Table(table) = at(&mut document, place) else { continue };
        table.insert("qqqqqqqqqqqq".to_owned(), Value::Boolean(true));
        let text = toml::to_string(&document).expect("it is TOML");
        for line in lines(&text) {
            let Some((_, keys)) = line.split_once("; there are: ") else { continue };
            if !line.contains("qqqqqqqqqqqq") || keys.contains("...") {
                continue;
            }
            let inside = |key: &str| kind(&[&place[..], &[Step::Key(key.to_owned())]].concat());
            missing.extend(keys.split(", ").map(inside).filter(|it| !there.contains(it)));
        }
    }
    let ports = whole["port"].as_array().expect("there are ports");
    let has = |kind: Option<&str>, key: &str| {
        let is = |port: &&Value| kind.is_none_or(|kind| port["kind"].as_str() == Some(kind));
        ports.iter().filter(is).any(|port| port.get(key).is_some())
    };
    for kind in KINDS {
        let keys = kind.options.iter().map(|option| option.key);
        missing.extend(
            keys.filter(|key| !has(Some(kind.name), key))
                .map(|key| format!("{key} of a port of kind {}", kind.name)),
        );
    }
    missing.extend(COMMON_KEYS.into_iter().filter(|key| !has(None, key)).map(str::to_owned));
    missing.retain(|it| !APART.contains(&it.as_str()));
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Keys that the file can't have: only the owner may read a token file; `[host]` has its tables.
const APART: [&str; 2] = ["api.token_file", "host.tables"];
