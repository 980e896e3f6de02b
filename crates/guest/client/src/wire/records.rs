//! Values that consist of several parts.

use super::{Tag, Values, Writer};

/// A limit, and the used amount of it: two 64-bit numbers and a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Name in the configuration.
    pub name: String,
    /// Largest amount.
    pub limit: u64,
    /// Used amount.
    pub used: u64,
}

/// A target of redirects: ifindex, MTU, whether it is up, address, 2 zeros, name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetRecord {
    /// The guest's own number of the target, for redirects and maps.
    pub ifindex: u32,
    /// Largest payload, in bytes.
    pub mtu: u32,
    /// Whether it accepts frames now.
    pub is_up: bool,
    /// Ethernet address of the target.
    pub mac: [u8; 6],
    /// Name of the target.
    pub name: String,
}

/// The type of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum What {
    /// Types (BTF).
    Btf = 1,
    /// A map.
    Map = 2,
    /// A program.
    Program = 3,
}

/// An object: handle, type, size in bytes, name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Handle of the object.
    pub handle: u32,
    /// Type of the object.
    pub what: What,
    /// Memory of the object, in bytes.
    pub bytes: u64,
    /// Name of the object.
    pub name: String,
}

/// Counters of a program: seven 64-bit numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Number of frames that it judged.
    pub runs: u64,
    /// Numbers of verdicts: `XDP_ABORTED`, `DROP`, `PASS`, `TX`, `REDIRECT`.
    pub actions: [u64; 5],
    /// Number of runs that were ended: by the time limit, or because a rule was broken.
    pub faults: u64,
}

impl Limit {
    /// Adds the limit to a message.
    pub fn put(&self, writer: &mut Writer) {
        let numbers = [self.limit.to_le_bytes(), self.used.to_le_bytes()].concat();
        writer.put(Tag::LimitUsed, &[&numbers, self.name.as_bytes()].concat());
    }

    /// All limits in a message; malformed ones are left out.
    pub fn all(values: Values<'_>) -> Vec<Limit> {
        let limit = |bytes: &[u8]| {
            let (limit, rest) = u64_of(bytes)?;
            let (used, name) = u64_of(rest)?;
            Some(Limit { name: text(name), limit, used })
        };
        values.all(Tag::LimitUsed).filter_map(limit).collect()
    }
}

impl TargetRecord {
    /// Adds the target to a message.
    pub fn put(&self, writer: &mut Writer) {
        let mut bytes = Vec::new();
        for word in [self.ifindex, self.mtu, u32::from(self.is_up)] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.mac);
        bytes.extend([0, 0]);
        bytes.extend(self.name.as_bytes());
        writer.put(Tag::Target, &bytes);
    }

    /// All targets in a message; malformed ones are left out.
    pub fn all(values: Values<'_>) -> Vec<TargetRecord> {
        let target = |bytes: &[u8]| {
            let (ifindex, rest) = u32_of(bytes)?;
            let (mtu, rest) = u32_of(rest)?;
            let (up, rest) = u32_of(rest)?;
            let (&mac, rest) = rest.split_first_chunk()?;
            let name = text(rest.get(2..)?);
            Some(TargetRecord { ifindex, mtu, is_up: up != 0, mac, name })
        };
        values.all(Tag::Target).filter_map(target).collect()
    }
}

impl What {
    /// Name of the type.
    pub fn word(self) -> &'static str {
        match self {
            What::Btf => "btf",
            What::Map => "map",
            What::Program => "program",
        }
    }
}

impl ObjectRecord {
    /// Adds the object to a message.
    pub fn put(&self, writer: &mut Writer) {
        let mut bytes = self.handle.to_le_bytes().to_vec();
        bytes.extend((self.what as u32).to_le_bytes());
        bytes.extend(self.bytes.to_le_bytes());
        bytes.extend(self.name.as_bytes());
        writer.put(Tag::Object, &bytes);
    }

    /// All objects in a message; malformed ones are left out.
    pub fn all(values: Values<'_>) -> Vec<ObjectRecord> {
        let object = |bytes: &[u8]| {
            let (handle, rest) = u32_of(bytes)?;
            let (what, rest) = u32_of(rest)?;
            let (bytes, name) = u64_of(rest)?;
            let what = match what {
                1 => What::Btf,
                2 => What::Map,
                3 => What::Program,
                _ => return None,
            };
            Some(ObjectRecord { handle, what, bytes, name: text(name) })
        };
        values.all(Tag::Object).filter_map(object).collect()
    }
}

impl Counters {
    /// Adds the counters to a message.
    pub fn put(&self, writer: &mut Writer) {
        let numbers = [self.runs].into_iter().chain(self.actions).chain([self.faults]);
        let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
        writer.put(Tag::Counters, &bytes);
    }

    /// Parses a value of the tag `Counters`; `None` if it is malformed.
    pub fn of(bytes: &[u8]) -> Option<Counters> {
        let numbers: Vec<u64> =
            bytes.as_chunks().0.iter().map(|number| u64::from_le_bytes(*number)).collect();
        let (&runs, rest) = numbers.split_first()?;
        let (&actions, rest) = rest.split_first_chunk()?;
        Some(Counters { runs, actions, faults: *rest.first()? })
    }
}

fn u32_of(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*word), rest))
}

fn u64_of(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*word), rest))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let limit = Limit { name: "maps".into(), limit: 64, used: 2 };
        let (mac, name) = ([2, 0, 0, 0, 0, 1], "up".to_owned());
        let target = TargetRecord { ifindex: 2, mtu: 1500, is_up: true, mac, name };
        let what = What::Map;
        let object = ObjectRecord { handle: 3, what, bytes: 1 << 33, name: "hits".into() };
        let counters = Counters { runs: 15, actions: [1, 2, 3, 4, 5], faults: 6 };
        let mut writer = Writer::new();
        limit.put(&mut writer);
        target.put(&mut writer);
        object.put(&mut writer);
        counters.put(&mut writer);
        let bytes = writer.finish();
        let values = Values::new(&bytes);
        assert_eq!(Limit::all(values), [limit]);
        assert_eq!(TargetRecord::all(values), [target]);
        assert_eq!(ObjectRecord::all(values), [object]);
        assert_eq!(values.find(Tag::Counters).and_then(Counters::of), Some(counters));
        assert_eq!(Counters::of(&[0; 55]), None);
    }
}
