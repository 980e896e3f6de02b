//! Checks every short history of words about one thing against an independent rule.

use std::fmt::Debug;

use super::*;
use crate::model::saved::Document;
use crate::model::state::{AttachState, BridgeState, PortState, ProgramState};

/// One step of a history. Values are numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    /// The file is read, and contains the thing with this value, or lacks it.
    File(Option<u32>),
    /// The API adds it, changes it, or removes it.
    Add(u32),
    Change(u32),
    Remove,
    /// The daemon restarts with the same file.
    Restart,
}

const WORDS: [Word; 8] = [
    Word::File(None),
    Word::File(Some(100)),
    Word::File(Some(200)),
    Word::Add(100),
    Word::Add(300),
    Word::Change(300),
    Word::Remove,
    Word::Restart,
];

/// The expected value, from the history alone. A file that repeats its last value has no effect.
fn expected(history: &[Word]) -> Option<u32> {
    let (last, before) = history.split_last()?;
    match *last {
        Word::Restart => expected(before),
        Word::Remove => None,
        Word::Add(value) | Word::Change(value) => Some(value),
        Word::File(now) if now == in_file(before) => expected(before),
        Word::File(Some(value)) => Some(value),
        Word::File(None) => expected(before).filter(|_| was_added(before)),
    }
}

/// The value in the file when it was last read.
fn in_file(history: &[Word]) -> Option<u32> {
    let read = |word: &Word| match word {
        Word::File(value) => Some(*value),
        _ => None,
    };
    history.iter().rev().find_map(read).flatten()
}

/// Whether the API added the thing and has not removed it since.
fn was_added(history: &[Word]) -> bool {
    let last = history.iter().rev().find(|word| matches!(word, Word::Add(_) | Word::Remove));
    matches!(last, Some(Word::Add(_)))
}

fn expected_authors(history: &[Word]) -> Vec<Author> {
    let file = in_file(history).map(|_| Author::File);
    let api = was_added(history).then_some(Author::Api);
    let is_there = expected(history).is_some();
    file.into_iter().chain(api).filter(|_| is_there).collect()
}

/// A state with one thing of a kind, or without it.
type Kind = (Thing, fn(Option<u32>) -> State, fn(&State) -> Option<u32>);

fn kinds() -> Vec<Kind> {
    let identity = attachment(None).identity();
    vec![
        (Thing::port("p"), ports, |state| state.port("p")?.mtu),
        (Thing::Bridge("b".to_owned()), bridges, |state| {
            state.bridges.first().map(|it| it.ageing as u32)
        }),
        (Thing::Attachment(identity), attachments, |state| state.attachments.first()?.prio),
        (Thing::Program("k".to_owned()), programs, |state| {
            state.programs.first().map(|it| it.generation as u32)
        }),
    ]
}

fn port(name: &str, mtu: u32) -> PortState {
    let kind = "sink".to_owned();
    PortState { name: name.to_owned(), kind, mtu: Some(mtu), ..PortState::default() }
}

fn ports(value: Option<u32>) -> State {
    State { ports: value.into_iter().map(|mtu| port("p", mtu)).collect(), ..State::new() }
}

fn bridges(value: Option<u32>) -> State {
    let bridge = |ageing| BridgeState { name: "b".to_owned(), ageing };
    State { bridges: value.map(u64::from).into_iter().map(bridge).collect(), ..State::new() }
}

fn attachment(prio: Option<u32>) -> AttachState {
    let (port, program) = ("p".to_owned(), "k".to_owned());
    AttachState { port, program, prio, ..AttachState::default() }
}

fn program(generation: u32) -> ProgramState {
    let sha256 = "ab".repeat(32);
    let generation = generation.into();
    ProgramState { key: "k".to_owned(), sha256, generation, ..ProgramState::default() }
}

fn attachments(value: Option<u32>) -> State {
    let programs = value.iter().map(|_| program(0)).collect();
    let attachments = value.iter().map(|prio| attachment(Some(*prio))).collect();
    State { programs, attachments, ..State::new() }
}

/// A state with a program, whose attachment changes with it.
fn programs(value: Option<u32>) -> State {
    State { programs: value.into_iter().map(program).collect(), ..attachments(value) }
}

