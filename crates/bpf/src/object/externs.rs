//! Symbols without a definition in the object: kernel configuration, kernel variables and kfuncs.
//!
//! The BTF tells them apart: an extern is a variable of the `.kconfig` or `.ksyms` section, or a
//! function. An error in one is kept, and reported by the programs that use it
//! (`bpf_object__collect_externs` in libbpf).

use std::collections::HashMap;

use super::elf::{Elf, SymbolSection, limit};
use super::{Env, ObjectError};
use crate::btf::{Btf, Kind, Linkage, TypeId};

/// All externs of an object.
#[derive(Debug, Clone, Default)]
pub(super) struct Externs {
    list: Vec<Extern>,
    by_symbol: HashMap<usize, usize>,
    /// Size of the `.kconfig` map in bytes; 0 if there is none.
    pub(super) kconfig_size: u32,
}

/// One symbol without a definition.
#[derive(Debug, Clone)]
pub(super) struct Extern {
    pub(super) name: String,
    /// Whether the symbol is `__weak`: 0 if nothing defines it.
    pub(super) weak: bool,
    pub(super) kind: ExternKind,
}

/// Target of an extern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExternKind {
    /// A configuration value, at an offset of the `.kconfig` map.
    Config { offset: u32, size: u32, shape: ConfigShape },
    /// A kernel variable with a type in the object's BTF; `void` means address only.
    Variable { ty: TypeId },
    /// A kfunc, if it is declared `__ksym`.
    Function { type_id: TypeId, is_ksym: bool },
    /// A symbol that can't be resolved, with the reason.
    Unknown(&'static str),
}

/// Form of a configuration value in memory (`enum kcfg_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigShape {
    Bool,
    Char,
    Int { signed: bool },
    Tristate,
    Text,
}

impl Externs {
    /// Collects the undefined symbols.
    pub(super) fn collect(elf: &Elf<'_>, btf: Option<&Btf>) -> Result<Self, ObjectError> {
        let mut externs = Externs::default();
        let by_var = btf.map(sections_of_externs).unwrap_or_default();
        for (index, symbol) in elf.symbols.iter().enumerate() {
            if symbol.place != SymbolSection::Undefined
                || symbol.name.is_empty()
                || !symbol.is_global()
            {
                continue;
            }
            let kind = match btf {
                Some(btf) => kind_of(btf, symbol.name, &by_var),
                None => ExternKind::Unknown("the object has no BTF for it"),
            };
            limit("undefined symbols", externs.list.len() + 1, EXTERNS_MAX)?;
            externs.by_symbol.insert(index, externs.list.len());
            let (name, weak) = (symbol.name.to_owned(), symbol.is_weak());
            externs.list.push(Extern { name, weak, kind });
        }
        let sizes = externs.config().map(|(_, _, size, _)| size as usize);
        limit("bytes of .kconfig", sizes.fold(0, usize::saturating_add), CONFIG_BYTES_MAX)?;
        externs.lay_out_config();
        Ok(externs)
    }

    /// The extern of a symbol.
    pub(super) fn of_symbol(&self, symbol: usize) -> Option<usize> {
        self.by_symbol.get(&symbol).copied()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Extern> {
        self.list.get(index)
    }

    /// Names, offsets and sizes of the configuration values.
    pub(super) fn config(&self) -> impl Iterator<Item = (&Extern, u32, u32, ConfigShape)> {
        self.list.iter().filter_map(|ext| match ext.kind {
            ExternKind::Config { offset, size, shape } => Some((ext, offset, size, shape)),
            _ => None,
        })
    }

    /// Places the values as libbpf does: by descending alignment, ascending size, name.
    fn lay_out_config(&mut self) {
        let mut order: Vec<usize> = (0..self.list.len()).collect();
        let key = |ext: &Extern| match ext.kind {
            ExternKind::Config { size, shape, .. } => (std::cmp::Reverse(align(size, shape)), size),
            _ => (std::cmp::Reverse(0), 0),
        };
        order.sort_by(|&a, &b| {
            let (a, b) = (&self.list[a], &self.list[b]);
            key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
        });
        let mut end = 0u32;
        for index in order {
            if let ExternKind::Config { offset, size, shape } = &mut self.list[index].kind {
                *offset = end.next_multiple_of(align(*size, *shape));
                end = *offset + *size;
            }
        }
        self.kconfig_size = end;
    }
}

fn align(size: u32, shape: ConfigShape) -> u32 {
    if shape == ConfigShape::Text { 1 } else { size }
}

/// Section of each extern variable: `.kconfig` or `.ksyms`.
fn sections_of_externs(btf: &Btf) -> HashMap<TypeId, &'static str> {
    let mut by_var = HashMap::new();
    for section in [KCONFIG_SECTION, KSYMS_SECTION] {
        for var in btf.datasec(section).map_or(&[][..], |(_, vars)| vars) {
            by_var.insert(var.ty, section);
        }
    }
    by_var
}

