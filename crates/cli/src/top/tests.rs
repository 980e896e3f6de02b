//! Tests of screens of several sizes, and of the effects of keys.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use std::time::Duration;

use super::draw::draw;
use super::reading::{Rates, Reading};
use super::screen::{Request, Screen};
use super::sheet::short;

/// A daemon after so many seconds: a port that drops, and many that are idle.
fn reading(seconds: u64) -> Reading {
    let port = |index: u64| {
        json!({
            "name": format!("port-{index:02}"), "kind": "pair", "upper": null, "up": index != 1,
            "mtu": null, "linearize": true, "ifindex": null, "workers": [], "options": {},
            "index": index, "mac": "02:00:00:00:00:01", "queues": 1, "mtu_now": 1500,
            "link": true, "failure": null, "finished": false, "details": {},
        })
    };
    let busy = json!({
        "rx_packets": 2_000_000 * seconds, "rx_bytes": 128_000_000 * seconds, "rx_missed": 0,
        "tx_packets": 1_500_000 * seconds, "tx_bytes": 96_000_000 * seconds,
        "verdicts": { "XDP_DROP": 500_000 * seconds }, "tx_drops": {},
        "drops": { "verdict": 500_000 * seconds, "no_upper": 3 },
    });
    let idle = json!({
        "rx_packets": 0, "rx_bytes": 0, "rx_missed": 0, "tx_packets": 0, "tx_bytes": 0,
        "verdicts": {}, "drops": {}, "tx_drops": {},
    });
    let stats_of =
        |index: u64| (format!("port-{index:02}"), if index == 0 { &busy } else { &idle });
    let stats: serde_json::Map<_, _> =
        (0..30).map(stats_of).map(|(name, it)| (name, it.clone())).collect();
    let link = json!({
        "id": 4, "type": "xdp", "port": "port-00", "ifindex": 1, "hook": "rx", "prog_id": 7,
        "name": "firewall", "tag": "0011223344556677", "prio": 50, "actions": ["XDP_PASS"],
        "pinned": [], "exec": "llvm", "fallback": null, "runs": 2_000_000 * seconds, "faults": 0,
        "verdicts": { "XDP_DROP": 500_000, "XDP_PASS": 1_500_000 },
    });
    let map = json!({
        "id": 9, "type": "lru_hash", "name": "connections", "flags": 0, "bytes_key": 4,
        "bytes_value": 8, "max_entries": 1000, "entries": 950, "frozen": false, "btf_id": 0,
        "pinned": ["/sys/fs/bpf/connections"], "prog_ids": [],
    });
    let worker = json!({
        "worker": 0, "cpu": 3, "mode": "adaptive", "busy": 0.1, "busy_seconds": 0.93 * seconds as f64,
        "frames_per_second": 7.0, "frames": 2_000_000 * seconds,
        "queues": [{ "port": "port-00", "queues": [0, 1] }, { "port": "port-01", "queues": [0] }],
        "programs": [{ "id": 7, "name": "firewall", "share": 0.62 }],
    });
    let status = json!({
        "ports": (0..30).map(port).collect::<Vec<_>>(), "bridges": [], "links": [link],
        "failures": [{ "code": "port-open", "subject": "port x", "why": "no interface \"x\"",
            "since": 0.0, "remedy": "" }], "version": "0.1.0", "pid": 77, "workers": 1,
        "worker_loads": [worker],
    });
    let frames = json!({
        "received": 0, "created": 0, "delivered": 0, "dropped": 0, "freed": 0, "in_flight": 0,
        "missing": 0,
    });
    let total = json!({
        "rx_packets": 2_000_000 * seconds, "rx_bytes": 128_000_000 * seconds,
        "tx_packets": 1_500_000 * seconds, "tx_bytes": 96_000_000 * seconds,
        "drops": 500_000 * seconds,
    });
    let time = 1000.0 + seconds as f64;
    let stats = json!({ "time": time, "ports": stats, "total": total, "frames": frames });
    Reading {
        status: serde_json::from_value(status).expect("a status"),
        stats: serde_json::from_value(stats).expect("counters"),
        programs: Vec::new(),
        maps: serde_json::from_value(json!([map])).expect("maps"),
    }
}

fn screen() -> Screen {
    let mut screen = Screen::new(reading(0), Duration::from_secs(1));
    screen.take(Ok(reading(1)));
    screen
}

