//! Prototypes of kfuncs.
//!
//! The kernel derives the requirements from a kfunc's BTF prototype and the suffixes of its
//! parameter names (`Documentation/bpf/kfuncs.rst`); this table has the outcome of that derivation,
//! so that a program can be checked without the running kernel's BTF. Parameter names keep their
//! suffixes.

use std::fmt;
use std::ops::BitOr;

use super::{Backing, Ties};

/// Properties of one kfunc, for the verifier and the runtime.
#[derive(Debug, Clone, Copy)]
pub struct KfuncProto {
    /// Towpath's own number, stable within a build: the runtime dispatches on it.
    pub id: KfuncId,
    /// Name in the kernel.
    pub name: &'static str,
    /// Parameters.
    pub params: &'static [KParam],
    /// Result.
    pub ret: KRet,
    /// Owners of the result.
    pub ties: Ties,
    /// `KF_*` flags.
    pub flags: KfuncFlags,
    /// Its effect, in one sentence.
    pub summary: &'static str,
    /// Source of its results in Towpath.
    pub backing: Backing,
}

impl KfuncProto {
    /// Whether XDP programs may call it.
    pub fn is_for_xdp(&self) -> bool {
        !self.is_for_setup() && !self.takes_from_queues()
    }

    /// Whether programs that users call may call it. They may not call kfuncs that work on a frame,
    /// or on an object that was found for a frame.
    pub fn is_for_syscalls(&self) -> bool {
        let is_of_frames = |param: &KParam| {
            const FOUND: [&str; 3] = ["nf_conn", "nf_conn___init", "xfrm_state"];
            matches!(param.kind, KArg::Ctx)
                || matches!(param.kind, KArg::Object(name) if FOUND.contains(&name))
        };
        let is_for_packets = matches!(self.id, KfuncId::CryptoEncrypt | KfuncId::CryptoDecrypt)
            || self.id == KfuncId::ScheduleIfaceDequeue
            || self.takes_from_queues();
        self.is_for_setup() || !(is_for_packets || self.params.iter().any(is_of_frames))
    }

    /// Whether only programs that users call may call it.
    pub fn is_for_setup(&self) -> bool {
        use KfuncId::*;
        matches!(self.id, CryptoCtxCreate | CryptoCtxAcquire | CryptoCtxRelease)
    }

    /// Whether it takes packets out of queues, or works on such packets.
    pub fn takes_from_queues(&self) -> bool {
        let takes_packet = self.params.iter().any(|param| param.kind == KArg::Packet);
        self.id == KfuncId::PacketDequeue || takes_packet
    }
}

/// One parameter of a kfunc.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KParam {
    /// Name in the kernel's prototype, suffix included.
    pub name: &'static str,
    /// Kind of value that may be passed.
    pub kind: KArg,
}

