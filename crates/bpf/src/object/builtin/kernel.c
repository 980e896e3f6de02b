// SPDX-License-Identifier: MIT OR Apache-2.0
/*
 * The kernel types that Towpath ships with, for machines whose kernel publishes none.
 *
 * Layouts that programs see on the wire or share with the kernel's user (xdp_md, bpf_fib_lookup,
 * headers) are the kernel's. Of its inner structures there are the fields programs commonly read,
 * at offsets of our own: CO-RE makes programs independent of these.
 *
 * kernel.btf is the .BTF section of this file, compiled with
 *   clang -target bpf -g -O2 -c kernel.c -o kernel.o
 *   llvm-objcopy --dump-section .BTF=kernel.btf kernel.o
 */

typedef unsigned char __u8, u8, u_int8_t, uint8_t;
typedef unsigned short __u16, u16, u_int16_t, uint16_t, __be16, __le16, __sum16, umode_t;
typedef unsigned int __u32, u32, u_int32_t, uint32_t, __be32, __le32, __wsum, gfp_t;
typedef unsigned long long __u64, u64, uint64_t, __be64;
typedef signed char __s8, s8;
typedef short __s16, s16;
typedef int __s32, s32, pid_t, int32_t;
typedef long long __s64, s64, ktime_t;
typedef unsigned long size_t, uintptr_t;
typedef long ssize_t;
typedef _Bool bool;

typedef struct { int counter; } atomic_t;
typedef struct { s64 counter; } atomic64_t;
typedef struct refcount_struct { atomic_t refs; } refcount_t;
typedef struct { u32 val; } kuid_t;
typedef struct { u32 val; } kgid_t;
struct list_head { struct list_head *next, *prev; };
struct hlist_node { struct hlist_node *next, **pprev; };
struct rb_node { unsigned long __rb_parent_color; struct rb_node *rb_right, *rb_left; };
struct callback_head { struct callback_head *next; void (*func)(struct callback_head *head); };

/* Contexts. */
enum xdp_action { XDP_ABORTED = 0, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

struct net_device;
struct xdp_mem_info { u32 type; u32 id; };
struct xdp_rxq_info {
	struct net_device *dev;
	u32 queue_index;
	u32 reg_state;
	struct xdp_mem_info mem;
	u32 frag_size;
};
struct xdp_txq_info { struct net_device *dev; };
struct xdp_buff {
	void *data;
	void *data_end;
	void *data_meta;
	void *data_hard_start;
	struct xdp_rxq_info *rxq;
	struct xdp_txq_info *txq;
	u32 frame_sz;
	u32 flags;
};
struct xdp_frame {
	void *data;
	u32 len;
	u32 headroom;
	u32 metasize;
	struct net_device *dev_rx;
	u32 frame_sz;
	u32 flags;
};
enum xdp_rss_hash_type {
	XDP_RSS_L3_IPV4 = 1,
	XDP_RSS_L3_IPV6 = 2,
	XDP_RSS_L3_DYNHDR = 4,
	XDP_RSS_L4 = 8,
	XDP_RSS_L4_TCP = 16,
	XDP_RSS_L4_UDP = 32,
	XDP_RSS_L4_SCTP = 64,
	XDP_RSS_L4_IPSEC = 128,
	XDP_RSS_L4_ICMP = 256,
};

/* Programs often share code with one for tc, which CO-RE then relocates too. */
struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
};

/* Packet headers. */
struct ethhdr { unsigned char h_dest[6]; unsigned char h_source[6]; __be16 h_proto; }
	__attribute__((packed));
