//! Maps: creation, reads and changes.

use towpath_bpf::Errno;
use towpath_bpf::map::Values as MapValues;
use towpath_bpf::program::MapType;
use towpath_guest_client::wire::{Command, PAYLOAD_MAX, Tag, Values, Writer};
use towpath_maps::Value;
use towpath_objects::{Handle, MapRequest, MapUse, Name, Object, exactly, flatten};

use crate::guest::Owned;
use crate::handles::Made;
use crate::limits::{Limits, Used};
use crate::refusal::Refusal;

/// Whether guests may make maps of this kind: kinds whose contents guests can read and write in
/// full, and that refer only to the guest's own objects.
pub(crate) fn is_offered(kind: MapType) -> bool {
    match kind.values() {
        MapValues::Bytes
        | MapValues::PerCpu
        | MapValues::Queued
        | MapValues::Program
        | MapValues::Map
        | MapValues::Device => !kind.is_ours(),
        MapValues::Ranked
        | MapValues::Packets
        | MapValues::Members
        | MapValues::Records
        | MapValues::Pages
        | MapValues::Events
        | MapValues::Cpu
        | MapValues::Socket
        | MapValues::Host(_) => false,
    }
}

impl Owned {
    pub(crate) fn create_map(
        &mut self,
        values: Values<'_>,
        limits: &Limits,
    ) -> Result<Writer, Refusal> {
        let request = request(values)?;
        let name = values.text(Tag::Name)?.unwrap_or_default();
        let kind = offered_kind(&request)?;
        let cpus = self.objects.shared().domain().workers();
        let value_bytes = kind.user_value_bytes(request.value_size, cpus) as u64;
        let entries = u64::from(request.max_entries);
        let element = u64::from(request.key_size).saturating_add(value_bytes);
        let used = |bytes| Used { maps: 1, entries, bytes, ..Used::default() };
        // The limit is checked before memory is allocated.
        let estimate = element.saturating_mul(entries);
        self.used().check(used(estimate), limits)?;
        let made = self.objects.make_map(&self.memory, &request);
        let handle =
            made.map_err(|errno| Refusal::new(errno, format!("map {name} can't be made")))?;
        let bytes = memory_bytes(&handle).max(estimate);
        self.used().check(used(bytes), limits)?;
        let needs = [request.btf, request.inner_map].into_iter().filter(|&it| it != 0).collect();
        let (command, payload) = (Command::MapCreate, copied(values));
        let made = Made { command, payload, needs, name: name.to_owned(), used: used(bytes) };
        Ok(Writer::new().u32(Tag::Handle, self.keep(handle, made)?))
    }

    pub(crate) fn lookup(&self, values: Values<'_>) -> Result<Writer, Refusal> {
        let (handle, map) = self.map(values.number(Tag::Handle)?)?;
        let (key, flags) = (values.find(Tag::Key).unwrap_or_default(), flags(values)?);
        let value = handle.lookup(&exactly(key), &exactly(&[]), flags).map_err(element)?;
        let value = value.unwrap_or(Value::One(Vec::new()));
        Ok(Writer::new().with(Tag::Value, &self.shown(map, &value)))
    }

    /// Stores elements in order; an error ends it, and the count tells how many were stored.
    pub(crate) fn update(&self, values: Values<'_>) -> Result<Writer, Refusal> {
        let (handle, _) = self.map(values.number(Tag::Handle)?)?;
        let (flags, mut keys) = (flags(values)?, values.all(Tag::Key));
        let mut count = 0;
        for value in values.all(Tag::Value) {
            // Kinds without keys have empty ones.
            let key = keys.next().unwrap_or_default();
            let stored = handle.update(&self.memory, &exactly(key), &exactly(value), flags);
            stored.map_err(|errno| after(count, element(errno)))?;
            count += 1;
        }
        if keys.next().is_some() {
            return Err(after(count, Refusal::new(Errno::EINVAL, "a key has no value")));
        }
        Ok(Writer::new().u32(Tag::Count, count))
    }

    /// Removes elements, in order.
    pub(crate) fn delete(&self, values: Values<'_>) -> Result<Writer, Refusal> {
        let (handle, _) = self.map(values.number(Tag::Handle)?)?;
        let mut count = 0;
        for key in values.all(Tag::Key) {
            handle.delete(&exactly(key)).map_err(|errno| after(count, element(errno)))?;
            count += 1;
        }
        Ok(Writer::new().u32(Tag::Count, count))
    }

