//! `btf dump`: the types of an object file, or of a program or map of a daemon, as bpftool shows
//! them.

use serde_json::{Map, Value as Json, json};
use towpath_bpf::btf::{Btf, Kind, Linkage, Member, Type, TypeId};

use crate::args::{BtfCommand, BtfDumpArgs};
use crate::daemon;
use crate::error::CliError;
use crate::output::Output;
use crate::program::open_object;

/// Shows types.
pub(crate) fn btf(command: &BtfCommand, output: &mut Output) -> Result<(), CliError> {
    let BtfCommand::Dump(args) = command;
    let btf = types(args)?;
    let all = btf.iter().filter(|(id, _)| *id != 0).map(|(id, ty)| shown(&btf, id, ty));
    if output.json {
        return output.json(&json!({ "types": all.collect::<Vec<_>>() }));
    }
    let all: Vec<Json> = all.collect();
    all.iter().try_for_each(|ty| print(ty, output))
}

/// `file OBJ`, `prog WHICH`, `map WHICH`; then `format raw` may follow.
fn types(args: &BtfDumpArgs) -> Result<Btf, CliError> {
    let words = match &args.words[..] {
        [words @ .., word, form] if word == "format" => match form.as_str() {
            "raw" => words,
            form => {
                return Err(CliError::Usage(format!(
                    "format {form}: types are shown raw; `bpftool btf dump file OBJ format c` makes \
                     a header of those of a file"
                )));
            }
        },
        words => words,
    };
    match words {
        [word, path] if word == "file" => {
            let object = open_object(path.as_ref())?;
            let btf = object.btf().ok_or_else(|| {
                CliError::Usage(format!("{path}: it has no types: compile it with -g"))
            })?;
            Ok(Btf::clone(btf))
        }
        [word, which @ ..] if (word == "prog" || word == "map") && !which.is_empty() => {
            let bytes = daemon::btf(word, which, &args.daemon)?;
            Btf::parse(&bytes).map_err(|error| CliError::Daemon(error.to_string()))
        }
        words => {
            let said = words.join(" ");
            Err(CliError::Usage(format!("{said}: expected file OBJ, prog WHICH or map WHICH")))
        }
    }
}

/// A type with bpftool's keys.
fn shown(btf: &Btf, id: TypeId, ty: &Type) -> Json {
    let mut json = json!({ "id": id, "kind": kind_name(&ty.kind), "name": named(&ty.name) });
    if let (Json::Object(json), Json::Object(more)) = (&mut json, details(btf, &ty.kind)) {
        json.extend(more);
    }
    json
}

fn details(btf: &Btf, kind: &Kind) -> Json {
    match kind {
        Kind::Void => json!({}),
        Kind::Int { size, bits, offset, signed, boolean, char } => json!({
            "size": size, "bits_offset": offset, "nr_bits": bits,
            "encoding": match (signed, char, boolean) {
                (true, ..) => "SIGNED",
                (_, true, _) => "CHAR",
                (.., true) => "BOOL",
                _ => "(none)",
            },
        }),
        Kind::Ptr(to)
        | Kind::Typedef(to)
        | Kind::Volatile(to)
        | Kind::Const(to)
        | Kind::Restrict(to)
        | Kind::TypeTag(to) => json!({ "type_id": to }),
        Kind::Array { elem, index, count } => {
            json!({ "type_id": elem, "index_type_id": index, "nr_elems": count })
        }
        Kind::Composite { size, members, .. } => {
            let each: Vec<Json> = members.iter().map(member).collect();
            json!({ "size": size, "vlen": each.len(), "members": each })
        }
        Kind::Enum { size, signed, values, .. } => {
            let each = values.iter().map(|(name, value)| json!({ "name": &**name, "val": value }));
            let encoding = if *signed { "SIGNED" } else { "UNSIGNED" };
            let each: Vec<Json> = each.collect();
            json!({ "encoding": encoding, "size": size, "vlen": each.len(), "values": each })
        }
        Kind::Fwd { union } => json!({ "fwd_kind": if *union { "union" } else { "struct" } }),
        Kind::Func { proto, linkage } => json!({ "type_id": proto, "linkage": linked(*linkage) }),
        Kind::FuncProto { ret, params } => {
            let each = params.iter();
            let each = each.map(|(name, ty)| json!({ "name": named(name), "type_id": ty }));
            let each: Vec<Json> = each.collect();
            json!({ "ret_type_id": ret, "vlen": each.len(), "params": each })
        }
        Kind::Var { ty, linkage } => json!({ "type_id": ty, "linkage": linked(*linkage) }),
        Kind::Datasec { size, vars } => {
            let each = vars.iter().map(|it| {
                json!({ "type_id": it.ty, "offset": it.offset, "size": it.size,
                    "name": btf.name(it.ty) })
            });
            let each: Vec<Json> = each.collect();
            json!({ "size": size, "vlen": each.len(), "vars": each })
        }
        Kind::Float(size) => json!({ "size": size }),
        Kind::DeclTag { ty, component } => json!({ "type_id": ty, "component_idx": component }),
    }
}

