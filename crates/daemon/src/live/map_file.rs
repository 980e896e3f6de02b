//! Files with the contents of maps: a head that describes the map, and elements in blocks of 16
//! with a checksum each, so that damage is limited to the elements that it hits.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek as _, Write};
use std::path::Path;

use sha2::{Digest as _, Sha256};
use towpath_bpf::map::{Keys, Values};
use towpath_maps::fields::{Field, FieldKind};
use towpath_maps::rows::Rows;
use towpath_maps::{Map, Value};

/// Errors in loading contents from a file.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// A newer daemon wrote the file.
    #[error("it has version {0}, this daemon knows version {VERSION}")]
    Newer(u32),
    /// The file was truncated or changed, or is not a map file.
    #[error("it was cut or changed, or holds no contents of a map")]
    Damaged,
    /// A part of the file was truncated or changed; the rest is in the map.
    #[error(
        "it was cut or changed: {}{lost} of its elements are lost, and {kept} are there",
        if *is_cut { "at least " } else { "" }
    )]
    Partly {
        /// Elements of intact blocks that the map accepted.
        kept: usize,
        /// Elements of damaged blocks.
        lost: usize,
        /// Whether the total number of elements is unknown.
        is_cut: bool,
    },
    /// The contents are of a map of another shape.
    #[error("keys and values have {0} and {1} bytes there, and {2} and {3} in the map")]
    OtherShape(usize, usize, usize, usize),
    /// The map does not accept all elements.
    #[error("the map takes {0} of {1} elements: {2}")]
    TooMany(usize, usize, towpath_bpf::Errno),
}

/// Whether the contents of a map are saved as bytes.
pub(crate) fn can_be_saved(map: &Map) -> bool {
    matches!(map.kind().values(), Values::Bytes | Values::PerCpu | Values::Queued)
        && !map.def().is_constant()
        && why_not_saved(map).is_none()
}

/// Why the contents of a map cannot be saved, if they cannot: references and timers have no
/// meaning in a file. Spin locks do not matter, since they are unlocked in a new map.
pub(crate) fn why_not_saved(map: &Map) -> Option<&'static str> {
    let is_lock =
        |field: &Field| matches!(field.kind, FieldKind::SpinLock | FieldKind::ResSpinLock);
    match map.kind().values() {
        Values::Bytes | Values::PerCpu | Values::Queued => {
            let others = !map.fields().iter().all(is_lock);
            others.then_some("its values have timers, work queues or pointers")
        }
        Values::Ranked | Values::Packets => Some("its packets are not saved"),
        Values::Records | Values::Events => Some("its records are not saved"),
        Values::Members => Some("its members are not saved"),
        Values::Pages => Some("its memory is not saved"),
        Values::Socket | Values::Host(_) => Some("its values end with the daemon"),
        // References are saved one by one when they are stored.
        Values::Program | Values::Map | Values::Device | Values::Cpu => None,
    }
}

/// Writes the contents of a map while programs continue to change it: each element is consistent by
/// itself. Returns the number of elements.
pub(crate) fn save(map: &Map, path: &Path) -> io::Result<usize> {
    let mut out = Blocks::create(path, &Shape::of(map))?;
    let mut count = 0;
    let mut add = |key: &[u8], value: &Value| {
        count += 1;
        out.add(key, value)
    };
    // Values without keys are read at once: a second read would return other values.
    for value in map.user().queued().unwrap_or_default() {
        add(&[], &value)?;
    }
    if map.kind().keys() != Keys::None {
        each_element(map, &mut add)?;
    }
    out.end()?;
    Ok(count)
}

/// Calls `visit` for the elements of a map with keys, at most as many as its capacity.
fn each_element(
    map: &Map,
    visit: &mut dyn FnMut(&[u8], &Value) -> io::Result<()>,
) -> io::Result<()> {
    let (mut last, mut left) = (None, map.max_entries() as usize);
    while left > 0 {
        // A walk delays the reuse of removed elements, so pieces are short.
        let piece = piece(map, &mut last);
        left = if piece.is_empty() { 0 } else { left.saturating_sub(piece.len()) };
        piece.iter().try_for_each(|(key, value)| visit(key, value))?;
    }
    Ok(())
}

/// The next elements after `last`. If that key is gone, the walk restarts, and some elements are
/// returned twice.
fn piece(map: &Map, last: &mut Option<Vec<u8>>) -> Vec<(Vec<u8>, Value)> {
    let user = map.user();
    let mut piece = Vec::new();
    while piece.len() < PIECE
        && let Ok(key) = user.next_key(last.as_deref())
    {
        // An element that disappears meanwhile is left out.
        if let Ok(value) = user.lookup(&key, 0) {
            piece.push((key.clone(), value));
        }
        *last = Some(key);
    }
    piece
}

