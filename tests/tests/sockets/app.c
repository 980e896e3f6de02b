// SPDX-License-Identifier: MIT OR Apache-2.0
//
// An AF_XDP application, once for libxdp and once for Towpath: the include is the difference.
//
// usage: app (receive|echo|transmit) IFNAME PACKETS [FLAGS]
//        app refusals IFNAME
//
// FLAGS are bind flags beside XDP_COPY or XDP_ZEROCOPY. Says what it saw, packet by packet, and
// what was counted.
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#ifdef WITH_TOWPATH
#include <towpath/xsk.h>
#else
#include <xdp/xsk.h>
#endif
#ifndef XDP_PKT_CONTD
#define XDP_PKT_CONTD 1
#endif

#define FRAME_BYTES 2048
#define FRAMES 1024
#define TO_SEND (FRAMES / 2)
#define BATCH 32
#define PACKET_BYTES_MAX 4096
#define PIECE_BYTES 1500

struct app {
	struct xsk_umem *umem;
	struct xsk_socket *socket;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons rx, comp;
	unsigned char *area;
	unsigned long packets, pieces, bytes, sum, outstanding;
};

static int fail(const char *what, int error)
{
	fprintf(stderr, "app: %s: %s\n", what, strerror(error < 0 ? -error : error));
	return 1;
}

static const struct xsk_umem_config usual = {
	.fill_size = 1024,
	.comp_size = 1024,
	.frame_size = FRAME_BYTES,
	.frame_headroom = 0,
	.flags = 0,
};

