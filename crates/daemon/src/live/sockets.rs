//! AF_XDP sockets of applications: what they ask of the engine, and what it is told of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use towpath_bpf::insn::*;
use towpath_bpf::map::Values;
use towpath_bpf::object::Env;
use towpath_bpf::program::{Linked, MapType};
use towpath_bpf::proto::id;
use towpath_bpf::{Insn, MapDef};
use towpath_engine::{Config, Engine, Error, Hook, Link, PortId, Socket as _};
use towpath_maps::{Environment, Map, Value};
use towpath_objects::Objects;
use towpath_xdp::{Exec, LoadOptions, Program, Trust};
use towpath_xsk::{Device, Errno, Host, Socket, Sockets};

use super::world::Known;

/// The sockets, and the daemon as they see it.
#[derive(Debug, Clone)]
pub struct Xsk {
    host: Arc<EngineHost>,
    sockets: Arc<Sockets>,
}

impl Xsk {
    pub(super) fn new(engine: &Arc<Engine>, known: &Arc<Known>, registry: &Arc<Objects>) -> Xsk {
        let host = Arc::new(EngineHost {
            engine: Arc::clone(engine),
            known: Arc::clone(known),
            registry: Arc::clone(registry),
            defaults: Mutex::default(),
        });
        let sockets = Sockets::new(Arc::clone(&host) as Arc<dyn Host>);
        known.set_sockets(&sockets);
        Xsk { host, sockets }
    }

    /// All sockets.
    pub fn sockets(&self) -> &Arc<Sockets> {
        &self.sockets
    }

    /// Which entries of which maps lead to which socket: its number, the map's name, the key.
    pub(crate) fn entries(&self) -> Vec<(u32, String, u32)> {
        let of_map = |map: Arc<Map>| {
            let targets = map.targets().into_iter();
            targets.map(move |(key, target)| (target.id, map.name().to_owned(), key))
        };
        self.host.maps().into_iter().flat_map(of_map).collect()
    }

    /// The link of the default program of a port, while a socket needs it.
    pub(super) fn default_link(&self, ifindex: u32) -> Option<Link> {
        self.host.defaults.lock().get(&ifindex).cloned()
    }

    /// A port is gone, and its sockets with it.
    pub(super) fn forget_port(&self, ifindex: u32) {
        self.sockets.unregister(ifindex);
        self.host.defaults.lock().remove(&ifindex);
    }
}

/// What sockets know of the engine.
#[derive(Debug)]
struct EngineHost {
    engine: Arc<Engine>,
    known: Arc<Known>,
    /// Maps that no program on a hook has: pinned ones.
    registry: Arc<Objects>,
    /// Links of the default program by ifindex. Locked inside of changes of the engine, never the
    /// other way round.
    defaults: Mutex<BTreeMap<u32, Link>>,
}

impl Host for EngineHost {
    fn device(&self, ifindex: u32) -> Option<Device> {
        self.engine.read(|config, snapshot| {
            let slot = snapshot.port_of_ifindex(ifindex)?;
            // A port that only sends has one queue for that.
            let queues = slot.opened.device.queues().max(1);
            Some(Device { queues, zero_copy: config.can_zero_copy(slot.id) })
        })
    }

    fn ifindex(&self, name: &str) -> Option<u32> {
        self.engine.read(|config, snapshot| {
            let id = config.find(name).ok()?;
            Some(snapshot.port(id)?.ifindex)
        })
    }

    fn attach(&self, socket: &Arc<Socket>) -> Result<(), Errno> {
        let place = socket.bound_to().ok_or(Errno::NXIO)?;
        // Only now is it sure that the port stays until workers know.
        let added = self.engine.change(|config| {
            port_with(config, place.ifindex)?;
            config.add_socket(Arc::clone(socket) as Arc<dyn towpath_engine::Socket>)
        });
        added.map_err(|_the_port_is_gone| Errno::NODEV)
    }

    fn detach(&self, sockets: &[Arc<Socket>]) {
        let forget = || {
            for map in self.maps() {
                sockets.iter().for_each(|socket| map.forget(socket.id()));
            }
        };
        forget();
        // Nothing of this can fail.
        let _removed = self.engine.change(|config| {
            sockets.iter().for_each(|socket| config.remove_socket(socket.id()));
            self.drop_unused_defaults(config);
            Ok(())
        });
        // An update that had found one of them before it closed.
        forget();
    }

    fn steer(&self, socket: &Arc<Socket>) -> Result<(), Errno> {
        let place = socket.bound_to().ok_or(Errno::NXIO)?;
        let map = match self.map_on(place.ifindex, DEFAULT_MAP) {
            Some(map) => map,
            None => self.attach_default(place.ifindex)?,
        };
        put(&map, place.queue, socket.id())
    }

    fn insert(&self, socket: &Arc<Socket>, map: &str, key: u32) -> Result<(), Errno> {
        let place = socket.bound_to().ok_or(Errno::NXIO)?;
        let map = self.map_on(place.ifindex, map).ok_or(Errno::NOENT)?;
        put(&map, key, socket.id())
    }
}

impl EngineHost {
    /// The XSKMAP of that name of a program on that port.
    fn map_on(&self, ifindex: u32, name: &str) -> Option<Arc<Map>> {
        self.engine.read(|_, snapshot| {
            let chain = snapshot.port_of_ifindex(ifindex)?.rx_hook.as_ref()?;
            let maps = chain.links().iter().filter_map(|link| link.program.maps().by_name(name));
            maps.into_iter().find(|map| map.kind().values() == Values::Socket).cloned()
        })
    }

