//! `bench/ipsec`: the cost of a frame that goes from memory through a program, the accelerator and
//! the program at its completion, in comparison with the cryptography alone.
//!
//! The opponent is the engine by itself: the same library with the same keys over packets in cache
//! that have their headers already. No other software runs XDP programs around ESP.

#![expect(clippy::print_stdout, reason = "a benchmark prints its table")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use towpath_bench::{attach, load, median, ns_per_frame, spread, thread_cpu_ns};
use towpath_engine::{Engine, Mode, Options, PortId, PortOptions, WorkerOptions};
use towpath_ipsec::{
    Action, Aead, Buffer, Cipher, Config, Direct, Engine as Cryptography, Esp, Finished, Hmac, Job,
    Keys, Null, OwnedBuffer, Policy, Prefix, Replay, Sa, Selector, Suite, Table, TableLimits,
    finish_all,
};
use towpath_ipsec_mb::{IpsecMb, Library};
use towpath_ports::generator::{self, Generator};
use towpath_ports::ipsec::{self, EngineKind, Ipsec, now};
use towpath_workload::small;

/// Options.
#[derive(Debug, Parser)]
struct Args {
    /// Number of rounds, in each of which both sides are measured.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Duration of each measurement in milliseconds.
    #[arg(long, default_value_t = 200)]
    window: u64,
    /// Measure only cases whose names begin with this text.
    #[arg(long, default_value = "")]
    only: String,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let window = Duration::from_millis(args.window);
    println!(
        "one core, frames from memory: program, accelerator, program; ns a frame: median (least .. \
         most).\nEngine alone: the same cryptography over packets in cache. Frames alone: a frame \
         is copied from\nmemory and dropped by its first program.\n"
    );
    let library = Library::open();
    match &library {
        Ok(library) => println!("ipsec-mb: libipsec-mb {}\n", library.version()),
        Err(error) => println!("without ipsec-mb: {error}\n"),
    }
    let mut cases = cases(library.ok().as_ref())?;
    cases.retain(|case| case.name().starts_with(&args.only));
    let mut figures = vec![[const { Vec::new() }; 3]; cases.len()];
    for _ in 0..args.rounds {
        for (case, [port, bare, frames]) in cases.iter().zip(&mut figures) {
            port.push(case.port_ns(1, window)?.0);
            bare.push(case.bare_ns(window)?);
            frames.push(case.frames_ns(window)?);
        }
    }
    for (case, [port, bare, frames]) in cases.iter().zip(&figures) {
        let (ns, bare_ns, frames_ns) = (median(port).0, median(bare).0, median(frames).0);
        let gbps = case.gbps(ns);
        println!(
            "  {:46} {}   {gbps:5.2} Gbit/s   engine alone {bare_ns:7.2}   {:.2}x, +{:.1} ns   \
             frames alone {frames_ns:.1}",
            case.name(),
            spread(port),
            bare_ns / ns,
            ns - bare_ns
        );
    }
    redirect_beside_kfunc(&args, &cases, window)?;
    if args.only.is_empty() && std::thread::available_parallelism()?.get() > 1 {
        two_cores(&args, &cases, window)?;
    }
    Ok(())
}