/// Elements of a map besides new rows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Before<'a> {
    /// None: the map will only contain the rows.
    Nothing,
    /// The elements of the map.
    Map,
    /// The elements in a file.
    File(&'a Path),
}

/// Writes rows, and those earlier elements that have other keys.
pub(crate) fn save_rows(map: &Map, path: &Path, rows: &Rows, before: Before<'_>) -> io::Result<()> {
    let shape = Shape::of(map);
    let mut out = Blocks::create(path, &shape)?;
    for (key, values) in rows.iter() {
        out.add_bytes(key, [values])?;
    }
    let mut others = |key: &[u8], value: &Value| match rows.has(key) {
        true => Ok(()),
        false => out.add(key, value),
    };
    match before {
        Before::Nothing => {}
        Before::Map => each_element(map, &mut others)?,
        Before::File(path) => {
            let mut written = Ok(());
            // Damage of that file is reported when it is loaded.
            let _partly = read(map, path, &mut |shape, element| {
                let (key, value) = split(map, shape, element);
                if written.is_ok() {
                    written = others(key, &value);
                }
            });
            written?;
        }
    }
    out.end()
}

/// Whether keys and values in a file have the map's sizes.
pub(crate) fn fits(map: &Map, path: &Path) -> bool {
    let mut head = [0; HEAD_BYTES];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && Shape::of(map).check(&Shape::parse(&head)).is_ok()
}

/// Fills a map with the intact elements of a file.
///
/// # Errors
///
/// Fails as described at [`ContentsError`].
pub fn load(map: &Map, path: &Path) -> Result<usize, ContentsError> {
    let mut stored = Stored::default();
    let found = read(map, path, &mut |shape, element| stored.store(map, shape, element))?;
    found.told(&stored)
}

/// Callback for each intact element.
type Visit<'a> = &'a mut dyn FnMut(&Shape, &[u8]);

/// Reads the intact elements of a file for a map.
fn read(map: &Map, path: &Path, visit: Visit<'_>) -> Result<Found, ContentsError> {
    let mut file = BufReader::new(File::open(path)?);
    let len = file.get_ref().metadata()?.len();
    let mut head = [0; HEAD_BYTES];
    let body = len.checked_sub((HEAD_BYTES + CHECK_BYTES + TAIL_BYTES) as u64);
    file.read_exact(&mut head).map_err(|_short| ContentsError::Damaged)?;
    let version = head.get(MAGIC.len()..).and_then(|rest| rest.first_chunk());
    let version = version.map_or(0, |bytes| u32::from_le_bytes(*bytes));
    if head.starts_with(MAGIC) && version == VERSION_WHOLE {
        file.rewind()?;
        check(&mut file)?;
        file.seek(io::SeekFrom::Start(HEAD_BYTES as u64))?;
        return read_whole(map, &Shape::parse(&head), &mut file, visit);
    }
    let Some(body) = body else { return Err(ContentsError::Damaged) };
    let mut said = [0; CHECK_BYTES];
    file.read_exact(&mut said)?;
    let mut shape = Shape::of(map);
    if said == checksum(HEAD, &head) {
        if version != VERSION {
            return Err(ContentsError::Newer(version));
        }
        let found = Shape::parse(&head);
        shape.check(&found)?;
        shape.cpus = found.cpus;
    }
    // A damaged head is ignored: the blocks show whether the map's shape is the right one.
    let mut found = read_blocks(&shape, &mut file.by_ref().take(body), visit)?;
    let (mut count, mut said) = ([0; 8], [0; CHECK_BYTES]);
    file.read_exact(&mut count)?;
    file.read_exact(&mut said)?;
    found.count = (said == checksum(TAIL, &count)).then(|| u64::from_le_bytes(count) as usize);
    Ok(found)
}

/// Elements found in a file.
#[derive(Debug, Default)]
struct Found {
    /// Elements in intact blocks.
    whole: usize,
    /// Elements in damaged blocks.
    lost: usize,
    /// Total number of elements that were written, if known.
    count: Option<usize>,
}

/// Elements stored in a map.
#[derive(Debug, Default)]
struct Stored {
    count: usize,
    /// The error for an element that the map refused.
    refused: Option<towpath_bpf::Errno>,
}

impl Stored {
    fn store(&mut self, map: &Map, shape: &Shape, element: &[u8]) {
        let (key, value) = split(map, shape, element);
        match map.user().update(key, &value, 0) {
            Ok(()) => self.count += 1,
            Err(errno) => self.refused = Some(errno),
        }
    }
}

