//! Clients that ask for much and read slowly, or disconnect: the daemon holds no data that they do
//! not read, and stops working for clients that are gone.

mod served;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use served::Served;

/// Slots of an array: they are all there.
const ENTRIES: u32 = 300_000;
const CLIENTS: usize = 20;
/// Most memory that all of these clients may cost together.
const MEMORY_BYTES_MAX: u64 = 64 << 20;

fn with_a_large_map(test: &str) -> (Served, u64) {
    let served = Served::start(test, "");
    let map = json!({
        "path": "/sys/fs/bpf/large", "type": "array", "key": 4, "value": 8, "entries": ENTRIES,
    });
    let made: Value = served.client.json("POST", "/v1/maps", &map).expect("there is memory");
    (served, made["id"].as_u64().expect("a number"))
}

/// Asks for all of it, and reads nothing.
fn ask(served: &Served, map: u64) -> UnixStream {
    let mut client = UnixStream::connect(served.dir.join("api.sock")).expect("it listens");
    let request = format!("GET /v1/maps/{map}/entries HTTP/1.1\r\nhost: x\r\n\r\n");
    client.write_all(request.as_bytes()).expect("it is read");
    client
}

/// Bytes of memory that the process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is ours");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it is there");
    let number = line.split_whitespace().next().and_then(|it| it.parse::<u64>().ok());
    number.expect("kilobytes") << 10
}

/// The time that the process has had of CPUs.
fn worked() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

/// The largest memory use within `limit`, and the time of the slowest request by another client.
fn watch(served: &Served, limit: Duration) -> (u64, Duration) {
    let (start, mut most, mut slowest) = (Instant::now(), 0, Duration::ZERO);
    while start.elapsed() < limit {
        let asked = Instant::now();
        served.get("/v1/stats");
        slowest = slowest.max(asked.elapsed());
        most = most.max(resident());
        std::thread::sleep(Duration::from_millis(5));
    }
    (most, slowest)
}

#[test]
fn twenty_clients_that_do_not_read_a_large_map_cost_nothing() {
    let (served, map) = with_a_large_map("large-map");
    // The first requests allocate what stays allocated.
    watch(&served, Duration::from_millis(100));
    let (memory, time) = (resident(), worked());
    let clients: Vec<UnixStream> = (0..CLIENTS).map(|_| ask(&served, map)).collect();
    let (most, slowest) = watch(&served, Duration::from_secs(2));
    let while_they_wait = worked() - time;
    drop(clients);
    let time = worked();
    watch(&served, Duration::from_secs(1));
    let afterwards = worked() - time;
    let grown = most.saturating_sub(memory);
    let figures = format!(
        "{} MiB, {while_they_wait:?} of CPU while they are there, {afterwards:?} afterwards, \
         others waited {slowest:?}",
        grown >> 20
    );
    println!("{figures}");
    assert!(grown < MEMORY_BYTES_MAX, "{figures}");
    // A thread that never sleeps would work for all of the 3 seconds. The looks of ours are part of
    // the time, and a busy machine makes them dearer.
    assert!(while_they_wait + afterwards < Duration::from_millis(2900), "{figures}");
    served.end();
}

/// Reads until the connection ends.
fn read_on(client: &mut UnixStream) -> String {
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("it is a socket");
    let mut text = String::new();
    client.read_to_string(&mut text).expect("it ends");
    text
}

#[test]
fn a_long_answer_is_whole_or_breaks_off() {
    let (served, map) = with_a_large_map("whole-map");
    let keys = |entries: &Value| -> Vec<u64> {
        let entries = entries.as_array().expect("a list");
        entries.iter().map(|entry| entry["key"].as_u64().expect("a number")).collect()
    };
    let all = served.get(&format!("/v1/maps/{map}/entries"));
    assert_eq!(keys(&all), (0..u64::from(ENTRIES)).collect::<Vec<_>>());
    let some = served.get(&format!("/v1/maps/{map}/entries?limit=1000&bytes=true"));
    assert_eq!(keys(&some), (0..1000).collect::<Vec<_>>());
    assert_eq!(some[999]["bytes"]["key"], "e7030000");
    assert_eq!(served.get(&format!("/v1/maps/{map}/entries?limit=0")), json!([]));
    // The map is removed while a client reads it: the answer must not look complete.
    let mut client = ask(&served, map);
    let mut begin = [0; 1000];
    client.read_exact(&mut begin).expect("it begins");
    assert!(begin.starts_with(b"HTTP/1.1 200"));
    let path = "/v1/pins?path=/sys/fs/bpf/large";
    let _gone: Value = served.client.json("DELETE", path, &json!({})).expect("it is there");
    let rest = read_on(&mut client);
    assert!(!rest.contains("0\r\n\r\n") && !rest.contains(']'), "{}", &rest[rest.len() - 100..]);
    served.end();
}