/// Contents of the screen, as lines.
fn seen(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
    terminal.draw(|frame| draw(screen, frame)).expect("memory");
    let buffer = terminal.backend().buffer();
    let line = |y: u16| {
        let cells = (0..width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..height).map(line).collect()
}

fn press(screen: &mut Screen, code: KeyCode) -> Request {
    screen.press(KeyEvent::new(code, KeyModifiers::NONE))
}

fn has(lines: &[String], what: &[&str]) -> bool {
    lines.iter().any(|line| what.iter().all(|it| line.contains(it)))
}

#[test]
fn a_usual_terminal_has_rates_and_what_is_wrong() {
    let lines = seen(&mut screen(), 80, 24);
    assert!(lines[0].starts_with("towpath 0.1.0, pid 77, 1 worker, 30 ports"), "{lines:#?}");
    assert!(lines[0].ends_with("every 1s"), "{lines:#?}");
    let sums = "rx 2.00M/s 1.02Gbit/s  tx 1.50M/s 768Mbit/s  drop 500k/s";
    assert_eq!(lines[1], sums);
    let row = ["port-00", "pair", "up", "2.00M", "1.02G", "1.50M", "768M", "500k", "verdict"];
    assert!(has(&lines, &row), "{lines:#?}");
    assert!(has(&lines, &["port-01", "down"]), "{lines:#?}");
    assert!(has(&lines, &["failed: port x: no interface"]), "{lines:#?}");
    assert!(lines[23].starts_with("q quit"), "{lines:#?}");
}

#[test]
fn narrow_terminals_lose_columns_not_ports() {
    for (width, height) in [(40, 12), (30, 24), (20, 8)] {
        let lines = seen(&mut screen(), width, height);
        assert!(has(&lines, &["port-00", "2.00M"]), "{width}x{height}: {lines:#?}");
        assert!(!has(&lines, &["pair"]), "{width}x{height}: {lines:#?}");
    }
    // Nothing useful fits, but nothing fails.
    for (width, height) in [(1, 1), (5, 3), (300, 2), (300, 100)] {
        seen(&mut screen(), width, height);
    }
}

#[test]
fn keys_choose_the_view_and_its_order() {
    let mut screen = screen();
    press(&mut screen, KeyCode::Char('2'));
    let lines = seen(&mut screen, 80, 24);
    assert!(has(&lines, &["firewall", "port-00", "rx", "2.00M", "llvm", "XDP_PASS 75%"]));
    press(&mut screen, KeyCode::Tab);
    let lines = seen(&mut screen, 80, 24);
    assert!(has(&lines, &["9", "connections", "lru_hash", "950", "1.00k", "95%"]), "{lines:#?}");
    press(&mut screen, KeyCode::Right);
    let lines = seen(&mut screen, 80, 24);
    assert!(has(&lines, &["port-00", "rx", "verdict", "500k"]), "{lines:#?}");
    press(&mut screen, KeyCode::Char('5'));
    let lines = seen(&mut screen, 80, 24);
    let worker = ["0", "3", "93%", "2.00M", "firewall 62%", "3", "port-00:0-1, port-01:0"];
    assert!(has(&lines, &worker), "{lines:#?}");
    press(&mut screen, KeyCode::Tab);
    // Ordered by the second of ten columns, the kind; then by a number, the largest first.
    for _ in 0..3 {
        press(&mut screen, KeyCode::Char('s'));
    }
    assert!(screen.place().is_descending);
    press(&mut screen, KeyCode::Char('r'));
    let lines = seen(&mut screen, 80, 24);
    assert!(has(&lines, &["^RX/s"]), "{lines:#?}");
    assert!(!has(&lines, &["port-00"]), "the busy one is far below: {lines:#?}");
    press(&mut screen, KeyCode::End);
    let lines = seen(&mut screen, 80, 24);
    assert!(has(&lines, &["port-00"]), "{lines:#?}");
    press(&mut screen, KeyCode::Char('?'));
    assert!(has(&seen(&mut screen, 80, 24), &["ports, programs, maps, drops, workers"]));
    assert_eq!(press(&mut screen, KeyCode::Char('q')), Request::Nothing, "the help goes first");
    assert_eq!(press(&mut screen, KeyCode::Char('-')), Request::Pace(Duration::from_secs(2)));
    assert_eq!(press(&mut screen, KeyCode::Char('q')), Request::End);
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(screen.press(control_c), Request::End);
}

#[test]
fn a_daemon_that_goes_is_told_and_one_that_comes_counts_from_0() {
    let mut screen = screen();
    let gone = towpath_daemon::client::ClientError::Unreachable {
        socket: "/run/t.sock".into(),
        source: std::io::Error::from_raw_os_error(2),
    };
    screen.take(Err(gone));
    let lines = seen(&mut screen, 80, 24);
    assert!(has(&lines, &["no daemon on /run/t.sock"]), "{lines:#?}");
    assert!(has(&lines, &["port-00", "2.00M"]), "what was seen last stays: {lines:#?}");
    let mut other = reading(2);
    other.status.pid = 78;
    assert!(Rates::between(&reading(1), &other).stats.ports.is_empty());
    screen.take(Ok(other));
    assert!(!has(&seen(&mut screen, 80, 24), &["no daemon"]));
    press(&mut screen, KeyCode::Char(' '));
    screen.take(Ok(reading(9)));
    assert_eq!(screen.now.status.pid, 78, "it is paused");
    assert!(has(&seen(&mut screen, 80, 24), &["paused"]));
}

#[test]
fn numbers_keep_three_digits() {
    let all = [0.0, 7.0, 999.4, 999.6, 1234.0, 12_345.0, 123_456.0, 999_600.0, 1.5e12, -3.0];
    let texts = ["0", "7", "999", "1.00k", "1.23k", "12.3k", "123k", "1.00M", "1.50T", "-3"];
    assert_eq!(all.map(short), texts);
}