    /// All XSKMAPs: of programs on hooks, those inside of maps of maps included, and those that are
    /// pinned or kept by somebody else.
    fn maps(&self) -> Vec<Arc<Map>> {
        let mut found: Vec<Arc<Map>> = Vec::new();
        let mut add = |map: &Arc<Map>| {
            if map.kind().values() == Values::Socket && !found.iter().any(|it| Arc::ptr_eq(it, map))
            {
                found.push(Arc::clone(map));
            }
        };
        let programs: Vec<Program> = self.engine.read(|_, snapshot| {
            let links = snapshot.chains().flat_map(|chain| chain.links());
            links.map(|link| link.program.clone()).collect()
        });
        for map in programs.iter().flat_map(|program| program.maps().maps()) {
            add(map);
            if map.kind().values() == Values::Map {
                let user = map.user();
                let keys = user.entries().map(|(key, _)| key);
                keys.filter_map(|key| map.inner(&key)).for_each(|inner| add(&inner));
            }
        }
        self.registry.maps().iter().for_each(&mut add);
        found
    }

    /// Attaches libxdp's default program to a port that has no program with an `xsks_map`.
    fn attach_default(&self, ifindex: u32) -> Result<Arc<Map>, Errno> {
        let Device { queues, zero_copy } = self.device(ifindex).ok_or(Errno::NODEV)?;
        let mut options = LoadOptions {
            workers: self.engine.workers(),
            environment: Some(Arc::clone(&self.known) as Arc<dyn Environment>),
            ..LoadOptions::default()
        };
        if zero_copy {
            // It must not keep frames from being received into applications' memory.
            (options.exec, options.jit.trust) = (Exec::Jit, Trust::Guest);
        }
        let program = Program::from_linked(default_program(queues), &options);
        let program = program.map_err(|_no_memory| Errno::NOMEM)?;
        let map = program.maps().by_name(DEFAULT_MAP).cloned().ok_or(Errno::NOENT)?;
        let mut link = Link::new(program, DEFAULT_LINK, self.engine.workers());
        link.priority = DEFAULT_PRIORITY;
        let attached = self.engine.change(|config| {
            let port = port_with(config, ifindex)?;
            let mut links = config.links(port, Hook::Rx)?.to_vec();
            links.push(link.clone());
            config.set_links(port, Hook::Rx, links)?;
            self.defaults.lock().insert(ifindex, link);
            Ok(())
        });
        attached.map(|()| map).map_err(|_refused| Errno::BUSY)
    }

    /// Takes the default program off ports where no socket needs it any more.
    fn drop_unused_defaults(&self, config: &mut Config) {
        self.defaults.lock().retain(|&ifindex, link| {
            let map = link.program.maps().by_name(DEFAULT_MAP);
            let is_used = map.is_some_and(|map| !map.targets().is_empty());
            if !is_used && let Ok(port) = port_with(config, ifindex) {
                let links = config.links(port, Hook::Rx).unwrap_or_default();
                let others = links.iter().filter(|link| link.id != DEFAULT_LINK).cloned();
                let others = others.collect();
                // Fewer programs are never refused.
                let _set = config.set_links(port, Hook::Rx, others);
            }
            is_used
        });
    }
}

fn port_with(config: &Config, ifindex: u32) -> Result<PortId, Error> {
    config
        .port_of_ifindex(ifindex)
        .ok_or_else(|| Error::NoPort { name: format!("with ifindex {ifindex}"), known: Vec::new() })
}

fn put(map: &Map, key: u32, number: u32) -> Result<(), Errno> {
    let value = Value::One(number.to_ne_bytes().to_vec());
    let stored = map.user().update(&key.to_ne_bytes(), &value, 0);
    stored.map_err(|errno| Errno::from_raw_os_error(errno.0))
}

/// libxdp's `xsk_def_xdp_prog`: to the socket of the queue, or on.
fn default_program(queues: u32) -> Linked {
    let mov = |dst, imm| Insn::new(BPF_ALU64 | BPF_MOV, dst, 0, 0, imm);
    let insns = vec![
        // r2 = ctx->rx_queue_index
        Insn::new(BPF_LDX | BPF_MEM | BPF_W, 2, 1, RX_QUEUE_INDEX, 0),
        Insn::new(BPF_LD | BPF_IMM | BPF_DW, 1, PSEUDO_MAP_FD, 0, 0),
        Insn::default(),
        mov(3, XDP_PASS),
        Insn::new(BPF_JMP | BPF_CALL, 0, 0, 0, id::REDIRECT_MAP as i32),
        Insn::new(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    ];
    let map = MapDef::new(DEFAULT_MAP, MapType::Xskmap, 4, 4, queues);
    let linked = Linked::of_insns("xsk_def_prog", insns, vec![map], &Env::builtin().kernel_btf);
    Linked { section: "xdp.frags".to_owned(), ..linked }
}

/// The map that libxdp looks for.
const DEFAULT_MAP: &str = "xsks_map";
/// What the default program runs with, as libxdp's does.
const DEFAULT_PRIORITY: u32 = 20;
/// The number of its link: no other gets that far.
const DEFAULT_LINK: u32 = u32::MAX;
const _: () = assert!(
    DEFAULT_PRIORITY < towpath_engine::DEFAULT_PRIORITY,
    "sockets' program is before others"
);
/// In `struct xdp_md`.
const RX_QUEUE_INDEX: i16 = 16;
const XDP_PASS: i32 = 2;
