//! Metrics made of maps (`[[metrics.map]]`).

use std::collections::BTreeMap;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use serde_json::Value as Json;
use towpath_objects::{MapObject, Object, Objects, Session};

use super::encode::{Encoded, family, single};
use crate::live::elements::Listing;
use crate::model::map_metric::{Kind, MAP_LABEL, MapMetric, label};
use crate::model::messages::EntryView;

/// The values of a metric at the time of a request.
#[derive(Debug)]
pub(super) struct MapReading {
    metric: MapMetric,
    /// Number of maps with the configured name.
    maps: usize,
    series: BTreeMap<Vec<(String, String)>, f64>,
    /// Number of elements beyond the limit, or without a number at the configured path.
    left_out: usize,
}

impl MapReading {
    /// Reads all configured metrics.
    pub(super) fn all(
        metrics: &[MapMetric],
        registry: &std::sync::Arc<Objects>,
    ) -> Vec<MapReading> {
        if metrics.is_empty() {
            return Vec::new();
        }
        let session = Session::new(registry, 0);
        metrics.iter().map(|metric| MapReading::of(metric, &session)).collect()
    }

    fn of(metric: &MapMetric, session: &Session) -> MapReading {
        let mut found = session.maps();
        found.retain(|map| is_of(metric, map, session.objects()));
        let mut reading = MapReading {
            metric: metric.clone(),
            maps: found.len(),
            series: BTreeMap::new(),
            left_out: 0,
        };
        for map in &found {
            let most = metric.limit.saturating_add(1);
            let session = Session::new(session.objects(), 0);
            let listed = Listing::new(session, map, most, false).and_then(Listing::all);
            let Ok(entries) = listed else { continue };
            // With several maps of one name, the id becomes a label.
            let id = (found.len() > 1).then(|| (MAP_LABEL.to_owned(), map.id().to_string()));
            for (index, entry) in entries.iter().enumerate() {
                match number(entry, &metric.value).filter(|_| index < metric.limit) {
                    Some(number) => {
                        let labels = id.iter().cloned().chain(labels(metric, &entry.key));
                        *reading.series.entry(labels.collect()).or_default() += number;
                    }
                    None => reading.left_out += 1,
                }
            }
        }
        reading
    }

    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Encoded {
        match self.metric.kind {
            Kind::Counter => self.encode_as(encoder, ConstCounter::new),
            Kind::Gauge => self.encode_as(encoder, ConstGauge::new),
        }
    }

    fn encode_as<M: EncodeMetric + TypedMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        metric: fn(f64) -> M,
    ) -> Encoded {
        let MapMetric { name, help, .. } = &self.metric;
        let name = format!("map_{name}");
        // Without labels, there is one series.
        if let Some(number) = self.series.get(&Vec::new()) {
            return single(encoder, &name, help, &metric(*number));
        }
        let series = self.series.iter();
        family(encoder, &name, help, series.map(|(labels, it)| (labels.as_slice(), metric(*it))))
    }
}

/// Whether a map has the metric's name, id or pin path.
fn is_of(metric: &MapMetric, map: &MapObject, registry: &Objects) -> bool {
    let is_pin = |(path, pin): &(String, Object)| {
        *path == metric.map && matches!(pin, Object::Map(pin) if pin.object().id() == map.id())
    };
    map.name().to_string() == metric.map
        || map.id().to_string() == metric.map
        || registry.pins().iter().any(is_pin)
}

/// Encodes metrics about the metrics themselves.
pub(super) fn encode_state(
    readings: &[MapReading],
    encoder: &mut DescriptorEncoder<'_>,
) -> Encoded {
    let gauge = |reading: &MapReading, number: usize| {
        let metric = format!("towpath_map_{}", reading.metric.name);
        ([("metric", metric)], ConstGauge::new(number as f64))
    };
    let maps = readings.iter().map(|it| gauge(it, it.maps));
    family(encoder, "map_metric_maps", "Maps that a metric is made of", maps)?;
    let help = "Elements beyond the limit, or without such a number";
    let left_out = readings.iter().map(|it| gauge(it, it.left_out));
    family(encoder, "map_metric_left_out", help, left_out)
}

/// The labels of an element's series.
fn labels(metric: &MapMetric, key: &Json) -> Vec<(String, String)> {
    let text = |json: &Json| json.as_str().map_or_else(|| json.to_string(), str::to_owned);
    match &metric.labels {
        Some(wanted) => {
            let of = |(name, path): &(String, String)| {
                // A key without members has one value, for any name of a label.
                let part = if key.is_object() { member(key, path) } else { Some(key) };
                (name.clone(), part.map(text).unwrap_or_default())
            };
            wanted.iter().map(of).collect()
        }
        None => {
            let mut all = Vec::new();
            members(key, "", &mut |path, json| {
                let name = if path.is_empty() { "key".to_owned() } else { label(path) };
                all.push((name, text(json)));
            });
            all
        }
    }
}

