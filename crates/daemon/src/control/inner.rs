//! What there is and what is wanted, as it was after the last change.

use std::sync::Arc;

use towpath_objects::Session;

use crate::control::comings;
use crate::control::dry_run::Warning;
use crate::control::history::History;
use crate::control::saved::Keeper;
use crate::live::Seen;
use crate::live::news::News;
use crate::model::authors::Wanted;
use crate::model::failure::Failure;

/// What there is and what is wanted, for whoever looks.
#[derive(Debug)]
pub(crate) struct Inner {
    /// What there is.
    pub(crate) live: Seen,
    /// The wanted state, with the authors of each thing.
    pub(crate) wanted: Wanted,
    /// What is wanted and is not there.
    pub(crate) failures: Vec<Failure>,
    /// What is there and probably not what was meant.
    pub(crate) warnings: Vec<Warning>,
    /// What comes when the daemon is started again.
    pub(crate) restart: Vec<String>,
    pub(super) keeper: Arc<Keeper>,
    pub(crate) news: Arc<News>,
    /// What the last minutes were like.
    pub(crate) history: Arc<History>,
}

impl Inner {
    /// A look at programs, maps and links, whoever made them.
    pub(crate) fn session(&self) -> Session {
        Session::new(&self.live.registry, 0)
    }

    /// What is wanted and isn't so, beside the data plane, too.
    pub(crate) fn all_failures(&self) -> Vec<Failure> {
        let standing = self.news.standing.all().into_iter();
        let standing = standing.filter(|failure| !comings::is_over(&self.live, failure));
        self.failures.iter().cloned().chain(standing).collect()
    }

    /// What would be lost with the daemon, if anything.
    pub(crate) fn not_saved(&self) -> Option<String> {
        self.keeper.not_saved(!self.wanted.is_as_in_file(), &self.live.registry.pins())
    }
}
