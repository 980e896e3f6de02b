//! Settings of the daemon itself: sockets, the web page, metrics, the directory for saved state,
//! and options of the command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use towpath_host::socket::MODE_DEFAULT;

use crate::model::map_metric::MapMetric;

/// Options with which the daemon is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Path of the configuration; without one, the daemon starts without ports.
    pub config: Option<PathBuf>,
    /// Path of the API's socket, in place of the configured one.
    pub socket: Option<PathBuf>,
    /// Time after which the daemon ends by itself.
    pub runs_for: Option<Duration>,
    /// Additional verbosity of the log.
    pub verbose: u8,
    /// Whether the log is JSON, one object per line.
    pub json: bool,
    /// Whether only problems are logged, unless `verbose` asks for more.
    pub quiet: bool,
    /// Whether the process ends with the daemon, in which case memory and locks are left to the
    /// kernel.
    pub ends_process: bool,
}

/// Settings of the daemon itself. A reload changes only `map_metrics`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Path of the API's socket.
    pub socket: PathBuf,
    /// Permissions of the API's socket.
    pub mode: u32,
    /// Group of the API's socket, in place of the daemon's own.
    pub group: Option<u32>,
    /// Settings of the web page, if it is served.
    pub http: Option<HttpSettings>,
    /// Path of the socket for AF_XDP applications, if not the default one.
    pub xsk: Option<PathBuf>,
    /// Permissions of that socket.
    pub xsk_mode: u32,
    /// Group of that socket, in place of the daemon's own.
    pub xsk_group: Option<u32>,
    /// Address on which metrics are served, if they are.
    pub metrics: Option<SocketAddr>,
    /// Metrics that are made of maps.
    pub map_metrics: Vec<MapMetric>,
    /// Settings for saving changes made at run time, if they are saved.
    pub state: Option<StateSettings>,
}

/// Settings for saving changes made at run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSettings {
    /// A directory used only by the daemon.
    pub dir: PathBuf,
    /// Interval at which contents of pinned maps are saved.
    pub interval: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            socket: PathBuf::from(SOCKET),
            mode: MODE_DEFAULT,
            group: None,
            http: None,
            xsk: None,
            xsk_mode: MODE_DEFAULT,
            xsk_group: None,
            metrics: None,
            map_metrics: Vec::new(),
            state: None,
        }
    }
}

impl Settings {
    /// Names of the sections that differ from `other`.
    pub(crate) fn differences(&self, other: &Settings) -> Vec<&'static str> {
        // A token that was read late equals the token that was configured.
        let is_late = self.http.as_ref().is_some_and(|http| http.unread_token.is_some());
        let http = |it: &Settings| {
            let mut http = it.http.clone();
            if let Some(http) = http.as_mut().filter(|_| is_late) {
                (http.token, http.unread_token) = (None, None);
            }
            http
        };
        let api = |it: &Settings| (it.socket.clone(), it.mode, it.group, http(it));
        let xsk = |it: &Settings| (it.xsk.clone(), it.xsk_mode, it.xsk_group);
        let sections = [
            ("[api]", api(self) != api(other)),
            ("[xsk]", xsk(self) != xsk(other)),
            ("[metrics]", self.metrics != other.metrics),
            ("[state]", self.state != other.state),
        ];
        sections.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }

    /// Path of the socket for AF_XDP applications; by default it is beside the API's socket.
    pub fn xsk_socket(&self) -> PathBuf {
        match &self.xsk {
            Some(path) => path.clone(),
            None if self.socket == Path::new(SOCKET) => PathBuf::from(XSK_SOCKET),
            None => {
                let mut name = self.socket.as_os_str().to_owned();
                name.push(".xsk");
                PathBuf::from(name)
            }
        }
    }
}

/// Settings of the web page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// The address to listen on.
    pub address: SocketAddr,
    /// The token that grants full access; without one, all users may only look.
    pub token: Option<Token>,
    /// Path of the token, if it could not be read at the start: the page is not served until it
    /// can.
    pub unread_token: Option<PathBuf>,
    /// Host names allowed in requests, besides addresses and `localhost`.
    pub names: Vec<String>,
}

/// Hash of a token, to compare with; the token itself is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    sha256: [u8; 32],
}

impl Token {
    /// Hashes the token in the text of a file.
    ///
    /// # Errors
    ///
    /// Fails if the token is too short, or has characters that are not allowed in a header.
    pub fn new(text: &str) -> Result<Token, String> {
        let text = text.trim();
        if text.len() < TOKEN_BYTES_MIN {
            return Err(format!("a token has {TOKEN_BYTES_MIN} characters or more"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token is one word of ASCII characters".to_owned());
        }
        Ok(Token { sha256: Sha256::digest(text).into() })
    }

    /// Whether `text` is the token. Hashes are compared, so that timing reveals nothing of the
    /// token.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.sha256 == <[u8; 32]>::from(Sha256::digest(text))
    }
}

/// Default path of the API's socket.
pub const SOCKET: &str = "/run/towpath/towpath.sock";
/// Default path of the socket for AF_XDP applications, with the default API socket.
const XSK_SOCKET: &str = "/run/towpath/xsk.sock";

/// Shortest token, in bytes: 64 random bits, as `openssl rand -hex 8` prints.
const TOKEN_BYTES_MIN: usize = 16;
