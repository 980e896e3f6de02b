//! The network namespaces that ports are in, followed for interfaces that go and come back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use towpath_host::{Names, Presence};

use crate::live::news::News;
use crate::model::kinds;
use crate::model::state::{PortState, State};

/// The namespaces that ports are in, and who follows each.
#[derive(Debug, Default)]
pub(super) struct Interfaces(BTreeMap<Option<String>, Names>);

impl Interfaces {
    /// Follows those that ports are on, or are to be on. A namespace that cannot be followed, since
    /// there is none of that name, is tried again when this is called again.
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
                // What is wrong with it, the port says that is opened there.
                let Ok(followed) = followed else { continue };
                self.0.insert(namespace.clone(), followed);
            }
            if let Some(followed) = self.0.get(&namespace) {
                followed.watch(names);
            }
        }
    }

    /// Whether a namespace of that name is another one than was followed.
    pub(super) fn has_moved(&self) -> bool {
        self.0.iter().any(|(namespace, followed)| !followed.is_of(namespace.as_deref()))
    }

    /// The interface that a port is to be on, if it is there.
    pub(super) fn find(&self, port: &PortState) -> Option<Presence> {
        let (namespace, name) = kinds::interface(port)?;
        self.0.get(&namespace.map(str::to_owned))?.find(name)
    }
}
