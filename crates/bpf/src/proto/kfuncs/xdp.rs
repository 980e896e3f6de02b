//! Kfuncs that work on the frame, or ask connection tracking, flow tables and IPsec.

use super::*;

pub(super) const TABLE: &[KfuncProto] = &[
    kfunc(
        KfuncId::DynptrFromXdp,
        &[p("x", KArg::Ctx), p("flags", KArg::Scalar), p("ptr__uninit", KArg::DynptrUninit)],
        KRet::Scalar,
        "Makes a dynptr over the frame, frags included.",
    ),
    kfunc(
        KfuncId::XdpPullData,
        &[p("x", KArg::Ctx), p("len", KArg::Scalar)],
        KRet::Scalar,
        "Moves bytes of the frags into the linear part.",
    )
    .flags(&[KfuncFlags::CHANGES_PACKET]),
    kfunc(
        KfuncId::XdpMetadataRxTimestamp,
        &[p("ctx", KArg::Ctx), p("timestamp", KArg::Mem(8))],
        KRet::Scalar,
        "Time at which the device received the frame.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS, KfuncFlags::DEV_BOUND])
    .backed(RX_METADATA),
    kfunc(
        KfuncId::XdpMetadataRxHash,
        &[p("ctx", KArg::Ctx), p("hash", KArg::Mem(4)), p("rss_type", KArg::Mem(4))],
        KRet::Scalar,
        "Receive hash of the frame, and the fields that it covers.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS, KfuncFlags::DEV_BOUND])
    .backed(RX_METADATA),
    kfunc(
        KfuncId::XdpMetadataRxVlanTag,
        &[p("ctx", KArg::Ctx), p("vlan_proto", KArg::Mem(2)), p("vlan_tci", KArg::Mem(2))],
        KRet::Scalar,
        "VLAN tag that the device removed.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS, KfuncFlags::DEV_BOUND])
    .backed(RX_METADATA),
    kfunc(
        KfuncId::XdpMetadataRxChecksum,
        &[
            p("ctx", KArg::Ctx),
            p("ip_summed", KArg::Mem(4)),
            p("cksum", KArg::Mem(4)),
            p("cksum_level", KArg::Mem(1)),
        ],
        KRet::Scalar,
        "State of the frame's checksum that the device determined.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS, KfuncFlags::DEV_BOUND])
    .backed(PROPOSED),
    kfunc(
        KfuncId::XdpStoreRxTs,
        &[p("ctx", KArg::Ctx), p("ts", KArg::Scalar)],
        KRet::Scalar,
        "Sets the receive timestamp that later programs and sockets read.",
    )
    .backed(PROPOSED),
    kfunc(
        KfuncId::XdpStoreRxHash,
        &[p("ctx", KArg::Ctx), p("hash", KArg::Scalar), p("rss_type", KArg::Scalar)],
        KRet::Scalar,
        "Sets the receive hash that later programs and sockets read.",
    )
    .backed(PROPOSED),
    kfunc(
        KfuncId::XdpStoreRxVlan,
        &[p("ctx", KArg::Ctx), p("vlan_proto", KArg::Scalar), p("vlan_tci", KArg::Scalar)],
        KRet::Scalar,
        "Sets the removed VLAN tag that later programs and sockets read.",
    )
    .backed(PROPOSED),
    kfunc(
        KfuncId::XdpStoreTxChecksum,
        &[p("ctx", KArg::Ctx), p("csum_start", KArg::Scalar), p("csum_offset", KArg::Scalar)],
        KRet::Scalar,
        "Requests that the port which sends the frame complete a checksum.",
    )
    .backed(OWN),
    kfunc(
        KfuncId::XdpCtLookup,
        &[
            p("xdp_ctx", KArg::Ctx),
            p("bpf_tuple", KArg::MemSize { optional: false }),
            p("tuple__sz", KArg::Size { constant: false }),
            p("opts", KArg::MemSize { optional: false }),
            p("opts__sz", KArg::Size { constant: false }),
        ],
        KRet::Object("nf_conn"),
        "Finds a tracked connection.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL, KfuncFlags::TRUSTED_ARGS])
    .backed(CONNTRACK),
    kfunc(
        KfuncId::XdpCtAlloc,
        &[
            p("xdp_ctx", KArg::Ctx),
            p("bpf_tuple", KArg::MemSize { optional: false }),
            p("tuple__sz", KArg::Size { constant: false }),
            p("opts", KArg::MemSize { optional: false }),
            p("opts__sz", KArg::Size { constant: false }),
        ],
        KRet::Object("nf_conn___init"),
        "Makes a connection that is not tracked yet.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL, KfuncFlags::TRUSTED_ARGS])
    .backed(CONNTRACK),
    kfunc(
        KfuncId::CtInsertEntry,
        &[p("nfct_i", KArg::Object("nf_conn___init"))],
        KRet::Object("nf_conn"),
        "Starts tracking a new connection.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RELEASE, KfuncFlags::RET_NULL])
    .backed(CONNTRACK),
    kfunc(
        KfuncId::CtRelease,
        &[p("nfct", KArg::Object("nf_conn"))],
        KRet::Void,
        "Releases a connection.",
    )
    .flags(&[KfuncFlags::RELEASE])
    .backed(CONNTRACK),
    kfunc(
        KfuncId::CtSetTimeout,
        &[p("nfct", KArg::Object("nf_conn___init")), p("timeout", KArg::Scalar)],
        KRet::Void,
        "Sets the timeout of a new connection.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS])
    .backed(CONNTRACK),
    kfunc(
        KfuncId::CtChangeTimeout,
        &[p("nfct", KArg::Object("nf_conn")), p("timeout", KArg::Scalar)],
        KRet::Scalar,
        "Changes the timeout of a connection.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS])
    .backed(CONNTRACK),
    kfunc(
        KfuncId::CtSetStatus,
        &[p("nfct", KArg::Object("nf_conn___init")), p("status", KArg::Scalar)],
        KRet::Scalar,
        "Sets the status bits of a new connection.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS])
    .backed(CONNTRACK),
    kfunc(
        KfuncId::CtChangeStatus,
        &[p("nfct", KArg::Object("nf_conn")), p("status", KArg::Scalar)],
        KRet::Scalar,
        "Changes the status bits of a connection.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS])
    .backed(CONNTRACK),
    kfunc(
        KfuncId::CtSetNatInfo,
        &[
            p("nfct", KArg::Object("nf_conn___init")),
            p("addr", KArg::Mem(16)),
            p("port", KArg::Scalar),
            p("manip", KArg::Scalar),
        ],
        KRet::Scalar,
        "Sets up address translation for a new connection.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS])
    .backed(CONNTRACK),
    kfunc(
        KfuncId::XdpFlowLookup,
        &[
            p("ctx", KArg::Ctx),
            p("fib_tuple", KArg::Mem(64)),
            p("opts", KArg::MemSize { optional: false }),
            p("opts_len__sz", KArg::Size { constant: false }),
        ],
        KRet::Object("flow_offload_tuple_rhash"),
        "Finds an entry of a netfilter flow table.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS, KfuncFlags::RET_NULL])
    .backed(Backing::NothingFound("a null pointer")),
    kfunc(
        KfuncId::FdbLookup,
        &[
            p("ctx", KArg::Ctx),
            p("params", KArg::MemSize { optional: false }),
            p("params__sz", KArg::Size { constant: false }),
        ],
        KRet::Scalar,
        "Finds the port behind which the bridge above the ingress port saw an address.",
    )
    .backed(Backing::Tables(
        "the engine's bridges; no kernel has it ([differences](differences.md#bpf_fdb_lookup))",
    )),
    kfunc(
        KfuncId::RedirectXsk,
        &[
            p("ctx", KArg::Ctx),
            p("map__map", KArg::Map),
            p("key", KArg::Scalar),
            p("flags", KArg::Scalar),
        ],
        KRet::Scalar,
        "Sends the frame to the AF_XDP socket in an entry of an XSKMAP.",
    )
    .backed(Backing::Tables(
        "the sockets in the map; no kernel has it ([differences](differences.md#bpf_redirect_xsk))",
    )),
    kfunc(
        KfuncId::PacketDequeue,
        &[
            p("ctx", KArg::Ctx),
            p("map__map", KArg::Map),
            p("flags", KArg::Scalar),
            p("rank", KArg::Mem(8)),
        ],
        KRet::Packet,
        "Takes the packet of the lowest rank out of a PIFO_XDP.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL])
    .backed(QUEUES),
    kfunc(
        KfuncId::PacketDrop,
        &[p("ctx", KArg::Ctx), p("pkt", KArg::Packet)],
        KRet::Scalar,
        "Drops a packet that was taken out of a queue.",
    )
    .flags(&[KfuncFlags::RELEASE])
    .backed(QUEUES),
    kfunc(
        KfuncId::ScheduleIfaceDequeue,
        &[p("ctx__ign", KArg::Ignored), p("ifindex", KArg::Scalar), p("flags", KArg::Scalar)],
        KRet::Scalar,
        "Requests a run of a port's dequeue program as soon as the port has room.",
    )
    .backed(QUEUES),
    kfunc(
        KfuncId::PacketStoreLaunchTime,
        &[p("pkt", KArg::Packet), p("time_ns", KArg::Scalar)],
        KRet::Scalar,
        "Sets the earliest time at which a port may send a packet taken out of a queue.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS])
    .backed(LAUNCH),
    kfunc(
        KfuncId::XdpStoreLaunchTime,
        &[p("ctx", KArg::Ctx), p("time_ns", KArg::Scalar)],
        KRet::Scalar,
        "Sets the earliest time at which a port may send the frame.",
    )
    .backed(LAUNCH),
    kfunc(
        KfuncId::XdpRequestTxTimestamp,
        &[p("ctx", KArg::Ctx), p("map__map", KArg::Map), p("cookie", KArg::Scalar)],
        KRet::Scalar,
        "Requests a ring buffer record of when the frame was sent, or that it was not.",
    )
    .backed(TX_TIMESTAMP),
    kfunc(
        KfuncId::PacketRequestTxTimestamp,
        &[p("pkt", KArg::Packet), p("map__map", KArg::Map), p("cookie", KArg::Scalar)],
        KRet::Scalar,
        "Requests a ring buffer record of when a packet taken out of a queue was sent, or that \
         it was not.",
    )
    .flags(&[KfuncFlags::TRUSTED_ARGS])
    .backed(TX_TIMESTAMP),
    kfunc(
        KfuncId::XdpEspDecap,
        &[
            p("ctx", KArg::Ctx),
            p("ifindex", KArg::Scalar),
            p("meta", KArg::MemSize { optional: false }),
            p("meta__sz", KArg::Size { constant: false }),
        ],
        KRet::Scalar,
        "Decrypts the frame, an ESP packet, and removes its outer headers.",
    )
    .flags(&[KfuncFlags::CHANGES_PACKET])
    .backed(ESP),
    kfunc(
        KfuncId::XdpEspEncap,
        &[
            p("ctx", KArg::Ctx),
            p("ifindex", KArg::Scalar),
            p("meta", KArg::MemSize { optional: false }),
            p("meta__sz", KArg::Size { constant: false }),
        ],
        KRet::Scalar,
        "Encapsulates and encrypts the frame as an ESP packet.",
    )
    .flags(&[KfuncFlags::CHANGES_PACKET])
    .backed(ESP),
    kfunc(
        KfuncId::XdpGetXfrmState,
        &[
            p("ctx", KArg::Ctx),
            p("opts", KArg::MemSize { optional: false }),
            p("opts__sz", KArg::Size { constant: false }),
        ],
        KRet::Object("xfrm_state"),
        "Finds an IPsec state.",
    )
    .flags(&[KfuncFlags::ACQUIRE, KfuncFlags::RET_NULL])
    .backed(XFRM),
    kfunc(
        KfuncId::XdpXfrmStateRelease,
        &[p("x", KArg::Object("xfrm_state"))],
        KRet::Void,
        "Releases an IPsec state.",
    )
    .flags(&[KfuncFlags::RELEASE]),
];

const RX_METADATA: Backing = Backing::FullExcept(
    "-EOPNOTSUPP on a port that never has this hint ([features](features.md)), -ENODATA for a \
     frame without it",
);
const QUEUES: Backing =
    Backing::Tables("the queue or port; no kernel has it ([queueing](queueing.md))");
const LAUNCH: Backing =
    Backing::Tables("the port's clock; no kernel has it ([queueing](queueing.md#launch-times))");
const TX_TIMESTAMP: Backing = Backing::Tables(
    "the engine's clock; no kernel has it ([queueing](queueing.md#when-a-frame-was-sent))",
);
const PROPOSED: Backing = Backing::Tables(
    "the frame; proposed, and in no kernel yet ([differences](differences.md#hints))",
);
const ESP: Backing = Backing::Tables(
    "the SAs of a port of kind `ipsec`; no kernel has it ([IPsec](ipsec.md#esp-without-the-port))",
);
const XFRM: Backing = Backing::Tables(
    "the SAs of ports of kind `ipsec` ([IPsec](ipsec.md#states-of-sas)); elsewhere none exist",
);
const OWN: Backing =
    Backing::Tables("the frame; no kernel has it ([differences](differences.md#hints))");
const CONNTRACK: Backing =
    Backing::Tables("a table that only programs fill; traffic adds no entries");
