// SPDX-License-Identifier: MIT OR Apache-2.0
//
// UDP sockets on a port of Towpath, without privileges and without a system call for a datagram:
// libtowpath_udp (docs/udp.md). Calls take and give batches, as recvmmsg(2) and sendmmsg(2) do.
//
// Functions give 0 or a count, or a negative error number. One thread may receive from a socket
// while another one sends.
#ifndef TOWPATH_UDP_H
#define TOWPATH_UDP_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifdef __cplusplus
extern "C" {
#endif

struct towpath_udp_stack;
struct towpath_udp_socket;

// A datagram, or a run of datagrams to send.
struct towpath_udp_datagram {
	// The payload. To receive: room for it.
	void *data;
	// Bytes of the payload. To receive: bytes of room; afterwards the datagram's length, which is
	// larger than the room if the datagram was cut (as with MSG_TRUNC).
	size_t len;
	// The destination; after receiving, the source.
	struct sockaddr_storage peer;
	// The source, for a socket bound to a wildcard; AF_UNSPEC is the route's choice. After
	// receiving, the destination.
	struct sockaddr_storage local;
	// To send: the length of all datagrams of a run but the last (UDP_SEGMENT); 0 is one datagram.
	uint16_t segment_size;
	// The two bits of explicit congestion notification (RFC 3168).
	uint8_t ecn;
	uint8_t reserved[5];
};

// Opens rings on all queues of a port. A NULL path is that of the environment variable
// TOWPATH_XSK, else the default one. -ENODEV: there is no such port; -ENOENT, -ECONNREFUSED,
// -EACCES: there is no daemon at the path, or this user may not connect to it.
int towpath_udp_open(const char *path, const char *port, struct towpath_udp_stack **stack);

// Closes the stack. Its sockets keep working. NULL is nothing to do.
void towpath_udp_close(struct towpath_udp_stack *stack);

// Other sockets of this user may bind the address and port in the same way (SO_REUSEPORT).
#define TOWPATH_UDP_REUSEPORT 1u

// Binds an address of the host and a port; port 0 asks for a free one. -EADDRINUSE,
// -EADDRNOTAVAIL as bind(2); -EINVAL: an unknown flag or family.
int towpath_udp_bind(struct towpath_udp_stack *stack, const struct sockaddr *address, socklen_t len,
		     unsigned int flags, struct towpath_udp_socket **socket);

// The same for a QUIC server: packets reach it by the server ID in their connection IDs, which has
// the plaintext format of QUIC-LB. `configuration` is 0 to 6; `server` is 0 to 65535, or with
// configuration 0 also -1, for a random one. -EEXIST: another socket of the address and port has
// the server ID.
int towpath_udp_bind_quic(struct towpath_udp_stack *stack, const struct sockaddr *address,
			  socklen_t len, unsigned int configuration, int server,
			  struct towpath_udp_socket **socket);

// The first bytes of the server's connection IDs, which have eight bytes. -ENOENT: the socket is
// not one of towpath_udp_bind_quic().
int towpath_udp_server_prefix(const struct towpath_udp_socket *socket, uint8_t prefix[3]);

// Leaves new connections to the other sockets of the address and port.
int towpath_udp_drain(struct towpath_udp_socket *socket);

// Closes a socket, and frees its address and port. NULL is nothing to do.
void towpath_udp_free(struct towpath_udp_socket *socket);

// The address and port that the socket is bound to.
int towpath_udp_getsockname(const struct towpath_udp_socket *socket,
			    struct sockaddr_storage *address);

// Receives up to `count` datagrams; 0: none has arrived.
int towpath_udp_recvmmsg(struct towpath_udp_socket *socket, struct towpath_udp_datagram *datagrams,
			 unsigned int count);

// Sends datagrams in order, and gives the number of leading ones that were taken. The error is
// that of the first one: -EAGAIN: there is no room; -EMSGSIZE: it is larger than the path's MTU;
// -ENETUNREACH, -EHOSTUNREACH: there is no way to its destination; -EINVAL: port 0, more than 64
// datagrams in a run; -EAFNOSUPPORT: its destination is of another family; -ENETDOWN, -EPIPE: the
// daemon is gone.
int towpath_udp_sendmmsg(struct towpath_udp_socket *socket,
			 const struct towpath_udp_datagram *datagrams, unsigned int count);

// Wait until a datagram is there, or until there is room for those of the last call that gave
// -EAGAIN, at most for a time in ms (-1: without limit). 1: it is so; 0: it is not;
// -ENOTCONN: the port or the daemon is gone.
int towpath_udp_wait_recv(struct towpath_udp_socket *socket, int timeout_ms);
int towpath_udp_wait_send(struct towpath_udp_socket *socket, int timeout_ms);

// The same for an event loop: request a wake-up; 1: none is there yet, so that one of the
// descriptors becomes readable later; 0: look again now.
int towpath_udp_arm_recv(struct towpath_udp_socket *socket);
int towpath_udp_arm_send(struct towpath_udp_socket *socket);

// The descriptors to poll for EPOLLIN | EPOLLET, up to `room` of them; gives how many there are.
// They are the socket's: do not read or close them.
int towpath_udp_recv_fds(const struct towpath_udp_socket *socket, int *fds, unsigned int room);
int towpath_udp_send_fds(const struct towpath_udp_socket *socket, int *fds, unsigned int room);

#ifdef __cplusplus
}
#endif

#endif