static void *memory(void)
{
	void *area = mmap(NULL, FRAMES * FRAME_BYTES, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return area == MAP_FAILED ? NULL : area;
}

static int open_app(struct app *app, const char *ifname, unsigned int flags)
{
	struct xsk_socket_config config = {
		.rx_size = 512,
		.tx_size = 512,
		.bind_flags = flags,
	};
	__u32 index;
	int error;

	app->area = memory();
	if (!app->area)
		return fail("memory", errno);
	error = xsk_umem__create(&app->umem, app->area, FRAMES * FRAME_BYTES, &app->fill,
				 &app->comp, &usual);
	if (error)
		return fail("umem", error);
	if (xsk_ring_prod__reserve(&app->fill, TO_SEND, &index) != TO_SEND)
		return fail("fill ring", ENOBUFS);
	for (__u32 i = 0; i < TO_SEND; i++)
		*xsk_ring_prod__fill_addr(&app->fill, index + i) = (__u64)i * FRAME_BYTES;
	xsk_ring_prod__submit(&app->fill, TO_SEND);
	error = xsk_socket__create(&app->socket, ifname, 0, app->umem, &app->rx, &app->tx,
				   &config);
	return error ? fail("socket", error) : 0;
}

static void kick(struct app *app)
{
	if (app->outstanding && xsk_ring_prod__needs_wakeup(&app->tx))
		sendto(xsk_socket__fd(app->socket), NULL, 0, MSG_DONTWAIT, NULL, 0);
}

// Chunks of packets that were sent go back to where they came from.
static void complete(struct app *app)
{
	__u32 from, to, count = xsk_ring_cons__peek(&app->comp, BATCH, &from);

	for (__u32 i = 0; i < count; i++) {
		__u64 addr = *xsk_ring_cons__comp_addr(&app->comp, from + i);

		if (addr < (__u64)TO_SEND * FRAME_BYTES &&
		    xsk_ring_prod__reserve(&app->fill, 1, &to) == 1) {
			*xsk_ring_prod__fill_addr(&app->fill, to) = addr;
			xsk_ring_prod__submit(&app->fill, 1);
		}
	}
	xsk_ring_cons__release(&app->comp, count);
	app->outstanding -= count;
}

// Adds a piece to the sums; says what the packet was when it is its last.
static void look(struct app *app, const struct xdp_desc *desc, const unsigned char *data)
{
	int continues = desc->options & XDP_PKT_CONTD;

	for (__u32 at = 0; at < desc->len; at++)
		app->sum = app->sum * 31 + data[at];
	app->bytes += desc->len;
	app->pieces++;
	printf("%s%u at %u", app->pieces == 1 ? "" : " + ", desc->len,
	       (unsigned int)(desc->addr % FRAME_BYTES));
	if (continues)
		return;
	printf(" = %lu, sum %016lx\n", app->bytes, app->sum);
	app->packets++;
	app->pieces = app->bytes = app->sum = 0;
}

// Receives what is there; sends it back with the addresses exchanged, or gives its chunks back.
static void receive(struct app *app, int sends)
{
	__u32 from, to, count = xsk_ring_cons__peek(&app->rx, BATCH, &from);
	struct xsk_ring_prod *out = sends ? &app->tx : &app->fill;

	if (!count)
		return;
	if (xsk_ring_prod__reserve(out, count, &to) != count) {
		xsk_ring_cons__cancel(&app->rx, count);
		return;
	}
	for (__u32 i = 0; i < count; i++) {
		const struct xdp_desc *desc = xsk_ring_cons__rx_desc(&app->rx, from + i);
		unsigned char *data = xsk_umem__get_data(app->area, desc->addr), mac[6];
		int is_first = app->pieces == 0;

		look(app, desc, data);
		if (!sends) {
			*xsk_ring_prod__fill_addr(out, to + i) = desc->addr;
			continue;
		}
		if (is_first) {
			memcpy(mac, data, 6);
			memmove(data, data + 6, 6);
			memcpy(data + 6, mac, 6);
		}
		*xsk_ring_prod__tx_desc(out, to + i) = *desc;
	}
	xsk_ring_prod__submit(out, count);
	xsk_ring_cons__release(&app->rx, count);
	app->outstanding += sends ? count : 0;
}

// Packet `number` as this application makes it.
static __u32 make(unsigned char *packet, __u32 number, int is_long)
{
	__u32 len = is_long ? 60 + number * 97 % 3000 : 60 + number % 1000;

	for (__u32 at = 0; at < len; at++)
		packet[at] = number + at;
	memset(packet, 0xff, 6);
	memcpy(packet + 6, "\x02\x00\x00\x00\x00\x07\x88\xb5", 8);
	return len;
}

// Queues one packet, in as many pieces as it takes.
static int transmit(struct app *app, __u32 number, int is_long)
{
	unsigned char packet[PACKET_BYTES_MAX];
	__u32 len = make(packet, number, is_long), index, pieces;

	pieces = (len + PIECE_BYTES - 1) / PIECE_BYTES;
	if (app->outstanding + pieces > BATCH)
		return 0;
	if (xsk_ring_prod__reserve(&app->tx, pieces, &index) != pieces)
		return 0;
	for (__u32 i = 0; i < pieces; i++) {
		struct xdp_desc *desc = xsk_ring_prod__tx_desc(&app->tx, index + i);
		__u32 at = i * PIECE_BYTES, rest = len - at;

		desc->addr = (__u64)(TO_SEND + (number * 4 + i) % TO_SEND) * FRAME_BYTES;
		desc->len = rest < PIECE_BYTES ? rest : PIECE_BYTES;
		desc->options = i + 1 < pieces ? XDP_PKT_CONTD : 0;
		memcpy(xsk_umem__get_data(app->area, desc->addr), packet + at, desc->len);
	}
	xsk_ring_prod__submit(&app->tx, pieces);
	app->outstanding += pieces;
	app->packets++;
	return 1;
}

static void say_what_was_counted(struct app *app)
{
	struct xdp_statistics stats;
	socklen_t len = sizeof(stats);
	int error;

	memset(&stats, 0, sizeof(stats));
#ifdef TOWPATH_XSK
	error = xsk_socket__getsockopt(app->socket, XDP_STATISTICS, &stats, &len);
#else
	error = getsockopt(xsk_socket__fd(app->socket), SOL_XDP, XDP_STATISTICS, &stats, &len);
#endif
	printf("%lu packets, error %d, dropped %llu, invalid %llu and %llu, full %llu\n",
	       app->packets, error, (unsigned long long)stats.rx_dropped,
	       (unsigned long long)stats.rx_invalid_descs,
	       (unsigned long long)stats.tx_invalid_descs,
	       (unsigned long long)stats.rx_ring_full);
}

// What the libraries answer to what makes no sense.
static int refusals(const char *ifname)
{
	struct { const char *what; __u32 frame, ring; const char *ifname; int queue, flags; } all[] = {
		{"a chunk of 1000", 1000, 512, ifname, 0, XDP_COPY},
		{"a chunk of 8192", 8192, 512, ifname, 0, XDP_COPY},
		{"a ring of 100", FRAME_BYTES, 100, ifname, 0, XDP_COPY},
		{"an interface that is not there", FRAME_BYTES, 512, "nowhere", 0, XDP_COPY},
		{"a queue that is not there", FRAME_BYTES, 512, ifname, 99, XDP_COPY},
		{"copy and no copy", FRAME_BYTES, 512, ifname, 0, XDP_COPY | XDP_ZEROCOPY},
		{"an unknown flag", FRAME_BYTES, 512, ifname, 0, 1 << 9},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct xsk_umem_config umem = usual;
		struct xsk_socket_config config = {.rx_size = all[i].ring, .tx_size = 512};
		struct app app = {.area = memory()};
		int error;

		umem.frame_size = all[i].frame;
		config.bind_flags = all[i].flags;
		config.libbpf_flags = XSK_LIBBPF_FLAGS__INHIBIT_PROG_LOAD;
		error = xsk_umem__create(&app.umem, app.area, FRAMES * FRAME_BYTES, &app.fill,
					 &app.comp, &umem);
		printf("%s: umem %d", all[i].what, error);
		if (!error)
			printf(" socket %d", xsk_socket__create(&app.socket, all[i].ifname,
								all[i].queue, app.umem, &app.rx,
								&app.tx, &config));
		printf("\n");
		if (!error)
			xsk_umem__delete(app.umem);
	}
	return 0;
}

static void run(struct app *app, const char *mode, unsigned long packets, int is_long)
{
	struct pollfd poll_fd = {.fd = xsk_socket__fd(app->socket), .events = POLLIN};
	int sends = !strcmp(mode, "transmit");

	while (app->packets < packets || app->outstanding) {
		if (sends)
			while (app->packets < packets && transmit(app, app->packets, is_long))
				;
		else if (app->packets < packets)
			receive(app, !strcmp(mode, "echo"));
		kick(app);
		complete(app);
		if (!sends && app->packets < packets)
			poll(&poll_fd, 1, app->outstanding ? 1 : 1000);
	}
}

int main(int argc, char **argv)
{
	static struct app app;
	unsigned int flags;

	if (argc == 3 && !strcmp(argv[1], "refusals"))
		return refusals(argv[2]);
	if (argc < 4) {
		fprintf(stderr, "usage: app (receive|echo|transmit) IFNAME PACKETS [FLAGS]\n");
		return 2;
	}
	flags = argc > 4 ? strtoul(argv[4], NULL, 0) : XDP_COPY;
	if (open_app(&app, argv[2], flags | XDP_USE_NEED_WAKEUP))
		return 1;
	fprintf(stderr, "ready\n");
	run(&app, argv[1], strtoul(argv[3], NULL, 0), flags & 16);
	say_what_was_counted(&app);
	xsk_socket__delete(app.socket);
	return xsk_umem__delete(app.umem) ? 1 : 0;
}
