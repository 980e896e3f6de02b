//! The actual and the wanted state after the last change, for readers.

use std::sync::Arc;

use towpath_objects::Session;

use crate::control::dry_run::Warning;
use crate::control::history::History;
use crate::control::saved::Keeper;
use crate::control::{comings, sas};
use crate::live::Seen;
use crate::live::news::News;
use crate::model::authors::Wanted;
use crate::model::failure::Failure;

/// The actual and the wanted state after the last change.
#[derive(Debug)]
pub(crate) struct Inner {
    /// The actual state.
    pub(crate) live: Seen,
    /// The wanted state, with the authors of each thing.
    pub(crate) wanted: Wanted,
    /// Parts of the wanted state that could not be established.
    pub(crate) failures: Vec<Failure>,
    /// Probable mistakes in the current state.
    pub(crate) warnings: Vec<Warning>,
    /// Wanted changes that take effect at the next start of the daemon.
    pub(crate) restart: Vec<String>,
    pub(super) keeper: Arc<Keeper>,
    pub(crate) news: Arc<News>,
    /// Rates of the last minutes.
    pub(crate) history: Arc<History>,
}

impl Inner {
    /// A session for reading programs, maps and links, including those of `bpf(2)` clients.
    pub(crate) fn session(&self) -> Session {
        Session::new(&self.live.registry, 0)
    }

    /// All failures, including those outside of the data plane.
    pub(crate) fn all_failures(&self) -> Vec<Failure> {
        let standing = self.news.standing.all().into_iter();
        let is_over =
            |it: &Failure| comings::is_over(&self.live, it) || sas::is_over(&self.live, it);
        let standing = standing.filter(|failure| !is_over(failure));
        self.failures.iter().cloned().chain(standing).collect()
    }

    /// Changes that would be lost if the daemon ended, if there are any.
    pub(crate) fn not_saved(&self) -> Option<String> {
        self.keeper.not_saved(!self.wanted.is_as_in_file(), &self.live.registry.pins())
    }
}
