//! Objects made elsewhere: programs and maps of the daemon's loader, and the daemon's links. They
//! get ids, names and pins like all others.

use std::sync::Arc;

use towpath_bpf::Errno;
use towpath_bpf::btf::Btf;
use towpath_bpf::btf::emit::Emitter;
use towpath_bpf::map::Values;
use towpath_bpf::program::AttachType;
use towpath_maps::Map;
use towpath_xdp::Program;

use crate::attach::{AttachError, XdpMode};
use crate::object::btf::BtfObject;
use crate::object::link::LinkObject;
use crate::object::map::{About as MapAbout, MapObject};
use crate::object::program::{
    ATTACH_XDP, ATTACH_XDP_CPUMAP, ATTACH_XDP_DEVMAP, About, PROG_TYPE_DEQUEUE, PROG_TYPE_SYSCALL,
    PROG_TYPE_XDP, ProgramObject, now,
};
use crate::object::{Name, Object, Tag};
use crate::objects::Objects;

/// Ids for objects of the daemon's loader.
impl Objects {
    /// Registers a map of a program.
    fn register_map(&self, map: &Arc<Map>, program: &Program) -> Result<Arc<MapObject>, Errno> {
        if let Some(known) = self.map_object(map) {
            return Ok(known);
        }
        let def = map.def();
        // The kinds to which libbpf gives types.
        let is_typed = matches!(def.kind.values(), Values::Bytes | Values::PerCpu)
            && (def.key_type, def.value_type) != (0, 0);
        let btf = self.register_btf(def.btf.as_ref().filter(|_| is_typed))?;
        let about = MapAbout { name: Name::cut(map.name()), exclusive: None, btf };
        let world = Arc::clone(&self.world);
        let family = program.surroundings();
        self.maps.create(|lease| MapObject::new(lease, Arc::clone(map), about, world, family))
    }

    /// Registers the types of an object, once.
    fn register_btf(&self, btf: Option<&Arc<Btf>>) -> Result<Option<Arc<BtfObject>>, Errno> {
        let Some(btf) = btf else { return Ok(None) };
        let known = self.btfs.all().into_iter().find(|known| Arc::ptr_eq(known.types(), btf));
        if known.is_some() {
            return Ok(known);
        }
        let (types, bytes) = (Arc::clone(btf), Emitter::new(btf).finish());
        self.btfs.create(|lease| BtfObject::new(lease, types, bytes)).map(Some)
    }

    /// Registers a program that was loaded elsewhere, and its maps. A program that is `bound_to` a
    /// device runs only there (`BPF_F_XDP_DEV_BOUND_ONLY`).
    ///
    /// # Errors
    ///
    /// `EINVAL`: it was not loaded within [`Objects::shared`], which has the ids; it is unlike the
    /// programs around a map of programs that it uses; no such device. `EEXIST`: it is known.
    /// `ENOSPC`: no id is left for a map or types. `EOPNOTSUPP`: the device does not run programs
    /// itself.
    pub fn register_program(
        &self,
        program: &Program,
        uid: u32,
        bound_to: Option<u32>,
    ) -> Result<Arc<ProgramObject>, Errno> {
        let registered = self.register(program, uid, bound_to);
        if registered.is_err() {
            self.shared.forget(program);
        }
        registered
    }

