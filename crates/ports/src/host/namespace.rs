//! Actions in other network namespaces.
//!
//! A namespace belongs to a thread, and descriptors keep the namespace they were opened in. So a
//! short-lived thread enters the namespace, opens descriptors, and returns them.

use towpath_host::namespace;

use crate::Error;

/// Runs `action` in a namespace: a name that `ip netns` knows, or a path to a namespace's file;
/// without one, in the process's own.
pub(crate) fn within<T: Send>(
    namespace: Option<&str>,
    action: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    let Some(name) = namespace else { return action() };
    let failed = |source: std::io::Error| Error::Namespace { name: name.to_owned(), source };
    let file = namespace::open(name).map_err(failed)?;
    let enter = || -> Result<T, Error> {
        namespace::enter(&file).map_err(failed)?;
        action()
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("namespace".to_owned());
        let thread = thread.spawn_scoped(scope, enter).map_err(failed)?;
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Whether a namespace is not the calling thread's, so that its ifindexes are different.
pub(crate) fn is_foreign(namespace: Option<&str>) -> bool {
    namespace.is_some_and(namespace::is_foreign)
}