/// Calls `each` for each leaf of a JSON value, with its path.
fn members(json: &Json, path: &str, each: &mut impl FnMut(&str, &Json)) {
    match json {
        Json::Object(table) => {
            for (name, value) in table {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                members(value, &path, each);
            }
        }
        Json::Null => {}
        _ => each(path, json),
    }
}

fn member<'a>(json: &'a Json, path: &str) -> Option<&'a Json> {
    let mut parts = path.split('.').filter(|part| !part.is_empty());
    parts.try_fold(json, |json, part| match json {
        Json::Array(items) => items.get(part.parse::<usize>().ok()?),
        json => json.get(part),
    })
}

/// The number at a path of an element's value, summed over CPUs.
fn number(entry: &EntryView, path: &str) -> Option<f64> {
    let of = |json: &Json| match member(json, path)? {
        Json::Bool(is) => Some(f64::from(u8::from(*is))),
        json => json.as_f64(),
    };
    match (&entry.value, &entry.values) {
        (Some(value), _) => of(value),
        (None, Some(values)) => values.iter().map(of).sum(),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn metric(keys: Json) -> Result<MapMetric, String> {
        let keys = towpath_document::typed(keys).map_err(|problem| problem.to_string())?;
        MapMetric::new(keys).map_err(|problem| problem.to_string())
    }

    #[test]
    fn names_are_made_of_paths_and_checked() {
        let made = metric(json!({ "map": "flow_table", "value": "stats.packets" })).unwrap();
        assert_eq!(made.name, "flow_table_stats_packets");
        let made = metric(json!({ "map": "/sys/fs/bpf/7seas" })).unwrap();
        assert_eq!(made.name, "_7seas");
        let refused = metric(json!({ "map": "m", "name": "a-b" })).unwrap_err();
        assert!(refused.starts_with("name: \"a-b\" is not a name for a metric"), "{refused}");
        let refused = metric(json!({ "map": "m", "labels": { "map_id": "x" } })).unwrap_err();
        assert!(refused.starts_with("labels: "), "{refused}");
        assert!(metric(json!({ "map": "m", "tpye": "counter" })).is_err());
    }

    #[test]
    fn labels_are_members_of_keys() {
        let key = json!({ "saddr": "10.0.0.1", "ports": { "src": 1, "dst": 80 } });
        let of = |keys: Json, key: &Json| {
            let labels = labels(&metric(keys).unwrap(), key);
            labels.into_iter().map(|(name, text)| format!("{name}={text}")).collect::<Vec<_>>()
        };
        let all = ["saddr=10.0.0.1", "ports_src=1", "ports_dst=80"];
        assert_eq!(of(json!({ "map": "m" }), &key), all);
        assert_eq!(of(json!({ "map": "m", "labels": ["ports.dst"] }), &key), ["ports_dst=80"]);
        let named = json!({ "map": "m", "labels": { "source": "saddr" } });
        assert_eq!(of(named, &key), ["source=10.0.0.1"]);
        assert_eq!(of(json!({ "map": "m" }), &json!(7)), ["key=7"]);
        assert_eq!(of(json!({ "map": "m", "labels": ["cpu"] }), &json!(7)), ["cpu=7"]);
        assert_eq!(of(json!({ "map": "m", "labels": [] }), &key), [""; 0]);
    }

    #[test]
    fn numbers_are_read_by_path_and_summed_over_cpus() {
        let entry = |value: Option<Json>, values: Option<Vec<Json>>| EntryView {
            key: json!(0),
            value,
            values,
            bytes: None,
        };
        assert_eq!(number(&entry(Some(json!(5)), None), ""), Some(5.0));
        assert_eq!(number(&entry(Some(json!({ "a": [1, 2] })), None), "a.1"), Some(2.0));
        assert_eq!(number(&entry(Some(json!({ "a": true })), None), "a"), Some(1.0));
        assert_eq!(number(&entry(Some(json!({ "a": "x" })), None), "a"), None);
        assert_eq!(number(&entry(Some(json!({})), None), "b"), None);
        let each = vec![json!({ "a": 1 }), json!({ "a": 2 })];
        assert_eq!(number(&entry(None, Some(each)), "a"), Some(3.0));
    }
}
