// SPDX-License-Identifier: MIT OR Apache-2.0
//
// AF_XDP sockets served by Towpath, with the functions of libxdp's <xdp/xsk.h>: porting an
// application is a change of include and of library (-ltowpath_xsk_client). docs/sockets.md says
// what differs. Where both headers could be meant, TOWPATH_XSK is defined here.
//
// The daemon's socket is /run/towpath/xsk.sock, or what the environment says in TOWPATH_XSK.
#ifndef TOWPATH_XSK_H
#define TOWPATH_XSK_H
#define TOWPATH_XSK 1

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <linux/if_xdp.h>
#include <linux/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef XDP_USE_SG
#define XDP_USE_SG (1 << 4)
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD (1 << 0)
#endif

// The first members are those of libxdp. Use the functions below.
#define TOWPATH_XSK_RING(name) \
	struct name { \
		__u32 cached_prod; \
		__u32 cached_cons; \
		__u32 mask; \
		__u32 size; \
		__u32 *producer; \
		__u32 *consumer; \
		void *ring; \
		__u32 *flags; \
		int bell; \
		__u32 idle; \
	}

TOWPATH_XSK_RING(xsk_ring_prod);
TOWPATH_XSK_RING(xsk_ring_cons);

struct xsk_umem;
struct xsk_socket;

static inline __u64 *xsk_ring_prod__fill_addr(struct xsk_ring_prod *fill, __u32 idx)
{
	return (__u64 *)fill->ring + (idx & fill->mask);
}

static inline const __u64 *xsk_ring_cons__comp_addr(const struct xsk_ring_cons *comp, __u32 idx)
{
	return (const __u64 *)comp->ring + (idx & comp->mask);
}

static inline struct xdp_desc *xsk_ring_prod__tx_desc(struct xsk_ring_prod *tx, __u32 idx)
{
	return (struct xdp_desc *)tx->ring + (idx & tx->mask);
}

static inline const struct xdp_desc *xsk_ring_cons__rx_desc(const struct xsk_ring_cons *rx,
							    __u32 idx)
{
	return (const struct xdp_desc *)rx->ring + (idx & rx->mask);
}

// Whether the daemon sleeps and wants sendto() before it goes on. Ask after submitting.
static inline int xsk_ring_prod__needs_wakeup(const struct xsk_ring_prod *prod)
{
	// Either the daemon sees what was submitted, or we see that it sleeps.
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return __atomic_load_n(prod->flags, __ATOMIC_RELAXED) & XDP_RING_NEED_WAKEUP;
}

static inline __u32 xsk_prod_nb_free(struct xsk_ring_prod *prod, __u32 nb)
{
	// The consumer's index is kept with the ring's size added.
	if (prod->cached_cons - prod->cached_prod < nb)
		prod->cached_cons =
			__atomic_load_n(prod->consumer, __ATOMIC_ACQUIRE) + prod->size;
	return prod->cached_cons - prod->cached_prod;
}