/// Kind of value that may be passed for a parameter (`enum kfunc_ptr_arg_type`, and the scalars).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KArg {
    /// A scalar.
    Scalar,
    /// A scalar that is known during verification (`__k`).
    Const,
    /// Size in bytes of the memory in the parameter before (`__sz`), or the exact size (`__szk`).
    Size {
        /// Whether it must be known during verification.
        constant: bool,
    },
    /// Memory whose size is the next parameter.
    MemSize {
        /// Whether null is allowed with any size (`__opt`).
        optional: bool,
    },
    /// Memory of a fixed number of bytes, read and written.
    Mem(u32),
    /// The program's context.
    Ctx,
    /// A kernel object of the named structure.
    Object(&'static str),
    /// As [`KArg::Object`], or null (`__nullable`).
    ObjectOrNull(&'static str),
    /// An owned object from `bpf_obj_new` (`__alloc`).
    Alloc,
    /// An owned object from `bpf_percpu_obj_new` (`__alloc`).
    PercpuAlloc,
    /// An object that contains a `struct bpf_refcount` (`__refcounted_kptr`).
    Refcounted,
    /// An initialised dynptr.
    Dynptr,
    /// As [`KArg::Dynptr`], or null (`__nullable`).
    DynptrOrNull,
    /// Stack that becomes a dynptr (`__uninit`).
    DynptrUninit,
    /// An open-coded iterator on the stack.
    Iter(Iter),
    /// A `struct bpf_list_head` in a map value or object.
    ListHead,
    /// A `struct bpf_list_node` in an owned object.
    ListNode,
    /// A `struct bpf_rb_root` in a map value or object.
    RbRoot,
    /// A `struct bpf_rb_node` in an object.
    RbNode,
    /// A function of the program.
    Callback,
    /// A zero-terminated string in a frozen read-only map (`__str`).
    ConstStr,
    /// A map (`__map`).
    Map,
    /// A `struct bpf_wq` in a map value.
    Workqueue,
    /// A `struct bpf_task_work` in a map value.
    TaskWork,
    /// Eight bytes of stack for saved interrupt flags (`__irq_flag`).
    IrqFlag,
    /// A `struct bpf_res_spin_lock` in a map value or object.
    ResSpinLock,
    /// A packet that the program took out of a queue.
    Packet,
    /// Not checked (`__ign`).
    Ignored,
    /// Filled in by the verifier with the program's own data (`__prog`).
    Prog,
}

/// The open-coded iterators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Iter {
    /// `struct bpf_iter_num`: a range of integers.
    Num,
    /// `struct bpf_iter_bits`: set bits of a bitmap.
    Bits,
    /// `struct bpf_iter_task`: tasks and threads.
    Task,
    /// `struct bpf_iter_task_vma`: mappings of a task.
    TaskVma,
    /// `struct bpf_iter_css`: a cgroup hierarchy.
    Css,
    /// `struct bpf_iter_css_task`: tasks of a cgroup.
    CssTask,
}

impl Iter {
    /// Number of eight-byte stack slots that it takes.
    pub const fn slots(self) -> usize {
        match self {
            Iter::Num | Iter::CssTask | Iter::TaskVma => 1,
            Iter::Bits => 2,
            Iter::Task | Iter::Css => 3,
        }
    }

    /// Name of the kernel structure.
    pub const fn name(self) -> &'static str {
        match self {
            Iter::Num => "bpf_iter_num",
            Iter::Bits => "bpf_iter_bits",
            Iter::Task => "bpf_iter_task",
            Iter::TaskVma => "bpf_iter_task_vma",
            Iter::Css => "bpf_iter_css",
            Iter::CssTask => "bpf_iter_css_task",
        }
    }
}

/// Kind of a kfunc's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KRet {
    /// Nothing.
    Void,
    /// A scalar.
    Scalar,
    /// A kernel object of the named structure.
    Object(&'static str),
    /// Readable memory of this number of bytes.
    Mem(u32),
    /// A new object of the program's type that the first argument names.
    NewObject,
    /// As [`KRet::NewObject`], with one object for each CPU.
    NewPercpuObject,
    /// Another reference to the argument's object.
    SameObject,
    /// The object around a list node of the list in the first argument.
    ListNode,
    /// The object around a node of the tree in the first argument.
    RbNode,
    /// A packet that was taken out of a queue.
    Packet,
    /// The kernel's view of the context (`struct xdp_buff`).
    KernCtx,
    /// The argument as a read-only object of the type that the second argument names.
    CastTo,
    /// Memory of the dynptr, of the size in the last argument.
    Slice {
        /// Whether it may be written.
        writable: bool,
    },
}

/// `KF_*` flags of a kfunc.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct KfuncFlags(pub u16);

macro_rules! kfunc_flags {
    ($($name:ident = $bit:literal, $text:literal;)*) => {
        impl KfuncFlags {
            $(#[doc = $text] pub const $name: KfuncFlags = KfuncFlags(1 << $bit);)*
        }

        impl fmt::Debug for KfuncFlags {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut names = f.debug_list();
                $(if self.has(KfuncFlags::$name) { names.entry(&stringify!($name)); })*
                names.finish()
            }
        }
    };
}