    fn register(
        &self,
        program: &Program,
        uid: u32,
        bound_to: Option<u32>,
    ) -> Result<Arc<ProgramObject>, Errno> {
        if !Arc::ptr_eq(program.surroundings(), self.shared.surroundings()) {
            return Err(Errno::EINVAL);
        }
        if let Some(ifindex) = bound_to {
            let device = self.attachments.devices().device(ifindex).ok_or(Errno::EINVAL)?;
            if !device.native {
                return Err(Errno::EOPNOTSUPP);
            }
        }
        let maps: Result<Vec<_>, Errno> =
            used_maps(program).map(|map| self.register_map(map, program)).collect();
        let linked = program.verified().map(|verified| verified.linked());
        let insns = linked.map_or(Vec::new(), |linked| linked.insns.clone());
        let about = About {
            kind: match program.attach() {
                AttachType::Dequeue => PROG_TYPE_DEQUEUE,
                AttachType::Syscall => PROG_TYPE_SYSCALL,
                AttachType::Xdp | AttachType::Devmap | AttachType::Cpumap => PROG_TYPE_XDP,
            },
            attach: attach_number(program.attach()),
            name: Name::cut(program.name()),
            tag: Tag::of(&insns),
            uid,
            load_time: now(),
            is_gpl: linked.is_some_and(|linked| linked.is_gpl_compatible()),
            btf: self.register_btf(linked.and_then(|linked| linked.btf.as_ref()))?,
            functions: Vec::new(),
            lines: Vec::new(),
            insns,
            bound_to,
        };
        let (id, shared, maps) = (program.id(), self.shared.clone(), maps?);
        let program = program.clone();
        maps.iter().try_for_each(|map| map.admit(&program, &about))?;
        let make = |lease| ProgramObject::new(lease, program, shared, about, maps);
        let object = self.programs.create_with(id, make)?;
        object.tell(self.attachments.devices())?;
        Ok(object)
    }

    /// Whether a program may run on a device in a link that is to be registered, or in one that is
    /// registered (`before`). The rules are those for all other links. `modes` are the modes whose
    /// hook it would share.
    ///
    /// # Errors
    ///
    /// `EINVAL`: it is bound to another device. `EBUSY`: another owner has one of the hooks.
    pub fn check_link(
        &self,
        program: &ProgramObject,
        ifindex: u32,
        modes: &[XdpMode],
        before: Option<&LinkObject>,
    ) -> Result<(), AttachError> {
        self.attachments.check_joined(program, ifindex, modes, before.is_none())
    }

    /// Registers a link whose program the engine runs on a device; it ends with
    /// [`LinkObject::detach`], or with its last reference. The hook is not taken: the engine runs
    /// several programs on one, and [`Objects::check_link`] says whether this one may join them.
    ///
    /// # Errors
    ///
    /// `ENOSPC`: no id is left.
    pub fn register_link(
        &self,
        program: &Arc<ProgramObject>,
        ifindex: u32,
    ) -> Result<Arc<LinkObject>, Errno> {
        let (attachments, program) = (Arc::clone(&self.attachments), Arc::clone(program));
        let link = self.links.create(|lease| LinkObject::new(lease, attachments, 0, program))?;
        link.set_device(ifindex);
        Ok(link)
    }

    /// Notes that a registered link has another program now.
    pub fn note_program(&self, link: &LinkObject, program: &Arc<ProgramObject>) {
        link.set_program(Arc::clone(program));
    }

    /// `BPF_OBJ_PIN`, of any object.
    ///
    /// # Errors
    ///
    /// `ENOENT`: no such directory. `EEXIST`: the name is taken. `EPERM`: outside of
    /// [`BPFFS_ROOT`](crate::BPFFS_ROOT), or a name with a dot.
    pub fn pin(&self, path: &str, object: Object) -> Result<(), Errno> {
        self.bpffs.pin(path, object)
    }
}

/// The maps that a program keeps alive: all of its object's, but of a program for entries of maps
/// only those it uses. Otherwise it and the map that it is in would keep each other alive.
fn used_maps(program: &Program) -> impl Iterator<Item = &Arc<Map>> {
    let linked = program.verified().map(|verified| verified.linked());
    let insns = linked.map_or(&[][..], |linked| &linked.insns);
    let is_used = move |number: usize| {
        let mut used = insns.iter().filter(|insn| insn.names_map()).map(|insn| insn.imm as usize);
        let is_for_entries = matches!(program.attach(), AttachType::Devmap | AttachType::Cpumap);
        !is_for_entries || used.any(|used| used == number)
    };
    let all = program.maps().maps().iter().enumerate();
    all.filter(move |(number, _)| is_used(*number)).map(|(_, map)| map)
}

/// `expected_attach_type`
fn attach_number(attach: AttachType) -> u32 {
    match attach {
        AttachType::Xdp => ATTACH_XDP,
        AttachType::Devmap => ATTACH_XDP_DEVMAP,
        AttachType::Cpumap => ATTACH_XDP_CPUMAP,
        AttachType::Dequeue | AttachType::Syscall => 0,
    }
}
