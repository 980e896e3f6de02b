//! A recording that reaches the largest size of a file (`LimitFSIZE=`) ends, and says so; the
//! daemon and its ports go on.

mod served;

use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use served::Served;

const LIMIT: Duration = Duration::from_secs(20);

#[test]
fn a_record_that_reaches_the_limit_of_files_ends() {
    let folder = std::env::temp_dir().join(format!("towpath-file-limit-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("there is room");
    let config = format!(
        "[[port]]\nname = \"gen\"\nkind = \"generator\"\nrate = 20000\nupper = \"sink\"\n\
         record = {:?}\n[[port]]\nname = \"sink\"\nkind = \"sink\"\n",
        folder.join("record.pcapng")
    );
    let served = Served::start("limit", &config);
    let bytes = 64 << 10;
    setrlimit(Resource::Fsize, Rlimit { current: Some(bytes), maximum: Some(bytes) })
        .expect("less is allowed");
    let failure = || served.get("/v1/status")["failures"].to_string();
    served.wait("the end of the record", LIMIT, || failure().contains("record"));
    assert!(failure().contains("File too large"), "{}", failure());
    let sent =
        || served.get("/v1/stats")["ports"]["gen"]["rx_packets"].as_u64().unwrap_or_default();
    let before = sent();
    served.wait("frames", LIMIT, || sent() > before + 1000);
    served.end();
    std::fs::remove_dir_all(&folder).expect("it is ours");
}
