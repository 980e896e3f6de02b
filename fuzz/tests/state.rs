//! No saved state makes the daemon panic or hang, whatever became of it on the disk: it is read as
//! it was written, or not at all.

use std::sync::Arc;

use towpath_bpf::MapDef;
use towpath_bpf::program::MapType;
use towpath_daemon::State;
use towpath_daemon::saved::{Change, ContentsError, Document, SavedMap, journal, load_contents};
use towpath_maps::{CreateOptions, Domain, Map};

#[test]
fn any_bytes_as_a_document() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        if let Ok(document) = Document::parse(bytes) {
            assert_eq!(Document::parse(document.text().as_bytes()), Ok(document));
        }
    });
}

#[test]
fn a_real_document_with_bytes_changed() {
    let change = Change { key: 1.into(), value: Some("x".into()), port: Some("p".to_owned()) };
    let owners = vec![("p".to_owned(), "m".to_owned())];
    let map = SavedMap { id: 7, owners, changes: vec![change], ..SavedMap::default() };
    let (file, wanted) = (State::new(), State::new());
    let real = Document { serial: 3, file, wanted, maps: vec![map], ..Document::default() };
    let text = real.text().into_bytes();
    bolero::check!().with_type::<Vec<(u16, u8)>>().for_each(|changes| {
        let mut bytes = text.clone();
        let len = bytes.len();
        for (at, value) in changes {
            bytes[usize::from(*at) % len] = *value;
        }
        if let Ok(document) = Document::parse(&bytes) {
            assert_eq!(document, real, "its checksum is another one");
        }
    });
}

#[test]
fn any_bytes_as_a_journal() {
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let (lines, _) = journal::parse(bytes);
        assert!(lines.len() <= bytes.len());
    });
}

#[test]
fn any_bytes_as_contents() {
    let def = MapDef::new("m", MapType::Hash, 4, 8, 16);
    let path = std::env::temp_dir().join(format!("towpath-contents-{}", std::process::id()));
    bolero::check!().with_type::<Vec<u8>>().for_each(|bytes| {
        let map: Arc<Map> = Map::create(&def, &CreateOptions::new(Domain::new(1))).expect("memory");
        // Also as something that is whole, and means nothing.
        for bytes in [bytes.clone(), with_sum(bytes)] {
            std::fs::write(&path, bytes).expect("there is room");
            let stored = match load_contents(&map, &path) {
                Ok(count) | Err(ContentsError::Partly { kept: count, .. }) => count,
                Err(_) => 0,
            };
            assert!(map.user().entries().count() <= stored);
        }
    });
    let _gone = std::fs::remove_file(&path);
}

fn with_sum(bytes: &[u8]) -> Vec<u8> {
    let head = b"towpath-map\n\x01\0\0\0\x04\0\0\0\x08\0\0\0\x01\0\0\0";
    let all = [head, bytes].concat();
    let sum = towpath_daemon::file::sha256(&all);
    let digits = sum.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap_or("00"));
    let sum = digits.map(|digits| u8::from_str_radix(digits, 16).unwrap_or(0));
    all.iter().copied().chain(sum).collect()
}
