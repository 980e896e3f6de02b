//! HTTP connections to the API and to the metrics port. No client can exclude others by holding
//! connections: their number, the time for a request's head and body, and the memory for bodies are
//! limited. When one of these is exhausted, the connection that has been idle longest is closed.

use std::fs::File;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use hyper::Request;
use hyper::body::{Body as _, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::control::Control;
use crate::doors::api::answer::is_streamed;
use crate::doors::api::error::ApiError;
use crate::live::news::News;
use crate::model::refusal::Refusal;

/// Limits of one entrance: the API's socket, or the address of metrics.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Number of concurrent connections.
    pub(crate) connections: usize,
    /// Time from a connection, or an answer, to the end of the next request's head.
    pub(crate) head: Duration,
    /// Time for a request's body.
    pub(crate) body: Duration,
    /// Largest size of a body in bytes.
    pub(crate) body_bytes: usize,
    /// Largest size of all bodies together in bytes, except small ones.
    pub(crate) bodies_bytes: usize,
    /// Largest size of all unsent answers together in bytes, except small ones.
    pub(crate) answers_bytes: usize,
    /// Whether some requests may stream bodies of any length.
    pub(crate) has_streams: bool,
    /// Whether a connection may carry several requests.
    pub(crate) keep_alive: bool,
    /// Number of descriptors reserved for connections, for when the process runs out of others.
    pub(crate) reserve: usize,
}

impl Limits {
    /// Adapts the limits to the process's limit on descriptors, most of which are needed elsewhere.
    pub(crate) fn within(self, descriptors: u64) -> Limits {
        let share = usize::try_from(descriptors / 4).unwrap_or(usize::MAX).max(1);
        Limits { connections: self.connections.min(share), ..self }
    }
}

/// A socket that accepts connections.
pub(crate) trait Listener: Send + 'static {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection, with a description of the client.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, String)>> + Send;
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, String)> {
        let (stream, _) = UnixListener::accept(self).await?;
        let who = stream.peer_cred().map_or_else(
            |_unknown| "somebody".to_owned(),
            |who| format!("process {} of user {}", who.pid().unwrap_or(0), who.uid()),
        );
        Ok((stream, who))
    }
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, String)> {
        TcpListener::accept(self).await.map(|(stream, address)| (stream, address.to_string()))
    }
}

/// Reports clients that send invalid requests. Other ends of connections are not reported.
#[derive(Debug, Clone)]
pub(crate) struct Strangers {
    entrance: &'static str,
    news: Arc<News>,
}

impl Strangers {
    pub(crate) fn new(entrance: &'static str, control: &Control) -> Strangers {
        Strangers { entrance, news: Arc::clone(&control.news) }
    }

    fn tell(&self, who: &str, error: &hyper::Error) {
        if error.is_parse() {
            let Strangers { entrance, news } = self;
            news.note(entrance, &format!("{entrance}: {who} sent an invalid request: {error}"));
        }
    }
}

/// Serves connections forever.
pub(crate) async fn serve(
    listener: impl Listener,
    router: Router,
    limits: Limits,
    told: Strangers,
) {
    let admission = Arc::new(Admission::new(limits));
    loop {
        admission.make_room().await;
        let (stream, who) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(_no_descriptors) => {
                if !admission.lend() {
                    admission.evict(|_| true);
                    let _later = timeout(RETRY, admission.left.notified()).await;
                }
                continue;
            }
        };
        let connection = admission.admit();
        let attended = attend(Arc::clone(&admission), connection, stream, router.clone());
        let told = told.clone();
        tokio::spawn(async move {
            if let Err(error) = attended.await {
                told.tell(&who, &error);
            }
        });
    }
}

