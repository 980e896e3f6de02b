/* What the program and those who fill its maps agree on. */
#ifndef FILTER_H
#define FILTER_H

#include <linux/types.h>

#define SERVICES_MAX 1024

/* A service, as the key of `blocked`. */
struct service {
    __u16 port;     /* in the machine's byte order */
    __u8 protocol;  /* IPPROTO_TCP or IPPROTO_UDP */
    __u8 zero;      /* keys are compared byte by byte: none may be left to chance */
};

/* What was dropped. */
struct counter {
    __u64 packets;
    __u64 bytes;
};

#endif