kfunc_flags! {
    ACQUIRE = 0, "Returns a reference the program must release.";
    RELEASE = 1, "Releases the reference of its argument.";
    RET_NULL = 2, "May return null.";
    TRUSTED_ARGS = 3, "Pointers must be trusted and not null.";
    SLEEPABLE = 4, "May sleep.";
    DESTRUCTIVE = 5, "Needs `CAP_SYS_BOOT`.";
    RCU = 6, "Pointers must be trusted or protected by RCU, and not null.";
    RCU_PROTECTED = 7, "Only inside an RCU read section.";
    ITER_NEW = 8, "Starts an iterator.";
    ITER_NEXT = 9, "Advances an iterator.";
    ITER_DESTROY = 10, "Ends an iterator.";
    DEV_BOUND = 11, "Only in programs bound to a device.";
    CHANGES_PACKET = 12, "Packet pointers are void afterwards.";
}

impl KfuncFlags {
    /// No flags.
    pub const NONE: KfuncFlags = KfuncFlags(0);

    /// Whether all flags of `other` are set.
    pub const fn has(self, other: KfuncFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union of both.
    pub const fn with(self, other: KfuncFlags) -> KfuncFlags {
        KfuncFlags(self.0 | other.0)
    }
}

impl BitOr for KfuncFlags {
    type Output = KfuncFlags;
    fn bitor(self, other: KfuncFlags) -> KfuncFlags {
        self.with(other)
    }
}

macro_rules! kfunc_ids {
    ($($id:ident = $name:literal;)*) => {
        /// The kfuncs that Towpath has, as numbers to dispatch on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum KfuncId { $(#[doc = concat!("`", $name, "`")] $id,)* }

        impl KfuncId {
            /// All kfuncs, ordered by number.
            pub const ALL: &'static [KfuncId] = &[$(KfuncId::$id,)*];

            /// Name in the kernel.
            pub const fn name(self) -> &'static str {
                match self { $(KfuncId::$id => $name,)* }
            }
        }
    };
}