/// Serves a connection until it ends or is evicted.
async fn attend<S>(
    admission: Arc<Admission>,
    connection: Arc<Connection>,
    stream: S,
    router: Router,
) -> hyper::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let router = TowerToHyperService::new(router);
    let answer = service_fn(|request: Request<Incoming>| {
        let (admission, connection, router) =
            (Arc::clone(&admission), Arc::clone(&connection), router.clone());
        async move {
            let held =
                Held { admission: Arc::clone(&admission), connection: Arc::clone(&connection) };
            let request = match admission.whole(&connection, request).await {
                Ok(request) => request,
                Err(error) => return Ok::<Response, std::convert::Infallible>(refusal(error)),
            };
            connection.is_busy.store(true, Ordering::Relaxed);
            let answer = router.call(request).await?;
            let has_end = answer.body().size_hint().exact().is_some();
            connection.is_listening.store(!has_end, Ordering::Relaxed);
            let answer = Admission::send(&admission, &connection, answer).await;
            drop(held);
            Ok(answer)
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(admission.limits.head);
    http.keep_alive(admission.limits.keep_alive).max_buf_size(HEAD_BYTES_MAX);
    let served = http.serve_connection(TokioIo::new(stream), answer);
    let ended = tokio::select! {
        served = served => served,
        () = connection.leave.notified() => Ok(()),
    };
    admission.see_off(&connection);
    ended
}

/// The answer to a request whose body is not read completely, so the connection must end.
fn refusal(error: ApiError) -> Response {
    let mut response = error.into_response();
    let close = axum::http::HeaderValue::from_static("close");
    response.headers_mut().insert(axum::http::header::CONNECTION, close);
    response
}

/// The connections of an entrance, and the resources left for more.
#[derive(Debug)]
struct Admission {
    limits: Limits,
    /// Connections, those that have been idle longest first.
    connections: Mutex<Vec<Arc<Connection>>>,
    /// Notified when a connection ends, or memory is given back.
    left: Notify,
    /// Bytes left for bodies.
    bytes: AtomicUsize,
    /// Bytes left for answers.
    answers: AtomicUsize,
    reserve: Mutex<Vec<File>>,
}

/// An HTTP connection.
#[derive(Debug, Default)]
struct Connection {
    /// Whether its request is being answered.
    is_busy: AtomicBool,
    /// Whether its last answer was an unlimited stream, which may still be running.
    is_listening: AtomicBool,
    /// Bytes used by its body.
    bytes: AtomicUsize,
    /// Bytes of its answer that have not been sent.
    unsent: AtomicUsize,
    /// Whether the connection has been evicted.
    is_leaving: AtomicBool,
    leave: Notify,
}

impl Admission {
    fn new(limits: Limits) -> Admission {
        let admission = Admission {
            limits,
            connections: Mutex::default(),
            left: Notify::new(),
            bytes: AtomicUsize::new(limits.bodies_bytes),
            answers: AtomicUsize::new(limits.answers_bytes),
            reserve: Mutex::default(),
        };
        admission.refill();
        admission
    }

    /// Waits until there is room for another connection.
    async fn make_room(&self) {
        loop {
            let left = self.left.notified();
            if self.connections.lock().len() < self.limits.connections {
                return;
            }
            self.evict(|_| true);
            let _later = timeout(RETRY, left).await;
        }
    }

    fn admit(&self) -> Arc<Connection> {
        let connection = Arc::new(Connection::default());
        self.connections.lock().push(Arc::clone(&connection));
        connection
    }

    /// Marks a connection as the most recently active.
    fn note_done(&self, connection: &Arc<Connection>) {
        let mut connections = self.connections.lock();
        if let Some(at) = connections.iter().position(|it| Arc::ptr_eq(it, connection)) {
            connections[at..].rotate_left(1);
        }
    }

    fn see_off(&self, connection: &Arc<Connection>) {
        self.connections.lock().retain(|it| !Arc::ptr_eq(it, connection));
        self.give_back(connection);
        self.refill();
        self.left.notify_waiters();
    }

    /// Evicts a connection that is not being answered; streams are evicted only if there is no
    /// other. Returns whether a connection is on its way out.
    fn evict(&self, which: impl Fn(&Connection) -> bool) -> bool {
        let connections = self.connections.lock();
        let is_leaving = |connection: &Connection| connection.is_leaving.load(Ordering::Relaxed);
        if connections.iter().any(|connection| is_leaving(connection) && which(connection)) {
            // One at a time suffices, until its resources are free.
            return true;
        }
        let waits = |connection: &&Arc<Connection>| {
            !connection.is_busy.load(Ordering::Relaxed) && which(connection)
        };
        let listens =
            |connection: &&Arc<Connection>| connection.is_listening.load(Ordering::Relaxed);
        let idle = connections.iter().filter(waits).find(|it| !listens(it));
        let Some(connection) = idle.or_else(|| connections.iter().find(waits)) else {
            return false;
        };
        connection.is_leaving.store(true, Ordering::Relaxed);
        connection.leave.notify_one();
        true
    }

    /// Frees a descriptor of the reserve; returns whether there was one.
    fn lend(&self) -> bool {
        self.reserve.lock().pop().is_some()
    }

    fn refill(&self) {
        let mut reserve = self.reserve.lock();
        while reserve.len() < self.limits.reserve
            && let Ok(file) = File::open("/dev/null")
        {
            reserve.push(file);
        }
    }

    /// Reads the whole body of a request, unless its handler reads the body itself.
    async fn whole(
        &self,
        connection: &Connection,
        request: Request<Incoming>,
    ) -> Result<Request<Body>, ApiError> {
        let (parts, body) = request.into_parts();
        if self.limits.has_streams && is_streamed(&parts) {
            return Ok(Request::from_parts(parts, Body::new(body)));
        }
        let late = |_| ApiError {
            status: 408,
            message: format!("the body took more than {} s", self.limits.body.as_secs()),
        };
        let bytes =
            timeout(self.limits.body, self.read(connection, body)).await.map_err(late)??;
        Ok(Request::from_parts(parts, Body::from(bytes)))
    }

    async fn read(&self, connection: &Connection, mut body: Incoming) -> Result<Bytes, ApiError> {
        let said = body.size_hint().lower();
        let said = usize::try_from(said).unwrap_or(usize::MAX);
        self.allow(connection, said).await?;
        // Allocated, but unused memory is not backed by pages.
        let mut bytes = Vec::with_capacity(said);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Refusal::bad(format!("body: {error}")))?;
            let Some(data) = frame.data_ref() else { continue };
            self.allow(connection, bytes.len() + data.len()).await?;
            bytes.extend_from_slice(data);
        }
        Ok(bytes.into())
    }

    /// Reserves memory for a body of `len` bytes.
    async fn allow(&self, connection: &Connection, len: usize) -> Result<(), ApiError> {
        let Limits { body_bytes, .. } = self.limits;
        if len > body_bytes {
            let message = format!("the body is longer than {body_bytes} bytes");
            return Err(ApiError { status: 413, message });
        }
        let has = connection.bytes.load(Ordering::Relaxed);
        if len <= has || len <= SMALL_BYTES {
            return Ok(());
        }
        if self
            .take(&self.bytes, len - has, |it| !std::ptr::eq(it, connection) && it.has_body())
            .await
        {
            connection.bytes.store(len, Ordering::Relaxed);
            return Ok(());
        }
        let message = "other requests have all memory there is for their bodies: try again later";
        Err(ApiError { status: 503, message: message.to_owned() })
    }

    /// Takes bytes from a pool, and evicts other connections if necessary; returns whether that
    /// succeeded.
    async fn take(
        &self,
        pool: &AtomicUsize,
        more: usize,
        others: impl Fn(&Connection) -> bool,
    ) -> bool {
        for _ in 0..ROOM_TRIES {
            let left = self.left.notified();
            let take = |free: usize| free.checked_sub(more);
            if pool.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                return true;
            }
            if !self.evict(&others) {
                break;
            }
            let _later = timeout(RETRY, left).await;
        }
        false
    }

    /// Sends an answer in pieces, and accounts for its size until the last piece is on its way: a
    /// client that does not read its answer may be evicted.
    async fn send(
        admission: &Arc<Admission>,
        connection: &Arc<Connection>,
        answer: Response,
    ) -> Response {
        let held = answer.extensions().get().map_or(0, |&Holds(bytes)| bytes);
        let exact = answer.body().size_hint().exact().map(usize::try_from);
        let bytes = exact.map_or(held, |len| len.unwrap_or(usize::MAX));
        if bytes <= SMALL_BYTES {
            return answer;
        }
        // A single answer may exceed the limit.
        let bytes = bytes.min(admission.limits.answers_bytes);
        let others = |it: &Connection| !std::ptr::eq(it, &**connection) && it.has_answer();
        if !admission.take(&admission.answers, bytes, others).await {
            let message = "other answers have all memory there is for them: ask again later";
            return refusal(ApiError { status: 503, message: message.to_owned() });
        }
        connection.unsent.store(bytes, Ordering::Relaxed);
        let unsent =
            Unsent { admission: Arc::clone(admission), connection: Arc::clone(connection), bytes };
        answer.map(|body| Body::new(Pieces { body, next: Bytes::new(), _unsent: unsent }))
    }

    fn give_back(&self, connection: &Connection) {
        let bytes = connection.bytes.swap(0, Ordering::Relaxed);
        let free = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        assert!(free <= self.limits.bodies_bytes, "no more comes back than was taken");
    }
}