struct vlan_hdr { __be16 h_vlan_TCI; __be16 h_vlan_encapsulated_proto; };
struct vlan_ethhdr {
	unsigned char h_dest[6];
	unsigned char h_source[6];
	__be16 h_vlan_proto;
	__be16 h_vlan_TCI;
	__be16 h_vlan_encapsulated_proto;
};
struct arphdr { __be16 ar_hrd; __be16 ar_pro; unsigned char ar_hln, ar_pln; __be16 ar_op; };
struct iphdr {
	__u8 ihl : 4, version : 4;
	__u8 tos;
	__be16 tot_len;
	__be16 id;
	__be16 frag_off;
	__u8 ttl;
	__u8 protocol;
	__sum16 check;
	union {
		struct { __be32 saddr; __be32 daddr; };
		struct { __be32 saddr; __be32 daddr; } addrs;
	};
};
struct in_addr { __be32 s_addr; };
struct in6_addr {
	union { __u8 u6_addr8[16]; __be16 u6_addr16[8]; __be32 u6_addr32[4]; } in6_u;
};
struct ipv6hdr {
	__u8 priority : 4, version : 4;
	__u8 flow_lbl[3];
	__be16 payload_len;
	__u8 nexthdr;
	__u8 hop_limit;
	union {
		struct { struct in6_addr saddr; struct in6_addr daddr; };
		struct { struct in6_addr saddr; struct in6_addr daddr; } addrs;
	};
};
struct ipv6_opt_hdr { __u8 nexthdr; __u8 hdrlen; } __attribute__((packed));
struct frag_hdr { __u8 nexthdr; __u8 reserved; __be16 frag_off; __be32 identification; };
struct ip_auth_hdr {
	__u8 nexthdr;
	__u8 hdrlen;
	__be16 reserved;
	__be32 spi;
	__be32 seq_no;
	__u8 auth_data[];
};
struct ip_esp_hdr { __be32 spi; __be32 seq_no; __u8 enc_data[]; };
struct tcphdr {
	__be16 source;
	__be16 dest;
	__be32 seq;
	__be32 ack_seq;
	__u16 res1 : 4, doff : 4, fin : 1, syn : 1, rst : 1, psh : 1, ack : 1, urg : 1, ece : 1, cwr : 1;
	__be16 window;
	__sum16 check;
	__be16 urg_ptr;
};
struct udphdr { __be16 source; __be16 dest; __be16 len; __sum16 check; };
struct sctphdr { __be16 source; __be16 dest; __be32 vtag; __le32 checksum; };
struct icmphdr {
	__u8 type;
	__u8 code;
	__sum16 checksum;
	union {
		struct { __be16 id; __be16 sequence; } echo;
		__be32 gateway;
		struct { __be16 __unused; __be16 mtu; } frag;
		__u8 reserved[4];
	} un;
};
struct icmp6hdr {
	__u8 icmp6_type;
	__u8 icmp6_code;
	__sum16 icmp6_cksum;
	union {
		__be32 un_data32[1];
		__be16 un_data16[2];
		__u8 un_data8[4];
		struct { __be16 identifier; __be16 sequence; } u_echo;
	} icmp6_dataun;
};
union tcp_word_hdr { struct tcphdr hdr; __be32 words[5]; };
struct ipv6_rt_hdr { __u8 nexthdr; __u8 hdrlen; __u8 type; __u8 segments_left; };
struct ipv6_sr_hdr {
	__u8 nexthdr;
	__u8 hdrlen;
	__u8 type;
	__u8 segments_left;
	__u8 first_segment;
	__u8 flags;
	__u16 tag;
	struct in6_addr segments[];
};
struct igmphdr { __u8 type; __u8 code; __sum16 csum; __be32 group; };
struct mpls_label { __be32 entry; };
struct vxlanhdr { __be32 vx_flags; __be32 vx_vni; };
struct genevehdr {
	u8 opt_len : 6, ver : 2;
	u8 rsvd1 : 6, critical : 1, oam : 1;
	__be16 proto_type;
	u8 vni[3];
	u8 rsvd2;
	u8 options[];
};
struct gre_base_hdr { __be16 flags; __be16 protocol; };
struct gre_full_hdr {
	struct gre_base_hdr fixed_header;
	__be16 csum;
	__be16 reserved1;
	__be32 key;
	__be32 seq;
}
	__attribute__((packed));

