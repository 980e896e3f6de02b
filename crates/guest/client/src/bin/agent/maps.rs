//! `towpath-guest map`: shows and changes maps.

use serde_json::{Value as Json, json};
use towpath_bpf::map::MapType;
use towpath_guest_client::wire::What;
use towpath_guest_client::{Client, MapInfo};

use crate::Problem;
use crate::args::MapCommand;

pub(crate) fn run(client: &mut Client, command: &MapCommand) -> Result<Json, Problem> {
    match command {
        MapCommand::Show => show(client),
        MapCommand::Dump { map } => {
            let (handle, _) = find(client, map)?;
            let elements = client.dump(handle)?;
            let element = |(key, value): &(Vec<u8>, Vec<u8>)| element(key, value);
            Ok(Json::Array(elements.iter().map(element).collect()))
        }
        MapCommand::Lookup { map, key } => {
            let (handle, info) = find(client, map)?;
            let key = bytes(key, info.key_size as usize, "key")?;
            let value = client.lookup(handle, &key)?;
            Ok(element(&key, &value))
        }
        MapCommand::Update { map, key, value, rule } => {
            let (handle, info) = find(client, map)?;
            let key = bytes(key, info.key_size as usize, "key")?;
            let value = value_bytes(value, &info)?;
            client.update(handle, &[(key.clone(), value.clone())], *rule as u64)?;
            Ok(element(&key, &value))
        }
        MapCommand::Delete { map, key } => {
            let (handle, info) = find(client, map)?;
            let key = bytes(key, info.key_size as usize, "key")?;
            client.delete(handle, &key)?;
            Ok(json!({"key": hex(&key)}))
        }
    }
}

fn show(client: &mut Client) -> Result<Json, Problem> {
    let maps = client.list()?.into_iter().filter(|it| it.what == What::Map);
    let handles: Vec<u32> = maps.map(|it| it.handle).collect();
    let mut shown = Vec::new();
    for handle in handles {
        let info = client.map_info(handle)?;
        let kind = MapType::from_number(info.kind).map_or("unknown", MapType::name);
        shown.push(json!({
            "handle": handle,
            "name": info.name,
            "type": kind,
            "bytes_key": info.key_size,
            "bytes_value": info.value_size,
            "max_entries": info.max_entries,
            "flags": info.flags,
            "frozen": info.is_frozen,
        }));
    }
    Ok(Json::Array(shown))
}

/// The map with this name or handle.
fn find(client: &mut Client, wanted: &str) -> Result<(u32, MapInfo), Problem> {
    if let Ok(handle) = wanted.parse() {
        return Ok((handle, client.map_info(handle)?));
    }
    let maps = client.list()?.into_iter().filter(|it| it.what == What::Map);
    let (named, others): (Vec<_>, Vec<_>) = maps.partition(|it| it.name == wanted);
    match &named[..] {
        [map] => Ok((map.handle, client.map_info(map.handle)?)),
        [] => {
            let names = others.iter().map(|it| it.name.as_str()).collect::<Vec<_>>();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(Problem::new(format!("no map {wanted}: there is {known}")))
        }
        several => {
            let handles: Vec<String> = several.iter().map(|it| it.handle.to_string()).collect();
            let text = format!("{wanted} is the name of maps {}: choose one", handles.join(", "));
            Err(Problem::new(text))
        }
    }
}

/// Bytes of a number, little-endian, or of hex text.
fn bytes(text: &str, size: usize, what: &str) -> Result<Vec<u8>, Problem> {
    let wrong = |why: String| Problem::new(format!("{what} \"{text}\": {why}"));
    if let Some(digits) = text.strip_prefix("hex:") {
        let digits: Vec<u8> = digits.bytes().filter(|byte| !matches!(byte, b':' | b' ')).collect();
        let pair = |pair: &[u8]| {
            let pair = str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?;
            u8::from_str_radix(pair, 16).ok()
        };
        let bytes: Option<Vec<u8>> = digits.chunks(2).map(pair).collect();
        let bytes = bytes.ok_or_else(|| wrong("these are no bytes in hexadecimal".to_owned()))?;
        if bytes.len() != size {
            return Err(wrong(format!("{} bytes, and {size} are needed", bytes.len())));
        }
        return Ok(bytes);
    }
    let number = match text.strip_prefix("0x") {
        Some(digits) => u128::from_str_radix(digits, 16).ok(),
        None => text.parse::<u128>().ok(),
    };
    let number = number.ok_or_else(|| wrong("this is neither a number nor hex:...".to_owned()))?;
    let all = number.to_le_bytes();
    let fits = size <= all.len() && all[size..].iter().all(|&byte| byte == 0);
    if !fits {
        return Err(wrong(format!("a number of {size} bytes is needed, or hex:...")));
    }
    Ok(all[..size].to_vec())
}

/// Bytes of a value: the values of all CPUs if the map is per-CPU.
fn value_bytes(text: &str, info: &MapInfo) -> Result<Vec<u8>, Problem> {
    let (one, all) = (info.value_size as usize, info.user_value_size as usize);
    let stride = one.next_multiple_of(8);
    let is_percpu = all != one && stride != 0 && all.is_multiple_of(stride);
    if !is_percpu {
        return bytes(text, all, "value");
    }
    if text.starts_with("hex:")
        && let Ok(value) = bytes(text, all, "value")
    {
        return Ok(value);
    }
    let mut value = bytes(text, one, "value")?;
    value.resize(stride, 0);
    Ok(value.repeat(all / stride))
}

fn element(key: &[u8], value: &[u8]) -> Json {
    json!({"key": hex(key), "value": hex(value)})
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("hex:{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_numbers_or_bytes() {
        let read = |text: &str, size| bytes(text, size, "key").map_err(|problem| problem.text);
        assert_eq!(read("258", 4), Ok(vec![2, 1, 0, 0]));
        assert_eq!(read("0xff", 1), Ok(vec![255]));
        assert_eq!(read("hex:0a:0b", 2), Ok(vec![10, 11]));
        for (text, size) in [("256", 1), ("hex:0a0", 2), ("hex:0a", 2), ("x", 4), ("1", 17)] {
            assert!(read(text, size).is_err(), "{text} {size}");
        }
    }

    #[test]
    fn one_value_is_for_all_cpus() {
        let info = MapInfo {
            name: String::new(),
            kind: 6,
            key_size: 4,
            value_size: 4,
            max_entries: 1,
            flags: 0,
            user_value_size: 16,
            is_frozen: false,
        };
        let value = value_bytes("7", &info).map_err(|problem| problem.text);
        assert_eq!(value, Ok(vec![7, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]));
    }
}
