//! Metrics that are made of maps, as configuration says them (`[[metrics.map]]`): which map, which
//! part of its values, and which parts of its keys tell series apart.

use std::collections::BTreeMap;

use serde::Deserialize;
use towpath_document::Problem;

/// A metric that is made of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapMetric {
    /// The map: its name, its id, or the path of a pin.
    pub(crate) map: String,
    /// Behind `towpath_map_`.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) help: String,
    /// Path of the member of values that is read; empty for the value itself.
    pub(crate) value: String,
    /// Names of labels and the paths of members of keys; all members when nothing is said.
    pub(crate) labels: Option<Vec<(String, String)>>,
    /// Elements that are read at most.
    pub(crate) limit: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Counter,
    #[default]
    Gauge,
}

/// Keys of `[[metrics.map]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct MapMetricKeys {
    map: String,
    name: Option<String>,
    #[serde(default, rename = "type")]
    kind: Kind,
    help: Option<String>,
    #[serde(default)]
    value: String,
    labels: Option<LabelKeys>,
    #[serde(default = "limit")]
    limit: usize,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected members of the key, or a table LABEL = MEMBER")]
enum LabelKeys {
    Members(Vec<String>),
    Named(BTreeMap<String, String>),
}

fn limit() -> usize {
    ELEMENTS
}

impl MapMetric {
    /// Of what a file says.
    ///
    /// # Errors
    ///
    /// A name that no metric or label can have.
    pub(crate) fn new(keys: MapMetricKeys) -> Result<MapMetric, Problem> {
        let MapMetricKeys { map, name, kind, help, value, labels, limit } = keys;
        let short = map.rsplit('/').next().unwrap_or_default();
        let made = [short, value.as_str()].into_iter().filter(|part| !part.is_empty());
        let made = label(&made.collect::<Vec<_>>().join("_"));
        let name = name.unwrap_or(made);
        if !is_name(&name) {
            let message = format!("\"{name}\" is no metric's name: letters, digits and _");
            return Err(Problem::new("name", message));
        }
        let labels = match labels {
            None => None,
            Some(LabelKeys::Members(paths)) => {
                Some(paths.into_iter().map(|path| (label(&path), path)).collect())
            }
            Some(LabelKeys::Named(names)) => Some(names.into_iter().collect::<Vec<_>>()),
        };
        let bad = labels.iter().flatten().find(|(name, _)| !is_name(name) || name == MAP_LABEL);
        if let Some((name, _)) = bad {
            let message = format!("\"{name}\" is no label's name: letters, digits and _");
            return Err(Problem::new("labels", message));
        }
        let help = help.unwrap_or_else(|| match value.is_empty() {
            true => format!("Values of the map {map}"),
            false => format!("{value} of the map {map}"),
        });
        Ok(MapMetric { map, name, kind, help, value, labels, limit })
    }

    /// Its name, behind `towpath_map_`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A path as a label's name: `ports.dst` is `ports_dst`.
pub(crate) fn label(path: &str) -> String {
    let replaced = path.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' });
    let text: String = replaced.collect();
    let text = text.trim_start_matches('_');
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return format!("_{text}");
    }
    text.to_owned()
}

/// Elements that are read when nothing is said.
const ELEMENTS: usize = 10_000;
/// Of a map, where several have one name.
pub(crate) const MAP_LABEL: &str = "map_id";