impl Found {
    /// The result of loading.
    fn told(self, stored: &Stored) -> Result<usize, ContentsError> {
        let Found { whole, lost, count } = self;
        let Stored { count: stored, refused } = *stored;
        assert!(stored <= whole, "what is damaged is not stored");
        let lost = count.map_or(lost, |count| count.saturating_sub(whole));
        match refused {
            _ if lost > 0 && stored == 0 => Err(ContentsError::Damaged),
            _ if lost > 0 || count.is_none() => {
                Err(ContentsError::Partly { kept: stored, lost, is_cut: count.is_none() })
            }
            Some(errno) => Err(ContentsError::TooMany(stored, whole, errno)),
            None => Ok(stored),
        }
    }
}

/// Splits an element into key and value, adapted to the map's number of CPUs.
fn split<'a>(map: &Map, shape: &Shape, element: &'a [u8]) -> (&'a [u8], Value) {
    let (key, values) = element.split_at(shape.key);
    let values = values.chunks(shape.value.max(1)).map(<[u8]>::to_vec).collect();
    (key, one_for_each(map, values))
}

/// Reads the elements of intact blocks.
fn read_blocks(shape: &Shape, file: &mut impl Read, visit: Visit<'_>) -> io::Result<Found> {
    let element = shape.element_bytes().max(1);
    let (mut found, mut block) = (Found::default(), Vec::new());
    for number in 0.. {
        block.clear();
        let most = element * BLOCK + CHECK_BYTES;
        file.by_ref().take(most as u64).read_to_end(&mut block)?;
        if block.is_empty() {
            break;
        }
        let (elements, said) = block.split_at(block.len().saturating_sub(CHECK_BYTES));
        if said == checksum(number, elements) && elements.len().is_multiple_of(element) {
            found.whole += elements.len() / element;
            elements.chunks(element).for_each(|bytes| visit(shape, bytes));
        } else {
            found.lost += elements.len().div_ceil(element);
        }
    }
    Ok(found)
}

/// Layout of elements.
#[derive(Debug)]
struct Shape {
    key: usize,
    value: usize,
    /// Number of values per element.
    cpus: usize,
    is_percpu: bool,
}

impl Shape {
    fn of(map: &Map) -> Shape {
        let is_percpu = map.is_percpu();
        let cpus = if is_percpu { map.cpus() } else { 1 };
        let (key, value) = (map.key_size() as usize, map.value_size() as usize);
        Shape { key, value, cpus, is_percpu }
    }

    fn head(&self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        let numbers = [VERSION, self.key as u32, self.value as u32, self.cpus as u32];
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        let bytes = MAGIC.iter().copied().chain(bytes);
        head.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        head
    }

    /// Parses an intact head.
    fn parse(head: &[u8; HEAD_BYTES]) -> Shape {
        let number = |at: usize| {
            let bytes = head.get(MAGIC.len() + 4 * at..).and_then(|rest| rest.first_chunk());
            bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize
        };
        let cpus = number(3);
        Shape { key: number(1), value: number(2), cpus, is_percpu: cpus != 1 }
    }

    /// Whether elements of layout `other` fit; the number of values may differ.
    fn check(&self, other: &Shape) -> Result<(), ContentsError> {
        let is_same = (self.key, self.value) == (other.key, other.value);
        // The value of a map without per-CPU values also fits a per-CPU map.
        if is_same && (self.is_percpu || !other.is_percpu) {
            return Ok(());
        }
        Err(ContentsError::OtherShape(other.key, other.value, self.key, self.value))
    }

    fn element_bytes(&self) -> usize {
        self.key + self.value * self.cpus
    }
}

/// A file that is being written.
struct Blocks {
    out: Summed<BufWriter<File>>,
    block: Vec<u8>,
    /// Elements in the current block.
    count: usize,
    /// Number of the current block.
    number: u64,
    /// Elements in all blocks.
    all: u64,
}

impl Blocks {
    fn create(path: &Path, shape: &Shape) -> io::Result<Blocks> {
        let mut out = Summed { inner: BufWriter::new(File::create(path)?), sum: Sha256::new() };
        let head = shape.head();
        out.write_all(&head)?;
        out.write_all(&checksum(HEAD, &head))?;
        Ok(Blocks { out, block: Vec::new(), count: 0, number: 0, all: 0 })
    }

    fn add(&mut self, key: &[u8], value: &Value) -> io::Result<()> {
        self.add_bytes(key, value.cpus())
    }

