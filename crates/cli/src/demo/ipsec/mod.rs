//! `demo ipsec`: packets from memory through two gateways with an IPsec tunnel between them.

mod memory;
mod packets;
mod speed;
mod tunnel;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Serialize;

use self::memory::Memory;
use self::packets::{ETHERNET, SECRET, datagram, datagrams, esp_header, port_of};
use self::speed::Speed;
use self::tunnel::{Ends, Tunnel};
use crate::error::CliError;
use crate::output::{Align, Output, Table, grouped, in_bytes};

/// Results of the demonstration.
#[derive(Debug, Serialize)]
struct Seen {
    flow: Flow,
    refused: Refused,
    rekey: Rekey,
    speed: Speed,
    /// Frames that the engines lost.
    missing: i64,
}

/// Packets and bytes at each place of the way.
#[derive(Debug, Serialize)]
struct Flow {
    sent: Count,
    dropped_before: u64,
    encrypted: Count,
    dropped_after: u64,
    received: Count,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Count {
    packets: usize,
    bytes: usize,
}

/// Packets that gateway B refused, by reason.
#[derive(Debug, Serialize)]
struct Refused {
    /// Copies of one ESP packet, each with another bit flipped.
    flipped: BTreeMap<String, u64>,
    /// The same packet a second time.
    repeated: BTreeMap<String, u64>,
    /// A packet under the old keys, after these were removed.
    old_keys: BTreeMap<String, u64>,
}

/// A change of keys while packets are under way.
#[derive(Debug, Serialize)]
struct Rekey {
    sent: usize,
    /// Packets on the wire, by SPI.
    by_spi: BTreeMap<u32, usize>,
    received: usize,
}

/// The tunnel, the hosts behind the gateways and the wire between these.
struct Lab {
    tunnel: Tunnel,
    host_a: Memory,
    /// Both ends of the wire: where packets of gateway A arrive, and from where gateway B gets
    /// them.
    wire: [Memory; 2],
    host_b: Memory,
}

/// Runs the demonstration, in this process alone.
pub(super) fn ipsec(output: &mut Output) -> Result<(), CliError> {
    let [host_a, wire_a, wire_b, host_b] = [(); 4].map(|()| Memory::default());
    let ends = Ends {
        first: Box::new(host_a.clone()),
        wire: Some([Box::new(wire_a.clone()), Box::new(wire_b.clone())]),
        last: Box::new(host_b.clone()),
    };
    let tunnel = Tunnel::start(ends, BLOCKED)?;
    let lab = Lab { tunnel, host_a, wire: [wire_a, wire_b], host_b };
    lab.tunnel.add_sa(SPIS[0])?;
    say(output, "host a -> program -> AES-GCM-128 -> wire -> AES-GCM-128 -> program -> host b")?;
    let (flow, shown) = lab.flow()?;
    if !output.json {
        tell_flow(&flow, output)?;
        tell_packets(&shown, output)?;
    }
    let (mut refused, old) = lab.attack()?;
    let rekey = lab.rekey()?;
    refused.old_keys = lab.refused_of(&[old])?;
    if !output.json {
        tell_refused(&refused, output)?;
        tell_rekey(&rekey, output)?;
    }
    lab.tunnel.engine.stop();
    let (speed, missing) = speed::measure(BLOCKED)?;
    let missing = missing + lab.tunnel.engine.conservation().missing();
    let seen = Seen { flow, refused, rekey, speed, missing };
    if output.json {
        output.json(&seen)?;
    } else {
        tell_speed(&seen.speed, output)?;
        output.line(&format!("{missing} frames lost by the engines"))?;
    }
    ensure(missing == 0, || format!("{missing} frames are lost"))
}

impl Lab {
    /// Sends packets through the tunnel, which must arrive as they were. Also returns one of them
    /// as it was sent, as it was on the wire and as it arrived.
    fn flow(&self) -> Result<(Flow, [Vec<u8>; 3]), CliError> {
        let sent = datagrams(PACKETS, BLOCKED);
        let passes = |ports: &[u16]| {
            let is_blocked = |packet: &&Vec<u8>| ports.contains(&port_of(packet));
            sent.iter().filter(|packet| !is_blocked(packet)).cloned().collect::<Vec<_>>()
        };
        let (before, expected) = (passes(&BLOCKED[..1]), passes(&BLOCKED));
        self.host_a.receive(&sent);
        let encrypted = self.wire[0].take(before.len())?;
        let is_plain = |packet: &Vec<u8>| packet.windows(SECRET.len()).any(|part| part == SECRET);
        ensure(!encrypted.iter().any(is_plain), || "plain text is on the wire".to_owned())?;
        self.wire[1].receive(&encrypted);
        let received = self.host_b.take(expected.len())?;
        ensure(received == expected, || "packets arrive changed or in another order".to_owned())?;
        let dropped_before = self.tunnel.a.dropped(BLOCKED[0]);
        let dropped_after = self.tunnel.b.dropped(BLOCKED[1]);
        let is_complete = sent.len() as u64 == dropped_before + encrypted.len() as u64
            && encrypted.len() as u64 == dropped_after + received.len() as u64;
        ensure(is_complete, || "the programs' counts are wrong".to_owned())?;
        let shown = [sent[0].clone(), encrypted[0].clone(), received[0].clone()];
        let flow = Flow {
            sent: Count::of(&sent),
            dropped_before,
            encrypted: Count::of(&encrypted),
            dropped_after,
            received: Count::of(&received),
        };
        Ok((flow, shown))
    }

