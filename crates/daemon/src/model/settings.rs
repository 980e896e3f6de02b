//! How the daemon itself runs: sockets, the page, metrics, where state is saved, and the command's
//! options.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::model::map_metric::MapMetric;

/// How a daemon is started.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Its configuration; none is a daemon without ports.
    pub config: Option<PathBuf>,
    /// The API's socket, instead of the configuration's.
    pub socket: Option<PathBuf>,
    /// Ends by itself after this time.
    pub runs_for: Option<Duration>,
    /// Logs more.
    pub verbose: u8,
    /// Logs JSON, an object a line.
    pub json: bool,
    /// Logs nothing but what goes wrong, unless more is asked for.
    pub quiet: bool,
    /// The process ends when the daemon does: memory and locks are left to that.
    pub ends_process: bool,
}

/// How the daemon itself runs. A reload does not change it, but for metrics of maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The socket of the API.
    pub socket: PathBuf,
    /// Its permissions.
    pub mode: u32,
    /// The group it belongs to, instead of the daemon's own.
    pub group: Option<u32>,
    /// Where the page is served, if anywhere.
    pub http: Option<HttpSettings>,
    /// Where applications get AF_XDP sockets, if not in the usual place.
    pub xsk: Option<PathBuf>,
    /// Its permissions.
    pub xsk_mode: u32,
    /// The group it belongs to, instead of the daemon's own.
    pub xsk_group: Option<u32>,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// Metrics that are made of maps; a reload changes these.
    pub map_metrics: Vec<MapMetric>,
    /// Where what is changed while the daemon runs is saved, if anywhere.
    pub state: Option<StateSettings>,
}

/// Where and when the daemon saves what is changed while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateSettings {
    /// A directory of its own.
    pub dir: PathBuf,
    /// How often contents of pinned maps are saved.
    pub interval: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            socket: PathBuf::from(SOCKET),
            mode: SOCKET_MODE,
            group: None,
            http: None,
            xsk: None,
            xsk_mode: SOCKET_MODE,
            xsk_group: None,
            metrics: None,
            map_metrics: Vec::new(),
            state: None,
        }
    }
}

impl Settings {
    /// The sections that say something else in `other`.
    pub(crate) fn differences(&self, other: &Settings) -> Vec<&'static str> {
        // A token that is read later is the one that was meant.
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

    /// Where applications get AF_XDP sockets: beside the API's socket when nothing is said.
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

/// Where the page is served, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    /// The address.
    pub address: SocketAddr,
    /// Who knows it may do everything; without one, everybody may look.
    pub token: Option<Token>,
    /// The token's file, when it couldn't be read at the start: there is no page until it can.
    pub unread_token: Option<PathBuf>,
    /// Names by which browsers may ask for it, besides addresses and `localhost`.
    pub names: Vec<String>,
}

/// What a token is compared by; the token itself is not kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    sha256: [u8; 32],
}

impl Token {
    /// Of the text of a file.
    ///
    /// # Errors
    ///
    /// It is too short to be kept secret, or has characters that no header can carry.
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

    /// How long it takes says nothing of the token: sums are compared.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.sha256 == <[u8; 32]>::from(Sha256::digest(text))
    }
}

/// Where the daemon listens when nothing else is said.
pub const SOCKET: &str = "/run/towpath/towpath.sock";
/// Where applications get AF_XDP sockets then.
const XSK_SOCKET: &str = "/run/towpath/xsk.sock";
/// Owner and group may use the API.
const SOCKET_MODE: u32 = 0o660;
const _: () = assert!(SOCKET_MODE & 0o117 == 0, "others have no access");
/// What nobody guesses, at the length that `openssl rand -hex 8` gives.
const TOKEN_BYTES_MIN: usize = 16;
