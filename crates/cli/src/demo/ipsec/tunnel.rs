//! Two gateways in one engine: the first one encapsulates, the second one decapsulates.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::sync::Arc;

use towpath_bpf::Object;
use towpath_bpf::object::Env;
use towpath_engine::port::Device;
use towpath_engine::{Engine, Hook, Link, Options, PortId, PortOptions, UpperName};
use towpath_ipsec::{
    Action, Aead, Config, Keys, Policy, Prefix, Sa, Selector, Suite, Table, TableLimits,
};
use towpath_maps::Value;
use towpath_ports::ipsec::{self, Ipsec, now};
use towpath_xdp::{Exec, LoadOptions, Loader, Program, Select};

use crate::error::CliError;

/// Two gateways: the first one encapsulates, the second one decapsulates.
pub(super) struct Tunnel {
    pub(super) engine: Engine,
    pub(super) a: Gateway,
    pub(super) b: Gateway,
    /// The last port of the way.
    pub(super) last: PortId,
}

/// An accelerator with its SAs, and the program on the protected side.
pub(super) struct Gateway {
    pub(super) table: Arc<Table>,
    pub(super) program: Program,
    port: PortId,
}

/// Devices at the ends of the way, and those of the wire between the gateways; without these, the
/// first accelerator passes its packets to the second one.
pub(super) struct Ends {
    pub(super) first: Box<dyn Device>,
    pub(super) wire: Option<[Box<dyn Device>; 2]>,
    pub(super) last: Box<dyn Device>,
}

impl Tunnel {
    /// Opens all ports. Packets pass the program of gateway A, are encapsulated, cross the wire,
    /// are decapsulated, and pass the program of gateway B. The programs block these UDP ports.
    pub(super) fn start(ends: Ends, blocked: [u16; 2]) -> Result<Tunnel, CliError> {
        let options = Options { frames: FRAMES, ..Options::default() };
        let engine = Engine::start(&options).map_err(failed)?;
        let tables = [(); 2].map(|()| Arc::new(Table::new(TableLimits::default())));
        tables[0].add_policy(everything()).map_err(failed)?;
        let add = |name: &str, up: bool, device: Box<dyn Device>| {
            engine.add_port(PortOptions { up, ..PortOptions::new(name) }, device).map_err(failed)
        };
        let accelerator =
            |table: &Arc<Table>| Box::new(Ipsec::new(ipsec::Options::default(), Arc::clone(table)));
        let first = add("inside-a", false, ends.first)?;
        let ports = [
            add("esp-a", true, accelerator(&tables[0]))?,
            add("esp-b", true, accelerator(&tables[1]))?,
        ];
        let last = add("inside-b", true, ends.last)?;
        let mut uppers = vec![(first, "esp-a"), (ports[1], "inside-b")];
        match ends.wire {
            Some([from, to]) => {
                add("outside-a", true, from)?;
                let to = add("outside-b", true, to)?;
                uppers.extend([(ports[0], "outside-a"), (to, "esp-b")]);
            }
            None => uppers.push((ports[0], "esp-b")),
        }
        let programs = [filter(blocked[0])?, filter(blocked[1])?];
        let change = engine.change(|config| {
            for (port, upper) in uppers {
                config.set_upper(port, UpperName::Named(upper.to_owned()))?;
            }
            for (port, program) in [first, ports[1]].into_iter().zip(&programs) {
                config.set_links(port, Hook::Rx, vec![Link::new(program.clone(), 1, 1)])?;
            }
            config.set_up(first, true)
        });
        change.map_err(failed)?;
        let ([table_a, table_b], [program_a, program_b]) = (tables, programs);
        let a = Gateway { table: table_a, program: program_a, port: ports[0] };
        let b = Gateway { table: table_b, program: program_b, port: ports[1] };
        Ok(Tunnel { engine, a, b, last })
    }