/// Measures the same frames through the accelerator, and by the program itself
/// (`bpf_xdp_esp_encap`, `bpf_xdp_esp_decap`), in turn.
fn redirect_beside_kfunc(args: &Args, cases: &[Case], window: Duration) -> anyhow::Result<()> {
    println!("\nredirect beside kfunc: Gbit/s on one core; how many times as fast redirect is\n");
    // CBC with an HMAC is for the multi-buffer library, if it is there.
    let has_library = cases.iter().any(|case| case.engine == EngineKind::IpsecMb);
    let is_wanted = |case: &&Case| {
        let is_aead = matches!(case.keys.0, Suite::Aead(Aead::Aes128Gcm));
        let engine = match is_aead || !has_library {
            true => EngineKind::Direct,
            false => EngineKind::IpsecMb,
        };
        let is_suite = is_aead || matches!(case.keys.0, Suite::CipherThenHmac(..));
        case.payload > 1000 && is_suite && case.engine == engine
    };
    for case in cases.iter().filter(is_wanted) {
        let (mut ports, mut kfuncs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..args.rounds {
            let (port, kfunc) = (case.port_ns(1, window)?.0, case.kfunc_ns(window)?);
            ports.push(case.gbps(port));
            kfuncs.push(case.gbps(kfunc));
            ratios.push(kfunc / port);
        }
        println!(
            "  {:46} redirect {}   kfunc {}   {}x",
            case.name(),
            spread(&ports),
            spread(&kfuncs),
            spread(&ratios)
        );
    }
    Ok(())
}

/// Measures frames per second with the accelerator's queue on a core of its own, divided by those
/// of one core.
fn two_cores(args: &Args, cases: &[Case], window: Duration) -> anyhow::Result<()> {
    println!("\ncryptography on a second core: frames a second over those of one core\n");
    for case in cases.iter().filter(|case| case.payload > 1000 && case.engine != EngineKind::Null) {
        let mut ratios = Vec::new();
        for _ in 0..args.rounds {
            let (one, two) = (case.port_ns(1, window)?.1, case.port_ns(2, window)?.1);
            ratios.push(two / one);
        }
        println!("  {:46} {}x", case.name(), spread(&ratios));
    }
    Ok(())
}

/// A suite, a direction and a size of packets to measure.
struct Case {
    suite: &'static str,
    keys: (Suite, Keys),
    engine: EngineKind,
    /// The library of [`EngineKind::IpsecMb`].
    library: Option<Library>,
    is_inbound: bool,
    /// Bytes of UDP payload.
    payload: usize,
    /// Packets that the generator sends.
    templates: Vec<Vec<u8>>,
}

fn cases(library: Option<&Library>) -> anyhow::Result<Vec<Case>> {
    let cbc = Suite::CipherThenHmac(Cipher::Aes128Cbc, Hmac::Sha1_96);
    let (gcm, chacha) = (Suite::Aead(Aead::Aes128Gcm), Suite::Aead(Aead::ChaCha20Poly1305));
    let mut suites = vec![
        ("AES-GCM-128", gcm, Keys::new(vec![7; 20], Vec::new()), EngineKind::Direct),
        ("AES-CBC-128 + HMAC-SHA1", cbc, Keys::new(vec![7; 16], vec![9; 20]), EngineKind::Direct),
        ("ChaCha20-Poly1305", chacha, Keys::new(vec![7; 36], Vec::new()), EngineKind::Direct),
        ("null engine", gcm, Keys::new(vec![7; 20], Vec::new()), EngineKind::Null),
    ];
    if library.is_some() {
        let keys = Keys::new(vec![7; 16], vec![9; 20]);
        suites.push(("AES-CBC-128 + HMAC-SHA1, ipsec-mb", cbc, keys, EngineKind::IpsecMb));
    }
    let mut cases = Vec::new();
    for (name, suite, keys, engine) in suites {
        for (payload, is_inbound) in [(1386, false), (1386, true), (22, false), (22, true)] {
            let keys = (suite, keys.clone());
            let (library, templates) = (library.cloned(), Vec::new());
            let mut case =
                Case { suite: name, keys, engine, library, is_inbound, payload, templates };
            case.templates = case.make_templates()?;
            cases.push(case);
        }
    }
    Ok(cases)
}

impl Case {
    fn name(&self) -> String {
        let direction = if self.is_inbound { "in" } else { "out" };
        format!("{}, {} B {direction}", self.suite, self.payload + HEADERS)
    }

    /// Gbit/s of frames before the encapsulation that take this time each.
    fn gbps(&self, ns: f64) -> f64 {
        (self.payload + HEADERS) as f64 * 8.0 / ns
    }

    fn config(&self, is_inbound: bool) -> Config {
        let (near, far) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let (suite, keys) = self.keys.clone();
        match is_inbound {
            // The generator sends the same packets again and again.
            true => Config {
                replay: Replay { window: 0, ..Replay::default() },
                ..Config::inbound(0x1000, near, far, suite, keys)
            },
            false => Config { reqid: 1, ..Config::outbound(0x1000, near, far, suite, keys) },
        }
    }

    fn cryptography(&self) -> anyhow::Result<Box<dyn Cryptography<Job<OwnedBuffer>>>> {
        Ok(match (self.engine, &self.library) {
            (EngineKind::IpsecMb, Some(library)) => Box::new(IpsecMb::new(library, BURST)?),
            (EngineKind::Null, _) => Box::new(Null::new(BURST)),
            _ => Box::new(Direct::new(BURST)),
        })
    }

    /// The packets that arrive: plain packets, or ESP packets for an inbound SA.
    fn make_templates(&self) -> anyhow::Result<Vec<Vec<u8>>> {
        let plain: Vec<Vec<u8>> = (0..BURST).map(|number| packet(number, self.payload)).collect();
        if !self.is_inbound {
            return Ok(plain);
        }
        let sa = Arc::new(Sa::new(1, self.config(false), now())?);
        let mut engine = self.cryptography()?;
        let mut jobs = begin(&sa, plain.iter().map(|packet| OwnedBuffer::new(packet)), false);
        engine.submit(&mut jobs);
        engine.flush();
        engine.complete(&mut jobs);
        let mut packets = Vec::new();
        finish_all(&mut jobs, now(), |result| {
            packets.extend(result.ok().map(|it| it.buffer.bytes().to_vec()));
        });
        anyhow::ensure!(packets.len() == BURST, "an SA refuses packets of its own");
        Ok(packets)
    }

    /// Nanoseconds of processor time per frame, and frames per second.
    fn port_ns(&self, workers: usize, window: Duration) -> anyhow::Result<(f64, f64)> {
        let last = last_cpu()?;
        let worker = |number| WorkerOptions {
            cpu: Some(last - number),
            mode: Mode::Busy,
            ..WorkerOptions::default()
        };
        let workers = (0..workers).map(worker).collect();
        let engine = Engine::start(&Options { workers, frames: 8192 })?;
        let (from, esp) = self.ports(&engine)?;
        std::thread::sleep(Duration::from_millis(20));
        let received = || towpath_bench::received(&engine, esp);
        let (start, before) = (Instant::now(), received());
        let ns = ns_per_frame(&engine, &[from], window)?;
        let rate = (received() - before) as f64 / start.elapsed().as_secs_f64();
        engine.stop();
        let conservation = engine.conservation();
        anyhow::ensure!(conservation.missing() == 0, "frames are missing: {conservation:?}");
        anyhow::ensure!(rate > 0.0, "nothing arrives");
        Ok((ns, rate))
    }

    /// Nanoseconds of processor time per frame without the accelerator: a frame is copied from
    /// memory, and dropped by its first program.
    fn frames_ns(&self, window: Duration) -> anyhow::Result<f64> {
        let worker =
            WorkerOptions { cpu: Some(last_cpu()?), mode: Mode::Busy, ..WorkerOptions::default() };
        let engine = Engine::start(&Options { workers: vec![worker], frames: 8192 })?;
        let from = self.generator(&engine)?;
        let drops = load(small::returns(1), 1)?;
        engine.change(|config| attach(config, from, &[drops], 1, 0))?;
        let ns = ns_per_frame(&engine, &[from], window)?;
        engine.stop();
        Ok(ns)
    }

    /// Nanoseconds of processor time per frame if the program does the work, and drops the frame.
    fn kfunc_ns(&self, window: Duration) -> anyhow::Result<f64> {
        let worker =
            WorkerOptions { cpu: Some(last_cpu()?), mode: Mode::Busy, ..WorkerOptions::default() };
        let engine = Engine::start(&Options { workers: vec![worker], frames: 8192 })?;
        let (_esp, table) = self.accelerator(&engine)?;
        let from = self.generator(&engine)?;
        // A frame that was refused would pass, to nowhere.
        let program = load(small::esp(!self.is_inbound, ESP, 1, 2), 1)?;
        engine.change(|config| attach(config, from, &[program], 1, 0))?;
        std::thread::sleep(Duration::from_millis(20));
        let ns = ns_per_frame(&engine, &[from], window)?;
        engine.stop();
        let sas = table.list();
        let (done, refused) = sas
            .iter()
            .map(|sa| sa.statistics())
            .fold((0, 0), |sums, it| (sums.0 + it.packets, sums.1 + it.refused.total()));
        anyhow::ensure!(done > 0 && refused == 0, "{done} packets done, {refused} refused");
        Ok(ns)
    }

    fn generator(&self, engine: &Engine) -> anyhow::Result<PortId> {
        let templates = self.templates.clone();
        let options = generator::Options { templates, ..generator::Options::new(packet(0, 22)) };
        let first = PortOptions { workers: vec![0], ..PortOptions::new("gen") };
        Ok(engine.add_port(first, Box::new(Generator::new(options)?))?)
    }

    fn accelerator(&self, engine: &Engine) -> anyhow::Result<(PortId, Arc<Table>)> {
        let table = Arc::new(Table::new(TableLimits::default()));
        table.add(self.config(self.is_inbound), now())?;
        if !self.is_inbound {
            table.add_policy(everything())?;
        }
        let workers = engine.workers();
        let options = ipsec::Options { engine: self.engine, ..ipsec::Options::default() };
        let last = PortOptions {
            ifindex: Some(ESP),
            workers: vec![workers - 1],
            ..PortOptions::new("esp")
        };
        let port = Box::new(Ipsec::new(options, Arc::clone(&table)));
        Ok((engine.add_port(last, port)?, table))
    }

    fn ports(&self, engine: &Engine) -> anyhow::Result<(PortId, PortId)> {
        let workers = engine.workers();
        let (esp, _) = self.accelerator(engine)?;
        let from = self.generator(engine)?;
        let (sends, drops) =
            (load(small::redirect(ESP), workers)?, load(small::returns(1), workers)?);
        engine.change(|config| {
            attach(config, esp, &[drops], workers, 0)?;
            attach(config, from, &[sends], workers, 0)
        })?;
        Ok((from, esp))
    }

    /// Nanoseconds of processor time per frame for the cryptography alone: the work on headers is
    /// not measured.
    fn bare_ns(&self, window: Duration) -> anyhow::Result<f64> {
        let sa = Arc::new(Sa::new(1, self.config(self.is_inbound), now())?);
        let mut engine = self.cryptography()?;
        let (start, mut ns, mut count) = (Instant::now(), 0, 0);
        while start.elapsed() < window {
            let buffers = self.templates.iter().map(|packet| OwnedBuffer::new(packet));
            let mut jobs = begin(&sa, buffers, self.is_inbound);
            let before = thread_cpu_ns();
            engine.submit(&mut jobs);
            engine.flush();
            engine.complete(&mut jobs);
            ns += thread_cpu_ns() - before;
            finish_all(&mut jobs, now(), |result: Result<Finished<_>, _>| {
                count += usize::from(result.is_ok());
            });
        }
        anyhow::ensure!(count > 0, "the SA refuses all packets");
        Ok(ns as f64 / count as f64)
    }
}

fn begin(
    sa: &Arc<Sa>,
    buffers: impl Iterator<Item = OwnedBuffer>,
    is_inbound: bool,
) -> Vec<Job<OwnedBuffer>> {
    let mut locked = sa.lock(now());
    let mut jobs = Vec::new();
    for buffer in buffers {
        // The callers count finished packets, which shows refusals.
        let _refused = match (is_inbound, Esp::of_frame(buffer.bytes())) {
            (true, Ok(esp)) => locked.decap(buffer, &esp, &mut jobs),
            _ => locked.encap(buffer, &mut jobs),
        };
    }
    jobs
}

fn last_cpu() -> anyhow::Result<usize> {
    Ok(std::thread::available_parallelism()?.get() - 1)
}

fn everything() -> Policy {
    let all = Prefix { address: IpAddr::from([0, 0, 0, 0]), len: 0 };
    let (protocol, source_port, destination_port) = (None, None, None);
    let selector =
        Selector { source: all, destination: all, protocol, source_port, destination_port };
    Policy { selector, priority: 1, action: Action::Protect(1) }
}

/// A UDP packet with `payload` bytes of payload.
fn packet(number: usize, payload: usize) -> Vec<u8> {
    let len = (payload + 28) as u16;
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    packet.extend(len.to_be_bytes());
    packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0x30, 0x39, 0, 99]);
    packet.extend((len - 20).to_be_bytes());
    packet.extend([0, 0, number as u8]);
    packet.resize(14 + usize::from(len), 0x5a);
    let sum: u32 =
        packet[14..34].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[24..26].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// Bytes of Ethernet, IPv4 and UDP.
const HEADERS: usize = 42;
const BURST: usize = 64;
const ESP: u32 = 77;
