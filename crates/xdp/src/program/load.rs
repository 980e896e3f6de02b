//! Loading the programs of one object over one set of maps.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use towpath_bpf::btf::{Btf, Kind};
use towpath_bpf::interp::{self, Code, Resolver};
use towpath_bpf::object::Env;
use towpath_bpf::program::{AttachType, KfuncRef, Linked, SlotInit};
use towpath_bpf::verifier::{self, FieldKind, SpecialField, Verified, special_fields};
use towpath_bpf::{MapDef, Object};
use towpath_jit::Trust;
use towpath_maps::fields::Field;
use towpath_maps::{Map, MapSet, SetOptions};

use super::{LoadError, LoadOptions, Program, Programs, Select, Shared, Surroundings, TailCallee};
use crate::compiled::{Compiled, Exec};
use crate::helpers;
use crate::printed::{Streams, Trace};
use crate::standing::Standing;

/// Loads programs of an object over one set of maps.
///
/// ```text
/// let loader = Loader::new(&object, &env, &options)?;
/// let (a, b) = (loader.program(Select::Name("a"))?, loader.program(Select::Name("b"))?);
/// ```
#[derive(Debug)]
pub struct Loader<'a> {
    object: Cow<'a, Object>,
    env: Cow<'a, Env>,
    options: Cow<'a, LoadOptions>,
    maps: Arc<MapSet>,
    surroundings: Arc<Surroundings>,
    /// Programs loaded so far, by name.
    loaded: RefCell<BTreeMap<String, Program>>,
    are_slots_filled: Cell<bool>,
}

