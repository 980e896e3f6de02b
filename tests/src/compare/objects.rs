//! Object files: link, verify and load every XDP program, and run it where both sides accept.
//!
//! libbpf loads the same programs, and the kernel's tag (a hash of the linked instructions) tells
//! whether its linker and ours made the same program.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_bpf::Linked;
use towpath_bpf::object::{Env, Object, ProgramKind};
use towpath_bpf::program::{AttachType, SlotInit};
use towpath_kernel::{Kernel, KernelProgram, MapSet};
use towpath_workload::complete;
use towpath_xdp::host::Host;
use towpath_xdp::{LoadOptions, Program, Select};

use super::{Difference, Report};
use crate::execution::Pair;
use crate::packets::packets;
use crate::sources::{self, LibbpfVerdict};
use crate::verdict::{self, Agreement, Verdict};
use crate::ways::Way;

/// Which objects, and how many packets.
#[derive(Debug, Clone, Default)]
pub struct ObjectBudget {
    /// Object files and folders of them; empty for all of this machine.
    pub paths: Vec<PathBuf>,
    /// Packets to run each accepted program on; 0 for verdicts alone.
    pub packets: usize,
    /// Only objects whose path contains this.
    pub only: String,
    /// Run what the kernel accepts without our proof.
    pub unverified: bool,
    /// Ways to run programs.
    pub ways: Vec<Way>,
}

/// Compares every object on this machine.
pub fn objects(kernel: &Kernel, budget: &ObjectBudget) -> Report {
    let mut report = Report::new("object files");
    let env = Env::new(kernel.btf().clone());
    let sets = if budget.paths.is_empty() {
        machine_objects(&mut report)
    } else {
        vec![("named".to_owned(), budget.paths.iter().flat_map(|path| named(path)).collect())]
    };
    for (name, mut paths) in sets {
        paths.retain(|path| path.to_string_lossy().contains(&budget.only));
        let libbpf = sources::libbpf_verdicts(&paths).unwrap_or_else(|why| {
            report.skipped.push(format!("libbpf's opinion of {name} objects: {why}"));
            HashMap::new()
        });
        let mut court =
            Court { kernel, env: &env, budget, libbpf: &libbpf, count: Count::default() };
        paths.iter().for_each(|path| court.judge_object(path, &mut report));
        court.count.print(&name, paths.len(), &mut report);
    }
    report
}

/// Selftests of the verifier are there to be judged: many read an unwritten stack, or return
/// addresses.
fn is_for_verdicts(path: &Path) -> bool {
    path.parent().is_some_and(|folder| folder.ends_with("verifier"))
}

/// A file itself, or the object files of a folder.
fn named(path: &Path) -> Vec<PathBuf> {
    if path.is_dir() { sources::object_files(path) } else { vec![path.to_owned()] }
}

/// Every object on this machine, in sets that are counted apart.
fn machine_objects(report: &mut Report) -> Vec<(String, Vec<PathBuf>)> {
    let mut sets = vec![("packaged".to_owned(), sources::packaged_objects())];
    let folders = [("kernel", sources::kernel_objects()), ("programs", sources::own_objects())];
    for (name, folder) in folders {
        match folder {
            Ok(folder) => sets.extend(by_compiler(name, &folder)),
            Err(why) => report.skipped.push(format!("{name} objects: {why}")),
        }
    }
    sets
}

/// The objects of a folder that has one folder a compiler.
fn by_compiler(name: &str, folder: &Path) -> Vec<(String, Vec<PathBuf>)> {
    let mut sets = BTreeMap::<String, Vec<PathBuf>>::new();
    for path in sources::object_files(folder) {
        let relative = path.strip_prefix(folder).unwrap_or(&path);
        let compiler = relative.iter().next().unwrap_or_default().to_string_lossy().into_owned();
        sets.entry(format!("{name}, {compiler}")).or_default().push(path);
    }
    sets.into_iter().collect()
}

