//! The client of the API, which blocks its thread and sends one request at a time.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use axum::BoxError;
use futures_util::stream;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::Request;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tokio::net::UnixStream;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::doors::api::error::{ApiError, ErrorBody};

/// Longest time to retry while the daemon's backlog is full.
const BUSY_MAX: Duration = Duration::from_secs(5);
const BUSY_RETRY: Duration = Duration::from_millis(10);
const _: () = assert!(BUSY_RETRY.as_nanos() < BUSY_MAX.as_nanos());
/// Size in bytes of pieces of streamed bodies.
const PIECE_BYTES: usize = 64 << 10;

/// A client, which connects to the daemon for each request.
#[derive(Debug)]
pub struct Client {
    socket: PathBuf,
    runtime: tokio::runtime::Runtime,
}

/// Errors of requests.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No daemon listens on the socket.
    #[error(
        "no daemon on {}: {source}; start one with `towpath up -c FILE`, or name its socket with \
         --socket",
        socket.display()
    )]
    Unreachable {
        /// Path of the socket.
        socket: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The user is not allowed to connect to the socket.
    #[error(
        "{}: {source}: `[api] group` and `mode` in the daemon's configuration say which users may \
         connect: join that group, or use sudo",
        socket.display()
    )]
    NotAllowed {
        /// Path of the socket.
        socket: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The connection broke, or the answer was invalid.
    #[error("the daemon on {}: {message}", socket.display())]
    Broken {
        /// Path of the socket.
        socket: PathBuf,
        /// The error.
        message: String,
    },
    /// The daemon refused the request.
    #[error(transparent)]
    Refused(ApiError),
}

/// Reasons for the end of an event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventsEnd {
    /// The daemon ended the stream.
    Ended,
    /// The callback returned `false`.
    Enough,
    /// SIGINT arrived.
    Interrupted,
}

impl Client {
    /// A client for the daemon on this socket.
    ///
    /// # Errors
    ///
    /// Fails if descriptors run out.
    pub fn new(socket: &Path) -> std::io::Result<Client> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Client { socket: socket.to_owned(), runtime })
    }

    /// Sends a GET request, and parses the JSON of the answer.
    ///
    /// # Errors
    ///
    /// Fails if the daemon cannot be reached or refuses, or if the answer is invalid.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.send("GET", path, Bytes::new())
    }

    /// Sends a request with a JSON body.
    ///
    /// # Errors
    ///
    /// Fails as [`Client::get`].
    pub fn json<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let bytes = serde_json::to_vec(body).map_err(|error| self.broken(&error))?;
        self.send(method, path, bytes.into())
    }

    /// Sends a request with the given body.
    ///
    /// # Errors
    ///
    /// Fails as [`Client::get`].
    pub fn send<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let bytes = self.runtime.block_on(self.collect(method, path, Full::new(body)))?;
        serde_json::from_slice(&bytes).map_err(|error| self.broken(&error))
    }

    /// Sends a request whose body is streamed from a reader.
    ///
    /// # Errors
    ///
    /// Fails as [`Client::get`], or if the reader fails.
    pub fn upload<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        from: impl Read + Send + 'static,
    ) -> Result<T, ClientError> {
        let pieces = stream::unfold(Some(from), async |from| {
            let mut from = from?;
            let mut piece = vec![0; PIECE_BYTES];
            match from.read(&mut piece) {
                Ok(0) => None,
                Ok(count) => {
                    piece.truncate(count);
                    Some((Ok(Frame::data(Bytes::from(piece))), Some(from)))
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {
                    Some((Ok(Frame::data(Bytes::new())), Some(from)))
                }
                Err(error) => Some((Err(error), None)),
            }
        });
        let body = StreamBody::new(Box::pin(pieces));
        let bytes = self.runtime.block_on(self.collect(method, path, body))?;
        serde_json::from_slice(&bytes).map_err(|error| self.broken(&error))
    }

    /// Sends a GET request, and returns the bytes of the answer.
    ///
    /// # Errors
    ///
    /// Fails as [`Client::get`].
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        self.runtime.block_on(self.collect("GET", path, Full::default())).map(Vec::from)
    }

    async fn collect(
        &self,
        method: &str,
        path: &str,
        body: impl Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    ) -> Result<Bytes, ClientError> {
        let response = self.request(method, path, body).await?;
        let collected = response.into_body().collect().await;
        collected.map(|it| it.to_bytes()).map_err(|error| self.broken(&error))
    }

    /// Receives server-sent events, and calls `heard` with the kind and contents of each, until the
    /// daemon ends the stream, `heard` returns `false`, or SIGINT arrives.
    ///
    /// # Errors
    ///
    /// Fails as [`Client::get`].
    pub fn events(
        &self,
        path: &str,
        mut heard: impl FnMut(&str, Json) -> bool,
    ) -> Result<EventsEnd, ClientError> {
        self.runtime.block_on(async {
            let mut interrupt =
                signal(SignalKind::interrupt()).map_err(|error| self.broken(&error))?;
            let mut body = self.request("GET", path, Full::default()).await?.into_body();
            let (mut text, mut kind) = (Vec::new(), String::new());
            loop {
                let frame = tokio::select! {
                    frame = body.frame() => frame,
                    _ = interrupt.recv() => return Ok(EventsEnd::Interrupted),
                };
                let Some(frame) = frame else { return Ok(EventsEnd::Ended) };
                let frame = frame.map_err(|error| self.broken(&error))?;
                let Some(data) = frame.data_ref() else { continue };
                text.extend_from_slice(data);
                let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
                let lines = String::from_utf8_lossy(&text[..whole]).into_owned();
                text.drain(..whole);
                for line in lines.lines() {
                    if let Some(name) = line.strip_prefix("event: ") {
                        name.clone_into(&mut kind);
                    } else if let Some(json) = line.strip_prefix("data: ")
                        && let Ok(json) = serde_json::from_str(json)
                        && !heard(&kind, json)
                    {
                        return Ok(EventsEnd::Enough);
                    }
                }
            }
        })
    }

    /// Reads an unlimited answer, until the daemon ends it or SIGINT arrives.
    ///
    /// # Errors
    ///
    /// Fails as [`Client::get`].
    pub fn stream(&self, path: &str) -> Result<Stream<'_>, ClientError> {
        let response = self.runtime.block_on(self.request("GET", path, Full::default()))?;
        let _context = self.runtime.enter();
        let interrupt = signal(SignalKind::interrupt()).map_err(|error| self.broken(&error))?;
        let (body, bytes) = (response.into_body(), Bytes::new());
        Ok(Stream { client: self, body, bytes, interrupt, is_interrupted: false })
    }

    async fn request(
        &self,
        method: &str,
        path: &str,
        body: impl Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    ) -> Result<hyper::Response<Incoming>, ClientError> {
        let stream = self.connect().await?;
        let handshake = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.broken(&error))?;
        // The task ends with the response.
        let _task = tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "towpath")
            .header("content-type", "application/json")
            .body(Box::pin(body))
            .map_err(|error| self.broken(&error))?;
        let response = sender.send_request(request).await.map_err(|error| self.broken(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = response.into_body().collect().await.map_err(|error| self.broken(&error))?;
        let message = match serde_json::from_slice::<ErrorBody>(&bytes.to_bytes()) {
            Ok(body) => body.error,
            Err(_no_json) => format!("status {status}"),
        };
        Err(ClientError::Refused(ApiError { status: status.as_u16(), message }))
    }

    async fn connect(&self) -> Result<UnixStream, ClientError> {
        let start = Instant::now();
        loop {
            let socket = self.socket.clone();
            let source = match UnixStream::connect(&socket).await {
                Ok(stream) => return Ok(stream),
                Err(source) => source,
            };
            match source.kind() {
                // The backlog is full.
                ErrorKind::WouldBlock if start.elapsed() < BUSY_MAX => {
                    tokio::time::sleep(BUSY_RETRY).await;
                }
                ErrorKind::WouldBlock => return Err(self.broken(&"it accepts no connections")),
                ErrorKind::PermissionDenied => {
                    return Err(ClientError::NotAllowed { socket, source });
                }
                _ => return Err(ClientError::Unreachable { socket, source }),
            }
        }
    }

    fn broken(&self, error: &dyn std::fmt::Display) -> ClientError {
        ClientError::Broken { socket: self.socket.clone(), message: error.to_string() }
    }
}

