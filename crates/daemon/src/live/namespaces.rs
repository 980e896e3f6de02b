//! The network namespaces of ports, watched for interfaces that disappear and return.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_host::{Names, Presence};

use crate::live::news::News;
use crate::model::kinds;
use crate::model::state::{PortState, State};

/// A watcher for each network namespace that ports are in.
#[derive(Debug, Default)]
pub(super) struct Interfaces(BTreeMap<Option<String>, Names>);

impl Interfaces {
    /// Watches the interfaces of all wanted ports. A namespace that cannot be watched, for instance
    /// since it does not exist, is tried again at the next call.
    pub(super) fn follow(&mut self, wanted: &State, news: &Arc<News>) {
        let mut names: BTreeMap<Option<String>, BTreeSet<String>> = BTreeMap::new();
        for (namespace, name) in wanted.ports.iter().filter_map(kinds::interface) {
            names.entry(namespace.map(str::to_owned)).or_default().insert(name.to_owned());
        }
        self.0.retain(|namespace, followed| {
            names.contains_key(namespace) && followed.is_of(namespace.as_deref())
        });
        for (namespace, names) in names {
            if !self.0.contains_key(&namespace) {
                let news = Arc::clone(news);
                let followed = Names::follow(namespace.as_deref(), move || news.stir());
                // The error is reported when the port is opened.
                let Ok(followed) = followed else { continue };
                self.0.insert(namespace.clone(), followed);
            }
            if let Some(followed) = self.0.get(&namespace) {
                followed.watch(names);
            }
        }
    }

    /// Whether the name of a watched namespace now belongs to another namespace.
    pub(super) fn has_moved(&self) -> bool {
        self.0.iter().any(|(namespace, followed)| !followed.is_of(namespace.as_deref()))
    }

    /// The host interface of a port, if it exists.
    pub(super) fn find(&self, port: &PortState) -> Option<Presence> {
        let (namespace, name) = kinds::interface(port)?;
        self.0.get(&namespace.map(str::to_owned))?.find(name)
    }
}
