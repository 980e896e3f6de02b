//! The door of a port for IKE daemons: its socket over mistakes and reloads, and its SAs.

mod served;

use std::path::Path;
use std::time::Duration;

use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde_json::{Value, json};

use served::Served;

const LIMIT: Duration = Duration::from_secs(20);

fn config(door: &str) -> String {
    format!("[[port]]\nname = \"esp0\"\nkind = \"ipsec\"\n{door}")
}

fn failures(served: &Served) -> Vec<String> {
    let status = served.get("/v1/status");
    let all = status["failures"].as_array().expect("a list").iter();
    all.map(|failure| failure["code"].as_str().unwrap_or_default().to_owned()).collect()
}

/// `XFRM_MSG_NEWSA` for an outbound tunnel with AES-GCM.
fn new_sa() -> Vec<u8> {
    let mut info = vec![0; 224];
    info[56..60].copy_from_slice(&[192, 0, 2, 2]);
    info[72..76].copy_from_slice(&0x1234_u32.to_be_bytes());
    info[76] = 50;
    info[80..84].copy_from_slice(&[192, 0, 2, 1]);
    info[96..128].fill(0xff);
    info[208] = 7;
    (info[212], info[214]) = (2, 1);
    let mut name = [0; 64];
    name[..17].copy_from_slice(b"rfc4106(gcm(aes))");
    let head = [96_u16.to_ne_bytes(), 18_u16.to_ne_bytes()].concat();
    let key = [&head[..], &name, &160_u32.to_ne_bytes(), &128_u32.to_ne_bytes(), &[7; 20]].concat();
    let len = (16 + info.len() + key.len()) as u32;
    let header = [&len.to_ne_bytes()[..], &0x10_u16.to_ne_bytes(), &5_u16.to_ne_bytes(), &[0; 8]];
    [header.concat(), info, key].concat()
}

/// Adds an SA as an IKE daemon does; returns the error number.
fn add_sa(path: &Path) -> i32 {
    let socket = towpath_supervise::connect(path).expect("the door is open");
    send(&socket, &new_sa(), SendFlags::empty()).expect("the door takes it");
    let mut answer = [0; 256];
    let (len, _) = recv(&socket, &mut answer[..], RecvFlags::empty()).expect("the door answers");
    assert!(len >= 20, "an acknowledgement");
    -i32::from_ne_bytes(answer[16..20].try_into().expect("four bytes"))
}

#[test]
fn a_door_opens_when_it_can_and_its_sas_end_with_it() {
    let dir = std::env::temp_dir().join(format!("towpath-ike-door-{}", std::process::id()));
    let path = dir.join("sub/esp0.xfrm");
    let with_door = config(&format!("xfrm = \"{}\"\n", path.display()));
    let served = Served::start("ike-door", &with_door);
    assert_eq!(served.dir, dir);
    assert_eq!(failures(&served), ["port-door"], "its folder is missing");
    std::fs::create_dir(served.dir.join("sub")).expect("there is room");
    served.wait("the door", LIMIT, || path.exists() && failures(&served).is_empty());

    assert_eq!(add_sa(&path), 0);
    assert_eq!(add_sa(&path), 17, "EEXIST");
    let sas: Value = served.get("/v1/sas");
    assert_eq!(sas[0]["name"], "esp0:0x1234");
    assert_eq!(sas[0]["suite"], "aes-gcm-128");
    assert_eq!(sas[0]["wanted_by"], json!([]));
    assert!(!sas.to_string().contains("0707"), "no key");

    // The socket is removed by hand; the SA stays.
    std::fs::remove_file(&path).expect("it is ours");
    served.wait("the door again", LIMIT, || path.exists());
    assert_eq!(served.get("/v1/sas")[0]["name"], "esp0:0x1234");

    // Without the key the door closes, and nothing of it stays.
    std::fs::write(served.dir.join("t.toml"), config("")).expect("there is room");
    served.client.json::<Value>("POST", "/v1/reload", &json!({})).expect("it can be");
    assert_eq!(served.get("/v1/sas"), json!([]));
    assert!(!path.exists());
    served.end();
}
