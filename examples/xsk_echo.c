// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sends back every packet of a queue with source and destination exchanged. The same source for
// the kernel's sockets and for Towpath's:
//
//   cc xsk_echo.c -lxdp -lbpf
//   cc -DWITH_TOWPATH xsk_echo.c -ltowpath_xsk_client
//
// usage: xsk_echo IFNAME QUEUE PACKETS [SEND]
// Sends SEND packets of its own first. Ends after PACKETS were received, and says what they were.
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

#define FRAME_BYTES 4096
#define FRAMES 1024
#define BATCH 64

struct app {
	struct xsk_umem *umem;
	struct xsk_socket *socket;
	struct xsk_ring_prod fill, tx;
	struct xsk_ring_cons rx, comp;
	void *area;
	unsigned long received, bytes, sum, outstanding;
};

static int fail(const char *what, int error)
{
	fprintf(stderr, "xsk_echo: %s: %s\n", what, strerror(-error));
	return 1;
}

static int open_app(struct app *app, const char *ifname, unsigned int queue)
{
	struct xsk_socket_config config = {
		.rx_size = XSK_RING_CONS__DEFAULT_NUM_DESCS,
		.tx_size = XSK_RING_PROD__DEFAULT_NUM_DESCS,
		.bind_flags = XDP_COPY | XDP_USE_NEED_WAKEUP,
	};
	__u64 size = (__u64)FRAMES * FRAME_BYTES;
	__u32 index, count = FRAMES / 2;
	int error;

	app->area = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (app->area == MAP_FAILED)
		return fail("memory", -errno);
	error = xsk_umem__create(&app->umem, app->area, size, &app->fill, &app->comp, NULL);
	if (error)
		return fail("umem", error);
	error = xsk_socket__create(&app->socket, ifname, queue, app->umem, &app->rx, &app->tx,
				   &config);
	if (error)
		return fail("socket", error);
	if (xsk_ring_prod__reserve(&app->fill, count, &index) != count)
		return fail("fill ring", -ENOBUFS);
	for (__u32 i = 0; i < count; i++)
		*xsk_ring_prod__fill_addr(&app->fill, index + i) = (__u64)i * FRAME_BYTES;
	xsk_ring_prod__submit(&app->fill, count);
	return 0;
}

static void kick(struct app *app)
{
	if (app->outstanding && xsk_ring_prod__needs_wakeup(&app->tx))
		sendto(xsk_socket__fd(app->socket), NULL, 0, MSG_DONTWAIT, NULL, 0);
}

// Queues packets of our own; they use the upper half of the memory.
static void transmit(struct app *app, __u32 count)
{
	__u32 index;

	if (xsk_ring_prod__reserve(&app->tx, count, &index) != count)
		return;
	for (__u32 i = 0; i < count; i++) {
		struct xdp_desc *desc = xsk_ring_prod__tx_desc(&app->tx, index + i);
		unsigned char *data;

		desc->addr = (__u64)(FRAMES / 2 + i) * FRAME_BYTES;
		desc->len = 60 + i % 1000;
		desc->options = 0;
		data = xsk_umem__get_data(app->area, desc->addr);
		memset(data, i, desc->len);
		memset(data, 0xff, 6);
		memcpy(data + 12, "\x88\xb5", 2);
	}
	xsk_ring_prod__submit(&app->tx, count);
	app->outstanding += count;
}

// Chunks of what was sent go back to where they came from.
static void complete(struct app *app)
{
	__u32 from, to, count = xsk_ring_cons__peek(&app->comp, BATCH, &from);

	for (__u32 i = 0; i < count; i++) {
		__u64 addr = *xsk_ring_cons__comp_addr(&app->comp, from + i);

		if (addr < (__u64)FRAMES / 2 * FRAME_BYTES &&
		    xsk_ring_prod__reserve(&app->fill, 1, &to) == 1) {
			*xsk_ring_prod__fill_addr(&app->fill, to) = addr;
			xsk_ring_prod__submit(&app->fill, 1);
		}
	}
	xsk_ring_cons__release(&app->comp, count);
	app->outstanding -= count;
}

// Receives a batch and sends back what there is room for.
static void echo(struct app *app, int sends)
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

		app->received++;
		app->bytes += desc->len;
		for (__u32 at = 14; at < desc->len; at++)
			app->sum = app->sum * 31 + data[at];
		if (!sends) {
			*xsk_ring_prod__fill_addr(out, to + i) = desc->addr;
			continue;
		}
		memcpy(mac, data, 6);
		memmove(data, data + 6, 6);
		memcpy(data + 6, mac, 6);
		*xsk_ring_prod__tx_desc(out, to + i) = *desc;
	}
	xsk_ring_prod__submit(out, count);
	xsk_ring_cons__release(&app->rx, count);
	app->outstanding += sends ? count : 0;
}

int main(int argc, char **argv)
{
	static struct app app;
	unsigned long packets, own;
	struct pollfd poll_fd = {.events = POLLIN};

	if (argc < 4) {
		fprintf(stderr, "usage: xsk_echo IFNAME QUEUE PACKETS [SEND]\n");
		return 2;
	}
	packets = strtoul(argv[3], NULL, 0);
	own = argc > 4 ? strtoul(argv[4], NULL, 0) : 0;
	if (open_app(&app, argv[1], strtoul(argv[2], NULL, 0)))
		return 1;
	poll_fd.fd = xsk_socket__fd(app.socket);
	transmit(&app, own < FRAMES / 2 ? own : FRAMES / 2);
	while (app.received < packets) {
		kick(&app);
		echo(&app, own == 0);
		complete(&app);
		if (app.received < packets)
			poll(&poll_fd, 1, app.outstanding ? 1 : 1000);
	}
	while (app.outstanding) {
		kick(&app);
		complete(&app);
	}
	printf("%lu packets, %lu bytes, sum %lx\n", app.received, app.bytes, app.sum);
	xsk_socket__delete(app.socket);
	return xsk_umem__delete(app.umem) ? 1 : 0;
}
