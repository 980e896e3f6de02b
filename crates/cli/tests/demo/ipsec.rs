//! `demo ipsec`, which docs/ipsec.md shows.

use std::collections::BTreeMap;

use serde_json::json;

use crate::support::Bench;

/// Length of a packet on the wire, as an Ethernet frame: outer header, SPI, sequence number and IV,
/// the inner packet with padding to four bytes and its two-byte trailer, and the ICV.
fn on_the_wire(payload: usize) -> usize {
    14 + 20 + 8 + 8 + (20 + 8 + payload + 2).next_multiple_of(4) + 16
}

#[test]
fn packets_cross_a_tunnel_and_damaged_ones_do_not() {
    let seen = Bench::new("demo_ipsec").json(&["demo", "ipsec"]);
    let flow = &seen["flow"];
    // Of 32 packets, each program drops one.
    let lengths = [52, 200, 512, 1000, 1386];
    let encrypted = (0..4096).filter(|number| number % 32 != 7);
    let encrypted: usize = encrypted.map(|number| on_the_wire(lengths[number % 5])).sum();
    assert_eq!(flow["sent"]["packets"], 4096, "{flow}");
    assert_eq!(flow["dropped_before"], 128, "{flow}");
    assert_eq!(flow["encrypted"], json!({ "packets": 3968, "bytes": encrypted }));
    assert_eq!(flow["dropped_after"], 128, "{flow}");
    assert_eq!(flow["received"]["packets"], 3840, "{flow}");

    let refused = &seen["refused"];
    let flipped: BTreeMap<String, usize> =
        serde_json::from_value(refused["flipped"].clone()).expect("numbers by reason");
    let bits = 8 * (on_the_wire("This one is held back on the wire.".len()) - 14);
    assert_eq!(flipped.values().sum::<usize>(), bits, "{refused}");
    // Each bit of the IV, of what is encrypted and of the ICV, and of the sequence number.
    assert_eq!(flipped["bad_icv"], bits - 8 * (20 + 4) - replayed(&flipped), "{refused}");
    assert_eq!(refused["repeated"], json!({ "replayed": 1 }));
    assert_eq!(refused["old_keys"], json!({ "unknown_spi": 1 }));

    let rekey = &seen["rekey"];
    assert_eq!((&rekey["sent"], &rekey["received"]), (&json!(2048), &json!(2048)));
    let count = |spi: &str| rekey["by_spi"][spi].as_u64().unwrap_or(0);
    assert_eq!(count("4097") + count("4098"), 2048, "{rekey}");
    assert!(count("4097") > 0 && count("4098") >= 1024, "{rekey}");
    assert_eq!(seen["missing"], 0);
    assert!(seen["speed"]["packets_per_second"].as_f64() > Some(0.0), "{seen}");
}

/// Refusals by sequence number before the cryptography: a bit flipped to a number that was received
/// or that is too old.
fn replayed(flipped: &BTreeMap<String, usize>) -> usize {
    let reasons = ["replayed", "outside_window"];
    reasons.iter().filter_map(|why| flipped.get(*why)).sum()
}

#[test]
fn the_text_fits_into_80_columns_without_colours() {
    let done = Bench::new("demo_ipsec_text").run(&["demo", "ipsec"]);
    assert_eq!(done.status, 0, "{done:?}");
    let too_long = done.stdout.lines().find(|line| line.chars().count() > 80);
    assert_eq!(too_long, None);
    assert!(!done.stdout.contains('\x1b'), "{}", done.stdout);
    let expected = [
        "encrypted on the wire",
        "et 0 is not for",
        "ESP, SPI 0x1001, sequence number 1",
        "copies of a packet, each with one bit flipped",
        "the packet a second time",
        "the packet after the end of its keys",
        "0 frames lost by the engines",
    ];
    for text in expected {
        assert!(done.stdout.contains(text), "{text}: {}", done.stdout);
    }
    // Once before the tunnel and once behind it, but not on the wire.
    assert_eq!(done.stdout.matches("et 0 is not for").count(), 2, "{}", done.stdout);
}