#[derive(Default)]
struct Count {
    programs: usize,
    both_accept: usize,
    both_refuse: usize,
    /// By way: run, really in that way, with the kernel's results.
    runs: BTreeMap<String, [usize; 3]>,
    tags: usize,
    same_tags: usize,
}

impl Count {
    fn print(&self, name: &str, objects: usize, report: &mut Report) {
        report.figure(
            &format!("{name}: objects, XDP programs"),
            format!("{objects}, {}", self.programs),
        );
        report.figure(
            "  accepted, refused by both",
            format!("{}, {}", self.both_accept, self.both_refuse),
        );
        for (way, [ran, really, same]) in &self.runs {
            report.figure(
                &format!("  {way}: run, really so, with the kernel's results"),
                format!("{ran}, {really}, {same}"),
            );
        }
        report.figure(
            "  loaded by libbpf too, same tag",
            format!("{}, {}", self.tags, self.same_tags),
        );
    }
}

/// Judges one object after the other.
struct Court<'a> {
    kernel: &'a Kernel,
    env: &'a Env,
    budget: &'a ObjectBudget,
    libbpf: &'a HashMap<(PathBuf, String), LibbpfVerdict>,
    count: Count,
}

impl Court<'_> {
    fn judge_object(&mut self, path: &Path, report: &mut Report) {
        let name = path.display().to_string();
        let object = match std::fs::read(path) {
            Ok(bytes) => Object::open(&bytes, &name).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let object = match object {
            Ok(object) => object,
            Err(error) => {
                report.differences.push(difference(&name, "not opened", "", &error));
                return;
            }
        };
        if object.maps().iter().any(|map| map.kind.is_ours()) {
            report.skipped.push(format!("{name}: no kernel has its maps"));
            return;
        }
        for (index, program) in object.programs().iter().enumerate() {
            if matches!(program.kind, ProgramKind::Other(_)) {
                continue;
            }
            self.count.programs += 1;
            let label = format!("{} {}", short(path), program.name);
            if let Err(difference) = self.judge(path, &object, index, &label, report) {
                report.differences.push(*difference);
            }
        }
    }

    fn judge(
        &mut self,
        path: &Path,
        object: &Object,
        index: usize,
        label: &str,
        report: &mut Report,
    ) -> Result<(), Box<Difference>> {
        let refused = |kind: &str, error: String| Box::new(difference(label, kind, "", &error));
        let mut linked = object
            .link(index, self.env)
            .map_err(|error| refused("not linked", error.to_string()))?;
        let prepared = complete(&mut linked);
        let maps = self
            .kernel
            .load_maps(&linked.maps)
            .map_err(|error| Box::new(difference(label, "maps refused", &error.to_string(), "")))?;
        let theirs = verdict::kernel(self.kernel, &linked, &maps, true);
        let ours = verdict::ours(&linked);
        self.compare_libbpf(path, &linked.name, &theirs, label, report);
        let agreement = Agreement::of(ours.is_accepted(), theirs.is_accepted());
        self.count.both_accept += usize::from(agreement == Agreement::BothAccept);
        self.count.both_refuse += usize::from(agreement == Agreement::BothRefuse);
        report.verdicts(label, agreement, theirs.reason(), ours.reason());
        let runnable = ours.is_accepted() || self.budget.unverified;
        if is_for_verdicts(path) {
            return Ok(());
        }
        if theirs.program().is_none() || !runnable || linked.attach != AttachType::Xdp {
            return Ok(());
        }
        let mut first = Some((theirs, maps));
        for way in &self.budget.ways {
            let (theirs, maps) = match first.take() {
                Some(loaded) => loaded,
                // Each way starts with unused maps.
                None => {
                    let maps = self.kernel.load_maps(&linked.maps);
                    let maps = maps.map_err(|error| refused("maps refused", error.to_string()))?;
                    (verdict::kernel(self.kernel, &linked, &maps, true), maps)
                }
            };
            let Some(program) = theirs.program() else {
                return Err(refused("loading again", theirs.reason().to_owned()));
            };
            let label = format!("{label}, {way}");
            self.run(object, &linked, prepared, (program, &maps), way, &label)?;
        }
        Ok(())
    }

    fn compare_libbpf(
        &mut self,
        path: &Path,
        name: &str,
        theirs: &Verdict<KernelProgram>,
        label: &str,
        report: &mut Report,
    ) {
        let Some(libbpf) = self.libbpf.get(&(path.to_owned(), name.to_owned())) else { return };
        let tag = theirs.program().and_then(|program| program.info().ok()).map(|info| info.tag);
        self.count.tags += usize::from(libbpf.tag.is_some());
        self.count.same_tags += usize::from(libbpf.tag.is_some() && libbpf.tag == tag);
        if libbpf.tag.is_some() && !theirs.is_accepted() {
            let (kind, theirs) = ("loads with libbpf only", theirs.reason());
            report.differences.push(difference(label, kind, theirs, "linked by us"));
        }
    }

    /// Runs a program on all packets in both worlds.
    fn run(
        &mut self,
        object: &Object,
        linked: &Linked,
        prepared: bool,
        (kernel_program, maps): (&KernelProgram, &MapSet),
        way: &Way,
        label: &str,
    ) -> Result<(), Box<Difference>> {
        if self.budget.packets == 0 {
            return Ok(());
        }
        let options = LoadOptions {
            unverified: self.budget.unverified,
            host: Arc::new(Host::with_loopback().into()),
            ..way.options()
        };
        let program = if prepared {
            Program::from_linked(linked.clone(), &options)
        } else {
            Program::load(object, Select::Name(&linked.name), self.env, &options)
        };
        let program = program
            .map_err(|error| Box::new(difference(label, "not runnable", "", &error.to_string())))?;
        let _slots = if prepared { Vec::new() } else { self.fill_slots(object, maps) };
        let packets = packets(1, self.budget.packets, linked.has_frags);
        let mut pair = Pair::of(program, linked, kernel_program, maps);
        let mut found = pair.compare(&packets);
        // Again with something in the maps.
        if found.is_none() {
            found = pair.fill_maps(&packets).or_else(|| pair.compare(&packets));
        }
        let [ran, really, same] = self.count.runs.entry(way.to_string()).or_default();
        *ran += 1;
        *really += usize::from(pair.exec() == way.exec);
        *same += usize::from(found.is_none());
        match found {
            None => Ok(()),
            Some(found) => Err(Box::new(Difference {
                name: format!("{label}, packet {}", found.packet),
                kind: found.kind,
                kernel: found.kernel,
                ours: found.ours,
            })),
        }
    }

    /// Loads the programs that the object puts into program arrays; they live as long as the
    /// result.
    fn fill_slots(&self, object: &Object, maps: &MapSet) -> Vec<KernelProgram> {
        let names =
            object.maps().iter().flat_map(|map| &map.slots).filter_map(|(_, init)| match init {
                SlotInit::Program(name) => Some(name.as_str()),
                SlotInit::Map(_) => None,
            });
        let mut loaded = Vec::new();
        for name in names {
            let linked = object.select(Some(name), None).ok();
            let linked = linked.and_then(|index| object.link(index, self.env).ok());
            let program = linked.and_then(|linked| self.kernel.load(&linked, maps).ok());
            if let Some(program) = program
                && maps.set_program(&program).is_ok()
            {
                loaded.push(program);
            }
        }
        loaded
    }
}

fn difference(name: &str, kind: &str, kernel: &str, ours: &str) -> Difference {
    let [name, kind, kernel, ours] = [name, kind, kernel, ours].map(str::to_owned);
    Difference { name, kind, kernel, ours }
}

/// The last three parts of a path: compiler, set, file.
fn short(path: &Path) -> String {
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    parts[parts.len().saturating_sub(3)..].join("/")
}
