//! Information about a program.
//!
//! Kernel counterpart: `bpf_prog_get_info_by_fd`. For each list the caller says how much room it
//! has; it learns how long the list is, and gets what fits.

use towpath_bpf::Errno;
use towpath_bpf::btf::emit::{FUNC_INFO_BYTES, LINE_INFO_BYTES};

use super::Info;
use crate::command::Call;
use crate::object::program::ProgramObject;

impl Call<'_> {
    /// `bpf_prog_get_info_by_fd`
    pub(super) fn program_info(&mut self, program: &ProgramObject) -> Result<u32, Errno> {
        let mut info = self.read_info(PROG_INFO_BYTES)?;
        let about = program.about();
        info.put(TYPE, about.kind);
        info.put(ID, program.id());
        info.put_bytes(TAG, &about.tag.0);
        info.put_bytes(LOAD_TIME, &(about.load_time.as_nanos() as u64).to_ne_bytes());
        info.put(CREATED_BY_UID, about.uid);
        info.put_bytes(NAME, &about.name.bytes());
        info.put(GPL_COMPATIBLE, about.is_gpl.into());
        let ids: Vec<u8> = program.maps().iter().flat_map(|map| map.id().to_ne_bytes()).collect();
        self.list(&mut info, NR_MAP_IDS, MAP_IDS, &ids, 4)?;
        info.put(FUNC_INFO_REC_SIZE, FUNC_INFO_BYTES as u32);
        info.put(LINE_INFO_REC_SIZE, LINE_INFO_BYTES as u32);
        info.put(JITED_LINE_INFO_REC_SIZE, 8);
        let stats = program.program().verified().map_or(0, |v| v.stats().insns_processed);
        info.put_bytes(RUN_TIME_NS, &[0; 24]);
        info.put(VERIFIED_INSNS, stats as u32);
        let insns: Vec<u8> = about.insns.iter().flat_map(|insn| insn.to_le_bytes()).collect();
        self.list(&mut info, XLATED_PROG_LEN, XLATED_PROG_INSNS, &insns, 1)?;
        self.code(&mut info, program)?;
        info.put(BTF_ID, about.btf.as_ref().map_or(0, |btf| btf.id()));
        info.put(ATTACH_BTF_OBJ_ID, 0);
        info.put(ATTACH_BTF_ID, 0);
        self.list(&mut info, NR_FUNC_INFO, FUNC_INFO, &about.functions, FUNC_INFO_BYTES)?;
        self.list(&mut info, NR_LINE_INFO, LINE_INFO, &about.lines, LINE_INFO_BYTES)?;
        info.put(NR_JITED_LINE_INFO, 0);
        let functions = about.functions.len().div_ceil(FUNC_INFO_BYTES).max(1);
        let tags = about.tag.0.repeat(functions);
        self.list(&mut info, NR_PROG_TAGS, PROG_TAGS, &tags, 8)?;
        self.write_info(&info)
    }

    /// Machine code: all of it counts as one function, at no address that means anything.
    fn code(&mut self, info: &mut Info, program: &ProgramObject) -> Result<(), Errno> {
        let code =
            program.program().machine_code().map_or(Vec::new(), |code| code.code().0.to_vec());
        self.list(info, JITED_PROG_LEN, JITED_PROG_INSNS, &code, 1)?;
        self.list(info, NR_JITED_KSYMS, JITED_KSYMS, &[0; 8], 8)?;
        let len = (code.len() as u32).to_ne_bytes();
        self.list(info, NR_JITED_FUNC_LENS, JITED_FUNC_LENS, &len, 4)
    }

    /// One list of items of `size` bytes, and its length.
    fn list(
        &mut self,
        info: &mut Info,
        length_at: usize,
        address_at: usize,
        items: &[u8],
        size: usize,
    ) -> Result<(), Errno> {
        let wanted = (info.u32(length_at) as usize).saturating_mul(size).min(items.len());
        info.put(length_at, (items.len() / size) as u32);
        self.caller.write(info.u64(address_at), &items[..wanted])
    }
}

/// `struct bpf_prog_info`
const TYPE: usize = 0;
const ID: usize = 4;
const TAG: usize = 8;
const JITED_PROG_LEN: usize = 16;
const XLATED_PROG_LEN: usize = 20;
const JITED_PROG_INSNS: usize = 24;
const XLATED_PROG_INSNS: usize = 32;
const LOAD_TIME: usize = 40;
const CREATED_BY_UID: usize = 48;
const NR_MAP_IDS: usize = 52;
const MAP_IDS: usize = 56;
const NAME: usize = 64;
const GPL_COMPATIBLE: usize = 84;
const NR_JITED_KSYMS: usize = 104;
const NR_JITED_FUNC_LENS: usize = 108;
const JITED_KSYMS: usize = 112;
const JITED_FUNC_LENS: usize = 120;
const BTF_ID: usize = 128;
const FUNC_INFO_REC_SIZE: usize = 132;
const FUNC_INFO: usize = 136;
const NR_FUNC_INFO: usize = 144;
const NR_LINE_INFO: usize = 148;
const LINE_INFO: usize = 152;
const NR_JITED_LINE_INFO: usize = 168;
const LINE_INFO_REC_SIZE: usize = 172;
const JITED_LINE_INFO_REC_SIZE: usize = 176;
const NR_PROG_TAGS: usize = 180;
const PROG_TAGS: usize = 184;
const RUN_TIME_NS: usize = 192;
const VERIFIED_INSNS: usize = 216;
const ATTACH_BTF_OBJ_ID: usize = 220;
const ATTACH_BTF_ID: usize = 224;
const PROG_INFO_BYTES: usize = 228;
