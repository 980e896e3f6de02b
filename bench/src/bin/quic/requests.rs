//! Short exchanges: requests over many connections, and handshakes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use quinn::{Connection, Endpoint};

use crate::ends::connect;

/// Bytes of a request, and of its answer.
pub(crate) const REQUEST_BYTES: usize = 1024;

/// Answers all requests of all connections.
pub(crate) async fn serve(endpoint: &Endpoint) -> anyhow::Result<()> {
    while let Some(incoming) = endpoint.accept().await {
        tokio::spawn(async move {
            let connection = incoming.await?;
            loop {
                let (mut send, mut receive) = connection.accept_bi().await?;
                let request = receive.read_to_end(REQUEST_BYTES).await?;
                send.write_all(&request).await?;
                send.finish()?;
            }
            #[expect(unreachable_code, reason = "the type of the errors")]
            anyhow::Ok(())
        });
    }
    Ok(())
}

/// Opens connections, and has one request of each under way; counts the answers.
pub(crate) async fn ask(
    endpoint: &Endpoint,
    connections: usize,
    count: &AtomicU64,
) -> anyhow::Result<()> {
    let mut opened = Vec::new();
    for _ in 0..connections {
        opened.push(connect(endpoint).await?);
    }
    let all = opened.iter().map(|connection| ask_without_end(connection, count));
    futures_util::future::try_join_all(all).await?;
    Ok(())
}

async fn ask_without_end(connection: &Connection, count: &AtomicU64) -> anyhow::Result<()> {
    let request = [7; REQUEST_BYTES];
    loop {
        let (mut send, mut receive) = connection.open_bi().await?;
        send.write_all(&request).await?;
        send.finish()?;
        let answer = receive.read_to_end(REQUEST_BYTES).await?;
        anyhow::ensure!(answer == request, "another answer");
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Opens and closes connections, one at a time, and notes how long each handshake took.
pub(crate) async fn shake_hands(
    endpoint: &Endpoint,
    durations: &Mutex<Vec<Duration>>,
) -> anyhow::Result<()> {
    loop {
        tokio::time::sleep(PAUSE).await;
        let start = Instant::now();
        let connection = connect(endpoint).await?;
        durations.lock().push(start.elapsed());
        connection.close(0u32.into(), b"");
    }
}

/// Long enough for a worker to fall asleep.
const PAUSE: Duration = Duration::from_millis(3);
