//! Results of a call: output buffers, results in the attribute, and info structs by field.

use crate::fields;
use crate::script::Line;
use crate::side::Memory;
use crate::values::Names;

/// One text for all results of a call. Buffers are shown after success; counts that a command
/// writes into the attribute always.
pub(crate) fn outputs(
    command: u32,
    memory: &Memory,
    outputs: &[(String, usize, usize)],
    names: &Names,
    line: &Line,
    succeeded: bool,
) -> String {
    let mut shown = String::new();
    for field in RESULTS.iter().filter(|(known, _)| *known == command).map(|(_, field)| field) {
        if let Some((at, _)) = fields::field(command, field) {
            shown += &format!(" {field}={}", word(&memory.bytes[at..]));
        }
    }
    for (name, place, bytes) in outputs {
        let content = &memory.bytes[*place..place + bytes];
        if name == "info" && succeeded {
            let len = word(&memory.bytes[4..]) as usize;
            shown += &format!(" info_len={len}{}", info(content, len, line, names));
        } else if name.ends_with("log_buf") {
            shown += if content[0] == 0xaa { " log=untouched" } else { " log=written" };
        } else if content.iter().any(|&byte| byte != 0xaa) {
            shown += &format!(" {name}={}", hex(content));
        }
    }
    shown
}

/// Fields of an info struct, as far as it was filled.
fn info(content: &[u8], len: usize, line: &Line, names: &Names) -> String {
    let about = line.arguments.iter().find(|(name, _)| name == "bpf_fd").map(|(_, value)| value);
    let kind = about.and_then(|name| name.chars().next()).unwrap_or(' ');
    let fields = match kind {
        'm' => MAP_INFO,
        'p' => PROG_INFO,
        'b' => BTF_INFO,
        'l' => LINK_INFO,
        _ => &[],
    };
    let mut shown = String::new();
    for &(name, at, how) in fields {
        let Some(bytes) = content.get(at..len).filter(|bytes| bytes.len() >= 4) else { continue };
        let text = match how {
            Show::Number => word(bytes).to_string(),
            Show::Hex(count) => hex(&bytes[..count.min(bytes.len())]),
            Show::Id(first) => names.name_of_id(word(bytes), first),
            Show::Name => {
                let text = bytes.iter().take(16).take_while(|&&byte| byte != 0);
                text.map(|&byte| char::from(byte)).collect()
            }
            Show::IsSet => if word(bytes) == 0 { "0" } else { "set" }.to_owned(),
        };
        if text != "0" && !text.is_empty() {
            shown += &format!(" {name}={text}");
        }
    }
    shown
}

#[derive(Debug, Clone, Copy)]
enum Show {
    Number,
    Hex(usize),
    /// The name of the object whose id it is; names begin with this letter.
    Id(char),
    Name,
    /// Only whether it is there: it differs from run to run.
    IsSet,
}

const MAP_INFO: &[(&str, usize, Show)] = &[
    ("type", 0, Show::Number),
    ("id", 4, Show::Id('m')),
    ("key_size", 8, Show::Number),
    ("value_size", 12, Show::Number),
    ("max_entries", 16, Show::Number),
    ("map_flags", 20, Show::Number),
    ("name", 24, Show::Name),
    ("ifindex", 40, Show::Number),
    ("btf_vmlinux_value_type_id", 44, Show::Number),
    ("btf_id", 64, Show::Id('b')),
    ("btf_key_type_id", 68, Show::Number),
    ("btf_value_type_id", 72, Show::Number),
    ("btf_vmlinux_id", 76, Show::Number),
    ("map_extra", 80, Show::Number),
];

const PROG_INFO: &[(&str, usize, Show)] = &[
    ("type", 0, Show::Number),
    ("id", 4, Show::Id('p')),
    ("tag", 8, Show::Hex(8)),
    ("load_time", 40, Show::IsSet),
    ("created_by_uid", 48, Show::Number),
    ("nr_map_ids", 52, Show::Number),
    ("name", 64, Show::Name),
    ("ifindex", 80, Show::Number),
    ("gpl_compatible", 84, Show::Number),
    ("nr_jited_ksyms", 104, Show::IsSet),
    ("btf_id", 128, Show::Id('b')),
    ("func_info_rec_size", 132, Show::Number),
    ("nr_func_info", 144, Show::Number),
    ("nr_line_info", 148, Show::Number),
    ("line_info_rec_size", 172, Show::Number),
    ("nr_prog_tags", 180, Show::Number),
    ("verified_insns", 216, Show::Number),
    ("attach_btf_obj_id", 220, Show::Number),
];

const BTF_INFO: &[(&str, usize, Show)] = &[
    ("btf_size", 8, Show::Number),
    ("id", 12, Show::Id('b')),
    ("name_len", 24, Show::Number),
    ("kernel_btf", 28, Show::Number),
];

const LINK_INFO: &[(&str, usize, Show)] = &[
    ("type", 0, Show::Number),
    ("id", 4, Show::Id('l')),
    ("prog_id", 8, Show::Id('p')),
    ("ifindex", 16, Show::IsSet),
];

/// Fields of the attribute that commands write.
const RESULTS: &[(u32, &str)] = &[
    (10, "retval"),
    (10, "data_size_out"),
    (10, "ctx_size_out"),
    (24, "count"),
    (25, "count"),
    (26, "count"),
    (27, "count"),
];

fn word(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
