//! Parts of the kernel's `union bpf_attr` and `struct bpf_prog_info`, one struct for each command.
//!
//! Each ends with the last used field: the kernel accepts a shorter attribute and reads the rest as
//! zero, so both older and newer kernels accept it. Pointers are `u64`, as in `bpf.h`.

/// Commands of `bpf(2)` (`enum bpf_cmd`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Command {
    MapCreate = 0,
    MapLookupElem = 1,
    MapUpdateElem = 2,
    MapDeleteElem = 3,
    MapGetNextKey = 4,
    ProgLoad = 5,
    ProgTestRun = 10,
    ObjGetInfoByFd = 15,
    BtfLoad = 18,
    MapFreeze = 22,
    LinkCreate = 28,
}

/// Size in bytes of an object name with its terminating zero (`BPF_OBJ_NAME_LEN`).
pub(crate) const NAME_BYTES: usize = 16;

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct MapCreate {
    pub(crate) map_type: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) map_flags: u32,
    pub(crate) inner_map_fd: u32,
    pub(crate) numa_node: u32,
    pub(crate) map_name: [u8; NAME_BYTES],
    pub(crate) map_ifindex: u32,
    pub(crate) btf_fd: u32,
    pub(crate) btf_key_type_id: u32,
    pub(crate) btf_value_type_id: u32,
    pub(crate) btf_vmlinux_value_type_id: u32,
    pub(crate) map_extra: u64,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct MapElement {
    pub(crate) map_fd: u32,
    pub(crate) reserved: u32,
    pub(crate) key: u64,
    pub(crate) value: u64,
    pub(crate) flags: u64,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ProgLoad {
    pub(crate) prog_type: u32,
    pub(crate) insn_count: u32,
    pub(crate) insns: u64,
    pub(crate) license: u64,
    pub(crate) log_level: u32,
    pub(crate) log_size: u32,
    pub(crate) log_buf: u64,
    pub(crate) kern_version: u32,
    pub(crate) prog_flags: u32,
    pub(crate) prog_name: [u8; NAME_BYTES],
    pub(crate) prog_ifindex: u32,
    pub(crate) expected_attach_type: u32,
    pub(crate) prog_btf_fd: u32,
    pub(crate) func_info_rec_size: u32,
    pub(crate) func_info: u64,
    pub(crate) func_info_count: u32,
    pub(crate) line_info_rec_size: u32,
    pub(crate) line_info: u64,
    pub(crate) line_info_count: u32,
    pub(crate) attach_btf_id: u32,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ProgTestRun {
    pub(crate) prog_fd: u32,
    pub(crate) retval: u32,
    pub(crate) data_size_in: u32,
    pub(crate) data_size_out: u32,
    pub(crate) data_in: u64,
    pub(crate) data_out: u64,
    pub(crate) repeat: u32,
    pub(crate) duration: u32,
    pub(crate) ctx_size_in: u32,
    pub(crate) ctx_size_out: u32,
    pub(crate) ctx_in: u64,
    pub(crate) ctx_out: u64,
    pub(crate) flags: u32,
    pub(crate) cpu: u32,
    pub(crate) batch_size: u32,
    pub(crate) reserved: u32,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ObjInfo {
    pub(crate) bpf_fd: u32,
    pub(crate) info_len: u32,
    pub(crate) info: u64,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct BtfLoad {
    pub(crate) btf: u64,
    pub(crate) btf_log_buf: u64,
    pub(crate) btf_size: u32,
    pub(crate) btf_log_size: u32,
    pub(crate) btf_log_level: u32,
    pub(crate) reserved: u32,
}

/// The link of a program with an interface (`BPF_XDP`).
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct LinkCreate {
    pub(crate) prog_fd: u32,
    pub(crate) target_ifindex: u32,
    pub(crate) attach_type: u32,
    pub(crate) flags: u32,
}

/// `struct bpf_prog_info`; pointers left at 0 ask the kernel for sizes only.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct ProgInfo {
    pub(crate) prog_type: u32,
    pub(crate) id: u32,
    pub(crate) tag: [u8; 8],
    pub(crate) jited_prog_len: u32,
    pub(crate) xlated_prog_len: u32,
    pub(crate) jited_prog_insns: u64,
    pub(crate) xlated_prog_insns: u64,
    pub(crate) load_time: u64,
    pub(crate) created_by_uid: u32,
    pub(crate) map_id_count: u32,
    pub(crate) map_ids: u64,
    pub(crate) name: [u8; NAME_BYTES],
    pub(crate) ifindex: u32,
    pub(crate) gpl_compatible: u32,
    pub(crate) netns_dev: u64,
    pub(crate) netns_ino: u64,
    pub(crate) jited_ksym_count: u32,
    pub(crate) jited_func_len_count: u32,
    pub(crate) jited_ksyms: u64,
    pub(crate) jited_func_lens: u64,
    pub(crate) btf_id: u32,
    pub(crate) func_info_rec_size: u32,
    pub(crate) func_info: u64,
    pub(crate) func_info_count: u32,
    pub(crate) line_info_count: u32,
    pub(crate) line_info: u64,
    pub(crate) jited_line_info: u64,
    pub(crate) jited_line_info_count: u32,
    pub(crate) line_info_rec_size: u32,
    pub(crate) jited_line_info_rec_size: u32,
    pub(crate) prog_tag_count: u32,
    pub(crate) prog_tags: u64,
    pub(crate) run_time_ns: u64,
    pub(crate) run_count: u64,
    pub(crate) recursion_misses: u64,
    pub(crate) verified_insns: u32,
    pub(crate) attach_btf_obj_id: u32,
    pub(crate) attach_btf_id: u32,
    pub(crate) reserved: u32,
}

// Offsets of the kernel's structs, from `bpf.h`: an error here would appear as an EINVAL elsewhere.
const _: () = {
    assert!(size_of::<MapCreate>() == 72);
    assert!(size_of::<MapElement>() == 32);
    assert!(std::mem::offset_of!(ProgLoad, prog_name) == 48);
    assert!(std::mem::offset_of!(ProgLoad, func_info) == 80);
    assert!(std::mem::offset_of!(ProgLoad, line_info) == 96);
    assert!(std::mem::offset_of!(ProgTestRun, ctx_in) == 48);
    assert!(size_of::<ProgTestRun>() == 80);
    assert!(std::mem::offset_of!(ProgInfo, netns_dev) == 88);
    assert!(std::mem::offset_of!(ProgInfo, verified_insns) == 216);
};