    fn add_bytes<'a>(
        &mut self,
        key: &[u8],
        values: impl IntoIterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        self.block.extend_from_slice(key);
        values.into_iter().for_each(|bytes| self.block.extend_from_slice(bytes));
        (self.count, self.all) = (self.count + 1, self.all + 1);
        assert!(self.count <= BLOCK, "a full block was put");
        if self.count < BLOCK { Ok(()) } else { self.put() }
    }

    fn put(&mut self) -> io::Result<()> {
        assert!(self.number < TAIL, "a block has a number of its own");
        self.out.write_all(&self.block)?;
        self.out.write_all(&checksum(self.number, &self.block))?;
        self.block.clear();
        (self.count, self.number) = (0, self.number + 1);
        Ok(())
    }

    fn end(mut self) -> io::Result<()> {
        if self.count > 0 {
            self.put()?;
        }
        let count = self.all.to_le_bytes();
        self.out.write_all(&count)?;
        self.out.write_all(&checksum(TAIL, &count))?;
        let Summed { mut inner, sum } = self.out;
        inner.write_all(&sum.finalize())?;
        inner.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()
    }
}

/// Checksum of a part; the part's number is included, so that parts cannot be exchanged.
fn checksum(number: u64, bytes: &[u8]) -> [u8; CHECK_BYTES] {
    let mut sum = Sha256::new();
    sum.update(number.to_le_bytes());
    sum.update(bytes);
    let mut check = [0; CHECK_BYTES];
    check.iter_mut().zip(sum.finalize()).for_each(|(place, byte)| *place = byte);
    check
}

/// Verifies the checksum of a whole file of version 1.
fn check(file: &mut impl Read) -> Result<(), ContentsError> {
    let mut sum = Sha256::new();
    let mut tail: Vec<u8> = Vec::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        let len = file.read(&mut piece)?;
        if len == 0 {
            break;
        }
        tail.extend_from_slice(&piece[..len]);
        let done = tail.len().saturating_sub(SUM_BYTES);
        sum.update(&tail[..done]);
        tail.drain(..done);
    }
    if sum.finalize()[..] == tail[..] { Ok(()) } else { Err(ContentsError::Damaged) }
}