impl Connection {
    fn has_body(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > 0
    }

    fn has_answer(&self) -> bool {
        self.unsent.load(Ordering::Relaxed) > 0
    }
}

/// Memory in bytes that a streamed answer holds until it is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Holds(pub(crate) usize);

/// Memory accounted to an unsent answer; given back when dropped.
#[derive(Debug)]
struct Unsent {
    admission: Arc<Admission>,
    connection: Arc<Connection>,
    bytes: usize,
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.connection.unsent.store(0, Ordering::Relaxed);
        let free = self.admission.answers.fetch_add(self.bytes, Ordering::Relaxed) + self.bytes;
        assert!(free <= self.admission.limits.answers_bytes, "no more comes back than was taken");
        self.admission.left.notify_waiters();
    }
}

/// A body in pieces: each is polled when the previous one is on its way.
#[derive(Debug)]
struct Pieces {
    body: Body,
    next: Bytes,
    _unsent: Unsent,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.next.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.next = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let len = self.next.len().min(SMALL_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.next.split_to(len)))))
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, next) = (self.body.size_hint(), self.next.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + next);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + next);
        }
        hint
    }
}

/// Memory accounted to a request while it is read and answered; given back when dropped.
struct Held {
    admission: Arc<Admission>,
    connection: Arc<Connection>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.connection.is_busy.store(false, Ordering::Relaxed);
        self.admission.give_back(&self.connection);
        self.admission.note_done(&self.connection);
        self.admission.left.notify_waiters();
    }
}

