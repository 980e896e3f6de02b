// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Calls of libtowpath_udp with wrong arguments. The argument is the daemon's socket; the host has
// the address 10.77.0.2.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <towpath/udp.h>

#define EXPECT(call, value)                                                                        \
	do {                                                                                       \
		int got = (call);                                                                  \
		if (got != (value)) {                                                              \
			fprintf(stderr, "line %d: %s: %d, not %d\n", __LINE__, #call, got, (value)); \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

static struct sockaddr_in in(const char *address, int port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

	inet_pton(AF_INET, address, &in.sin_addr);
	return in;
}

static void use_socket(struct towpath_udp_socket *socket)
{
	struct towpath_udp_datagram datagram = {0};
	struct sockaddr_in to = in("10.77.0.1", 0);
	char payload[2000] = "";
	uint8_t prefix[3];
	int fds[1];

	EXPECT(towpath_udp_server_prefix(socket, prefix), -ENOENT);
	EXPECT(towpath_udp_server_prefix(socket, NULL), -EINVAL);
	EXPECT(towpath_udp_drain(socket), -EINVAL);
	EXPECT(towpath_udp_getsockname(socket, NULL), -EINVAL);
	EXPECT(towpath_udp_recvmmsg(socket, NULL, 1), -EINVAL);
	EXPECT(towpath_udp_recvmmsg(socket, NULL, 0), 0);
	EXPECT(towpath_udp_recvmmsg(socket, &datagram, 1), 0);
	EXPECT(towpath_udp_sendmmsg(socket, NULL, 1), -EINVAL);
	EXPECT(towpath_udp_sendmmsg(socket, &datagram, 1), -EDESTADDRREQ);
	datagram.peer.ss_family = AF_UNIX;
	EXPECT(towpath_udp_sendmmsg(socket, &datagram, 1), -EAFNOSUPPORT);
	memcpy(&datagram.peer, &to, sizeof(to));
	EXPECT(towpath_udp_sendmmsg(socket, &datagram, 1), -EINVAL);
	to.sin_port = htons(9);
	memcpy(&datagram.peer, &to, sizeof(to));
	datagram.len = 1;
	EXPECT(towpath_udp_sendmmsg(socket, &datagram, 1), -EFAULT);
	datagram.data = payload;
	datagram.len = sizeof(payload);
	datagram.segment_size = 1;
	EXPECT(towpath_udp_sendmmsg(socket, &datagram, 1), -EINVAL);
	EXPECT(towpath_udp_wait_recv(socket, 0), 0);
	EXPECT(towpath_udp_arm_recv(socket), 1);
	EXPECT(towpath_udp_recv_fds(socket, NULL, 0), 2);
	EXPECT(towpath_udp_recv_fds(socket, fds, 1), 2);
	EXPECT(towpath_udp_send_fds(socket, fds, 1), 2);
}

int main(int argc, char **argv)
{
	struct sockaddr_in own = in("10.77.0.2", 7500), other = in("10.77.0.99", 7500);
	struct sockaddr *address = (struct sockaddr *)&own;
	struct towpath_udp_socket *socket, *second;
	struct towpath_udp_stack *stack;
	struct sockaddr_storage name;
	socklen_t len = sizeof(own);
	uint8_t prefix[3];

	if (argc != 2)
		return 2;
	EXPECT(towpath_udp_open("/nonexistent", "p0", &stack), -ENOENT);
	EXPECT(towpath_udp_open(argv[1], NULL, &stack), -EINVAL);
	EXPECT(towpath_udp_open(argv[1], "p0", NULL), -EINVAL);
	EXPECT(towpath_udp_open(argv[1], "p1", &stack), -ENODEV);
	EXPECT(towpath_udp_open(argv[1], "p0", &stack), 0);
	EXPECT(towpath_udp_bind(NULL, address, len, 0, &socket), -EINVAL);
	EXPECT(towpath_udp_bind(stack, NULL, len, 0, &socket), -EINVAL);
	EXPECT(towpath_udp_bind(stack, address, 7, 0, &socket), -EINVAL);
	EXPECT(towpath_udp_bind(stack, address, len, 2, &socket), -EINVAL);
	EXPECT(towpath_udp_bind(stack, (struct sockaddr *)&other, len, 0, &socket), -EADDRNOTAVAIL);
	EXPECT(towpath_udp_bind(stack, address, len, 0, &socket), 0);
	EXPECT(towpath_udp_bind(stack, address, len, 0, &second), -EADDRINUSE);
	EXPECT(towpath_udp_getsockname(socket, &name), 0);
	EXPECT(memcmp(&name, &own, sizeof(own)), 0);
	use_socket(socket);
	towpath_udp_free(socket);
	EXPECT(towpath_udp_bind_quic(stack, address, len, 7, 0, &socket), -EINVAL);
	EXPECT(towpath_udp_bind_quic(stack, address, len, 0, 65536, &socket), -EINVAL);
	EXPECT(towpath_udp_bind_quic(stack, address, len, 1, -1, &socket), -EINVAL);
	EXPECT(towpath_udp_bind_quic(stack, address, len, 1, 0x203, &socket), 0);
	EXPECT(towpath_udp_server_prefix(socket, prefix), 0);
	EXPECT(memcmp(prefix, "\x27\x02\x03", 3), 0);
	towpath_udp_close(stack);
	EXPECT(towpath_udp_drain(socket), 0);
	towpath_udp_free(socket);
	towpath_udp_free(NULL);
	towpath_udp_close(NULL);
	return 0;
}
