//! Commands and where their fields lie, written down a second time: from `bpf.h`, for scripts.

/// Bytes of `union bpf_attr`.
pub(crate) const ATTR_BYTES: usize = 168;

/// The width of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    /// 4 bytes.
    Half,
    /// 8 bytes.
    Word,
}

use Width::{Half, Word};

/// The number of a command.
pub(crate) fn command(name: &str) -> Option<u32> {
    if let Some(number) = name.strip_prefix("command_") {
        return number.parse().ok();
    }
    COMMANDS.iter().find(|(known, _, _)| *known == name).map(|&(_, number, _)| number)
}

/// Offset and width of a command's field; `+96` is the 4 bytes at 96.
pub(crate) fn field(number: u32, name: &str) -> Option<(usize, Width)> {
    if let Some(offset) = name.strip_prefix('+') {
        return Some((offset.parse().ok()?, Half));
    }
    let (_, _, fields) = COMMANDS.iter().find(|&&(_, known, _)| known == number)?;
    fields.iter().find(|(known, _, _)| *known == name).map(|&(_, at, width)| (at, width))
}

/// Commands that return a descriptor.
pub(crate) const RETURNS_DESCRIPTOR: [u32; 11] = [0, 5, 7, 13, 14, 18, 19, 28, 30, 32, 33];

type Fields = &'static [(&'static str, usize, Width)];

const ELEMENT: Fields = &[
    ("map_fd", 0, Half),
    ("key", 8, Word),
    ("value", 16, Word),
    ("next_key", 16, Word),
    ("flags", 24, Word),
];
const ID: Fields = &[("start_id", 0, Half), ("next_id", 4, Half), ("open_flags", 8, Half)];
const BATCH: Fields = &[
    ("in_batch", 0, Word),
    ("out_batch", 8, Word),
    ("keys", 16, Word),
    ("values", 24, Word),
    ("count", 32, Half),
    ("map_fd", 36, Half),
    ("elem_flags", 40, Word),
    ("flags", 48, Word),
];
const OBJ: Fields =
    &[("pathname", 0, Word), ("bpf_fd", 8, Half), ("file_flags", 12, Half), ("path_fd", 16, Half)];