/* What helpers and kfuncs take. */
struct bpf_fib_lookup {
	__u8 family;
	__u8 l4_protocol;
	__be16 sport;
	__be16 dport;
	union { __u16 tot_len; __u16 mtu_result; } __attribute__((packed, aligned(2)));
	__u32 ifindex;
	union { __u8 tos; __be32 flowinfo; __u32 rt_metric; };
	union { __be32 ipv4_src; __u32 ipv6_src[4]; };
	union { __be32 ipv4_dst; __u32 ipv6_dst[4]; };
	union { struct { __be16 h_vlan_proto; __be16 h_vlan_TCI; }; __u32 tbid; };
	union { struct { __u32 mark; }; struct { __u8 smac[6]; __u8 dmac[6]; }; };
};
struct bpf_redir_neigh { __u32 nh_family; union { __be32 ipv4_nh; __u32 ipv6_nh[4]; }; };
struct bpf_sock_tuple {
	union {
		struct { __be32 saddr; __be32 daddr; __be16 sport; __be16 dport; } ipv4;
		struct { __be32 saddr[4]; __be32 daddr[4]; __be16 sport; __be16 dport; } ipv6;
	};
};
struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 mark;
	__u32 priority;
	__u32 src_ip4;
	__u32 src_ip6[4];
	__u32 src_port;
	__be16 dst_port;
	__u32 dst_ip4;
	__u32 dst_ip6[4];
	__u32 state;
	__s32 rx_queue_mapping;
};
struct bpf_tcp_sock {
	__u32 snd_cwnd;
	__u32 srtt_us;
	__u32 rtt_min;
	__u32 snd_ssthresh;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 mss_cache;
	__u32 ecn_flags;
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u32 packets_out;
	__u32 retrans_out;
	__u32 total_retrans;
	__u32 segs_in;
	__u32 data_segs_in;
	__u32 segs_out;
	__u32 data_segs_out;
	__u32 lost_out;
	__u32 sacked_out;
	__u64 bytes_received;
	__u64 bytes_acked;
	__u32 dsack_dups;
	__u32 delivered;
	__u32 delivered_ce;
	__u32 icsk_retransmits;
};
struct bpf_tcp_req_attrs {
	u32 rcv_tsval;
	u32 rcv_tsecr;
	u16 mss;
	u8 rcv_wscale;
	u8 snd_wscale;
	u8 ecn_ok;
	u8 wscale_ok;
	u8 sack_ok;
	u8 tstamp_ok;
	u8 usec_ts_ok;
	u8 reserved[3];
};
struct bpf_ct_opts {
	s32 netns_id;
	s32 error;
	u8 l4proto;
	u8 dir;
	u16 ct_zone_id;
	u8 ct_zone_dir;
	u8 reserved[3];
};
struct bpf_flowtable_opts { s32 error; };
typedef union { __be32 a4; __be32 a6[4]; struct in6_addr in6; } xfrm_address_t;
struct bpf_xfrm_state_opts {
	s32 error;
	s32 netns_id;
	u32 mark;
	xfrm_address_t daddr;
	__be32 spi;
	u8 proto;
	u16 family;
};
struct bpf_crypto_params {
	char type[14];
	u8 reserved[2];
	char algo[128];
	u8 key[256];
	u32 key_len;
	u32 authsize;
};
struct bpf_perf_event_value { __u64 counter; __u64 enabled; __u64 running; };
struct bpf_pidns_info { __u32 pid; __u32 tgid; };
struct bpf_devmap_val { __u32 ifindex; union { int fd; __u32 id; } bpf_prog; };
struct bpf_cpumap_val { __u32 qsize; union { int fd; __u32 id; } bpf_prog; };
struct bpf_lpm_trie_key { __u32 prefixlen; __u8 data[]; };
struct bpf_lpm_trie_key_hdr { __u32 prefixlen; };
struct bpf_lpm_trie_key_u8 {
	union { struct bpf_lpm_trie_key_hdr hdr; __u32 prefixlen; };
	__u8 data[];
};