// An empty rx ring, seen many times: asks the daemon to make the descriptor readable for the next
// packet. Until then it has been readable since the last one, so poll() never misses any.
static inline void towpath_xsk_arm(struct xsk_ring_cons *cons)
{
	char message[8];

	cons->idle = 0;
	while (recv(cons->bell, message, sizeof(message), MSG_DONTWAIT) > 0)
		;
	__atomic_store_n(cons->flags, XDP_RING_NEED_WAKEUP, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

#define TOWPATH_XSK_IDLE_PEEKS 64

static inline __u32 xsk_cons_nb_avail(struct xsk_ring_cons *cons, __u32 nb)
{
	__u32 entries = cons->cached_prod - cons->cached_cons;

	if (entries == 0) {
		cons->cached_prod = __atomic_load_n(cons->producer, __ATOMIC_ACQUIRE);
		entries = cons->cached_prod - cons->cached_cons;
		if (entries == 0 && cons->bell >= 0 && ++cons->idle >= TOWPATH_XSK_IDLE_PEEKS) {
			towpath_xsk_arm(cons);
			cons->cached_prod = __atomic_load_n(cons->producer, __ATOMIC_ACQUIRE);
			entries = cons->cached_prod - cons->cached_cons;
		}
	}
	return entries > nb ? nb : entries;
}

static inline __u32 xsk_ring_prod__reserve(struct xsk_ring_prod *prod, __u32 nb, __u32 *idx)
{
	if (xsk_prod_nb_free(prod, nb) < nb)
		return 0;
	*idx = prod->cached_prod;
	prod->cached_prod += nb;
	return nb;
}

static inline void xsk_ring_prod__cancel(struct xsk_ring_prod *prod, __u32 nb)
{
	prod->cached_prod -= nb;
}

static inline void xsk_ring_prod__submit(struct xsk_ring_prod *prod, __u32 nb)
{
	__atomic_store_n(prod->producer, *prod->producer + nb, __ATOMIC_RELEASE);
}

static inline __u32 xsk_ring_cons__peek(struct xsk_ring_cons *cons, __u32 nb, __u32 *idx)
{
	__u32 entries = xsk_cons_nb_avail(cons, nb);

	if (entries > 0) {
		*idx = cons->cached_cons;
		cons->cached_cons += entries;
	}
	return entries;
}

static inline void xsk_ring_cons__cancel(struct xsk_ring_cons *cons, __u32 nb)
{
	cons->cached_cons -= nb;
}

static inline void xsk_ring_cons__release(struct xsk_ring_cons *cons, __u32 nb)
{
	__atomic_store_n(cons->consumer, *cons->consumer + nb, __ATOMIC_RELEASE);
}

static inline void *xsk_umem__get_data(void *umem_area, __u64 addr)
{
	return (char *)umem_area + addr;
}

static inline __u64 xsk_umem__extract_addr(__u64 addr)
{
	return addr & XSK_UNALIGNED_BUF_ADDR_MASK;
}

static inline __u64 xsk_umem__extract_offset(__u64 addr)
{
	return addr >> XSK_UNALIGNED_BUF_OFFSET_SHIFT;
}

static inline __u64 xsk_umem__add_offset_to_addr(__u64 addr)
{
	return xsk_umem__extract_addr(addr) + xsk_umem__extract_offset(addr);
}

int xsk_umem__fd(const struct xsk_umem *umem);

// Ours: what is known of a received packet is told in front of it, if its descriptor has
// XDP_TX_METADATA among its options. Goes with XDP_UMEM_TX_METADATA_LEN, and a tx_metadata_len
// of at least 56: at addr - tx_metadata_len is an empty struct xsk_tx_metadata, and 24 bytes
// behind that this.
#define XDP_UMEM_RX_METADATA (1U << 31)

struct towpath_rx_metadata {
	__u32 flags; // what there is: 1 timestamp, 2 hash, 4 VLAN tag, 8 checksum
	__u32 hash;
	__u32 rss_type;    // enum xdp_rss_hash_type
	__u16 vlan_proto;  // in network byte order
	__u16 vlan_tci;
	__u64 timestamp;   // nanoseconds
	__u32 ip_summed;   // 1: nothing is known, 2: it was right, 4: the sum is cksum
	__u32 cksum;
};

// A descriptor for poll(), and for sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0) to wake the daemon.
int xsk_socket__fd(const struct xsk_socket *xsk);

#define XSK_RING_CONS__DEFAULT_NUM_DESCS 2048
#define XSK_RING_PROD__DEFAULT_NUM_DESCS 2048
#define XSK_UMEM__DEFAULT_FRAME_SHIFT 12
#define XSK_UMEM__DEFAULT_FRAME_SIZE (1 << XSK_UMEM__DEFAULT_FRAME_SHIFT)
#define XSK_UMEM__DEFAULT_FRAME_HEADROOM 0
#define XSK_UMEM__DEFAULT_FLAGS 0

struct xsk_umem_config {
	__u32 fill_size;
	__u32 comp_size;
	__u32 frame_size;
	__u32 frame_headroom;
	__u32 flags;
};

// As libxdp 1.5 has them. fd is 0, or a connection to the daemon that somebody else opened.
struct xsk_umem_opts {
	size_t sz;
	int fd;
	__u64 size;
	__u32 fill_size;
	__u32 comp_size;
	__u32 frame_size;
	__u32 frame_headroom;
	__u32 flags;
	__u32 tx_metadata_len;
};

#define XSK_LIBBPF_FLAGS__INHIBIT_PROG_LOAD (1 << 0)
#define XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD (1 << 0)

struct xsk_socket_config {
	__u32 rx_size;
	__u32 tx_size;
	union {
		__u32 libbpf_flags;
		__u32 libxdp_flags;
	};
	__u32 xdp_flags;
	__u16 bind_flags;
};

// Each gives 0 or a negative error number. config may be NULL.
int xsk_umem__create(struct xsk_umem **umem, void *umem_area, __u64 size,
		     struct xsk_ring_prod *fill, struct xsk_ring_cons *comp,
		     const struct xsk_umem_config *config);
int xsk_umem__create_with_fd(struct xsk_umem **umem, int fd, void *umem_area, __u64 size,
			     struct xsk_ring_prod *fill, struct xsk_ring_cons *comp,
			     const struct xsk_umem_config *config);
// NULL and errno when it fails.
struct xsk_umem *xsk_umem__create_opts(void *umem_area, struct xsk_ring_prod *fill,
				       struct xsk_ring_cons *comp, struct xsk_umem_opts *opts);
int xsk_socket__create(struct xsk_socket **xsk, const char *ifname, __u32 queue_id,
		       struct xsk_umem *umem, struct xsk_ring_cons *rx,
		       struct xsk_ring_prod *tx, const struct xsk_socket_config *config);
int xsk_socket__create_shared(struct xsk_socket **xsk, const char *ifname, __u32 queue_id,
			      struct xsk_umem *umem, struct xsk_ring_cons *rx,
			      struct xsk_ring_prod *tx, struct xsk_ring_prod *fill,
			      struct xsk_ring_cons *comp,
			      const struct xsk_socket_config *config);

// 0, or -EBUSY while sockets use the memory.
int xsk_umem__delete(struct xsk_umem *umem);
void xsk_socket__delete(struct xsk_socket *xsk);

// Not in libxdp.

// getsockopt(xsk_socket__fd(xsk), SOL_XDP, ...): 0 or a negative error number.
int xsk_socket__getsockopt(const struct xsk_socket *xsk, int optname, void *optval,
			   socklen_t *optlen);
// setsockopt(xsk_socket__fd(xsk), level, ...): SOL_XDP, or SOL_SOCKET with SO_BUSY_POLL,
// SO_PREFER_BUSY_POLL and SO_BUSY_POLL_BUDGET. 0 or a negative error number.
int xsk_socket__setsockopt(const struct xsk_socket *xsk, int level, int optname,
			   const void *optval, socklen_t optlen);
// sendto(xsk_socket__fd(xsk), NULL, 0, MSG_DONTWAIT, NULL, 0) without a signal.
int xsk_socket__kick(const struct xsk_socket *xsk);
// Has the frames of the socket's queue delivered to it, as xsk_socket__create does unless it is
// told XSK_LIBXDP_FLAGS__INHIBIT_PROG_LOAD.
int xsk_socket__steer(const struct xsk_socket *xsk);
// The socket's number, to put it into an XSKMAP by the daemon's interface.
__u32 xsk_socket__id(const struct xsk_socket *xsk);

#ifdef __cplusplus
}
#endif

#endif