    pub(crate) fn next_key(&self, values: Values<'_>) -> Result<Writer, Refusal> {
        let (handle, _) = self.map(values.number(Tag::Handle)?)?;
        let key = next_key(handle, values.find(Tag::Key)).map_err(element)?;
        Ok(Writer::new().with(Tag::Key, &key))
    }

    /// Elements behind a key: as many as requested, if they fit.
    pub(crate) fn lookup_batch(
        &self,
        values: Values<'_>,
        mut take: impl FnMut(u64) -> Result<(), Refusal>,
    ) -> Result<Writer, Refusal> {
        let (handle, map) = self.map(values.number(Tag::Handle)?)?;
        let most = values.u32(Tag::Count)?.unwrap_or(u32::MAX).min(BATCH_MAX);
        let element_bytes = map.map().key_size() as usize + map.value_bytes() + 32;
        let most = most.min((PAYLOAD_MAX / 2 / element_bytes).max(1) as u32);
        let mut writer = Writer::new();
        let mut last = values.find(Tag::Key).map(<[u8]>::to_vec);
        for _ in 0..most {
            let key = match next_key(handle, last.as_deref()) {
                Ok(key) => key,
                Err(Errno::ENOENT) => break,
                Err(errno) => return Err(element(errno)),
            };
            if !writer.is_empty() && take(1).is_err() {
                // The remaining elements are for the next request.
                break;
            }
            if let Ok(Some(value)) = handle.lookup(&exactly(&key), &exactly(&[]), 0) {
                writer.put(Tag::Key, &key);
                writer.put(Tag::Value, &self.shown(map, &value));
            } else {
                // An empty slot, or one that was removed meanwhile: its key only marks the
                // position.
                writer.put(Tag::Key, &key);
                writer.put(Tag::Value, &[]);
            }
            last = Some(key);
        }
        Ok(writer)
    }

    pub(crate) fn lookup_and_delete(&self, values: Values<'_>) -> Result<Writer, Refusal> {
        let (handle, map) = self.map(values.number(Tag::Handle)?)?;
        let key = values.find(Tag::Key).unwrap_or_default();
        let value = handle.lookup_and_delete(&exactly(key), flags(values)?).map_err(element)?;
        Ok(Writer::new().with(Tag::Value, &self.shown(map, &value)))
    }

    pub(crate) fn freeze(&self, values: Values<'_>) -> Result<Writer, Refusal> {
        let (handle, _) = self.map(values.number(Tag::Handle)?)?;
        handle.freeze().map_err(|errno| Refusal::new(errno, "the map can't be frozen"))?;
        Ok(Writer::new())
    }

    pub(crate) fn map_info(&self, values: Values<'_>) -> Result<Writer, Refusal> {
        let number = values.number(Tag::Handle)?;
        let (_, object) = self.map(number)?;
        let (map, made) = (object.map(), self.made.get(&number));
        Ok(Writer::new()
            .with(Tag::Name, made.map_or("", |made| made.name.as_str()).as_bytes())
            .u32(Tag::Kind, map.kind() as u32)
            .u32(Tag::KeySize, map.key_size())
            .u32(Tag::ValueSize, map.value_size())
            .u32(Tag::MaxEntries, map.max_entries())
            .u32(Tag::MapFlags, map.flags())
            .u32(Tag::UserValueSize, object.value_bytes() as u32)
            .u32(Tag::Frozen, u32::from(map.is_frozen())))
    }

    /// A value in the guest's form: handles instead of ids, values of CPUs side by side.
    pub(crate) fn shown(&self, map: &MapUse, value: &Value) -> Vec<u8> {
        let values = map.map().kind().values();
        if matches!(values, MapValues::Map | MapValues::Program)
            && let Some(&id) = value.bytes().first_chunk()
        {
            let handle = self.handle_of(values, u32::from_ne_bytes(id)).unwrap_or(0);
            return handle.to_le_bytes().to_vec();
        }
        flatten(value)
    }