/// A streamed answer. Reading blocks until more bytes arrive, and ends at SIGINT.
#[derive(Debug)]
pub struct Stream<'a> {
    client: &'a Client,
    body: Incoming,
    bytes: Bytes,
    interrupt: Signal,
    is_interrupted: bool,
}

impl Stream<'_> {
    /// Whether the next read blocks.
    pub fn is_drained(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Read for Stream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.bytes.is_empty() && !self.is_interrupted {
            let Stream { body, interrupt, .. } = self;
            let next = self.client.runtime.block_on(async {
                tokio::select! {
                    frame = body.frame() => Some(frame),
                    _ = interrupt.recv() => None,
                }
            });
            match next {
                None => self.is_interrupted = true,
                Some(None) => return Ok(0),
                Some(Some(frame)) => {
                    let frame = frame.map_err(|error| {
                        std::io::Error::other(self.client.broken(&error).to_string())
                    })?;
                    self.bytes = frame.into_data().unwrap_or_default();
                }
            }
        }
        let count = buffer.len().min(self.bytes.len());
        buffer[..count].copy_from_slice(&self.bytes.split_to(count));
        Ok(count)
    }
}

/// Percent-encodes a name for use in a path.
pub fn encoded(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"._-~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_daemon_with_a_full_backlog_is_asked_again() {
        let path = std::env::temp_dir().join(format!("towpath-full-{}", std::process::id()));
        let listener = UnixListener::bind(&path).expect("there is room");
        rustix::net::listen(&listener, 0).expect("it is a socket");
        let first = UnixStream::connect(&path).expect("one may wait");
        let client = Client::new(&path).expect("there are descriptors");
        client.runtime.block_on(async {
            let connects = tokio::time::timeout(BUSY_RETRY * 5, client.connect());
            assert!(connects.await.is_err(), "it waits");
            listener.accept().expect("that was the first");
            client.connect().await.expect("there is room again");
        });
        drop(first);
        std::fs::remove_file(&path).expect("it is ours");
    }
}
