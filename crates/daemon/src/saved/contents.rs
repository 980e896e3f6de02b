//! Files with the contents of maps: a head that says of what, elements one after the other, and a
//! checksum of both at the end.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use sha2::{Digest as _, Sha256};
use towpath_bpf::map::{Keys, Values};
use towpath_maps::fields::{Field, FieldKind};
use towpath_maps::{Map, Value};

/// Why contents can't be taken.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// It can't be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// It was written by a newer daemon.
    #[error("it has version {0}, this daemon knows version {VERSION}")]
    Newer(u32),
    /// It was cut or changed, or is something else.
    #[error("it was cut or changed, or holds no contents of a map")]
    Damaged,
    /// They are of a map of another shape.
    #[error("keys and values have {0} and {1} bytes there, and {2} and {3} in the map")]
    OtherShape(usize, usize, usize, usize),
    /// The map does not take them all.
    #[error("the map takes {0} of {1} elements: {2}")]
    TooMany(usize, usize, towpath_bpf::Errno),
}

/// Whether contents of such a map are saved as they are.
pub(crate) fn can_be_saved(map: &Map) -> bool {
    matches!(map.kind().values(), Values::Bytes | Values::PerCpu | Values::Queued)
        && !map.def().is_constant()
        && why_not_saved(map).is_none()
}

/// Why contents of such a map are not saved, if they are not: bytes are, references and timers have
/// no meaning in a file. Locks are open when a map is made, and constants come with their object.
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
        Values::Members => Some("what it was told is not saved"),
        Values::Pages => Some("its memory is not saved"),
        Values::Socket | Values::Host(_) => Some("what it holds ends with the daemon"),
        // Saved element by element, as they are stored.
        Values::Program | Values::Map | Values::Device | Values::Cpu => None,
    }
}

/// Writes what is in a map while programs go on changing it: each element is as it was at some
/// moment. Gives how many there were.
pub(super) fn save(map: &Map, path: &Path) -> io::Result<usize> {
    let mut out = Summed { inner: BufWriter::new(File::create(path)?), sum: Sha256::new() };
    let cpus = if map.is_percpu() { map.cpus() } else { 1 };
    out.write_all(MAGIC)?;
    for number in [VERSION, map.key_size(), map.value_size(), cpus as u32] {
        out.write_all(&number.to_le_bytes())?;
    }
    let (mut count, mut last, mut is_more) = (0, None, map.kind().keys() != Keys::None);
    // Of a kind without keys all at once: another look would show other values.
    for value in map.user().queued().unwrap_or_default() {
        out.write_all(&[MORE])?;
        out.write_all(value.bytes())?;
        count += 1;
    }
    while is_more {
        // Whoever looks keeps removed elements from being used again: pieces are short.
        let piece = piece(map, &mut last);
        is_more = !piece.is_empty() && count < map.max_entries() as usize;
        for (key, value) in piece {
            out.write_all(&[MORE])?;
            out.write_all(&key)?;
            value.cpus().into_iter().try_for_each(|bytes| out.write_all(bytes))?;
            count += 1;
        }
    }
    out.write_all(&[END])?;
    let sum = out.sum.finalize();
    out.inner.write_all(&sum)?;
    out.inner.into_inner().map_err(io::IntoInnerError::into_error)?.sync_data()?;
    Ok(count)
}

/// The next elements after `last`. When that one is gone the walk begins anew, and some come twice.
fn piece(map: &Map, last: &mut Option<Vec<u8>>) -> Vec<(Vec<u8>, Value)> {
    let user = map.user();
    let mut piece = Vec::new();
    while piece.len() < PIECE
        && let Ok(key) = user.next_key(last.as_deref())
    {
        // One that disappears meanwhile is left out.
        if let Ok(value) = user.lookup(&key, 0) {
            piece.push((key.clone(), value));
        }
        *last = Some(key);
    }
    piece
}

/// Fills a map. Nothing is stored of a file that is not whole.
///
/// # Errors
///
/// See [`ContentsError`].
pub fn load(map: &Map, path: &Path) -> Result<usize, ContentsError> {
    check(&mut BufReader::new(File::open(path)?))?;
    fill(map, &mut BufReader::new(File::open(path)?))
}

/// Reads all of it, which must be what was written.
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

fn fill(map: &Map, file: &mut impl Read) -> Result<usize, ContentsError> {
    let mut magic = [0; MAGIC.len()];
    file.read_exact(&mut magic)?;
    if magic != *MAGIC {
        return Err(ContentsError::Damaged);
    }
    let mut number = || -> io::Result<u32> {
        let mut bytes = [0; 4];
        file.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    };
    let (version, key, value, cpus) = (number()?, number()?, number()?, number()?);
    if version != VERSION {
        return Err(ContentsError::Newer(version));
    }
    let sizes = [key as usize, value as usize, map.key_size() as usize, map.value_size() as usize];
    if sizes[0] != sizes[2] || sizes[1] != sizes[3] || (cpus != 1 && !map.is_percpu()) {
        return Err(ContentsError::OtherShape(sizes[0], sizes[1], sizes[2], sizes[3]));
    }
    let (mut stored, mut all, mut refused) = (0, 0, None);
    let mut more = [0];
    let (mut key, mut bytes) = (vec![0; sizes[0]], vec![0; sizes[1]]);
    loop {
        file.read_exact(&mut more)?;
        if more[0] != MORE {
            break;
        }
        file.read_exact(&mut key)?;
        let mut values = Vec::new();
        for _ in 0..cpus {
            file.read_exact(&mut bytes)?;
            values.push(bytes.clone());
        }
        all += 1;
        match map.user().update(&key, &one_for_each(map, values), 0) {
            Ok(()) => stored += 1,
            Err(errno) => refused = Some(errno),
        }
    }
    refused.map_or(Ok(stored), |errno| Err(ContentsError::TooMany(stored, all, errno)))
}

/// There may be more or fewer workers than there were.
fn one_for_each(map: &Map, mut values: Vec<Vec<u8>>) -> Value {
    if map.is_percpu() {
        values.resize(map.cpus(), vec![0; map.value_size() as usize]);
        return Value::PerCpu(values);
    }
    Value::One(values.pop().unwrap_or_default())
}

/// What is written, and its sum.
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
const VERSION: u32 = 1;
pub(super) const SUM_BYTES: usize = 32;
/// Elements that are looked at in a row.
const PIECE: usize = 256;
const MORE: u8 = 1;
const END: u8 = 0;