/// Reads the elements of a file of version 1, after its head.
fn read_whole(
    map: &Map,
    shape: &Shape,
    file: &mut impl Read,
    visit: Visit<'_>,
) -> Result<Found, ContentsError> {
    Shape::of(map).check(shape)?;
    let (mut whole, mut more, mut element) = (0, [0], Vec::new());
    loop {
        file.read_exact(&mut more)?;
        if more[0] != MORE {
            return Ok(Found { whole, lost: 0, count: Some(whole) });
        }
        element.clear();
        let size = shape.element_bytes();
        if file.by_ref().take(size as u64).read_to_end(&mut element)? < size {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        visit(shape, &element);
        whole += 1;
    }
}

/// Makes a value for the current number of workers, which may have changed since the file was
/// written.
fn one_for_each(map: &Map, mut values: Vec<Vec<u8>>) -> Value {
    if map.is_percpu() {
        values.resize(map.cpus(), vec![0; map.value_size() as usize]);
        return Value::PerCpu(values);
    }
    Value::One(values.pop().unwrap_or_default())
}

/// A writer with a hash of everything written.
struct Summed<W> {
    inner: W,
    sum: Sha256,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = self.inner.write(bytes)?;
        self.sum.update(&bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

const MAGIC: &[u8; 12] = b"towpath-map\n";
const VERSION: u32 = 2;
/// Version 1 has one checksum for all elements.
const VERSION_WHOLE: u32 = 1;
/// Magic, version, sizes of key and value, and number of values per element.
const HEAD_BYTES: usize = MAGIC.len() + 16;
/// Number of the head in checksums; blocks are counted from 0.
const HEAD: u64 = u64::MAX;
/// Number of the tail in checksums.
const TAIL: u64 = u64::MAX - 1;
const CHECK_BYTES: usize = 8;
/// Number of elements with its checksum, and a hash of everything, by which the file is named.
const TAIL_BYTES: usize = 8 + CHECK_BYTES + SUM_BYTES;
pub(crate) const SUM_BYTES: usize = 32;
/// Elements per block.
const BLOCK: usize = 16;
/// Elements read in one walk.
const PIECE: usize = 256;
/// Byte that precedes each element in version 1.
const MORE: u8 = 1;
const _: () = assert!(VERSION_WHOLE < VERSION);
const _: () =
    assert!(TAIL > u32::MAX as u64 * BLOCK as u64 && HEAD > TAIL, "no block has their numbers");
const _: () = assert!(CHECK_BYTES <= SUM_BYTES, "a checksum is part of a sum");

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use towpath_bpf::MapDef;
    use towpath_bpf::program::MapType;
    use towpath_maps::{CreateOptions, Domain};

    use super::*;

    const ELEMENTS: u32 = 100;

    fn map(kind: MapType) -> Arc<Map> {
        let def = MapDef::new("m", kind, 4, 8, ELEMENTS);
        let options = CreateOptions::new(Domain::new(2));
        Map::create(&def, &options).expect("memory")
    }

    fn value(number: u32) -> [u8; 8] {
        (u64::from(number) * 0x0101_0101).to_le_bytes()
    }

    fn full() -> Arc<Map> {
        let full = map(MapType::Hash);
        for number in 0..ELEMENTS {
            let stored = Value::One(value(number).to_vec());
            full.user().update(&number.to_le_bytes(), &stored, 0).expect("there is room");
        }
        full
    }

    fn elements(map: &Map) -> BTreeMap<u32, Vec<u8>> {
        let number = |key: Vec<u8>| u32::from_le_bytes(key.try_into().expect("4 bytes"));
        map.user().entries().map(|(key, it)| (number(key), it.bytes().to_vec())).collect()
    }

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("towpath-contents-{name}-{}", std::process::id()))
    }

    /// Result of loading a file, and the elements of the map afterwards.
    fn loaded(path: &Path, bytes: &[u8]) -> (Result<usize, ContentsError>, BTreeMap<u32, Vec<u8>>) {
        std::fs::write(path, bytes).expect("there is room");
        let map = map(MapType::Hash);
        (load(&map, path), elements(&map))
    }

    /// A flipped bit at any place costs only the block that contains it, and no wrong element is
    /// stored.
    #[test]
    fn a_damaged_byte_costs_the_elements_around_it() {
        let path = path("bit");
        save(&full(), &path).expect("there is room");
        let whole = std::fs::read(&path).expect("it is there");
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            let (loaded, there) = loaded(&path, &bytes);
            assert!(there.len() + BLOCK >= ELEMENTS as usize, "byte {at}: {loaded:?}");
            assert!(there.iter().all(|(number, it)| *it == value(*number)), "byte {at}");
            let lost = ELEMENTS as usize - there.len();
            match loaded {
                Ok(stored) => assert_eq!((stored, lost), (ELEMENTS as usize, 0), "byte {at}"),
                Err(ContentsError::Partly { kept, lost: told, is_cut }) => {
                    assert_eq!((kept, told), (there.len(), lost), "byte {at}");
                    assert_eq!(is_cut, at >= whole.len() - TAIL_BYTES, "byte {at}");
                }
                Err(error) => panic!("byte {at}: {error}"),
            }
        }
        std::fs::remove_file(&path).expect("it is ours");
    }

    /// Truncation costs all elements from there on.
    #[test]
    fn what_is_before_a_cut_is_there() {
        let path = path("cut");
        save(&full(), &path).expect("there is room");
        let whole = std::fs::read(&path).expect("it is there");
        for len in 0..whole.len() {
            let (loaded, there) = loaded(&path, &whole[..len]);
            assert!(loaded.is_err(), "{len} bytes: {loaded:?}");
            let blocks = len.saturating_sub(HEAD_BYTES + CHECK_BYTES + TAIL_BYTES)
                / (12 * BLOCK + CHECK_BYTES);
            assert!(there.len() >= blocks * BLOCK, "{len} bytes: {loaded:?}");
            assert!(there.iter().all(|(number, it)| *it == value(*number)), "{len} bytes");
        }
        std::fs::remove_file(&path).expect("it is ours");
    }

    /// Files of older daemons are loaded completely or not at all.
    #[test]
    fn the_first_version_is_read() {
        let path = path("first");
        let mut bytes = MAGIC.to_vec();
        [1_u32, 4, 8, 1].iter().for_each(|it| bytes.extend(it.to_le_bytes()));
        for number in 0..ELEMENTS {
            bytes.push(MORE);
            bytes.extend(number.to_le_bytes());
            bytes.extend(value(number));
        }
        bytes.push(0);
        let sum = Sha256::digest(&bytes);
        bytes.extend(sum);
        let (first, there) = loaded(&path, &bytes);
        assert_eq!(first.expect("it is whole"), ELEMENTS as usize);
        assert_eq!(there, elements(&full()));
        bytes[100] ^= 1;
        let (damaged, none) = loaded(&path, &bytes);
        assert!(matches!(damaged, Err(ContentsError::Damaged)));
        assert!(none.is_empty());
        std::fs::remove_file(&path).expect("it is ours");
    }
}
