// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Sends every UDP datagram that arrives at an address back to its sender, until one says "stop".
//
// usage: udp_echo SOCKET PORT ADDRESS UDP-PORT
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <towpath/udp.h>

#define BATCH 32
#define ROOM 2048

static int failed(const char *what, int error)
{
	fprintf(stderr, "udp_echo: %s: %s\n", what, strerror(-error));
	return 1;
}

// An IPv4 or IPv6 address and a port.
static socklen_t address_of(const char *text, const char *port, struct sockaddr_storage *address)
{
	struct sockaddr_in *four = (void *)address;
	struct sockaddr_in6 *six = (void *)address;

	memset(address, 0, sizeof(*address));
	if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons(atoi(port));
		return sizeof(*four);
	}
	if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(atoi(port));
		return sizeof(*six);
	}
	return 0;
}

// Sends a batch, however full the ring is.
static int send_all(struct towpath_udp_socket *socket, struct towpath_udp_datagram *datagrams,
		    int count)
{
	while (count > 0) {
		int sent = towpath_udp_sendmmsg(socket, datagrams, count);

		if (sent == -EAGAIN)
			sent = towpath_udp_wait_send(socket, -1) < 0 ? -ENOTCONN : 0;
		if (sent < 0)
			return sent;
		datagrams += sent;
		count -= sent;
	}
	return 0;
}

int main(int argc, char **argv)
{
	static char memory[BATCH][ROOM];
	struct towpath_udp_datagram batch[BATCH];
	struct towpath_udp_socket *socket;
	struct towpath_udp_stack *stack;
	struct sockaddr_storage address;
	socklen_t len;
	int result;

	if (argc != 5 || !(len = address_of(argv[3], argv[4], &address))) {
		fprintf(stderr, "usage: udp_echo SOCKET PORT ADDRESS UDP-PORT\n");
		return 2;
	}
	result = towpath_udp_open(argv[1], argv[2], &stack);
	if (result)
		return failed("open", result);
	result = towpath_udp_bind(stack, (struct sockaddr *)&address, len, 0, &socket);
	if (result)
		return failed("bind", result);
	for (bool stops = false; !stops;) {
		int count;

		memset(batch, 0, sizeof(batch));
		for (int i = 0; i < BATCH; i++) {
			batch[i].data = memory[i];
			batch[i].len = ROOM;
		}
		count = towpath_udp_recvmmsg(socket, batch, BATCH);
		if (count == 0)
			count = towpath_udp_wait_recv(socket, -1) < 0 ? -ENOTCONN : 0;
		if (count < 0)
			return failed("receive", count);
		for (int i = 0; i < count; i++)
			stops |= batch[i].len == 4 && !memcmp(batch[i].data, "stop", 4);
		// A datagram goes back to its peer, from the address to which it was sent.
		result = send_all(socket, batch, count);
		if (result)
			return failed("send", result);
	}
	towpath_udp_free(socket);
	towpath_udp_close(stack);
	return 0;
}