const MAP_CREATE: Fields = &[
    ("map_type", 0, Half),
    ("key_size", 4, Half),
    ("value_size", 8, Half),
    ("max_entries", 12, Half),
    ("map_flags", 16, Half),
    ("inner_map_fd", 20, Half),
    ("numa_node", 24, Half),
    ("map_name", 28, Half),
    ("map_ifindex", 44, Half),
    ("btf_fd", 48, Half),
    ("btf_key_type_id", 52, Half),
    ("btf_value_type_id", 56, Half),
    ("btf_vmlinux_value_type_id", 60, Half),
    ("map_extra", 64, Word),
    ("map_token_fd", 76, Half),
    ("excl_prog_hash", 80, Word),
    ("excl_prog_hash_size", 88, Half),
];
const PROG_LOAD: Fields = &[
    ("prog_type", 0, Half),
    ("insn_cnt", 4, Half),
    ("insns", 8, Word),
    ("license", 16, Word),
    ("log_level", 24, Half),
    ("log_size", 28, Half),
    ("log_buf", 32, Word),
    ("kern_version", 40, Half),
    ("prog_flags", 44, Half),
    ("prog_name", 48, Half),
    ("prog_ifindex", 64, Half),
    ("expected_attach_type", 68, Half),
    ("prog_btf_fd", 72, Half),
    ("func_info_rec_size", 76, Half),
    ("func_info", 80, Word),
    ("func_info_cnt", 88, Half),
    ("line_info_rec_size", 92, Half),
    ("line_info", 96, Word),
    ("line_info_cnt", 104, Half),
    ("attach_btf_id", 108, Half),
    ("attach_prog_fd", 112, Half),
    ("core_relo_cnt", 116, Half),
    ("fd_array", 120, Word),
    ("core_relos", 128, Word),
    ("core_relo_rec_size", 136, Half),
    ("log_true_size", 140, Half),
    ("prog_token_fd", 144, Half),
    ("fd_array_cnt", 148, Half),
    ("signature", 152, Word),
    ("signature_size", 160, Half),
    ("keyring_id", 164, Half),
];
const TEST_RUN: Fields = &[
    ("prog_fd", 0, Half),
    ("retval", 4, Half),
    ("data_size_in", 8, Half),
    ("data_size_out", 12, Half),
    ("data_in", 16, Word),
    ("data_out", 24, Word),
    ("repeat", 32, Half),
    ("duration", 36, Half),
    ("ctx_size_in", 40, Half),
    ("ctx_size_out", 44, Half),
    ("ctx_in", 48, Word),
    ("ctx_out", 56, Word),
    ("flags", 64, Half),
    ("cpu", 68, Half),
    ("batch_size", 72, Half),
];
const BTF_LOAD: Fields = &[
    ("btf", 0, Word),
    ("btf_log_buf", 8, Word),
    ("btf_size", 16, Half),
    ("btf_log_size", 20, Half),
    ("btf_log_level", 24, Half),
    ("btf_log_true_size", 28, Half),
    ("btf_flags", 32, Half),
    ("btf_token_fd", 36, Half),
];
const LINK_CREATE: Fields = &[
    ("prog_fd", 0, Half),
    ("target_ifindex", 4, Half),
    ("attach_type", 8, Half),
    ("flags", 12, Half),
];
const LINK_UPDATE: Fields = &[
    ("link_fd", 0, Half),
    ("new_prog_fd", 4, Half),
    ("flags", 8, Half),
    ("old_prog_fd", 12, Half),
];
const INFO: Fields = &[("bpf_fd", 0, Half), ("info_len", 4, Half), ("info", 8, Word)];
const STREAM_READ: Fields = &[
    ("stream_buf", 0, Word),
    ("stream_buf_len", 8, Half),
    ("stream_id", 12, Half),
    ("prog_fd", 16, Half),
];
const BIND_MAP: Fields = &[("prog_fd", 0, Half), ("map_fd", 4, Half), ("flags", 8, Half)];

const COMMANDS: &[(&str, u32, Fields)] = &[
    ("map_create", 0, MAP_CREATE),
    ("map_lookup_elem", 1, ELEMENT),
    ("map_update_elem", 2, ELEMENT),
    ("map_delete_elem", 3, ELEMENT),
    ("map_get_next_key", 4, ELEMENT),
    ("prog_load", 5, PROG_LOAD),
    ("obj_pin", 6, OBJ),
    ("obj_get", 7, OBJ),
    ("prog_test_run", 10, TEST_RUN),
    ("prog_get_next_id", 11, ID),
    ("map_get_next_id", 12, ID),
    ("prog_get_fd_by_id", 13, ID),
    ("map_get_fd_by_id", 14, ID),
    ("obj_get_info_by_fd", 15, INFO),
    ("btf_load", 18, BTF_LOAD),
    ("btf_get_fd_by_id", 19, ID),
    ("map_lookup_and_delete_elem", 21, ELEMENT),
    ("map_freeze", 22, ELEMENT),
    ("btf_get_next_id", 23, ID),
    ("map_lookup_batch", 24, BATCH),
    ("map_lookup_and_delete_batch", 25, BATCH),
    ("map_update_batch", 26, BATCH),
    ("map_delete_batch", 27, BATCH),
    ("link_create", 28, LINK_CREATE),
    ("link_update", 29, LINK_UPDATE),
    ("link_get_fd_by_id", 30, ID),
    ("link_get_next_id", 31, ID),
    ("enable_stats", 32, &[("type", 0, Half)]),
    ("link_detach", 34, &[("link_fd", 0, Half)]),
    ("prog_bind_map", 35, BIND_MAP),
    ("prog_stream_read_by_fd", 37, STREAM_READ),
];