/// The wanted state after it was saved as JSON and restored by a start.
fn restarted(wanted: &Wanted) -> Wanted {
    let document = Document {
        file: State::clone(wanted.file()),
        wanted: State::clone(wanted.state()),
        authors: wanted.claims(),
        ..Document::default()
    };
    let text = serde_json::to_string(&document).expect("it is JSON");
    let document: Document = serde_json::from_str(&text).expect("it is a document");
    let saved = Wanted::restored(document.wanted, document.file.clone(), &document.authors);
    let (wanted, notes) = saved.reloaded(document.file);
    assert!(notes.is_empty(), "{notes:?}");
    wanted
}

/// Applies a word. `None` if it does not apply now: the API answers 404 or 409.
fn say(wanted: &Wanted, word: Word, (_, make, read): &Kind) -> Option<Wanted> {
    let is_there = read(wanted.state()).is_some();
    Some(match word {
        Word::File(value) => wanted.reloaded(make(value)).0,
        Word::Add(value) if !is_there => wanted.changed(make(Some(value))),
        Word::Change(value) if is_there => wanted.changed(make(Some(value))),
        Word::Remove if is_there => wanted.changed(make(None)),
        Word::Restart => restarted(wanted),
        _ => return None,
    })
}

fn walk(wanted: &Wanted, history: &mut Vec<Word>, kind: &Kind, depth: usize) -> usize {
    let (thing, _, read) = kind;
    let mut count = 1;
    assert_eq!(read(wanted.state()), expected(history), "{thing}: {history:?}");
    assert_eq!(wanted.authors(thing), expected_authors(history), "{thing}: {history:?}");
    // The thing is as in the file, or it is listed as overridden.
    let (now, file) = (expected(history), in_file(history));
    let overridden = match (now, file) {
        (None, Some(_)) => Some(Override::Removed),
        (Some(now), Some(file)) if now != file => Some(Override::Changed),
        _ => None,
    };
    let is_program = matches!(thing, Thing::Program(_));
    let shown = wanted.overridden();
    let shown = shown.iter().find(|it| it.subject == thing.to_string()).map(|it| it.is);
    // A removed program is not listed: its attachment is.
    let overridden = overridden.filter(|it| !is_program || *it == Override::Changed);
    assert_eq!(shown, overridden, "{thing}: {history:?}");
    for word in WORDS.iter().filter(|_| depth > 0) {
        let Some(next) = say(wanted, *word, kind) else { continue };
        history.push(*word);
        count += walk(&next, history, kind, depth - 1);
        history.pop();
    }
    count
}

#[test]
fn every_history_ends_as_its_words_say() {
    for kind in kinds() {
        let nothing = Wanted::of_file(State::new());
        let histories = walk(&nothing, &mut Vec::new(), &kind, 5);
        assert!(histories > 1000, "{histories}");
    }
}

/// Covers every pair of file contents, with API changes in between: things that the file does not
/// change stay as they are.
#[test]
fn a_reload_moves_the_difference_and_nothing_else() {
    let state = |ports: &[(&str, u32)]| State {
        ports: ports.iter().map(|(name, mtu)| port(name, *mtu)).collect(),
        ..State::new()
    };
    let file = Wanted::of_file(state(&[("a", 100), ("b", 100), ("c", 100)]));
    // Meanwhile the API changed a and added e.
    let wanted = file.changed(state(&[("a", 900), ("b", 100), ("c", 100), ("e", 100)]));
    let (next, notes) = wanted.reloaded(state(&[("a", 100), ("b", 200), ("d", 100)]));
    let there = state(&[("a", 900), ("b", 200), ("e", 100), ("d", 100)]);
    assert_eq!((&**next.state(), notes), (&there, Vec::new()));
    let authors = |name| next.authors(&Thing::port(name));
    let by = ["a", "b", "c", "d", "e"].map(authors);
    assert_eq!(
        by,
        [vec![Author::File], vec![Author::File], vec![], vec![Author::File], vec![Author::Api]]
    );
}

fn notes_of(kind: &Kind, words: &[Word]) -> Vec<String> {
    let (_, make, _) = kind;
    let (last, first) = words.split_last().expect("there are words");
    let start = Wanted::of_file(State::new());
    let wanted =
        first.iter().fold(start, |wanted, word| say(&wanted, *word, kind).expect("a word"));
    let Word::File(value) = last else { panic!("a reload") };
    wanted.reloaded(make(*value)).1
}

