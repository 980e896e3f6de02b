//! The joint between the hosts: a daemon in this process, as `up` runs it.

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value as Json, json};
use towpath_daemon::api::types::{
    AttachMode, AttachedView, LinkRequest, PortView, ProgramRequest, StatsView, StatusView,
};
use towpath_daemon::client::{Client, ClientError};
use towpath_daemon::{Options, up};

use super::host::Host;
use crate::args::DemoLiveArgs;
use crate::error::CliError;

/// The daemon, which is ended when this is dropped.
pub(super) struct Joint {
    pub(super) client: Client,
    pub(super) socket: PathBuf,
    thread: Option<JoinHandle<Result<(), String>>>,
}

impl Joint {
    /// Starts a daemon without ports, and waits until it answers.
    pub(super) fn start(verbose: u8) -> Result<Joint, CliError> {
        let name = format!("towpath-demo-{}.sock", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let failed = |error: std::io::Error| CliError::Daemon(format!("the daemon: {error}"));
        let client = Client::new(&socket).map_err(failed)?;
        let options =
            Options { socket: Some(socket.clone()), quiet: true, verbose, ..Options::default() };
        let builder = std::thread::Builder::new().name("daemon".to_owned());
        let thread = builder.spawn(move || up(&options)).map_err(failed)?;
        let start = Instant::now();
        while let Err(error) = client.get::<StatusView>("/v1/status") {
            if thread.is_finished() {
                ended(thread)?;
                return Err(CliError::Client(error));
            }
            // The daemon's thread is left alone: before it answers, a signal might kill the
            // process.
            if start.elapsed() > START_TIME {
                return Err(CliError::Client(error));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Joint { client, socket, thread: Some(thread) })
    }

    /// Makes a tap in each host; frames from one host go to the other.
    pub(super) fn connect(&self, hosts: &[Host; 2]) -> Result<(), ClientError> {
        for host in hosts {
            let netns = host.namespace.path();
            let port = json!({ "name": host.port(), "kind": "tap", "netns": netns });
            let _port: PortView = self.client.json("POST", "/v1/ports", &port)?;
        }
        let [one, two] = hosts;
        for (from, to) in [(one, two), (two, one)] {
            let path = format!("/v1/ports/{}", from.port());
            let upper = json!({ "upper": to.port() });
            let _port: PortView = self.client.json("PATCH", &path, &upper)?;
        }
        Ok(())
    }

    /// Attaches the program where the first host's frames arrive; gives the link's name.
    pub(super) fn attach(&self, args: &DemoLiveArgs) -> Result<String, CliError> {
        let attached = self.link(args, AttachMode::Exclusive)?;
        let name = attached.links.first().map(|link| link.name.clone());
        Ok(name.unwrap_or_default())
    }

    /// Loads the program again and replaces the old one.
    pub(super) fn replace(&self, args: &DemoLiveArgs) -> Result<(), CliError> {
        self.link(args, AttachMode::Replace).map(drop)
    }

    fn link(&self, args: &DemoLiveArgs, mode: AttachMode) -> Result<AttachedView, CliError> {
        let uploaded = crate::daemon::upload(&self.client, &args.object)?;
        let program = ProgramRequest {
            sha256: uploaded.sha256,
            object: args.object.display().to_string(),
            program: args.selection.name.clone(),
            section: args.selection.section.clone(),
            ..ProgramRequest::default()
        };
        let port = "host1".to_owned();
        let request = LinkRequest { port, programs: vec![program], mode, ..LinkRequest::default() };
        Ok(self.client.json("POST", "/v1/links", &request)?)
    }

    /// Counters once every frame is accounted for, or after the longest wait.
    pub(super) fn settled(&self) -> Result<StatsView, ClientError> {
        let start = Instant::now();
        loop {
            let stats: StatsView = self.client.get("/v1/stats")?;
            let is_settled = stats.frames.held == 0 && stats.frames.in_flight == 0;
            if is_settled || start.elapsed() > SETTLE_TIME {
                return Ok(stats);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether the daemon ended without a request from here, so by a signal.
    pub(super) fn was_interrupted(&mut self) -> bool {
        let is_gone = self.client.get::<Json>("/v1/status").is_err();
        if is_gone && let Some(thread) = self.thread.take() {
            // The result says only that the daemon ended.
            let _ended = thread.join();
        }
        is_gone
    }

    /// Ends the daemon.
    pub(super) fn end(&mut self) -> Result<(), CliError> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        if !thread.is_finished() {
            // The daemon answered, so it handles signals, and SIGTERM does not kill the process.
            kill_process(getpid(), Signal::TERM)
                .map_err(|error| CliError::Daemon(format!("SIGTERM: {error}")))?;
        }
        ended(thread)
    }
}

impl Drop for Joint {
    fn drop(&mut self) {
        // Either an error is reported already, or the daemon has ended.
        let _ended = self.end();
    }
}

fn ended(thread: JoinHandle<Result<(), String>>) -> Result<(), CliError> {
    let result = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    result.map_err(CliError::Daemon)
}

const START_TIME: Duration = Duration::from_secs(10);
const SETTLE_TIME: Duration = Duration::from_secs(2);