    /// Keys and ids of a map whose elements refer to objects.
    pub(crate) fn elements(&self, number: u32) -> Vec<(Vec<u8>, u32)> {
        let Ok((handle, map)) = self.map(number) else { return Vec::new() };
        let named = pairs(handle, map).filter_map(|(key, value)| {
            let &id = value.bytes().first_chunk()?;
            Some((key, u32::from_ne_bytes(id)))
        });
        named.collect()
    }
}

/// Definition of a new map.
fn request(values: Values<'_>) -> Result<MapRequest, Refusal> {
    let optional = |tag| Ok::<u32, Refusal>(values.u32(tag)?.unwrap_or(0));
    let name = Name::cut(values.text(Tag::Name)?.unwrap_or_default());
    let mut request = MapRequest::default();
    request.kind = values.number(Tag::Kind)?;
    request.key_size = values.number(Tag::KeySize)?;
    request.value_size = values.number(Tag::ValueSize)?;
    request.max_entries = values.number(Tag::MaxEntries)?;
    request.flags = optional(Tag::MapFlags)?;
    request.extra = values.u64(Tag::MapExtra)?.unwrap_or(0);
    request.inner_map = optional(Tag::InnerMap)?;
    request.btf = optional(Tag::Btf)?;
    request.key_type = optional(Tag::KeyType)?;
    request.value_type = optional(Tag::ValueType)?;
    request.name = name.bytes();
    Ok(request)
}

fn offered_kind(request: &MapRequest) -> Result<MapType, Refusal> {
    let kind = MapType::from_number(request.kind);
    let kind = kind.ok_or_else(|| {
        Refusal::new(Errno::EINVAL, format!("there is no kind of map {}", request.kind))
    })?;
    if !is_offered(kind) {
        let text = format!("maps of kind {} are not offered to guests", kind.name());
        return Err(Refusal::not_allowed("map_kinds", text));
    }
    if kind.values() == MapValues::Device && request.value_size != 4 {
        let text = "entries of devmaps can't have programs of their own here";
        return Err(Refusal::not_allowed("map_kinds", text));
    }
    Ok(kind)
}

/// Memory of a map, in bytes.
fn memory_bytes(handle: &Handle) -> u64 {
    match &handle.object {
        Object::Map(map) => map.map().memory_bytes(),
        _ => 0,
    }
}

fn flags(values: Values<'_>) -> Result<u64, Refusal> {
    Ok(values.u64(Tag::Flags)?.unwrap_or(0))
}

fn next_key(handle: &Handle, key: Option<&[u8]>) -> Result<Vec<u8>, Errno> {
    match key {
        None => handle.next_key(None),
        Some(key) => handle.next_key(Some(&exactly(key))),
    }
}

/// A map's keys with their values, in the order of keys. Their number is limited, because elements
/// may be stored meanwhile.
pub(crate) fn pairs<'a>(
    handle: &'a Handle,
    map: &MapUse,
) -> impl Iterator<Item = (Vec<u8>, Value)> + use<'a> {
    let first = next_key(handle, None).ok();
    let keys = std::iter::successors(first, |key| next_key(handle, Some(key)).ok());
    keys.take(map.map().max_entries() as usize + 1).filter_map(|key| {
        let value = handle.lookup(&exactly(&key), &exactly(&[]), 0).ok()??;
        Some((key, value))
    })
}

/// The values of a request, copied so that the object can be made again.
pub(crate) fn copied(values: Values<'_>) -> Vec<u8> {
    let mut writer = Writer::new();
    // The handle is not a part of the object.
    let kept = values.iter().map_while(Result::ok).filter(|(tag, _)| *tag != Tag::Handle);
    kept.for_each(|(tag, value)| writer.put(tag, value));
    writer.finish()
}

fn element(errno: Errno) -> Refusal {
    let text = match errno {
        Errno::ENOENT => "there is no such element",
        Errno::E2BIG => "there is no room, or no such index",
        Errno::EPERM => "the map is frozen, or not open for that",
        Errno::EINVAL => "key or value have another size, or that can't be done with this map",
        _ => "the element can't be worked on",
    };
    Refusal::new(errno, text)
}

/// The refusal that ended a request for several elements.
fn after(count: u32, refusal: Refusal) -> Refusal {
    if count == 0 {
        return refusal;
    }
    Refusal { text: format!("after {count} elements: {}", refusal.text), ..refusal }
}

/// Largest number of elements in one answer.
const BATCH_MAX: u32 = 4096;
