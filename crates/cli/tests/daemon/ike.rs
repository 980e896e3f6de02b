//! An unmodified strongSwan manages the SAs of a port, by the command and the program that
//! docs/ipsec.md shows.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::Bench;

/// Why it can't run here.
fn unavailable(object: &Path) -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/net/tun").exists() {
        return Some("taps need root and /dev/net/tun");
    }
    let needed = [
        "/usr/sbin/charon-systemd",
        "/usr/sbin/swanctl",
        "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so",
        "/usr/lib/ipsec/plugins/libstrongswan-openssl.so",
    ];
    if !needed.iter().all(|path| Path::new(path).exists()) {
        return Some("no strongSwan (charon-systemd, strongswan-swanctl, libcharon-extra-plugins)");
    }
    (!object.exists()).then_some("no build/clang-19 (make programs-all)")
}

/// The other end's ESP is strongSwan's own library.
#[test]
fn strongswan_manages_the_sas_of_a_port() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let object = top.join("build/clang-19/esp_gateway.o");
    if let Some(why) = unavailable(&object) {
        return eprintln!("skipped: {why}");
    }
    let bench = Bench::new("ike");
    let name = |end: &str| format!("towpath-ike-{end}-{}", std::process::id());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/daemon/ike.sh");
    let output = Command::new("bash")
        .arg(script)
        .env("DIR", bench.path(""))
        .env("TOWPATH", env!("CARGO_BIN_EXE_towpath"))
        .env("OBJECT", object)
        .env("NEAR", name("near"))
        .env("FAR", name("far"))
        .stdin(Stdio::null())
        .output()
        .expect("there is a shell");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    let expected = "first: 200 received\n\
                    while keys change: 1000 received\n\
                    there are new SAs\n\
                    without an IKE daemon: 100 received\n\
                    with the next one: 100 received\n\
                    refusals: 0\n";
    assert_eq!(said, expected, "{errors}");
}
