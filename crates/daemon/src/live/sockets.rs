//! AF_XDP sockets of applications: their view of the engine, and their entries in maps.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
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
use towpath_xsk::protocol::{Route, UdpBinding};
use towpath_xsk::{Device, Errno, Host, Socket, Sockets};

use super::udp::{Claim, Listed, Request, Steering, UDP_LINK, Udp};
use super::world::Known;

/// AF_XDP sockets, and the daemon as their host.
#[derive(Debug, Clone)]
pub struct Xsk {
    host: Arc<EngineHost>,
    sockets: Arc<Sockets>,
}

impl Xsk {
    pub(super) fn new(
        engine: &Arc<Engine>,
        known: &Arc<Known>,
        registry: &Arc<Objects>,
        tables: &Arc<towpath_xdp::host::Live>,
    ) -> Xsk {
        let host = Arc::new(EngineHost {
            engine: Arc::clone(engine),
            known: Arc::clone(known),
            registry: Arc::clone(registry),
            defaults: Mutex::default(),
            udp: Udp::new(tables),
        });
        let sockets = Sockets::new(Arc::clone(&host) as Arc<dyn Host>);
        known.set_sockets(&sockets);
        Xsk { host, sockets }
    }

    /// All sockets.
    pub fn sockets(&self) -> &Arc<Sockets> {
        &self.sockets
    }

    /// All XSKMAP entries: the socket's number, the map's name, the key.
    pub(crate) fn entries(&self) -> Vec<(u32, String, u32)> {
        let of_map = |map: Arc<Map>| {
            let targets = map.targets().into_iter();
            targets.map(move |(key, target)| (target.id, map.name().to_owned(), key))
        };
        self.host.maps().into_iter().flat_map(of_map).collect()
    }

    /// The UDP addresses and ports of all sockets.
    pub(crate) fn udp(&self) -> Vec<Listed> {
        self.host.udp.all()
    }

    /// Links of the programs that sockets of a port need now: the default one, and the one for UDP.
    pub(super) fn links(&self, ifindex: u32) -> impl Iterator<Item = Link> {
        let default = self.host.defaults.lock().get(&ifindex).cloned();
        default.into_iter().chain(self.host.udp.link(ifindex))
    }

    /// Sets whether the tables of routes are the running host's, and which of its interfaces
    /// represent ports: names by ifindex.
    pub(super) fn follow_host(&self, is_running: bool, shadows: BTreeMap<u32, String>) {
        self.host.udp.follow_host(is_running, shadows);
    }

    /// Closes the sockets of a port that is gone.
    pub(super) fn forget_port(&self, ifindex: u32) {
        self.sockets.unregister(ifindex);
        self.host.defaults.lock().remove(&ifindex);
        self.host.udp.forget_port(ifindex);
    }
}

/// The engine, as sockets use it.
#[derive(Debug)]
struct EngineHost {
    engine: Arc<Engine>,
    known: Arc<Known>,
    /// Source of maps that no attached program uses, such as pinned ones.
    registry: Arc<Objects>,
    /// Links of default programs by ifindex. Locked within changes of the engine, never the other
    /// way round.
    defaults: Mutex<BTreeMap<u32, Link>>,
    /// UDP addresses and ports of sockets. Locked as the above.
    udp: Udp,
}