fn member(member: &Member) -> Json {
    let mut json = json!({
        "name": named(&member.name), "type_id": member.ty, "bits_offset": member.bit_offset,
    });
    if member.bit_size > 0 {
        json["bitfield_size"] = json!(member.bit_size);
    }
    json
}

/// `[1] INT 'int' size=4 ...`, and a line for each of its parts.
fn print(ty: &Json, output: &mut Output) -> Result<(), CliError> {
    let empty = Map::new();
    let object = ty.as_object().unwrap_or(&empty);
    let line = format!("[{}] {}{}", ty["id"], text(&ty["kind"]), pairs(object));
    output.line(&line)?;
    let parts = object.values().filter_map(Json::as_array).flatten().filter_map(Json::as_object);
    parts.map(pairs).try_for_each(|part| output.line(&format!("\t{}", part.trim_start())))
}

/// ` 'name' key=value ...`
fn pairs(object: &Map<String, Json>) -> String {
    let mut line = object.get("name").map_or(String::new(), |name| format!(" '{}'", text(name)));
    for (key, value) in object {
        if !["id", "kind", "name"].contains(&&**key) && !value.is_array() {
            line.push_str(&format!(" {key}={}", text(value)));
        }
    }
    line
}

fn text(json: &Json) -> String {
    json.as_str().map_or_else(|| json.to_string(), str::to_owned)
}

fn named(name: &str) -> &str {
    if name.is_empty() { "(anon)" } else { name }
}

fn linked(linkage: Linkage) -> &'static str {
    match linkage {
        Linkage::Static => "static",
        Linkage::Global => "global",
        Linkage::Extern => "extern",
    }
}

fn kind_name(kind: &Kind) -> &'static str {
    match kind {
        Kind::Void => "UNKNOWN",
        Kind::Int { .. } => "INT",
        Kind::Ptr(_) => "PTR",
        Kind::Array { .. } => "ARRAY",
        Kind::Composite { union: false, .. } => "STRUCT",
        Kind::Composite { union: true, .. } => "UNION",
        Kind::Enum { wide: false, .. } => "ENUM",
        Kind::Enum { wide: true, .. } => "ENUM64",
        Kind::Fwd { .. } => "FWD",
        Kind::Typedef(_) => "TYPEDEF",
        Kind::Volatile(_) => "VOLATILE",
        Kind::Const(_) => "CONST",
        Kind::Restrict(_) => "RESTRICT",
        Kind::Func { .. } => "FUNC",
        Kind::FuncProto { .. } => "FUNC_PROTO",
        Kind::Var { .. } => "VAR",
        Kind::Datasec { .. } => "DATASEC",
        Kind::Float(_) => "FLOAT",
        Kind::DeclTag { .. } => "DECL_TAG",
        Kind::TypeTag(_) => "TYPE_TAG",
    }
}