/* What map values and objects hold. */
struct bpf_spin_lock { __u32 val; };
struct bpf_res_spin_lock { u32 val; };
struct bpf_timer { __u64 __opaque[2]; } __attribute__((aligned(8)));
struct bpf_wq { __u64 __opaque[2]; } __attribute__((aligned(8)));
struct bpf_task_work { __u64 __opaque; } __attribute__((aligned(8)));
struct bpf_dynptr { __u64 __opaque[2]; } __attribute__((aligned(8)));
struct bpf_list_head { __u64 __opaque[2]; } __attribute__((aligned(8)));
struct bpf_list_node { __u64 __opaque[3]; } __attribute__((aligned(8)));
struct bpf_rb_root { __u64 __opaque[2]; } __attribute__((aligned(8)));
struct bpf_rb_node { __u64 __opaque[4]; } __attribute__((aligned(8)));
struct bpf_refcount { __u32 __opaque[1]; } __attribute__((aligned(4)));
struct bpf_iter_num { __u64 __opaque[1]; } __attribute__((aligned(8)));
struct bpf_iter_bits { __u64 __opaque[2]; } __attribute__((aligned(8)));
struct bpf_iter_task { __u64 __opaque[3]; } __attribute__((aligned(8)));
struct bpf_iter_task_vma { __u64 __opaque[1]; } __attribute__((aligned(8)));
struct bpf_iter_css { __u64 __opaque[3]; } __attribute__((aligned(8)));
struct bpf_iter_css_task { __u64 __opaque[1]; } __attribute__((aligned(8)));
struct bpf_iter_kmem_cache { __u64 __opaque[1]; } __attribute__((aligned(8)));
struct bpf_iter_dmabuf { __u64 __opaque[1]; } __attribute__((aligned(8)));
typedef struct cpumask { unsigned long bits[128]; } cpumask_t;
struct bpf_cpumask { cpumask_t cpumask; refcount_t usage; };
struct bpf_crypto_ctx { void *tfm; u32 siv_len; refcount_t usage; };
struct bpf_key { void *key; bool has_ref; };
struct bpf_mem_alloc { void *cache; };

/* The kernel's own structures. */
struct possible_net_t_net { u32 hash_mix; s32 id; };
struct ns_common { unsigned int inum; };
struct net { refcount_t passive; struct ns_common ns; u64 net_cookie; };
struct net_device {
	char name[16];
	int ifindex;
	unsigned int flags;
	unsigned int mtu;
	unsigned short type;
	unsigned char addr_len;
	const unsigned char *dev_addr;
	unsigned int num_rx_queues;
	unsigned int num_tx_queues;
	struct { struct net *net; } nd_net;
};
struct sock_common {
	union { u64 skc_addrpair; struct { __be32 skc_daddr; __be32 skc_rcv_saddr; }; };
	union { unsigned int skc_hash; __u16 skc_u16hashes[2]; };
	union { u32 skc_portpair; struct { __be16 skc_dport; __u16 skc_num; }; };
	unsigned short skc_family;
	volatile unsigned char skc_state;
	int skc_bound_dev_if;
	struct { struct net *net; } skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	atomic64_t skc_cookie;
	refcount_t skc_refcnt;
};
struct sock {
	struct sock_common __sk_common;
	u32 sk_priority;
	u32 sk_mark;
	u16 sk_type;
	u16 sk_protocol;
	int sk_rcvbuf;
	int sk_sndbuf;
};
struct request_sock { struct sock_common __req_common; u16 mss; };
struct inet_sock { struct sock sk; __be32 inet_saddr; __be16 inet_sport; };
struct inet_connection_sock { struct inet_sock icsk_inet; u8 icsk_retransmits; };
struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_cwnd;
	u32 srtt_us;
	u32 snd_ssthresh;
	u32 rcv_nxt;
	u32 snd_nxt;
	u32 snd_una;
	u32 mss_cache;
	u64 bytes_received;
	u64 bytes_acked;
};
struct tcp6_sock { struct tcp_sock tcp; };
struct udp_sock { struct inet_sock inet; };
struct udp6_sock { struct udp_sock udp; };
struct unix_sock { struct sock sk; };
struct mptcp_sock { struct inet_connection_sock sk; u32 token; };
struct inet_timewait_sock { struct sock_common __tw_common; };
struct tcp_timewait_sock { struct inet_timewait_sock tw_sk; };
struct inet_request_sock { struct request_sock req; };
struct tcp_request_sock { struct inet_request_sock req; };