impl<'a> Loader<'a> {
    /// Creates the object's maps.
    pub fn new(
        object: &'a Object,
        env: &'a Env,
        options: &'a LoadOptions,
    ) -> Result<Loader<'a>, LoadError> {
        let set = set_options(object.maps(), &env.kernel_btf, options);
        Loader::over(object, env, options, set, Arc::new(surroundings(options)))
    }

    /// As [`Loader::new`], sharing state with programs of other objects, which program arrays can
    /// then refer to. Call [`Shared::forget`] for each of [`Loader::programs`] that is unloaded.
    pub fn within(
        object: &'a Object,
        env: &'a Env,
        options: &'a LoadOptions,
        shared: &Shared,
    ) -> Result<Loader<'a>, LoadError> {
        let mut set = set_options(object.maps(), &env.kernel_btf, options);
        set.each.domain = Arc::clone(shared.domain());
        Loader::over(object, env, options, set, Arc::clone(shared.surroundings()))
    }

    fn over(
        object: &'a Object,
        env: &'a Env,
        options: &'a LoadOptions,
        set: SetOptions,
        surroundings: Arc<Surroundings>,
    ) -> Result<Loader<'a>, LoadError> {
        let maps = create(object.maps(), set, &surroundings)?;
        let (loaded, are_slots_filled) = (RefCell::default(), Cell::new(false));
        let (object, env, options) =
            (Cow::Borrowed(object), Cow::Borrowed(env), Cow::Borrowed(options));
        Ok(Loader { object, env, options, maps, surroundings, loaded, are_slots_filled })
    }

    /// The same loader with copies of its inputs, without borrowed data.
    pub fn into_owned(self) -> Loader<'static> {
        let Loader { object, env, options, maps, surroundings, loaded, are_slots_filled } = self;
        let (object, env, options) = (
            Cow::Owned(object.into_owned()),
            Cow::Owned(env.into_owned()),
            Cow::Owned(options.into_owned()),
        );
        Loader { object, env, options, maps, surroundings, loaded, are_slots_filled }
    }

    /// The object.
    pub fn object(&self) -> &Object {
        &self.object
    }

    /// The object's maps.
    pub fn maps(&self) -> &Arc<MapSet> {
        &self.maps
    }

    /// State, besides maps, that the object's programs share: clock, printed lines, host.
    pub fn surroundings(&self) -> &Arc<Surroundings> {
        &self.surroundings
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
        let program = self.prepare(index, self.options.exec)?;
        let name = program.name().to_owned();
        self.loaded.borrow_mut().insert(name.clone(), program);
        // Only once, so that values stored since then stay.
        if !self.are_slots_filled.get() {
            for (map, def) in self.maps.maps().iter().zip(self.object.maps().iter()) {
                self.fill_slots(map, def)?;
            }
            self.are_slots_filled.set(true);
        }
        Ok(self.loaded.borrow()[&name].clone())
    }

    /// All programs loaded so far, including those referred to by program arrays only.
    pub fn programs(&self) -> Vec<Program> {
        self.loaded.borrow().values().cloned().collect()
    }

    fn fill_slots(&self, map: &Map, def: &MapDef) -> Result<(), LoadError> {
        // Tail calls lead to tier 1 code.
        let tail_called = match self.options.exec {
            Exec::Llvm | Exec::Auto => Exec::Jit,
            exec => exec,
        };
        for (slot, init) in &def.slots {
            let SlotInit::Program(name) = init else { continue };
            let known = self.loaded.borrow().get(name).map(|program| program.id);
            let id = match known {
                Some(id) => id,
                None => {
                    let program =
                        self.prepare(self.object.select(Some(name), None)?, tail_called)?;
                    let id = program.id;
                    self.loaded.borrow_mut().insert(name.clone(), program);
                    id
                }
            };
            // The object loader checked the indexes against the map's size.
            let _in_bounds = map.set_program(*slot, id);
        }
        Ok(())
    }

    fn prepare(&self, index: usize, exec: Exec) -> Result<Program, LoadError> {
        let linked = self.object.link(index, &self.env)?;
        let (maps, surroundings) = (Arc::clone(&self.maps), Arc::clone(&self.surroundings));
        finish(linked, maps, surroundings, &self.options, exec)
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

/// Creates maps, and the state shared by programs that use them.
fn surround(
    defs: &[MapDef],
    kernel: &Btf,
    options: &LoadOptions,
) -> Result<(Arc<MapSet>, Arc<Surroundings>), LoadError> {
    let surroundings = Arc::new(surroundings(options));
    let maps = create(defs, set_options(defs, kernel, options), &surroundings)?;
    Ok((maps, surroundings))
}

/// State shared by programs with these options.
pub(super) fn surroundings(options: &LoadOptions) -> Surroundings {
    Surroundings {
        host: Arc::clone(&options.host),
        limits: options.limits,
        burst_time: options.burst_time,
        trace: Trace::new(options.workers),
        ..Surroundings::default()
    }
}

fn set_options(defs: &[MapDef], kernel: &Btf, options: &LoadOptions) -> SetOptions {
    let mut set = SetOptions::new(options.workers.max(1));
    set.fields = defs.iter().map(|def| map_fields(def, kernel)).collect();
    set.existing = defs.iter().map(|def| options.existing.get(&def.name).cloned()).collect();
    if let Some(environment) = &options.environment {
        set.each.environment = Arc::clone(environment);
    }
    set
}

fn create(
    defs: &[MapDef],
    mut set: SetOptions,
    surroundings: &Surroundings,
) -> Result<Arc<MapSet>, LoadError> {
    set.each.release = Some(surroundings.releaser());
    let defs = sized(defs, set.each.domain.workers());
    Ok(Arc::new(MapSet::create(&defs, &set)?))
}

/// Special fields of a map's values: copies leave them alone.
pub fn map_fields(def: &MapDef, kernel: &Btf) -> Vec<Field> {
    special_fields(def, kernel).into_iter().filter_map(stored_field).collect()
}

/// A special field for maps and objects; `None` for one that owns nothing and occurs only inside
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

/// The definitions with machine-dependent sizes: a perf event array without a size has a slot for
/// each CPU, as with libbpf.
fn sized(defs: &[MapDef], workers: usize) -> Vec<MapDef> {
    let mut defs = defs.to_vec();
    for def in &mut defs {
        def.max_entries = def.kind.entries_of(def.max_entries, workers);
    }
    defs
}

/// Verifies a program and resolves its references.
pub(super) fn finish(
    linked: Linked,
    maps: Arc<MapSet>,
    surroundings: Arc<Surroundings>,
    options: &LoadOptions,
    wanted: Exec,
) -> Result<Program, LoadError> {
    #[cfg(any(test, feature = "unverified"))]
    if options.unverified {
        let about = (linked.attach, linked.has_frags);
        let code = resolved(&linked, &maps, |addresses| {
            Code::unverified(Arc::new(linked.clone()), addresses)
        })?;
        return ready(code, about, None, maps, surroundings, options, wanted);
    }
    let name = linked.name.clone();
    let verified = verifier::verify(linked, &options.verifier)
        .map_err(|rejection| LoadError::Rejected { program: name, rejection })?;
    finish_verified(verified, maps, surroundings, options, wanted)
}

/// Resolves a verified program's references, and compiles it if requested.
pub(super) fn finish_verified(
    verified: Verified,
    maps: Arc<MapSet>,
    surroundings: Arc<Surroundings>,
    options: &LoadOptions,
    wanted: Exec,
) -> Result<Program, LoadError> {
    let about = (verified.linked().attach, verified.linked().has_frags);
    let code = resolved(verified.linked(), &maps, |addresses| Code::of(&verified, addresses))?;
    ready(code, about, Some(verified), maps, surroundings, options, wanted)
}

fn ready(
    code: Code,
    (attach, has_frags): (AttachType, bool),
    verified: Option<Verified>,
    maps: Arc<MapSet>,
    surroundings: Arc<Surroundings>,
    options: &LoadOptions,
    wanted: Exec,
) -> Result<Program, LoadError> {
    let code = Arc::new(code);
    let compiled = compile(verified.as_ref(), &maps, &surroundings.programs, options, wanted);
    let (compiled, refused) = match compiled {
        Ok(compiled) => (compiled, None),
        // The interpreter does not mask speculation.
        Err(why) if options.jit.mask_speculation => {
            return Err(LoadError::Unmasked { program: code.name.clone(), why });
        }
        Err(why) => (None, Some(why.into())),
    };
    let streams = Arc::new(Streams::default());
    let standing = Standing::new(&code.name);
    let id = surroundings.programs.add(TailCallee::new(
        attach,
        Arc::clone(&code),
        compiled.clone(),
        Arc::clone(&maps),
        Arc::clone(&streams),
        Arc::clone(&standing),
    ));
    Ok(Program {
        id,
        code,
        compiled,
        wanted,
        refused,
        changes_packet: verified.as_ref().is_none_or(Verified::changes_packet),
        verified: verified.map(Arc::new),
        attach,
        has_frags,
        maps,
        streams,
        standing,
        surroundings,
    })
}

/// Compiles the program if requested; fails with the reason.
fn compile(
    verified: Option<&Verified>,
    maps: &MapSet,
    programs: &Programs,
    options: &LoadOptions,
    exec: Exec,
) -> Result<Option<Arc<Compiled>>, String> {
    if exec == Exec::Interp {
        return Ok(None);
    }
    let verified = verified.ok_or("only what is verified is compiled")?;
    let is_guest = options.jit.trust == Trust::Guest;
    if verified.linked().attach == AttachType::Syscall {
        // It runs once, and its context is not that of a frame.
        return Err("a program that users call is interpreted".to_owned());
    }
    if verified.linked().attach == AttachType::Dequeue && is_guest {
        // Code for guests checks accesses against the frame that it is given, which dequeue
        // programs do not have.
        return Err("a dequeue program that is not trusted is interpreted".to_owned());
    }
    let addresses = Addresses { maps, kernel: Arc::clone(&verified.linked().kernel_btf) };
    let slots = programs.slots(maps.maps());
    let compiled = Compiled::new(verified, &addresses, maps, &slots, &options.jit, exec);
    compiled.map(Some).map_err(|error| error.to_string())
}

fn resolved(
    linked: &Linked,
    maps: &MapSet,
    resolve: impl FnOnce(&Addresses<'_>) -> Result<Code, interp::ResolveError>,
) -> Result<Code, LoadError> {
    let addresses = Addresses { maps, kernel: Arc::clone(&linked.kernel_btf) };
    resolve(&addresses)
        .map_err(|source| LoadError::Resolve { program: linked.name.clone(), source })
}

/// Addresses of an object's maps and of kfuncs.
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
