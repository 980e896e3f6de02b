//! Bodies that are read as they come: whole ones count, and nothing of others.

mod served;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};
use towpath_daemon::client::ClientError;

use served::Served;

const LIMIT: Duration = Duration::from_secs(20);

fn with_a_map(test: &str, kind: &str, entries: u32) -> (Served, u64) {
    let served = Served::start(test, "");
    let map = json!({
        "path": "/sys/fs/bpf/m", "type": kind, "key": 8, "value": 8, "entries": entries,
        "flags": u32::from(kind == "lpm_trie"), "name": "m",
    });
    let made: Value = served.client.json("POST", "/v1/maps", &map).expect("there is memory");
    (served, made["id"].as_u64().expect("a number"))
}

fn count(served: &Served, map: u64) -> u64 {
    served.get(&format!("/v1/maps/{map}"))["entries"].as_u64().expect("a number")
}

fn upload(served: &Served, path: &str, body: Vec<u8>) -> Result<Value, String> {
    let from = std::io::Cursor::new(body);
    served.client.upload("PUT", path, from).map_err(|error| match error {
        ClientError::Refused(error) => format!("{} {}", error.status, error.message),
        error => error.to_string(),
    })
}

fn prefixes(count: u32, value: u32) -> String {
    let row = |at: u32| {
        let address = std::net::Ipv4Addr::from(at << 12);
        format!("{{\"key\": \"{address}/20\", \"value\": {value}}}\n")
    };
    (0..count).map(row).collect()
}

#[test]
fn a_long_body_is_refused_for_its_last_row() {
    let (served, map) = with_a_map("load_long", "lpm_trie", 300_000);
    let path = format!("/v1/maps/{map}/entries");
    let good = prefixes(200_000, 1);
    assert!(good.len() > 6 << 20, "longer than what waits on the way");
    let refused = upload(&served, &path, (good.clone() + "{\"key\": 1}").into_bytes());
    let said = "422 map m: line 200001: ";
    assert!(refused.as_ref().is_err_and(|it| it.starts_with(said)), "{refused:?}");
    // The first row of them is told although more come.
    let refused = upload(&served, &path, ("x".to_owned() + &good).into_bytes());
    let said = "422 map m: line 1: 'x', expected a row";
    assert!(refused.as_ref().is_err_and(|it| it.starts_with(said)), "{refused:?}");
    let refused = upload(&served, &format!("{path}?format=cvs"), good.clone().into_bytes());
    let said = "400 format: no format \"cvs\"; did you mean";
    assert!(refused.as_ref().is_err_and(|it| it.starts_with(said)), "{refused:?}");
    let refused = upload(&served, "/v1/maps/4000000/entries", good.clone().into_bytes());
    assert!(refused.as_ref().is_err_and(|it| it.starts_with("404 no map")), "{refused:?}");
    assert_eq!(count(&served, map), 0);
    let loaded = upload(&served, &path, good.into_bytes()).expect("it is right");
    assert_eq!(loaded["written"], json!(200_000));
    let less = prefixes(150_000, 1).into_bytes();
    let loaded = upload(&served, &format!("{path}?replace=true"), less).expect("it is right");
    let some = json!({
        "rows": 150_000, "duplicates": 0, "written": 0, "unchanged": 150_000, "deleted": 50_000,
    });
    assert_eq!(loaded, some);
    served.end();
}

#[test]
fn of_a_body_that_breaks_off_nothing_is_stored() {
    let (served, map) = with_a_map("load_cut", "hash", 8);
    let head = format!(
        "PUT /v1/maps/{map}/entries?format=packed HTTP/1.1\r\nhost: x\r\ncontent-length: 32\r\n\r\n"
    );
    let mut client = UnixStream::connect(served.dir.join("api.sock")).expect("it listens");
    client.write_all(head.as_bytes()).expect("it is read");
    client.write_all(&[1; 16]).expect("it is read");
    drop(client);
    // A whole row came, and the rest of the body did not.
    let mut client = UnixStream::connect(served.dir.join("api.sock")).expect("it listens");
    client.write_all(head.as_bytes()).expect("it is read");
    client.write_all(&[[2; 16], [3; 16]].concat()).expect("it is read");
    let mut answer = [0; 15];
    client.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    served.wait("two entries", LIMIT, || count(&served, map) == 2);
    served.end();
}

/// The look-ups of another client find their key at any moment while a table is replaced.
#[test]
fn others_are_answered_while_a_table_is_loaded() {
    let (served, map) = with_a_map("load_beside", "lpm_trie", 300_000);
    let path = format!("/v1/maps/{map}/entries?replace=true");
    upload(&served, &path, prefixes(100_000, 1).into_bytes()).expect("it is right");
    let key = json!({ "key": "0.0.16.0/20" });
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let body = prefixes(200_000, 2).into_bytes();
            upload(&served, &path, body).expect("it is right")
        });
        let other = towpath_daemon::client::Client::new(&served.dir.join("api.sock"));
        let other = other.expect("there are descriptors");
        while !load.is_finished() {
            let looked = other.json::<Value>("POST", &format!("/v1/maps/{map}/lookup"), &key);
            looked.expect("it is there before and after");
        }
        assert_eq!(load.join().expect("no panic")["written"], json!(200_000));
    });
    assert_eq!(count(&served, map), 200_000);
    served.end();
}
