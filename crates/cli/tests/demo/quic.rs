//! `demo quic`, which docs/cli.md shows.

use super::{bench, unavailable};

#[test]
fn a_file_crosses_in_both_directions_over_either_sockets() {
    let bench = bench("demo_quic");
    if let Some(why) = unavailable() {
        println!("skipped: {why}");
        return;
    }
    let seen = bench.json(&["demo", "quic"]);
    let bytes = seen["bytes"].as_u64().expect("a number");
    for sockets in ["kernel_whole", "kernel", "towpath"] {
        for direction in ["received", "sent"] {
            let rate = &seen[sockets][direction];
            let datagrams = rate["datagrams"].as_u64().expect("a number");
            // A datagram carries less than the MTU, and more than the smallest MTU of QUIC allows.
            let expected = bytes / 1500..bytes / 1000;
            assert!(expected.contains(&datagrams), "{sockets}, {direction}: {seen}");
            for figure in ["bits_per_second", "processor_ns_per_datagram"] {
                assert!(rate[figure].as_f64() > Some(0.0), "{sockets}, {direction}: {seen}");
            }
        }
    }
}

#[test]
fn the_text_fits_into_80_columns_without_colours() {
    let bench = bench("demo_quic_text");
    if let Some(why) = unavailable() {
        println!("skipped: {why}");
        return;
    }
    let done = bench.run(&["demo", "quic"]);
    assert_eq!(done.status, 0, "{done:?}");
    let too_long = done.stdout.lines().find(|line| line.chars().count() > 80);
    assert_eq!(too_long, None);
    assert!(done.stdout.contains("Towpath"), "{done:?}");
    assert!(done.stdout.contains("gone again"), "{done:?}");
}
