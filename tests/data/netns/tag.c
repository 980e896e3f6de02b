// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// tag: what a VLAN device does, for kernels without one: on a host's way out it puts a tag on, on
// the way in it takes one off. Attached by tc.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define VLAN 5

SEC("push")
int push_tag(struct __sk_buff *skb)
{
    return bpf_skb_vlan_push(skb, bpf_htons(ETH_P_8021Q), VLAN) ? TC_ACT_SHOT : TC_ACT_OK;
}

// What has no tag is not for us.
SEC("pop")
int pop_tag(struct __sk_buff *skb)
{
    if (!skb->vlan_present || skb->vlan_tci != VLAN)
        return TC_ACT_SHOT;
    return bpf_skb_vlan_pop(skb) ? TC_ACT_SHOT : TC_ACT_OK;
}

char _license[] SEC("license") = "Dual MIT/GPL";