fn kind_of(btf: &Btf, name: &str, by_var: &HashMap<TypeId, &'static str>) -> ExternKind {
    let is_extern = |kind: &Kind| {
        matches!(
            kind,
            Kind::Var { linkage: Linkage::Extern, .. }
                | Kind::Func { linkage: Linkage::Extern, .. }
        )
    };
    let Some(id) = btf.find(name, is_extern) else {
        return ExternKind::Unknown("BTF has no extern variable or function of this name");
    };
    let Kind::Var { ty, .. } = *btf.kind(id) else {
        let is_ksym = by_var.get(&id) == Some(&KSYMS_SECTION);
        return ExternKind::Function { type_id: id, is_ksym };
    };
    match by_var.get(&id) {
        Some(&KSYMS_SECTION) => ExternKind::Variable { ty: btf.strip_qualifiers(ty) },
        Some(_) => match config_shape(btf, ty) {
            Some((size, shape)) => ExternKind::Config { offset: 0, size, shape },
            None => ExternKind::Unknown("a configuration value can't have this type"),
        },
        None => ExternKind::Unknown(
            "it is defined in another file: link the two with bpftool gen object",
        ),
    }
}

/// Message for a call of a function that is declared, but neither defined nor a kfunc.
pub(super) fn undefined_function(name: &str) -> String {
    let known = INSTEAD.iter().find(|(names, _)| names.contains(&name));
    let advice = match known {
        Some((_, instead)) => format!("use {}", instead.replace("{}", name)),
        None => "make it static inline, or link the file that defines it with bpftool gen object; \
                 a kfunc is declared with __ksym"
            .to_owned(),
    };
    format!("this function is declared but defined nowhere, and it is no kfunc: {advice}")
}

/// Functions of C libraries that BPF programs can't call, and their replacements.
const INSTEAD: &[(&[&str], &str)] = &[
    (&["ntohl", "ntohs", "htonl", "htons"], "bpf_{}() of <bpf/bpf_endian.h>"),
    (&["be64toh", "ntohll"], "bpf_be64_to_cpu() of <bpf/bpf_endian.h>"),
    (&["htobe64", "htonll"], "bpf_cpu_to_be64() of <bpf/bpf_endian.h>"),
    (&["be32toh"], "bpf_ntohl() of <bpf/bpf_endian.h>"),
    (&["htobe32"], "bpf_htonl() of <bpf/bpf_endian.h>"),
    (&["be16toh"], "bpf_ntohs() of <bpf/bpf_endian.h>"),
    (&["htobe16"], "bpf_htons() of <bpf/bpf_endian.h>"),
    (&["memcpy", "memset", "memmove", "memcmp"], "__builtin_{}() with a constant size"),
    (&["printf", "printk", "fprintf", "puts"], "bpf_printk()"),
    (&["snprintf", "sprintf"], "BPF_SNPRINTF() of <bpf/bpf_tracing.h>"),
    (&["strlen", "strchr", "strrchr", "strstr", "strcmp"], "the kfunc bpf_{}()"),
    (&["strncmp"], "bpf_strncmp()"),
    (&["abort", "exit", "assert"], "return XDP_ABORTED"),
    (&["rand", "random", "get_random_u32"], "bpf_get_prandom_u32()"),
    (&["time", "clock_gettime", "ktime_get_ns"], "bpf_ktime_get_ns()"),
    (&["malloc", "calloc", "free"], "a map, or bpf_obj_new() and bpf_obj_drop()"),
];

/// Size and shape of a configuration value (`find_kcfg_type`).
fn config_shape(btf: &Btf, ty: TypeId) -> Option<(u32, ConfigShape)> {
    let id = btf.resolve(ty);
    match *btf.kind(id) {
        Kind::Int { boolean: true, size: 1, .. } => Some((1, ConfigShape::Bool)),
        Kind::Int { boolean: true, .. } => None,
        Kind::Int { size: 1, .. } => Some((1, ConfigShape::Char)),
        Kind::Int { size, signed, .. } if size <= 8 => Some((size, ConfigShape::Int { signed })),
        Kind::Enum { size: 4, .. } if btf.name(id) == "libbpf_tristate" => {
            Some((4, ConfigShape::Tristate))
        }
        Kind::Array { elem, count: count @ 1..=TEXT_BYTES_MAX, .. } => {
            let is_char = matches!(*btf.resolved(elem), Kind::Int { size: 1, boolean: false, .. });
            is_char.then_some((count, ConfigShape::Text))
        }
        _ => None,
    }
}