kfunc_ids! {
    DynptrFromXdp = "bpf_dynptr_from_xdp";
    XdpPullData = "bpf_xdp_pull_data";
    XdpMetadataRxTimestamp = "bpf_xdp_metadata_rx_timestamp";
    XdpMetadataRxHash = "bpf_xdp_metadata_rx_hash";
    XdpMetadataRxVlanTag = "bpf_xdp_metadata_rx_vlan_tag";
    XdpMetadataRxChecksum = "bpf_xdp_metadata_rx_checksum";
    XdpStoreRxTs = "bpf_xdp_store_rx_ts";
    XdpStoreRxHash = "bpf_xdp_store_rx_hash";
    XdpStoreRxVlan = "bpf_xdp_store_rx_vlan";
    XdpStoreTxChecksum = "bpf_xdp_store_tx_checksum";
    XdpCtLookup = "bpf_xdp_ct_lookup";
    XdpCtAlloc = "bpf_xdp_ct_alloc";
    CtInsertEntry = "bpf_ct_insert_entry";
    CtRelease = "bpf_ct_release";
    CtSetTimeout = "bpf_ct_set_timeout";
    CtChangeTimeout = "bpf_ct_change_timeout";
    CtSetStatus = "bpf_ct_set_status";
    CtChangeStatus = "bpf_ct_change_status";
    CtSetNatInfo = "bpf_ct_set_nat_info";
    XdpFlowLookup = "bpf_xdp_flow_lookup";
    FdbLookup = "bpf_fdb_lookup";
    RedirectXsk = "bpf_redirect_xsk";
    PacketDequeue = "bpf_packet_dequeue";
    PacketDrop = "bpf_packet_drop";
    ScheduleIfaceDequeue = "bpf_schedule_iface_dequeue";
    PacketStoreLaunchTime = "bpf_packet_store_launch_time";
    XdpStoreLaunchTime = "bpf_xdp_store_launch_time";
    XdpRequestTxTimestamp = "bpf_xdp_request_tx_timestamp";
    PacketRequestTxTimestamp = "bpf_packet_request_tx_timestamp";
    XdpEspDecap = "bpf_xdp_esp_decap";
    XdpEspEncap = "bpf_xdp_esp_encap";
    XdpGetXfrmState = "bpf_xdp_get_xfrm_state";
    XdpXfrmStateRelease = "bpf_xdp_xfrm_state_release";
    CryptoCtxCreate = "bpf_crypto_ctx_create";
    CryptoCtxAcquire = "bpf_crypto_ctx_acquire";
    CryptoCtxRelease = "bpf_crypto_ctx_release";
    CryptoEncrypt = "bpf_crypto_encrypt";
    CryptoDecrypt = "bpf_crypto_decrypt";
    ObjNewImpl = "bpf_obj_new_impl";
    ObjDropImpl = "bpf_obj_drop_impl";
    PercpuObjNewImpl = "bpf_percpu_obj_new_impl";
    PercpuObjDropImpl = "bpf_percpu_obj_drop_impl";
    RefcountAcquireImpl = "bpf_refcount_acquire_impl";
    ListPushFrontImpl = "bpf_list_push_front_impl";
    ListPushBackImpl = "bpf_list_push_back_impl";
    ListPopFront = "bpf_list_pop_front";
    ListPopBack = "bpf_list_pop_back";
    ListFront = "bpf_list_front";
    ListBack = "bpf_list_back";
    RbtreeAddImpl = "bpf_rbtree_add_impl";
    RbtreeRemove = "bpf_rbtree_remove";
    RbtreeFirst = "bpf_rbtree_first";
    RbtreeRoot = "bpf_rbtree_root";
    RbtreeLeft = "bpf_rbtree_left";
    RbtreeRight = "bpf_rbtree_right";
    TaskAcquire = "bpf_task_acquire";
    TaskRelease = "bpf_task_release";
    TaskFromPid = "bpf_task_from_pid";
    TaskFromVpid = "bpf_task_from_vpid";
    TaskUnderCgroup = "bpf_task_under_cgroup";
    TaskGetCgroup1 = "bpf_task_get_cgroup1";
    CgroupAcquire = "bpf_cgroup_acquire";
    CgroupRelease = "bpf_cgroup_release";
    CgroupAncestor = "bpf_cgroup_ancestor";
    CgroupFromId = "bpf_cgroup_from_id";
    CgroupReadXattr = "bpf_cgroup_read_xattr";
    SendSignalTask = "bpf_send_signal_task";
    LookupSystemKey = "bpf_lookup_system_key";
    KeyPut = "bpf_key_put";
    GetKmemCache = "bpf_get_kmem_cache";
    CrashKexec = "crash_kexec";
    TaskWorkScheduleSignalImpl = "bpf_task_work_schedule_signal_impl";
    TaskWorkScheduleResumeImpl = "bpf_task_work_schedule_resume_impl";
    IterTaskNew = "bpf_iter_task_new";
    IterTaskNext = "bpf_iter_task_next";
    IterTaskDestroy = "bpf_iter_task_destroy";
    IterTaskVmaNew = "bpf_iter_task_vma_new";
    IterTaskVmaNext = "bpf_iter_task_vma_next";
    IterTaskVmaDestroy = "bpf_iter_task_vma_destroy";
    IterCssNew = "bpf_iter_css_new";
    IterCssNext = "bpf_iter_css_next";
    IterCssDestroy = "bpf_iter_css_destroy";
    IterCssTaskNew = "bpf_iter_css_task_new";
    IterCssTaskNext = "bpf_iter_css_task_next";
    IterCssTaskDestroy = "bpf_iter_css_task_destroy";
    IterNumNew = "bpf_iter_num_new";
    IterNumNext = "bpf_iter_num_next";
    IterNumDestroy = "bpf_iter_num_destroy";
    IterBitsNew = "bpf_iter_bits_new";
    IterBitsNext = "bpf_iter_bits_next";
    IterBitsDestroy = "bpf_iter_bits_destroy";
    CastToKernCtx = "bpf_cast_to_kern_ctx";
    RdonlyCast = "bpf_rdonly_cast";
    RcuReadLock = "bpf_rcu_read_lock";
    RcuReadUnlock = "bpf_rcu_read_unlock";
    PreemptDisable = "bpf_preempt_disable";
    PreemptEnable = "bpf_preempt_enable";
    LocalIrqSave = "bpf_local_irq_save";
    LocalIrqRestore = "bpf_local_irq_restore";
    ResSpinLock = "bpf_res_spin_lock";
    ResSpinUnlock = "bpf_res_spin_unlock";
    ResSpinLockIrqsave = "bpf_res_spin_lock_irqsave";
    ResSpinUnlockIrqrestore = "bpf_res_spin_unlock_irqrestore";
    WqInit = "bpf_wq_init";
    WqSetCallbackImpl = "bpf_wq_set_callback_impl";
    WqStart = "bpf_wq_start";
    Throw = "bpf_throw";
    MapSumElemCount = "bpf_map_sum_elem_count";
    StreamVprintkImpl = "bpf_stream_vprintk_impl";
    ArenaAllocPages = "bpf_arena_alloc_pages";
    ArenaFreePages = "bpf_arena_free_pages";
    ArenaReservePages = "bpf_arena_reserve_pages";
    DynptrSlice = "bpf_dynptr_slice";
    DynptrSliceRdwr = "bpf_dynptr_slice_rdwr";
    DynptrAdjust = "bpf_dynptr_adjust";
    DynptrIsNull = "bpf_dynptr_is_null";
    DynptrIsRdonly = "bpf_dynptr_is_rdonly";
    DynptrSize = "bpf_dynptr_size";
    DynptrClone = "bpf_dynptr_clone";
    DynptrCopy = "bpf_dynptr_copy";
    DynptrMemset = "bpf_dynptr_memset";
    ProbeReadKernelDynptr = "bpf_probe_read_kernel_dynptr";
    ProbeReadKernelStrDynptr = "bpf_probe_read_kernel_str_dynptr";
    ProbeReadUserDynptr = "bpf_probe_read_user_dynptr";
    ProbeReadUserStrDynptr = "bpf_probe_read_user_str_dynptr";
    CopyFromUserStr = "bpf_copy_from_user_str";
    CopyFromUserDynptr = "bpf_copy_from_user_dynptr";
    CopyFromUserStrDynptr = "bpf_copy_from_user_str_dynptr";
    CopyFromUserTaskStr = "bpf_copy_from_user_task_str";
    CopyFromUserTaskDynptr = "bpf_copy_from_user_task_dynptr";
    CopyFromUserTaskStrDynptr = "bpf_copy_from_user_task_str_dynptr";
    Strcmp = "bpf_strcmp";
    Strcasecmp = "bpf_strcasecmp";
    Strncasecmp = "bpf_strncasecmp";
    Strchr = "bpf_strchr";
    Strchrnul = "bpf_strchrnul";
    Strnchr = "bpf_strnchr";
    Strrchr = "bpf_strrchr";
    Strlen = "bpf_strlen";
    Strnlen = "bpf_strnlen";
    Strspn = "bpf_strspn";
    Strcspn = "bpf_strcspn";
    Strstr = "bpf_strstr";
    Strcasestr = "bpf_strcasestr";
    Strnstr = "bpf_strnstr";
    Strncasestr = "bpf_strncasestr";
}
