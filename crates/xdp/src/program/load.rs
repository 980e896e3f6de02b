//! Loading the programs of one object over one set of maps.

use std::collections::HashMap;
use std::sync::Arc;

use towpath_bpf::btf::{Btf, Kind};
use towpath_bpf::interp::{self, Access, Code, Resolver};
use towpath_bpf::object::Env;
use towpath_bpf::program::{AttachType, KfuncRef, Linked, MapType, SlotInit};
use towpath_bpf::verifier::{
    self, AccessFact, FieldKind, SpecialField, SubprogramKind, Verified, special_fields,
};
use towpath_bpf::{MapDef, Object};
use towpath_maps::fields::Field;
use towpath_maps::{Map, MapSet, SetOptions};

use super::{LoadError, LoadOptions, Program, Select, Surroundings};
use crate::compiled::{Compiled, Exec};
use crate::helpers;
use crate::objects::Releaser;

/// The maps of an object and a way to load its programs over them.
///
/// ```text
/// let loader = Loader::new(&object, &env, &options)?;
/// let (a, b) = (loader.program(Select::Name("a"))?, loader.program(Select::Name("b"))?);
/// ```
#[derive(Debug)]
pub struct Loader<'a> {
    object: &'a Object,
    env: &'a Env,
    options: &'a LoadOptions,
    maps: Arc<MapSet>,
    surroundings: Arc<Surroundings>,
}

impl<'a> Loader<'a> {
    /// Creates the object's maps.
    pub fn new(
        object: &'a Object,
        env: &'a Env,
        options: &'a LoadOptions,
    ) -> Result<Loader<'a>, LoadError> {
        let (maps, surroundings) = surround(object.maps(), &env.kernel_btf, options)?;
        Ok(Loader { object, env, options, maps, surroundings })
    }

    /// The object's maps.
    pub fn maps(&self) -> &Arc<MapSet> {
        &self.maps
    }

    /// Links, verifies and prepares one program, and those that the object file puts into program
    /// arrays.
    pub fn program(&self, select: Select<'_>) -> Result<Program, LoadError> {
        let (name, section) = match select {
            Select::Only => (None, None),
            Select::Name(name) => (Some(name), None),
            Select::Section(section) => (None, Some(section)),
        };
        let index = self.object.select(name, section)?;
        let mut program = self.prepare(index, self.options.exec)?;
        let mut loaded = HashMap::from([(program.name().to_owned(), program.id)]);
        for (map, def) in self.maps.maps().iter().zip(self.object.maps().iter()) {
            self.fill_slots(map, def, &mut loaded)?;
        }
        // Compiled code can only jump to compiled code.
        if !self.surroundings.programs.are_all_compiled() {
            program.compiled = None;
            program.refused =
                program.refused.or_else(|| Some("a program of its arrays is interpreted".into()));
        }
        Ok(program)
    }

    fn fill_slots(
        &self,
        map: &Map,
        def: &MapDef,
        loaded: &mut HashMap<String, u32>,
    ) -> Result<(), LoadError> {
        // Tail calls lead to tier 1.
        let tail_called = match self.options.exec {
            Exec::Llvm => Exec::Jit,
            exec => exec,
        };
        for (slot, init) in &def.slots {
            let SlotInit::Program(name) = init else { continue };
            let id = match loaded.get(name) {
                Some(&id) => id,
                None => self.prepare(self.object.select(Some(name), None)?, tail_called)?.id,
            };
            loaded.insert(name.clone(), id);
            // The object loader checked the indexes against the map's size.
            let _in_bounds = map.set_program(*slot, id);
        }
        Ok(())
    }

    fn prepare(&self, index: usize, exec: Exec) -> Result<Program, LoadError> {
        let linked = self.object.link(index, self.env)?;
        let (maps, surroundings) = (Arc::clone(&self.maps), Arc::clone(&self.surroundings));
        finish(linked, maps, surroundings, self.options, exec)
    }
}

/// Verifies and prepares a program that was linked already, over maps of its own.
pub(super) fn from_linked(linked: Linked, options: &LoadOptions) -> Result<Program, LoadError> {
    let (maps, surroundings) = surround(&linked.maps, &linked.kernel_btf, options)?;
    finish(linked, maps, surroundings, options, options.exec)
}