/// Size up to which bodies and answers are not accounted for, since the number of connections is
/// limited. Longer answers are sent in pieces of this size.
const SMALL_BYTES: usize = 64 << 10;
/// Largest number of evictions to make room for one body.
const ROOM_TRIES: usize = 64;
const RETRY: Duration = Duration::from_millis(20);
/// Largest size of a request's line and headers, and of pieces of its body.
const HEAD_BYTES_MAX: usize = 64 << 10;
const _: () = assert!(SMALL_BYTES <= HEAD_BYTES_MAX, "a piece of a body fits where a head does");

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpStream as Client};
    use std::time::Instant;

    use axum::extract::Path;

    use super::*;

    const LIMITS: Limits = Limits {
        connections: 4,
        head: Duration::from_millis(500),
        body: Duration::from_secs(3),
        body_bytes: 1 << 20,
        bodies_bytes: 2 << 20,
        answers_bytes: 2 << 20,
        keep_alive: true,
        has_streams: false,
        reserve: 1,
    };

    /// An entrance that answers with the length of the body.
    fn open(limits: Limits) -> SocketAddr {
        let length = async |body: Bytes| body.len().to_string();
        open_with(limits, Router::new().route("/", axum::routing::post(length)))
    }

    /// An entrance on a thread of its own.
    fn open_with(limits: Limits, router: Router) -> SocketAddr {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("there are descriptors").block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
                tell.send(listener.local_addr().expect("it is bound")).expect("it is awaited");
                let told = Strangers { entrance: "test", news: Arc::default() };
                serve(listener, router, limits, told).await;
            });
        });
        told.recv().expect("it is told")
    }

    fn connect(address: SocketAddr) -> Client {
        let client = Client::connect(address).expect("somebody listens");
        client.set_read_timeout(Some(Duration::from_secs(20))).expect("it is a socket");
        client
    }

    fn post(address: SocketAddr, says: usize, has: usize) -> Client {
        let mut client = connect(address);
        let head = format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {says}\r\n\r\n");
        client.write_all(head.as_bytes()).expect("it is read");
        // The request may be refused before the whole body is sent.
        let _refused = client.write_all(&vec![7; has]);
        client
    }

    /// The start of the answer; empty if the connection was closed without one.
    fn answer(client: &mut Client) -> String {
        let mut bytes = vec![0; 1 << 16];
        let len = client.read(&mut bytes).unwrap_or(0);
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    #[test]
    fn whoever_does_nothing_goes() {
        let address = open(LIMITS);
        let idle: Vec<Client> = (0..10).map(|_| connect(address)).collect();
        assert!(answer(&mut post(address, 3, 3)).starts_with("HTTP/1.1 200"));
        let start = Instant::now();
        for mut client in idle {
            assert!(!answer(&mut client).contains("200"));
        }
        assert!(start.elapsed() < Duration::from_secs(20), "their time is over");
    }

    /// An entrance whose answers have the length given in the path.
    fn open_long(limits: Limits) -> SocketAddr {
        let long = async |Path(len): Path<usize>| "x".repeat(len);
        open_with(limits, Router::new().route("/{len}", axum::routing::get(long)))
    }

    fn get(address: SocketAddr, len: usize) -> Client {
        let mut client = connect(address);
        let request = format!("GET /{len} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).expect("it is read");
        client
    }

    /// Length of the answer's body.
    fn length(client: &mut Client) -> usize {
        let mut bytes = Vec::new();
        // An evicted connection is reset.
        let _reset = client.read_to_end(&mut bytes);
        let head = bytes.windows(4).position(|it| it == b"\r\n\r\n");
        head.map_or(0, |head| bytes.len() - head - 4)
    }

    #[test]
    fn answers_that_nobody_reads_have_a_limit_together() {
        // More than the socket buffers of a connection hold.
        const LONG: usize = 24 << 20;
        let address = open_long(Limits { answers_bytes: 2 * LONG, ..LIMITS });
        assert_eq!(length(&mut get(address, 3)), 3);
        assert_eq!(length(&mut get(address, LONG)), LONG);
        assert_eq!(length(&mut get(address, 3 * LONG)), 3 * LONG, "the only one");
        let begun = |len: usize| {
            let mut client = get(address, len);
            client.read_exact(&mut [0; 15]).expect("it begins");
            client
        };
        let mut first = begun(LONG);
        let mut second = begun(LONG);
        // No memory is left, so that the first client, which reads nothing, is evicted.
        assert_eq!(length(&mut get(address, LONG)), LONG);
        assert!(length(&mut first) < LONG);
        assert_eq!(length(&mut second), LONG);
    }

    #[test]
    fn bodies_have_a_limit_together_and_a_time() {
        let address = open(LIMITS);
        assert!(answer(&mut post(address, 2 << 20, 10)).starts_with("HTTP/1.1 413"));
        // Two unfinished bodies use all memory, until another request needs it.
        let mut first = post(address, 1 << 20, 1000);
        let mut second = post(address, 1 << 20, 1000);
        // Heads are read in order, and these two first.
        assert!(answer(&mut post(address, 3, 3)).starts_with("HTTP/1.1 200"));
        let text = answer(&mut post(address, 1 << 20, 1 << 20));
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("1048576"), "{text}");
        assert_eq!(answer(&mut first), "", "it had to go");
        assert!(answer(&mut second).starts_with("HTTP/1.1 408"), "its time is over");
        assert!(answer(&mut post(address, 3, 3)).starts_with("HTTP/1.1 200"));
    }
}