union nf_inet_addr {
	__u32 all[4];
	__be32 ip;
	__be32 ip6[4];
	struct in_addr in;
	struct in6_addr in6;
};
union nf_conntrack_man_proto {
	__be16 all;
	struct { __be16 port; } tcp;
	struct { __be16 port; } udp;
	struct { __be16 id; } icmp;
};
struct nf_conntrack_man { union nf_inet_addr u3; union nf_conntrack_man_proto u; u16 l3num; };
struct nf_conntrack_tuple {
	struct nf_conntrack_man src;
	struct {
		union nf_inet_addr u3;
		union {
			__be16 all;
			struct { __be16 port; } tcp;
			struct { __be16 port; } udp;
			struct { u8 type, code; } icmp;
		} u;
		u8 protonum;
		u8 dir;
	} dst;
};
struct nf_conntrack_tuple_hash { struct hlist_node hnnode; struct nf_conntrack_tuple tuple; };
struct nf_conntrack { refcount_t use; };
enum ip_conntrack_dir { IP_CT_DIR_ORIGINAL, IP_CT_DIR_REPLY, IP_CT_DIR_MAX };
enum ip_conntrack_status {
	IPS_EXPECTED = 1,
	IPS_SEEN_REPLY = 2,
	IPS_ASSURED = 4,
	IPS_CONFIRMED = 8,
	IPS_SRC_NAT = 16,
	IPS_DST_NAT = 32,
	IPS_DYING = 512,
	IPS_FIXED_TIMEOUT = 1024,
	IPS_OFFLOAD = 16384,
};
enum nf_nat_manip_type { NF_NAT_MANIP_SRC, NF_NAT_MANIP_DST };
struct nf_conn {
	struct nf_conntrack ct_general;
	u32 timeout;
	struct nf_conntrack_tuple_hash tuplehash[2];
	unsigned long status;
	u32 mark;
	u32 secmark;
};
struct nf_conn___init { struct nf_conn ct; };
struct flow_offload_tuple {
	union { struct in_addr src_v4; struct in6_addr src_v6; };
	union { struct in_addr dst_v4; struct in6_addr dst_v6; };
	struct { __be16 src_port; __be16 dst_port; };
	int iifidx;
	u8 l3proto;
	u8 l4proto;
};
struct flow_offload_tuple_rhash { void *node; struct flow_offload_tuple tuple; };
struct xfrm_id { xfrm_address_t daddr; __be32 spi; __u8 proto; };
struct xfrm_state {
	refcount_t refcnt;
	struct xfrm_id id;
	u32 if_id;
	struct { u32 reqid; u8 mode; u16 family; } props;
};