impl Host for EngineHost {
    fn device(&self, ifindex: u32) -> Option<Device> {
        self.engine.read(|config, snapshot| {
            let slot = snapshot.port_of_ifindex(ifindex)?;
            // A port without receive queues has one queue for sending.
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
        // Within the change, the port cannot disappear before the workers know the socket.
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
            self.udp.close(sockets.iter().map(|socket| socket.id()));
        };
        forget();
        // None of these operations fails.
        let _removed = self.engine.change(|config| {
            sockets.iter().for_each(|socket| config.remove_socket(socket.id()));
            self.drop_unused_defaults(config);
            self.udp.drop_unused(config);
            Ok(())
        });
        // Again, for an update that found a socket before it was closed.
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

    fn bind_udp(&self, socket: &Arc<Socket>, binding: &UdpBinding) -> Result<u16, Errno> {
        let place = socket.bound_to().ok_or(Errno::NXIO)?;
        let UdpBinding { address, group, shares, server } = *binding;
        let (user, queue) = (socket.user(), place.queue);
        let claim = Claim { socket: socket.id(), user, queue, group, shares, server };
        let request = self.udp.request(place.ifindex, claim, address)?;
        match self.udp.bind(&request) {
            Some(bound) => bound,
            None => self.attach_udp(&request),
        }
    }

    fn unbind_udp(&self, socket: &Arc<Socket>, address: SocketAddr) -> Result<(), Errno> {
        let place = socket.bound_to().ok_or(Errno::NXIO)?;
        if self.udp.unbind(place.ifindex, socket.id(), address)? {
            // The removal of a program is never refused.
            let _removed = self.engine.change(|config| {
                self.udp.drop_unused(config);
                Ok(())
            });
        }
        Ok(())
    }

    fn drain_udp(&self, socket: &Arc<Socket>, address: SocketAddr) -> Result<(), Errno> {
        let place = socket.bound_to().ok_or(Errno::NXIO)?;
        self.udp.drain(place.ifindex, socket.id(), address)
    }

    fn route(&self, socket: &Arc<Socket>, destination: IpAddr) -> Result<Route, Errno> {
        let place = socket.bound_to().ok_or(Errno::NXIO)?;
        let device = self.engine.read(|_, snapshot| {
            let slot = snapshot.port_of_ifindex(place.ifindex)?;
            Some((slot.opened.device.mac(), slot.mtu))
        });
        self.udp.route(place.ifindex, device.ok_or(Errno::NODEV)?, destination)
    }
}

impl EngineHost {
    /// The XSKMAP of this name in a program on the port.
    fn map_on(&self, ifindex: u32, name: &str) -> Option<Arc<Map>> {
        self.engine.read(|_, snapshot| {
            let chain = snapshot.port_of_ifindex(ifindex)?.rx_hook.as_ref()?;
            // Where UDP datagrams go is not for applications to decide.
            let links = chain.links().iter().filter(|link| link.id != UDP_LINK);
            let maps = links.filter_map(|link| link.program.maps().by_name(name));
            maps.into_iter().find(|map| map.kind().values() == Values::Socket).cloned()
        })
    }

    /// All XSKMAPs, except those for UDP: those of attached programs, also inside of maps of maps,
    /// and those that are pinned or held by clients.
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
            let links = links.filter(|link| link.id != UDP_LINK);
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

    /// Attaches libxdp's default program to a port whose programs have no `xsks_map`.
    fn attach_default(&self, ifindex: u32) -> Result<Arc<Map>, Errno> {
        let device = self.device(ifindex).ok_or(Errno::NODEV)?;
        let options = self.load_options(device);
        let program = Program::from_linked(default_program(device.queues), &options);
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

    /// Attaches the program that delivers UDP datagrams, for the first binding on a port.
    fn attach_udp(&self, request: &Request) -> Result<u16, Errno> {
        let ifindex = request.ifindex();
        let device = self.device(ifindex).ok_or(Errno::NODEV)?;
        let steering = Steering::load(&self.load_options(device))?;
        let attached = self.engine.change(|config| {
            self.udp.attach(config, ifindex, steering)?;
            let bound = self.udp.bind(request).unwrap_or(Err(Errno::NODEV));
            // If nothing is bound, the program goes again.
            self.udp.drop_unused(config);
            Ok(bound)
        });
        attached.unwrap_or(Err(Errno::BUSY))
    }

    /// Options to load programs for sockets of a port.
    fn load_options(&self, device: Device) -> LoadOptions {
        let mut options = LoadOptions {
            workers: self.engine.workers(),
            exec: Exec::Jit,
            environment: Some(Arc::clone(&self.known) as Arc<dyn Environment>),
            host: Arc::clone(self.udp.tables()),
            ..LoadOptions::default()
        };
        if device.zero_copy {
            // Other settings would rule out reception into the applications' memory (zero copy).
            options.jit.trust = Trust::Guest;
        }
        options
    }

    /// Detaches default programs that no socket needs any more.
    fn drop_unused_defaults(&self, config: &mut Config) {
        self.defaults.lock().retain(|&ifindex, link| {
            let map = link.program.maps().by_name(DEFAULT_MAP);
            let is_used = map.is_some_and(|map| !map.targets().is_empty());
            if !is_used && let Ok(port) = port_with(config, ifindex) {
                let links = config.links(port, Hook::Rx).unwrap_or_default();
                let others = links.iter().filter(|link| link.id != DEFAULT_LINK).cloned();
                let others = others.collect();
                // The removal of a program is never refused.
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

/// libxdp's `xsk_def_xdp_prog`: redirects to the queue's socket, or passes the frame.
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

/// The name under which libxdp looks for the map.
const DEFAULT_MAP: &str = "xsks_map";
/// Priority of the default program, as in libxdp.
const DEFAULT_PRIORITY: u32 = 20;
/// Id of the default program's link; ids of other links never get this high.
const DEFAULT_LINK: u32 = u32::MAX;
const _: () = assert!(
    DEFAULT_PRIORITY < towpath_engine::DEFAULT_PRIORITY,
    "sockets' program is before others"
);
/// Offset in `struct xdp_md`.
const RX_QUEUE_INDEX: i16 = 16;
const XDP_PASS: i32 = 2;
