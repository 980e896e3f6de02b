// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// The string kfuncs on the head of a request: 200 bytes and more until a match.
// Flags: -fno-builtin
#include "price.h"

#define TEXT_BYTES 512

struct text {
    char bytes[TEXT_BYTES];
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, struct text);
} texts SEC(".maps");

extern int bpf_strcasecmp(const char *left, const char *right) __ksym;
extern int bpf_strchr(const char *text, char wanted) __ksym;
extern int bpf_strchrnul(const char *text, char wanted) __ksym;
extern int bpf_strrchr(const char *text, int wanted) __ksym;
extern int bpf_strlen(const char *text) __ksym;
extern int bpf_strspn(const char *text, const char *accept) __ksym;
extern int bpf_strcspn(const char *text, const char *reject) __ksym;
extern int bpf_strstr(const char *text, const char *wanted) __ksym;

#define REQUEST                                                                                    \
    "GET /index.html?of=all&the=pages HTTP/1.1\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n" \
    "Accept: text/html,application/xhtml+xml;q=0.9\r\nAccept-Language: en\r\n"                     \
    "Cache-Control: no-cache\r\nHost: www.example.com\r\nContent-Length: 1234\r\n\r\n"

#define TEXTS                                                                                      \
    __u32 other = first + 1;                                                                       \
    struct text *text = bpf_map_lookup_elem(&texts, &first);                                       \
    struct text *copy = bpf_map_lookup_elem(&texts, &other);                                       \
    if (!text || !copy)                                                                            \
    return 0

PRICE(strncmp_8, TEXTS, done += !bpf_strncmp(text->bytes, 8, "GET /ind"))
PRICE(strcmp_equal, TEXTS, done += !bpf_strcmp(text->bytes + n, copy->bytes + n))
PRICE(strcmp_different, TEXTS, done += !!bpf_strcmp(text->bytes + n, copy->bytes + n + 1))
PRICE(strcasecmp_equal, TEXTS, done += !bpf_strcasecmp(text->bytes + n, copy->bytes + n))
PRICE(strlen, TEXTS, done += bpf_strlen(text->bytes + n) > 0)
PRICE(strnlen_64, TEXTS, done += bpf_strnlen(text->bytes + n, 64) == 64)
PRICE(strchr, TEXTS, done += bpf_strchr(text->bytes + n, '\r') > 0)
PRICE(strchr_missing, TEXTS, done += bpf_strchr(text->bytes + n, '~') < 0)
PRICE(strchrnul, TEXTS, done += bpf_strchrnul(text->bytes + n, '~') > 0)
PRICE(strnchr_64, TEXTS, done += bpf_strnchr(text->bytes + n, 64, '\r') > 0)
PRICE(strrchr, TEXTS, done += bpf_strrchr(text->bytes + n, ':') > 0)
PRICE(strspn, TEXTS, done += bpf_strspn(text->bytes + n, "GET /index.hml?of=altpgs") > 0)
PRICE(strcspn, TEXTS, done += bpf_strcspn(text->bytes + n, "\r\n") > 0)
PRICE(strstr, TEXTS, done += bpf_strstr(text->bytes + n, "\r\nHost: ") > 0)
PRICE(strstr_missing, TEXTS, done += bpf_strstr(text->bytes + n, "\r\nCookie: ") < 0)
PRICE(strnstr_511, TEXTS, done += bpf_strnstr(text->bytes + n, "\r\nHost: ", 490) > 0)

SEC("xdp")
int prepare(struct xdp_md *ctx)
{
    static const char request[] = REQUEST;
    __u32 key = 0, other = 1;
    struct text *text = bpf_map_lookup_elem(&texts, &key);
    struct text *copy = bpf_map_lookup_elem(&texts, &other);

    if (!text || !copy)
        return 0;
    __builtin_memcpy(text->bytes, request, sizeof(request));
    __builtin_memcpy(copy->bytes, request, sizeof(request));
    return 0;
}
