//! Network namespaces, as tests use them: what fails, fails the test.

use std::process::{Command, Output};

pub(crate) use towpath_kernel::Background;

/// A network namespace: a host with a stack of its own.
#[derive(Debug)]
pub(crate) struct Namespace(towpath_kernel::Namespace);

impl Namespace {
    /// A new one, with nothing but a loopback device.
    pub(crate) fn new() -> Namespace {
        Namespace(towpath_kernel::Namespace::new().unwrap())
    }

    /// Opens an existing namespace.
    pub(crate) fn open(path: &str) -> Namespace {
        Namespace(towpath_kernel::Namespace::open(path).unwrap())
    }

    /// A new one, which the calling thread enters for good: what it opens is there.
    pub(crate) fn enter_new() -> Namespace {
        let namespace = Namespace::new();
        namespace.0.enter().unwrap();
        namespace
    }

    /// A path by which others can enter.
    pub(crate) fn path(&self) -> String {
        self.0.path()
    }

    /// Runs something in it.
    pub(crate) fn within<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.0.enter().unwrap();
                action()
            });
            thread.join().unwrap()
        })
    }

    /// Runs a command to its end.
    pub(crate) fn output(&self, line: &str) -> Output {
        self.0.command(line).output().unwrap()
    }

    /// Runs a command that must succeed; gives what it printed.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        self.0.run(line).unwrap()
    }

    /// A command in the namespace, which the caller starts.
    pub(crate) fn command(&self, line: &str) -> Command {
        self.0.command(line)
    }

    /// Starts a command.
    pub(crate) fn start(&self, line: &str) -> Background {
        self.0.start(line).unwrap()
    }
}