/// Prepares a program that was verified already, over maps of its own.
pub(super) fn from_verified(
    verified: Verified,
    options: &LoadOptions,
) -> Result<Program, LoadError> {
    let linked = verified.linked();
    let (maps, surroundings) = surround(&linked.maps, &linked.kernel_btf, options)?;
    finish_verified(verified, maps, surroundings, options, options.exec)
}

/// Creates maps, and what programs over them share.
fn surround(
    defs: &[MapDef],
    kernel: &Btf,
    options: &LoadOptions,
) -> Result<(Arc<MapSet>, Arc<Surroundings>), LoadError> {
    let workers = options.workers.max(1);
    let fields = defs.iter().map(|def| fields_of(def, kernel)).collect();
    let mut set_options = SetOptions::new(workers);
    set_options.fields = fields;
    if let Some(environment) = &options.environment {
        set_options.environment = Arc::clone(environment);
    }
    let surroundings = Surroundings {
        host: Arc::clone(&options.host),
        limits: options.limits,
        ..Surroundings::default()
    };
    set_options.release = Some(Arc::new(Releaser {
        objects: Arc::clone(&surroundings.objects),
        timers: Arc::clone(&surroundings.timers),
    }));
    let maps = MapSet::create(&sized(defs, workers), &set_options)?;
    Ok((Arc::new(maps), Arc::new(surroundings)))
}

/// Special fields of a map's values: copies leave them alone.
pub(super) fn fields_of(def: &MapDef, kernel: &Btf) -> Vec<Field> {
    special_fields(def, kernel).into_iter().filter_map(stored_field).collect()
}

/// A special field as maps and objects know it; `None` for one that owns nothing and is only inside
/// objects that programs allocate.
pub(crate) fn stored_field(field: SpecialField) -> Option<Field> {
    use towpath_maps::fields::FieldKind as Stored;
    let kind = match field.kind {
        FieldKind::SpinLock => Stored::SpinLock,
        FieldKind::ResSpinLock => Stored::ResSpinLock,
        FieldKind::Timer => Stored::Timer,
        FieldKind::Workqueue => Stored::Workqueue,
        FieldKind::TaskWork => Stored::TaskWork,
        FieldKind::KptrUnref => Stored::KptrUntrusted,
        FieldKind::KptrRef => Stored::Kptr,
        FieldKind::KptrPercpu => Stored::KptrPercpu,
        FieldKind::Uptr => Stored::UserPtr,
        FieldKind::ListHead => Stored::ListHead,
        FieldKind::RbRoot => Stored::RbRoot,
        FieldKind::Refcount | FieldKind::ListNode | FieldKind::RbNode => return None,
    };
    Some(Field { kind, offset: field.offset, size: field.size })
}

/// The definitions with the sizes that depend on the machine: a perf event array without a size
/// has a slot for each CPU, as libbpf makes it.
fn sized(defs: &[MapDef], workers: usize) -> Vec<MapDef> {
    let mut defs = defs.to_vec();
    for def in &mut defs {
        if def.kind == MapType::PerfEventArray && def.max_entries == 0 {
            def.max_entries = workers as u32;
        }
    }
    defs
}

/// Verifies a program and resolves its references.
fn finish(
    linked: Linked,
    maps: Arc<MapSet>,
    surroundings: Arc<Surroundings>,
    options: &LoadOptions,
    wanted: Exec,
) -> Result<Program, LoadError> {
    let about = (linked.attach, linked.has_frags);
    if options.unverified {
        let code = resolve(Arc::new(linked), Vec::new(), &maps)?;
        return Ok(ready(code, about, None, maps, surroundings, options, wanted));
    }
    let name = linked.name.clone();
    let verified = verifier::verify(linked, &options.verifier)
        .map_err(|rejection| LoadError::Rejected { program: name, rejection })?;
    finish_verified(verified, maps, surroundings, options, wanted)
}

