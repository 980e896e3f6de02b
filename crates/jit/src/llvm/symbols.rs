//! Symbols of code: everything whose address differs between processes. So machine code on disk
//! contains no address, and is valid in the next process.

use std::collections::HashMap;

use crate::environment::Environment;
use crate::machine_unsafe::Callees;
use crate::xir::{MapMeta, Module, Op, RuntimeFunction};

/// An item outside of a program's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Symbol {
    /// The register value that refers to a map.
    Map(u32),
    /// The first byte of a map's values.
    MapValue(u32),
    /// A part of a map outside of its values.
    MapMeta(u32, MapMeta),
    /// A helper, by number.
    Helper(u32),
    /// A kfunc, by index into the program's kfuncs.
    Kfunc(u32),
    /// [`Callees::tail_call`].
    TailCall,
    /// [`Callees::catch`].
    Catch,
    /// [`Callees::probe`].
    Probe,
    /// [`Callees::guard`].
    Guard,
    /// Entry of a program on tier 1: machine, function, frame pointer, context.
    Enter,
    /// A function of the runtime that is called directly.
    Runtime(RuntimeFunction),
}

impl Symbol {
    /// Name of the symbol in code.
    pub(super) fn name(self) -> String {
        match self {
            Symbol::Map(map) => format!("towpath.map.{map}"),
            Symbol::MapValue(map) => format!("towpath.value.{map}"),
            Symbol::MapMeta(map, what) => format!("towpath.{what:?}.{map}").to_ascii_lowercase(),
            Symbol::Helper(id) => format!("towpath.helper.{id}"),
            Symbol::Kfunc(kfunc) => format!("towpath.kfunc.{kfunc}"),
            Symbol::TailCall => "towpath.tail_call".into(),
            Symbol::Catch => "towpath.catch".into(),
            Symbol::Probe => "towpath.probe".into(),
            Symbol::Guard => "towpath.guard".into(),
            Symbol::Enter => "towpath.enter".into(),
            Symbol::Runtime(function) => format!("towpath.{}", function.name()),
        }
    }

    /// Parameters, if it is a function: the number of pointers to the machine, then of numbers.
    pub(super) fn params(self) -> Option<(usize, usize)> {
        match self {
            Symbol::Map(_) | Symbol::MapValue(_) | Symbol::MapMeta(..) => None,
            Symbol::Helper(_)
            | Symbol::Kfunc(_)
            | Symbol::TailCall
            | Symbol::Catch
            | Symbol::Probe
            | Symbol::Guard => Some((1, 5)),
            Symbol::Enter => Some((1, 4)),
            Symbol::Runtime(function) => {
                Some((function.effects().takes_machine.into(), function.arg_count()))
            }
        }
    }
}

impl Symbol {
    /// Attributes of a call of it for LLVM: the number of a group of [`attributes`].
    pub(super) fn attributes(self) -> usize {
        match self {
            Symbol::Runtime(
                RuntimeFunction::HashLookup { marks: false, .. }
                | RuntimeFunction::InnerHashLookup { marks: false, .. }
                | RuntimeFunction::HandleLookup { .. }
                | RuntimeFunction::TrieLookup { .. }
                | RuntimeFunction::TargetLookup,
            ) => 2,
            Symbol::Runtime(
                RuntimeFunction::HashLookup { marks: true, .. }
                | RuntimeFunction::InnerHashLookup { marks: true, .. },
            ) => 3,
            Symbol::Runtime(
                RuntimeFunction::MapLookup
                | RuntimeFunction::MapLookupPercpu
                | RuntimeFunction::CsumDiff
                | RuntimeFunction::Sum { .. },
            ) => 4,
            // Any other function may have any effect on memory.
            _ => 1,
        }
    }
}

/// Groups of attributes, by number from 1, for a version of LLVM.
pub(super) fn attributes(major: u32) -> [&'static str; 4] {
    // The attribute `memory` is new in LLVM 16. LLVM 15 has none that says what the last one says.
    if major < 16 {
        return [
            "nounwind nonlazybind",
            "nounwind willreturn nonlazybind readonly inaccessiblememonly",
            "nounwind willreturn nonlazybind inaccessiblememonly",
            "nounwind willreturn nonlazybind",
        ];
    }
    [
        "nounwind nonlazybind",
        "nounwind willreturn nonlazybind memory(inaccessiblemem: read)",
        "nounwind willreturn nonlazybind memory(inaccessiblemem: readwrite)",
        "nounwind willreturn nonlazybind memory(read, inaccessiblemem: readwrite)",
    ]
}

/// Addresses in one process: those of an [`Environment`], copied for a compilation that outlives
/// the borrow.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    /// Addresses of the maps that the module refers to.
    maps: HashMap<Symbol, u64>,
    kfuncs: Vec<u32>,
    callees: Callees,
    /// Address of tier 1's trampoline.
    enter: u64,
}

impl Addresses {
    pub(super) fn new(module: &Module, environment: &Environment<'_>, enter: u64) -> Self {
        let kfuncs = 0..environment.linked.kfuncs.len() as u32;
        let mut maps = HashMap::new();
        for op in module.all().flat_map(|function| &function.insts).map(|inst| &inst.op) {
            let (symbol, address) = match *op {
                Op::MapRef(map) | Op::MapLookup { map, .. } => {
                    let what = MapMeta::Programs;
                    maps.insert(Symbol::MapMeta(map, what), environment.map_meta(map, what));
                    (Symbol::Map(map), environment.map_handle(map))
                }
                Op::MapValueAddr { map, .. } => (Symbol::MapValue(map), environment.map_value(map)),
                Op::MapMetaAddr { map, what } => {
                    (Symbol::MapMeta(map, what), environment.map_meta(map, what))
                }
                _ => continue,
            };
            maps.insert(symbol, address);
        }
        Addresses {
            maps,
            kfuncs: kfuncs.map(|kfunc| environment.kfunc_number(kfunc)).collect(),
            callees: environment.callees,
            enter,
        }
    }

    /// Address of a symbol.
    pub(super) fn of(&self, symbol: Symbol) -> u64 {
        match symbol {
            Symbol::Map(_) | Symbol::MapValue(_) | Symbol::MapMeta(..) => {
                self.maps.get(&symbol).copied().unwrap_or(0)
            }
            Symbol::Helper(id) => (self.callees.helper)(id) as usize as u64,
            Symbol::Kfunc(kfunc) => {
                let number = self.kfuncs.get(kfunc as usize).copied().unwrap_or(u32::MAX);
                (self.callees.kfunc)(number) as usize as u64
            }
            Symbol::TailCall => self.callees.tail_call as usize as u64,
            Symbol::Catch => self.callees.catch as usize as u64,
            Symbol::Probe => self.callees.probe as usize as u64,
            Symbol::Guard => self.callees.guard as usize as u64,
            Symbol::Enter => self.enter,
            Symbol::Runtime(function) => function.address(&self.callees),
        }
    }
}
