//! Metrics that are made of maps (`[[metrics.map]]`): the map, the member of its values that is
//! exported, and the members of its keys that label the series.

use std::collections::BTreeMap;

use serde::Deserialize;
use towpath_document::Problem;

/// A metric that is made of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapMetric {
    /// The map's name, id, or pin path.
    pub(crate) map: String,
    /// The metric's name, without the prefix `towpath_map_`.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) help: String,
    /// Path of the exported member of values; empty for the whole value.
    pub(crate) value: String,
    /// Names of labels and paths of members of keys; unset for all members.
    pub(crate) labels: Option<Vec<(String, String)>>,
    /// Largest number of elements that are read.
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
    /// Makes a metric from the keys of a section.
    ///
    /// # Errors
    ///
    /// Fails if a name cannot be that of a metric or label.
    pub(crate) fn new(keys: MapMetricKeys) -> Result<MapMetric, Problem> {
        let MapMetricKeys { map, name, kind, help, value, labels, limit } = keys;
        let short = map.rsplit('/').next().unwrap_or_default();
        let made = [short, value.as_str()].into_iter().filter(|part| !part.is_empty());
        let made = label(&made.collect::<Vec<_>>().join("_"));
        let name = name.unwrap_or(made);
        if !is_name(&name) {
            let message = format!("\"{name}\" is not a name for a metric: letters, digits and _");
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
            let message = format!("\"{name}\" is not a name for a label: letters, digits and _");
            return Err(Problem::new("labels", message));
        }
        let help = help.unwrap_or_else(|| match value.is_empty() {
            true => format!("Values of the map {map}"),
            false => format!("{value} of the map {map}"),
        });
        Ok(MapMetric { map, name, kind, help, value, labels, limit })
    }

    /// The metric's name, without the prefix `towpath_map_`.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A path as a label name: `ports.dst` becomes `ports_dst`.
pub(crate) fn label(path: &str) -> String {
    let replaced = path.chars().map(|it| if it.is_ascii_alphanumeric() { it } else { '_' });
    let text: String = replaced.collect();
    let text = text.trim_start_matches('_');
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        return format!("_{text}");
    }
    text.to_owned()
}

/// Default of the largest number of elements that are read.
const ELEMENTS: usize = 10_000;
/// The label with a map's id, where several maps share a name.
pub(crate) const MAP_LABEL: &str = "map_id";