struct kernfs_node { const char *name; u64 id; };
struct cgroup_subsys_state {
	struct cgroup *cgroup;
	refcount_t refcnt;
	struct cgroup_subsys_state *parent;
};
struct cgroup { struct cgroup_subsys_state self; int level; struct kernfs_node *kn; };
struct css_set { struct cgroup *dfl_cgrp; refcount_t refcount; };
struct vm_area_struct { unsigned long vm_start, vm_end; unsigned long vm_flags; };
struct mm_struct { unsigned long start_code, end_code; atomic_t mm_users; };
struct cred { atomic_t usage; kuid_t uid; kgid_t gid; kuid_t euid; kgid_t egid; };
struct nsproxy { struct net *net_ns; };
struct thread_info { unsigned long flags; };
struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	void *stack;
	refcount_t usage;
	unsigned int flags;
	int on_cpu;
	int prio;
	struct mm_struct *mm;
	int exit_state;
	int exit_code;
	pid_t pid;
	pid_t tgid;
	struct task_struct *real_parent;
	struct task_struct *parent;
	struct task_struct *group_leader;
	u64 start_time;
	u64 start_boottime;
	const struct cred *real_cred;
	const struct cred *cred;
	char comm[16];
	struct nsproxy *nsproxy;
	struct css_set *cgroups;
	refcount_t rcu_users;
};
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};
struct file { unsigned int f_flags; u64 f_pos; };
struct kmem_cache { unsigned int size; const char *name; };

struct bpf_map {
	u32 map_type;
	u32 key_size;
	u32 value_size;
	u32 max_entries;
	u64 map_extra;
	u32 map_flags;
	u32 id;
	char name[16];
};
struct bpf_array { struct bpf_map map; u32 elem_size; u32 index_mask; };
struct bpf_prog { u16 pages; u32 type; u32 len; };
struct bpf_prog_aux { u32 id; u32 used_map_cnt; };

enum bpf_map_update_flags { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_EXIST = 2, BPF_F_LOCK = 4 };
enum bpf_ret_code {
	BPF_OK = 0,
	BPF_DROP = 2,
	BPF_REDIRECT = 7,
	BPF_LWT_REROUTE = 128,
	BPF_FLOW_DISSECTOR_CONTINUE = 129,
};
enum bpf_check_mtu_flags { BPF_MTU_CHK_SEGS = 1 };
enum bpf_check_mtu_ret {
	BPF_MTU_CHK_RET_SUCCESS,
	BPF_MTU_CHK_RET_FRAG_NEEDED,
	BPF_MTU_CHK_RET_SEGS_TOOBIG,
};
enum sk_action { SK_DROP = 0, SK_PASS };
enum pid_type { PIDTYPE_PID, PIDTYPE_TGID, PIDTYPE_PGID, PIDTYPE_SID, PIDTYPE_MAX };

/* Everything above is mentioned once by value, so that the compiler describes it in full. */
#define KEEP(type, name) type towpath_##name
#define STRUCT(name) KEEP(struct name, name)
#define ENUM(name) KEEP(enum name, name)
#define TYPEDEF(name) KEEP(name, typedef_##name)