/// The contents of the `.kconfig` map in this environment.
pub(super) fn config_bytes(externs: &Externs, env: &Env) -> Result<Vec<u8>, ObjectError> {
    let mut bytes = vec![0; externs.kconfig_size as usize];
    for (ext, offset, size, shape) in externs.config() {
        let wrong = |what: String| ObjectError::Extern { name: ext.name.clone(), what };
        let place = &mut bytes[offset as usize..][..size as usize];
        let value = match ext.name.as_str() {
            "LINUX_KERNEL_VERSION" => Some(env.kernel_version.to_string()),
            // libbpf's questions about the kernel: it has BPF cookies, and syscall wrappers.
            "LINUX_HAS_BPF_COOKIE" | "LINUX_HAS_SYSCALL_WRAPPER" => Some("1".to_owned()),
            name => env.config.get(name).cloned(),
        };
        match value {
            Some(value) => write_config(place, shape, &value)
                .map_err(|what| wrong(format!("configured as {value}, {what}")))?,
            None if ext.weak => {}
            None => {
                return Err(wrong(
                    "this kernel configuration has no such option (declare it __weak to get 0)"
                        .to_owned(),
                ));
            }
        }
    }
    Ok(bytes)
}

/// Writes one value as `set_kcfg_value_*` of libbpf does.
fn write_config(place: &mut [u8], shape: ConfigShape, value: &str) -> Result<(), &'static str> {
    if let "y" | "n" | "m" = value {
        let byte = match (shape, value) {
            (ConfigShape::Bool, "m") => return Err("which a bool can't hold"),
            (ConfigShape::Bool | ConfigShape::Tristate, "n") => 0,
            (ConfigShape::Bool | ConfigShape::Tristate, "y") => 1,
            (ConfigShape::Tristate, _) => 2,
            (ConfigShape::Char, _) => value.as_bytes()[0],
            _ => return Err("which only a bool, char or enum libbpf_tristate can hold"),
        };
        place[0] = byte;
        return Ok(());
    }
    if let Some(text) = value.strip_prefix('"') {
        let text = text.strip_suffix('"').unwrap_or(text).as_bytes();
        if shape != ConfigShape::Text {
            return Err("which only a char array can hold");
        }
        let len = text.len().min(place.len() - 1);
        place[..len].copy_from_slice(&text[..len]);
        return Ok(());
    }
    let number = parse_integer(value).ok_or("which is no number")?;
    let bits = 8 * place.len() as u32;
    let fits = match shape {
        ConfigShape::Int { signed: true } => {
            (-(1i128 << (bits - 1))..1i128 << (bits - 1)).contains(&number)
        }
        ConfigShape::Int { signed: false } => (0..1i128 << bits).contains(&number),
        ConfigShape::Char => (-128..256).contains(&number),
        ConfigShape::Bool => (0..2).contains(&number),
        ConfigShape::Tristate => (0..3).contains(&number),
        ConfigShape::Text => return Err("which a char array can't hold"),
    };
    if !fits {
        return Err("which doesn't fit");
    }
    place.copy_from_slice(&number.to_le_bytes()[..place.len()]);
    Ok(())
}

fn parse_integer(text: &str) -> Option<i128> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => i128::from(u64::from_str_radix(digits, 16).ok()?).into(),
        None => i128::from(text.parse::<i64>().ok()?).into(),
    }
}

/// Section of kernel configuration values.
pub(super) const KCONFIG_SECTION: &str = ".kconfig";
/// Section of kernel symbols.
const KSYMS_SECTION: &str = ".ksyms";
/// Longest text value: libbpf's own use is a few hundred bytes.
const TEXT_BYTES_MAX: u32 = 4096;
/// Largest number of externs: real objects have dozens.
const EXTERNS_MAX: usize = 1 << 16;
/// Largest `.kconfig` map, in bytes: thousands of options.
const CONFIG_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn written(shape: ConfigShape, size: usize, value: &str) -> Result<Vec<u8>, &'static str> {
        let mut place = vec![0; size];
        write_config(&mut place, shape, value).map(|()| place)
    }

    #[test]
    fn config_values_take_the_shape_of_their_variable() {
        assert_eq!(written(ConfigShape::Bool, 1, "y"), Ok(vec![1]));
        assert!(written(ConfigShape::Bool, 1, "m").is_err());
        assert_eq!(written(ConfigShape::Tristate, 4, "m"), Ok(vec![2, 0, 0, 0]));
        assert_eq!(written(ConfigShape::Char, 1, "m"), Ok(vec![b'm']));
        assert_eq!(written(ConfigShape::Int { signed: true }, 2, "-2"), Ok(vec![0xfe, 0xff]));
        assert!(written(ConfigShape::Int { signed: false }, 2, "0x10000").is_err());
        assert_eq!(written(ConfigShape::Text, 4, "\"eth0:1\""), Ok(b"eth\0".to_vec()));
    }
}