#[test]
fn what_a_file_does_to_things_of_others_is_told() {
    let kind = &kinds()[0];
    let cases: [(&[Word], &str); 6] = [
        (&[Word::Add(100), Word::File(Some(200))], "replaces that of the API"),
        (
            &[Word::File(Some(100)), Word::Change(300), Word::File(Some(200))],
            "replaces that of the API",
        ),
        (
            &[Word::Add(100), Word::File(Some(100)), Word::File(None)],
            "stays after its removal from the configuration file, since the API wants it, too",
        ),
        (
            &[Word::File(Some(100)), Word::Remove, Word::File(Some(200))],
            "was removed by the API, and is added again",
        ),
        // Both authors want the same, or one of them dropped the thing: nothing is reported.
        (&[Word::Add(100), Word::File(Some(100))], ""),
        (&[Word::File(Some(100)), Word::Change(300), Word::File(None)], ""),
    ];
    for (words, told) in cases {
        let notes = notes_of(kind, words);
        assert_eq!(notes.len(), usize::from(!told.is_empty()), "{words:?}: {notes:?}");
        let is_told = notes.iter().all(|note| note.starts_with("port p") && note.contains(told));
        assert!(is_told, "{words:?}: {notes:?}");
    }
}

#[test]
fn a_state_that_does_not_say_who_wanted_a_thing_is_its_author() {
    for (thing, make, read) in kinds() {
        let saved = Wanted::restored(make(Some(100)), State::new(), &[]);
        assert_eq!(saved.authors(&thing), [Author::Saved]);
        // The thing is present after every reload and start, until the API removes it.
        let (with, _) = restarted(&saved).reloaded(make(Some(100)));
        assert_eq!(with.authors(&thing), [Author::File, Author::Saved]);
        let (without, notes) = with.reloaded(State::new());
        assert!(notes.iter().all(|note| note.contains("the saved state wants it")), "{notes:?}");
        assert_eq!(read(without.state()), Some(100));
        assert_eq!(without.authors(&thing), [Author::Saved]);
        let removed = without.changed(State::new());
        assert!(removed.authors(&thing).is_empty() && removed.claims().is_empty());
    }
    // Things that were in the file at that time belong to the file.
    let saved = Wanted::restored(ports(Some(300)), ports(Some(100)), &[]);
    assert_eq!(saved.authors(&Thing::port("p")), [Author::File]);
    assert!(saved.reloaded(State::new()).0.state().ports.is_empty());
}

#[test]
fn authors_are_called_as_in_json() {
    for author in [Author::File, Author::Api, Author::Saved] {
        assert_eq!(serde_json::to_value(author).expect("a word"), author.name());
    }
}

/// A program runs at one place for the file and at another one for the API: it stays as long as it
/// runs anywhere.
#[test]
fn a_program_stays_as_long_as_anybody_runs_it() {
    let with = |ports: &[&str]| {
        let at = |port: &&str| AttachState { port: (*port).to_owned(), ..attachment(None) };
        let attachments = ports.iter().map(at).collect();
        State { programs: vec![program(0)], attachments, ..State::new() }
    };
    let wanted = Wanted::of_file(with(&["p"])).changed(with(&["p", "q"]));
    let key = Thing::Program("k".to_owned());
    assert_eq!(wanted.authors(&key), [Author::File, Author::Api]);
    let (wanted, notes) = wanted.reloaded(State::new());
    assert_eq!(**wanted.state(), with(&["q"]));
    assert_eq!((wanted.authors(&key), notes.len()), (vec![Author::Api], 1));
}

/// The API detached a program of the file: a new version of the program is not attached, either.
#[test]
fn another_version_of_a_detached_program_stays_away() {
    let of = |version| State { programs: vec![program(version)], ..attachments(Some(7)) };
    let wanted = Wanted::of_file(of(1)).changed(State::new());
    let (wanted, notes) = wanted.reloaded(of(2));
    assert_eq!((&**wanted.state(), notes), (&State::new(), Vec::new()));
    // The program returns with its attachment.
    let of = |prio| State { programs: vec![program(2)], ..attachments(Some(prio)) };
    assert_eq!(**wanted.reloaded(of(8)).0.state(), of(8));
}

#[test]
fn claims_of_what_is_gone_or_the_file_alone_wants_are_not_saved() {
    let wanted = Wanted::of_file(ports(Some(100)));
    assert!(wanted.claims().is_empty());
    let claims = |wanted: &Wanted| -> Vec<String> {
        fn shown(value: &impl Debug) -> String {
            format!("{value:?}")
        }
        wanted.claims().iter().map(|claim| shown(&claim.by)).collect()
    };
    let more = wanted.changed(State { bridges: bridges(Some(1)).bridges, ..ports(Some(100)) });
    assert_eq!(claims(&more), ["{Api}"]);
    assert!(more.changed(ports(Some(100))).claims().is_empty());
}