    /// Damages and repeats a packet on the wire. Also returns the packet.
    fn attack(&self) -> Result<(Refused, Vec<u8>), CliError> {
        let sent = vec![datagram(1, b"This one is held back on the wire.")];
        self.host_a.receive(&sent);
        let packet = self.wire[0].take(1)?.remove(0);
        // Nothing protects the Ethernet header.
        let bits = ETHERNET * 8..packet.len() * 8;
        let flipped = bits.map(|bit| {
            let mut packet = packet.clone();
            packet[bit / 8] ^= 1 << (bit % 8);
            packet
        });
        let flipped = self.refused_of(&flipped.collect::<Vec<_>>())?;
        // The packet itself still arrives, but only once.
        self.wire[1].receive(std::slice::from_ref(&packet));
        let received = self.host_b.take(1)?;
        ensure(received == sent, || "a damaged packet arrives".to_owned())?;
        let repeated = self.refused_of(std::slice::from_ref(&packet))?;
        Ok((Refused { flipped, repeated, old_keys: BTreeMap::new() }, packet))
    }

    /// Reasons for which gateway B refuses these packets: all of them.
    fn refused_of(&self, packets: &[Vec<u8>]) -> Result<BTreeMap<String, u64>, CliError> {
        let before = self.tunnel.refused();
        let since = || {
            let mut now = self.tunnel.refused();
            now.iter_mut().for_each(|(why, count)| *count -= before.get(why).unwrap_or(&0));
            now.retain(|_, count| *count > 0);
            now
        };
        self.wire[1].receive(packets);
        let start = Instant::now();
        while since().values().sum::<u64>() < packets.len() as u64 {
            ensure(start.elapsed() < PATIENCE, || {
                format!("{} packets: only {:?} are refused", packets.len(), since())
            })?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(since())
    }

    /// Changes the keys while packets are under way: new SAs, first where packets arrive, then the
    /// end of the old ones.
    fn rekey(&self) -> Result<Rekey, CliError> {
        let old = [&self.tunnel.a, &self.tunnel.b].map(|end| end.table.list());
        let sent = datagrams(REKEY_PACKETS, [0; 2]);
        let half = sent.len() / 2;
        self.host_a.receive(&sent[..half]);
        self.wire[0].wait(1)?;
        self.tunnel.add_sa(SPIS[1])?;
        self.host_a.receive(&sent[half..]);
        let encrypted = self.wire[0].take(sent.len())?;
        self.wire[1].receive(&encrypted);
        let received = self.host_b.take(sent.len())?;
        ensure(received == sent, || "a change of keys costs packets".to_owned())?;
        for (end, old) in [&self.tunnel.a, &self.tunnel.b].into_iter().zip(old) {
            old.iter().for_each(|sa| drop(end.table.remove(sa.id())));
        }
        let mut by_spi = BTreeMap::new();
        for packet in &encrypted {
            *by_spi.entry(esp_header(packet).0).or_default() += 1;
        }
        let is_changed = encrypted.last().is_some_and(|packet| esp_header(packet).0 == SPIS[1]);
        ensure(is_changed, || "the new keys are not used".to_owned())?;
        Ok(Rekey { sent: sent.len(), by_spi, received: received.len() })
    }
}

impl Count {
    fn of(packets: &[Vec<u8>]) -> Count {
        Count { packets: packets.len(), bytes: packets.iter().map(Vec::len).sum() }
    }
}

fn ensure(is_so: bool, why: impl FnOnce() -> String) -> Result<(), CliError> {
    if is_so { Ok(()) } else { Err(CliError::Daemon(why())) }
}

fn say(output: &mut Output, text: &str) -> Result<(), CliError> {
    if output.json {
        return Ok(());
    }
    output.line(text)?;
    output.flush()
}

fn tell_flow(flow: &Flow, output: &mut Output) -> Result<(), CliError> {
    let columns = [("", Align::Left), ("packets", Align::Right), ("bytes", Align::Right)];
    let mut table = Table::new(&columns);
    let mut row = |what: &str, packets: u64, bytes: Option<usize>| {
        let bytes = bytes.map_or_else(String::new, |bytes| in_bytes(bytes as u64));
        table.row(vec![what.to_owned(), grouped(packets), bytes]);
    };
    let [first, second] = BLOCKED;
    let Flow { sent, dropped_before, encrypted, dropped_after, received } = flow;
    row("sent by host a", sent.packets as u64, Some(sent.bytes));
    row(&format!("dropped by program a (UDP {first})"), *dropped_before, None);
    row("encrypted on the wire", encrypted.packets as u64, Some(encrypted.bytes));
    row(&format!("dropped by program b (UDP {second})"), *dropped_after, None);
    row("received by host b, unchanged", received.packets as u64, Some(received.bytes));
    output.line("")?;
    output.table(&table)?;
    output.line("")
}

fn tell_packets(
    [sent, wire, received]: &[Vec<u8>; 3],
    output: &mut Output,
) -> Result<(), CliError> {
    let (spi, sequence) = esp_header(wire);
    for (what, packet) in [
        ("first packet".to_owned(), sent),
        (format!("on the wire: ESP, SPI {spi:#x}, sequence number {sequence}"), wire),
        ("at host b".to_owned(), received),
    ] {
        let what = output.style.bold(&what);
        output.line(&format!("{what}, {} bytes of IP", packet.len() - ETHERNET))?;
        let rows = packet[ETHERNET..].chunks(16).take(DUMP_ROWS);
        for (number, row) in rows.enumerate() {
            output.line(&dump(number * 16, row))?;
        }
    }
    output.line("")
}

/// A row of a hex dump.
fn dump(at: usize, row: &[u8]) -> String {
    let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
    let is_shown = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let text = row.iter().map(|byte| if is_shown(byte) { char::from(*byte) } else { '.' });
    let line = format!("  {at:04x}  {:47}  {}", hex.join(" "), text.collect::<String>());
    line.trim_end().to_owned()
}

fn tell_refused(refused: &Refused, output: &mut Output) -> Result<(), CliError> {
    let columns = [("at gateway b", Align::Left), ("refused", Align::Right), ("", Align::Left)];
    let mut table = Table::new(&columns);
    let Refused { flipped, repeated, old_keys } = refused;
    for (what, reasons) in [
        ("copies of a packet, each with one bit flipped", flipped),
        ("the packet a second time", repeated),
        ("the packet after the end of its keys", old_keys),
    ] {
        let mut reasons: Vec<_> = reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| Reverse(**count));
        for (number, (why, count)) in reasons.into_iter().enumerate() {
            let what = if number == 0 { what } else { "" };
            table.row(vec![what.to_owned(), grouped(*count), why.clone()]);
        }
    }
    output.table(&table)?;
    output.line("")
}

fn tell_rekey(rekey: &Rekey, output: &mut Output) -> Result<(), CliError> {
    output.line(&output.style.bold("new keys while packets are under way"))?;
    let by_spi =
        rekey.by_spi.iter().map(|(spi, count)| format!("{} by {spi:#x}", grouped(*count as u64)));
    let lost = rekey.sent - rekey.received;
    output.line(&format!(
        "  {} sent: {}; {lost} lost",
        grouped(rekey.sent as u64),
        by_spi.collect::<Vec<_>>().join(", ")
    ))?;
    output.line("")?;
    output.flush()
}

fn tell_speed(speed: &Speed, output: &mut Output) -> Result<(), CliError> {
    output.line(&output.style.bold("both gateways on one core"))?;
    let millions = speed.packets_per_second / 1e6;
    let gigabits = speed.bits_per_second / 1e9;
    output.line(&format!(
        "  {millions:.2} million packets a second of {} bytes, encrypted and decrypted",
        speed.packet_bytes
    ))?;
    let build = if cfg!(debug_assertions) { " (debug build)" } else { "" };
    output.line(&format!("  {gigabits:.2} Gbit/s{build}"))?;
    output.line("")
}

/// UDP ports that the programs of the gateways block.
const BLOCKED: [u16; 2] = [137, 138];
const SPIS: [u32; 2] = [0x1001, 0x1002];
const PACKETS: usize = 4096;
const REKEY_PACKETS: usize = 2048;
/// Rows of 16 bytes of each packet that is shown.
const DUMP_ROWS: usize = 9;
const PATIENCE: Duration = Duration::from_secs(20);
