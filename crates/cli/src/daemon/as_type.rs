//! `--as`: the meaning of numbers that hold addresses, which the object's types do not have.

use std::net::Ipv4Addr;
use std::str::FromStr;

use serde_json::Value as Json;
use towpath_daemon::api::types::EntryView;

/// Meaning of a number of an element: `[FIELD=]ipv4`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AsType {
    /// Path of the number: `key`, `value`, `value.source`.
    path: Vec<String>,
    meaning: Meaning,
}

/// Meaning of the bytes of a number, in the order in which they are in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// Four bytes of an IPv4 address.
    Ipv4,
    /// Two bytes of a number, the higher one first: a port, an EtherType.
    Be16,
    /// Four bytes of a number, the highest first.
    Be32,
}

impl FromStr for AsType {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (path, meaning) = text.rsplit_once('=').unwrap_or(("key", text));
        let meaning = match meaning {
            "ipv4" => Meaning::Ipv4,
            "be16" => Meaning::Be16,
            "be32" => Meaning::Be32,
            _ => return Err("expected ipv4, be16 or be32, for the key, or FIELD=ipv4"),
        };
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        match path[0].as_str() {
            "key" | "value" => Ok(AsType { path, meaning }),
            _ => Err("a field begins with key or value: key=ipv4, value.source=ipv4"),
        }
    }
}

impl AsType {
    /// Formats the numbers of an element by their meanings.
    pub(super) fn apply(all: &[AsType], entry: &mut EntryView) {
        for AsType { path, meaning } in all {
            let (root, rest) = (path[0].as_str(), &path[1..]);
            let EntryView { key, value, values, bytes } = entry;
            let mut roots: Vec<&mut Json> = match root {
                "key" => vec![key],
                _ => value.iter_mut().chain(values.iter_mut().flatten()).collect(),
            };
            let formatted = bytes.as_mut().and_then(|bytes| bytes.formatted.as_mut());
            roots.extend(formatted.and_then(|formatted| formatted.get_mut(root)));
            for root in roots {
                let place = rest.iter().try_fold(root, |place, step| place.get_mut(step));
                if let Some(place) = place {
                    meaning.show(place);
                }
            }
        }
    }
}

impl Meaning {
    fn show(self, place: &mut Json) {
        let Some(number) = place.as_u64().and_then(|number| u32::try_from(number).ok()) else {
            return;
        };
        *place = match self {
            Meaning::Ipv4 => Ipv4Addr::from(number.to_le_bytes()).to_string().into(),
            Meaning::Be16 => (number as u16).swap_bytes().into(),
            Meaning::Be32 => number.swap_bytes().into(),
        };
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_become_addresses() {
        let as_types = ["ipv4", "value.source=ipv4", "value.port=be16"];
        let as_types: Vec<AsType> = as_types.iter().map(|it| it.parse().expect("fine")).collect();
        let value = json!({"source": 0x0200_000a_u32, "port": 0x5000});
        let mut entry = EntryView {
            key: json!(0x0100_007f_u32),
            value: Some(value),
            values: None,
            bytes: None,
        };
        AsType::apply(&as_types, &mut entry);
        assert_eq!(entry.key, json!("127.0.0.1"));
        assert_eq!(entry.value, Some(json!({"source": "10.0.0.2", "port": 80})));
        for wrong in ["ipv5", "saddr=ipv4", "key="] {
            assert!(wrong.parse::<AsType>().is_err(), "{wrong}");
        }
    }
}