ENUM(xdp_action); STRUCT(xdp_md); STRUCT(__sk_buff); STRUCT(xdp_buff);
STRUCT(xdp_frame); ENUM(xdp_rss_hash_type);
STRUCT(xdp_rxq_info); STRUCT(xdp_txq_info); STRUCT(net_device); STRUCT(net);
STRUCT(ethhdr); STRUCT(vlan_hdr); STRUCT(vlan_ethhdr); STRUCT(arphdr); STRUCT(iphdr);
STRUCT(ipv6hdr); STRUCT(ipv6_opt_hdr); STRUCT(frag_hdr); STRUCT(tcphdr); STRUCT(udphdr);
STRUCT(sctphdr); STRUCT(icmphdr); STRUCT(icmp6hdr); STRUCT(gre_full_hdr);
STRUCT(ipv6_rt_hdr); STRUCT(igmphdr); STRUCT(mpls_label); STRUCT(vxlanhdr);
KEEP(union tcp_word_hdr, tcp_word_hdr);
struct ipv6_sr_hdr *towpath_ipv6_sr_hdr(struct ipv6_sr_hdr *h) { return h; }
struct genevehdr *towpath_genevehdr(struct genevehdr *h) { return h; }
struct ip_auth_hdr *towpath_ip_auth_hdr(struct ip_auth_hdr *h) { return h; }
struct ip_esp_hdr *towpath_ip_esp_hdr(struct ip_esp_hdr *h) { return h; }
struct bpf_lpm_trie_key *towpath_bpf_lpm_trie_key(struct bpf_lpm_trie_key *k) { return k; }
struct bpf_lpm_trie_key_u8 *towpath_bpf_lpm_trie_key_u8(struct bpf_lpm_trie_key_u8 *k) { return k; }
STRUCT(bpf_fib_lookup); STRUCT(bpf_redir_neigh); STRUCT(bpf_sock_tuple); STRUCT(bpf_sock);
STRUCT(bpf_tcp_sock); STRUCT(bpf_tcp_req_attrs); STRUCT(bpf_ct_opts); STRUCT(bpf_flowtable_opts);
STRUCT(bpf_xfrm_state_opts); STRUCT(bpf_crypto_params); STRUCT(bpf_perf_event_value);
STRUCT(bpf_pidns_info); STRUCT(bpf_devmap_val); STRUCT(bpf_cpumap_val);
STRUCT(bpf_spin_lock); STRUCT(bpf_res_spin_lock); STRUCT(bpf_timer); STRUCT(bpf_wq);
STRUCT(bpf_task_work); STRUCT(bpf_dynptr); STRUCT(bpf_list_head); STRUCT(bpf_list_node);
STRUCT(bpf_rb_root); STRUCT(bpf_rb_node); STRUCT(bpf_refcount); STRUCT(bpf_iter_num);
STRUCT(bpf_iter_bits); STRUCT(bpf_iter_task); STRUCT(bpf_iter_task_vma); STRUCT(bpf_iter_css);
STRUCT(bpf_iter_css_task); STRUCT(bpf_iter_kmem_cache); STRUCT(bpf_iter_dmabuf);
STRUCT(bpf_cpumask); STRUCT(bpf_crypto_ctx); STRUCT(bpf_key); STRUCT(bpf_mem_alloc);
STRUCT(sock); STRUCT(request_sock); STRUCT(tcp6_sock); STRUCT(udp6_sock); STRUCT(unix_sock);
STRUCT(mptcp_sock); STRUCT(tcp_timewait_sock); STRUCT(tcp_request_sock);
STRUCT(nf_conn); STRUCT(nf_conn___init); ENUM(ip_conntrack_dir); ENUM(ip_conntrack_status);
ENUM(nf_nat_manip_type); STRUCT(flow_offload_tuple_rhash); STRUCT(xfrm_state);
STRUCT(cgroup); STRUCT(css_set); STRUCT(vm_area_struct); STRUCT(mm_struct); STRUCT(cred);
STRUCT(nsproxy); STRUCT(task_struct); STRUCT(pt_regs); STRUCT(file); STRUCT(kmem_cache);
STRUCT(bpf_array); STRUCT(bpf_prog); STRUCT(bpf_prog_aux); STRUCT(kernfs_node);
STRUCT(list_head); STRUCT(rb_node); STRUCT(callback_head);
ENUM(bpf_map_update_flags); ENUM(bpf_ret_code); ENUM(bpf_check_mtu_flags);
ENUM(bpf_check_mtu_ret); ENUM(sk_action); ENUM(pid_type);
TYPEDEF(u64); TYPEDEF(__s8); TYPEDEF(s64); TYPEDEF(size_t); TYPEDEF(ssize_t); TYPEDEF(ktime_t);
TYPEDEF(gfp_t); TYPEDEF(umode_t); TYPEDEF(__be64); TYPEDEF(__wsum); TYPEDEF(__le16);
TYPEDEF(uintptr_t); TYPEDEF(__s16); TYPEDEF(s16); TYPEDEF(__s64); TYPEDEF(atomic64_t);
