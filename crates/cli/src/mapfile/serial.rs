//! Map contents as JSON, in the format of map files, written element by element.

use std::ops::ControlFlow;

use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use super::contents::{Contents, Entry, Held, MapContents};

impl Serialize for Contents {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(self.maps().len()))?;
        for map in self.maps() {
            object.serialize_entry(map.name(), map)?;
        }
        object.end()
    }
}

impl Serialize for MapContents {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let mut result = Ok(());
        self.for_each(&mut |element| {
            result = list.serialize_element(&(element.read)());
            if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        result?;
        list.end()
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Entry { key, label: _, held } = self;
        let Some(key) = key else { return held.serialize(serializer) };
        let name = if matches!(held, Held::PerCpu(_)) { "values" } else { "value" };
        let mut object = serializer.serialize_map(Some(2))?;
        object.serialize_entry("key", key)?;
        object.serialize_entry(name, held)?;
        object.end()
    }
}

impl Serialize for Held {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Held::One(value) => value.serialize(serializer),
            Held::Map(inner) => inner.serialize(serializer),
            Held::PerCpu(values) => {
                let values = values.iter().enumerate();
                let values = values.map(|(cpu, value)| json!({ "cpu": cpu, "value": value }));
                values.collect::<Vec<Json>>().serialize(serializer)
            }
        }
    }
}
