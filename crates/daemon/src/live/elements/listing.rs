//! A map's elements in pieces, so that a slow client does not make the daemon hold all of them.

use towpath_bpf::map::Values;
use towpath_bpf::program::MapType;
use towpath_maps::{Map, Value};
use towpath_objects::{MapObject, Selector, Session};

use super::view::{bytes_of_entry, element, entry, refused, said};
use crate::model::messages::EntryView;
use crate::model::refusal::Refusal;

/// The elements of a map, in the map's order. Kinds without elements to list (ring buffers, arenas,
/// bloom filters) are empty; queues and stacks begin with the next value to be popped.
///
/// A listing does not keep its map alive: if the map goes, the next piece is an error.
#[derive(Debug)]
pub(crate) struct Listing {
    session: Session,
    map: u32,
    /// Whether elements are also shown in hex, and as bpftool formats them.
    with_bytes: bool,
    /// Number of elements still to be listed.
    left: usize,
    rest: Rest,
}

/// The part of a map that has not been listed.
#[derive(Debug)]
enum Rest {
    /// Keys that follow `last`, at most `left` of them: the limit ends the listing even if elements
    /// are added all the time.
    Keys {
        last: Option<Vec<u8>>,
        left: usize,
    },
    /// Values of a queue or stack, copied at the start since programs may pop them meanwhile.
    Values {
        bytes: Vec<u8>,
        at: usize,
    },
    Nothing,
}

impl Listing {
    /// Starts at the map's first element, and ends after `most` elements.
    ///
    /// # Errors
    ///
    /// Fails if only programs may read the map.
    pub(crate) fn new(
        session: Session,
        map: &MapObject,
        most: usize,
        with_bytes: bool,
    ) -> Result<Listing, Refusal> {
        let (id, map) = (map.id(), map.map());
        let rest = match map.kind().values() {
            Values::Queued => Rest::Values { bytes: queued(map)?, at: 0 },
            Values::Ranked
            | Values::Packets
            | Values::Members
            | Values::Records
            | Values::Pages
            | Values::Host(_) => Rest::Nothing,
            Values::Bytes
            | Values::PerCpu
            | Values::Events
            | Values::Map
            | Values::Program
            | Values::Device
            | Values::Cpu
            | Values::Socket => Rest::Keys { last: None, left: map.max_entries() as usize },
        };
        Ok(Listing { session, map: id, with_bytes, left: most, rest })
    }

    /// Number of bytes held in memory by the listing.
    pub(crate) fn bytes(&self) -> usize {
        match &self.rest {
            Rest::Values { bytes, .. } => bytes.len(),
            Rest::Keys { .. } | Rest::Nothing => 0,
        }
    }

    /// The next piece; `None` at the end. A piece before the end may be empty.
    ///
    /// # Errors
    ///
    /// Fails if the map is gone, or cannot be iterated.
    pub(crate) fn piece(&mut self) -> Result<Option<Vec<EntryView>>, Refusal> {
        if self.left == 0 {
            return Ok(None);
        }
        let object = self.session.map(&Selector::Id(self.map));
        let object = object.map_err(|_gone| Refusal::missing("the map is gone (ENOENT)"))?;
        let piece = match &mut self.rest {
            Rest::Nothing => None,
            Rest::Values { .. } => self.values(object.map()),
            Rest::Keys { .. } => self.elements(object.map())?,
        };
        let count = piece.as_ref().map_or(0, Vec::len);
        assert!(count <= self.left, "no more than is wanted");
        self.left -= count;
        Ok(piece)
    }

    /// The next piece of a map with keys.
    fn elements(&mut self, map: &Map) -> Result<Option<Vec<EntryView>>, Refusal> {
        let Rest::Keys { last, left } = &mut self.rest else { return Ok(None) };
        let walk = self.session.walk(&Selector::Id(self.map), last.clone());
        let walk = walk.map_err(|error| refused(map, &error))?;
        let (mut piece, mut bytes, mut keys) = (Vec::new(), 0, 0);
        for step in walk.take((*left).min(KEYS)) {
            let (key, value) = step.map_err(|error| refused(map, &error))?;
            let long = value.iter().flat_map(Value::cpus).map(<[u8]>::len).sum::<usize>();
            bytes += key.len() + long;
            piece.extend(element(map, &key, value.as_ref(), self.with_bytes));
            *last = Some(key);
            keys += 1;
            if bytes >= BYTES || piece.len() >= self.left {
                break;
            }
        }
        assert!(keys <= *left, "no more than was asked for");
        *left -= keys;
        Ok((keys > 0).then_some(piece))
    }

    /// The next piece of a queue or stack.
    fn values(&mut self, map: &Map) -> Option<Vec<EntryView>> {
        let Rest::Values { bytes, at } = &mut self.rest else { return None };
        let size = (map.value_size() as usize).max(1);
        let most = (BYTES / size).clamp(1, KEYS).min(self.left);
        let piece = bytes.get(*at..).unwrap_or_default().chunks(size).take(most);
        let view = |value: &[u8]| {
            let value = Value::from(value);
            EntryView {
                bytes: self.with_bytes.then(|| bytes_of_entry(map.def(), &[], &value)),
                ..entry(map.def(), &[], &value)
            }
        };
        let piece: Vec<EntryView> = piece.map(view).collect();
        *at += piece.len() * size;
        (!piece.is_empty()).then_some(piece)
    }

    /// All remaining elements.
    pub(crate) fn all(mut self) -> Result<Vec<EntryView>, Refusal> {
        let mut all = Vec::new();
        while let Some(piece) = self.piece()? {
            all.extend(piece);
        }
        Ok(all)
    }
}

/// The values in a queue or stack, the next one first.
fn queued(map: &Map) -> Result<Vec<u8>, Refusal> {
    let mut values = map.user().queued().map_err(|errno| said(map, errno))?;
    if map.kind() == MapType::Stack {
        values.reverse();
    }
    Ok(values.iter().flat_map(|value| value.bytes().iter().copied()).collect())
}

/// Keys per piece: iterating delays the reuse of removed elements.
const KEYS: usize = 512;
/// Bytes of keys and values per piece; their JSON is several times as long.
const BYTES: usize = 16 << 10;
const _: () = assert!(KEYS > 0 && BYTES > 0, "a piece goes on");