/// Resolves a verified program's references, and compiles it if that is wanted.
pub(super) fn finish_verified(
    verified: Verified,
    maps: Arc<MapSet>,
    surroundings: Arc<Surroundings>,
    options: &LoadOptions,
    wanted: Exec,
) -> Result<Program, LoadError> {
    let about = (verified.linked().attach, verified.linked().has_frags);
    let code = resolve(Arc::new(verified.linked().clone()), accesses(&verified), &maps)?;
    let code = code.with_exception_callback(exception_callback(&verified));
    Ok(ready(code, about, Some(verified), maps, surroundings, options, wanted))
}

fn ready(
    code: Code,
    (attach, has_frags): (AttachType, bool),
    verified: Option<Verified>,
    maps: Arc<MapSet>,
    surroundings: Arc<Surroundings>,
    options: &LoadOptions,
    wanted: Exec,
) -> Program {
    let code = Arc::new(code);
    let (compiled, refused) = match compile(verified.as_ref(), &maps, options, wanted) {
        Ok(compiled) => (compiled, None),
        Err(why) => (None, Some(why.into())),
    };
    let id = surroundings.programs.add(Arc::clone(&code), compiled.clone());
    Program {
        id,
        code,
        compiled,
        wanted,
        refused,
        verified: verified.map(Arc::new),
        attach,
        has_frags,
        maps,
        surroundings,
    }
}

/// Machine code if it is wanted, or why it cannot be made.
fn compile(
    verified: Option<&Verified>,
    maps: &MapSet,
    options: &LoadOptions,
    exec: Exec,
) -> Result<Option<Arc<Compiled>>, String> {
    if exec == Exec::Interp {
        return Ok(None);
    }
    let verified = verified.ok_or("only what is verified is compiled")?;
    let addresses = Addresses { maps, kernel: Arc::clone(&verified.linked().kernel_btf) };
    let throw = exception_callback(verified);
    let compiled = Compiled::new(verified, &addresses, maps, &options.jit, exec, throw);
    compiled.map(Some).map_err(|error| error.to_string())
}

fn resolve(linked: Arc<Linked>, accesses: Vec<Access>, maps: &MapSet) -> Result<Code, LoadError> {
    let program = linked.name.clone();
    let addresses = Addresses { maps, kernel: Arc::clone(&linked.kernel_btf) };
    Code::resolve(linked, accesses, &addresses)
        .map_err(|source| LoadError::Resolve { program, source })
}

/// How each instruction reaches memory, as far as the interpreter must know.
fn accesses(verified: &Verified) -> Vec<Access> {
    let access = |fact: &Option<AccessFact>| match fact {
        Some(AccessFact::ProbeRead) => Access::Probe,
        Some(AccessFact::Arena) => Access::Arena,
        _ => Access::Direct,
    };
    verified.facts().iter().map(|facts| access(&facts.access)).collect()
}

fn exception_callback(verified: &Verified) -> Option<u32> {
    let mut subprograms = verified.subprograms().iter();
    let found = subprograms.find(|sub| sub.kind == SubprogramKind::ExceptionCallback)?;
    u32::try_from(found.start).ok()
}

/// Addresses of an object's maps and of our kfuncs.
pub(super) struct Addresses<'a> {
    pub(super) maps: &'a MapSet,
    pub(super) kernel: Arc<Btf>,
}

impl Resolver for Addresses<'_> {
    fn map(&self, index: usize) -> Option<u64> {
        Some(self.maps.map(index)?.handle())
    }

    fn map_value(&self, index: usize, offset: u32) -> Option<u64> {
        let map = self.maps.map(index)?;
        if let Some(arena) = map.arena() {
            return Some(arena.user_start() + u64::from(offset));
        }
        let value = map.lookup(0, &0u32.to_ne_bytes())?;
        Some(value.as_ptr() as u64 + u64::from(offset))
    }

    /// A program may ask whether a weak kfunc exists (`if (bpf_xdp_pull_data)`): its address is
    /// only compared with 0.
    fn variable(&self, type_id: u32) -> Option<u64> {
        let ty = self.kernel.get(type_id)?;
        matches!(ty.kind, Kind::Func { .. }).then(|| interp::kfunc_address(type_id))
    }

    fn kfunc(&self, kfunc: &KfuncRef) -> Option<u32> {
        helpers::kfunc_number(&kfunc.name)
    }
}
