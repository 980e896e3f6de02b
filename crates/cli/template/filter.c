/* filter: drops IPv4 packets to the services in `blocked`, and counts them there. */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "filter.h"

#define FRAGMENT_OFFSET 0x1fff

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, SERVICES_MAX);
    __type(key, struct service);
    __type(value, struct counter);
} blocked SEC(".maps");

SEC("xdp")
int filter(struct xdp_md *ctx)
{
    void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    struct ethhdr *eth = data;
    struct iphdr *ip = (void *)(eth + 1);
    struct service service = {};
    struct counter *dropped;
    __be16 *ports; /* source, destination: the same in TCP and UDP */

    if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
        return XDP_PASS;
    if (ip->protocol != IPPROTO_TCP && ip->protocol != IPPROTO_UDP)
        return XDP_PASS;
    ports = (void *)ip + ip->ihl * 4;
    if ((void *)(ports + 2) > end || ip->frag_off & bpf_htons(FRAGMENT_OFFSET))
        return XDP_PASS; /* too short, or a later fragment: no ports here */

    service.port = bpf_ntohs(ports[1]);
    service.protocol = ip->protocol;
    dropped = bpf_map_lookup_elem(&blocked, &service);
    if (!dropped)
        return XDP_PASS;
    __sync_fetch_and_add(&dropped->packets, 1);
    __sync_fetch_and_add(&dropped->bytes, end - data);
    return XDP_DROP;
}

char _license[] SEC("license") = "GPL";