    /// Adds an SA to both gateways, first where packets arrive; returns both ends.
    pub(super) fn add_sa(&self, spi: u32) -> Result<[Arc<Sa>; 2], CliError> {
        let (near, far) = (IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2]));
        let suite = Suite::Aead(Aead::Aes128Gcm);
        let mut key = vec![0; KEY_AND_SALT];
        File::open("/dev/urandom")
            .and_then(|mut from| from.read_exact(&mut key))
            .map_err(failed)?;
        let keys = || Keys::new(key.clone(), Vec::new());
        let inbound = Config::inbound(spi, near, far, suite, keys());
        let outbound = Config { reqid: REQID, ..Config::outbound(spi, near, far, suite, keys()) };
        let inbound = self.b.table.add(inbound, now()).map_err(failed)?;
        let outbound = self.a.table.add(outbound, now()).map_err(failed)?;
        Ok([outbound, inbound])
    }

    /// The number of packets that gateway B refused, by reason.
    pub(super) fn refused(&self) -> BTreeMap<String, u64> {
        let mut refused = BTreeMap::new();
        for sa in self.b.table.list() {
            for (why, count) in sa.statistics().refused.iter() {
                *refused.entry(why.name().to_owned()).or_default() += count;
            }
        }
        // The port counts packets for which there is no SA.
        let port = self.engine.port(self.b.port);
        let details = port.map(|port| port.opened.device.details()).unwrap_or_default();
        for (name, value) in details {
            let is_reason = towpath_ipsec::Refusal::ALL.iter().any(|why| why.name() == name);
            if let (true, Ok(count)) = (is_reason, value.parse::<u64>()) {
                *refused.entry(name.to_owned()).or_default() += count;
            }
        }
        refused
    }
}

impl Gateway {
    /// The number of packets that the program dropped, as its map has it.
    pub(super) fn dropped(&self, port: u16) -> u64 {
        let value =
            self.program.maps().by_name(MAP).and_then(|map| map.user().lookup(&key(port), 0).ok());
        let packets = value.and_then(|value| value.bytes().first_chunk().copied());
        packets.map_or(0, u64::from_ne_bytes)
    }
}

/// The program that `towpath new` makes, as clang compiled it. It drops packets to services in its
/// map `blocked`, which has this UDP port.
fn filter(port: u16) -> Result<Program, CliError> {
    let object = Object::open(FILTER, "filter.o").map_err(failed)?;
    let options = LoadOptions { exec: Exec::Jit, ..LoadOptions::default() };
    let env = Env::builtin();
    let loader = Loader::new(&object, &env, &options).map_err(failed)?;
    let program = loader.program(Select::Only).map_err(failed)?;
    let map = program.maps().by_name(MAP).ok_or_else(|| failed("filter.o has no map"))?;
    let zeros = Value::One(vec![0; map.value_size() as usize]);
    map.user().update(&key(port), &zeros, 0).map_err(failed)?;
    Ok(program)
}

/// `struct service` of the program.
fn key(port: u16) -> [u8; 4] {
    let [low, high] = port.to_ne_bytes();
    [low, high, UDP, 0]
}

/// Protects all packets.
fn everything() -> Policy {
    let all = Prefix { address: IpAddr::from([0, 0, 0, 0]), len: 0 };
    let (protocol, source_port, destination_port) = (None, None, None);
    let selector =
        Selector { source: all, destination: all, protocol, source_port, destination_port };
    Policy { selector, priority: 1, action: Action::Protect(REQID) }
}

/// An error that a correct binary does not have.
fn failed(error: impl std::fmt::Display) -> CliError {
    CliError::Daemon(error.to_string())
}

const FILTER: &[u8] = include_bytes!("../../../template/filter.o");
const MAP: &str = "blocked";
const UDP: u8 = 17;
const REQID: u32 = 1;
/// Bytes of an AES-128 key and of its salt.
const KEY_AND_SALT: usize = 20;
const FRAMES: usize = 8192;
