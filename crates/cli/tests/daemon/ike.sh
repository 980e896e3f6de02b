# strongSwan on both ends of a tunnel, with Towpath as the data plane of one end.
#
# usage: DIR=... TOWPATH=... OBJECT=... NEAR=NAMESPACE FAR=NAMESPACE ike.sh
#
# DIR is an empty folder. Prints a line for each step that a test looks at.
set -eu
cd "$DIR"
export TOWPATH_SOCKET=$DIR/towpath.sock

cleanup() {
    for namespace in $NEAR $FAR; do
        ip netns pids "$namespace" | xargs -r kill -9
        ip netns del "$namespace"
    done
}
trap cleanup EXIT

wait_for() {
    for _ in $(seq 1200); do
        if eval "$1"; then return; fi
        sleep 0.05
    done
    echo "never: $1" >&2
    tail -n 20 ./*.log >&2
    exit 1
}

# SIDE ADDRESS PEER NETWORK PEER_NETWORK PLUGIN REKEY_TIME
configure() {
    mkdir -p "$1"
    local load="random nonce openssl aes sha1 sha2 hmac gcm kdf"
    load="$load $6 kernel-netlink socket-default vici"
    cat > "$1/strongswan.conf" <<CONF
charon-systemd {
    load = $load
    filelog {
        stderr {
            default = 1
            knl = 2
        }
    }
    install_routes = $([ "$1" = near ] && echo no || echo yes)
    plugins {
        vici {
            socket = unix://$DIR/$1/vici
        }
        kernel-libipsec {
            allow_peer_ts = yes
        }
    }
}
swanctl {
    plugins {
        vici {
            socket = unix://$DIR/$1/vici
        }
    }
}
CONF
    cat > "$1/swanctl.conf" <<CONF
connections {
    site {
        version = 2
        local_addrs = $2
        remote_addrs = $3
        encap = yes
        proposals = aes128-sha256-x25519
        local {
            auth = psk
            id = $2
        }
        remote {
            auth = psk
            id = $3
        }
        children {
            net {
                local_ts = $4
                remote_ts = $5
                esp_proposals = aes128gcm16
                rekey_time = $7
                rand_time = 0
                life_time = 120s
            }
        }
    }
}
secrets {
    ike {
        secret = "towpath"
    }
}
CONF
}

near() { STRONGSWAN_CONF=$DIR/near/strongswan.conf ip netns exec "$NEAR" "$@"; }
far() { STRONGSWAN_CONF=$DIR/far/strongswan.conf ip netns exec "$FAR" "$@"; }
ask() { "$1" swanctl "${@:2}" >> "$1/swanctl.log" 2>&1; }
pings() { near ping -q -c "$1" -i 0.005 -I 10.1.0.1 10.2.0.1 | grep -o "[0-9]* received"; }
map_ids() { "$TOWPATH" map show | awk -v name="$1" '$4 == name { sub(":", "", $1); print $1 }'; }
inbound_spis() { "$TOWPATH" sa show | awk '$3 == "in" { print $4 }'; }

start_near() {
    # Not by the function, whose shell would have the number.
    STRONGSWAN_CONF=$DIR/near/strongswan.conf \
        ip netns exec "$NEAR" "$TOWPATH" wrap --xfrm -- charon-systemd > near.log 2>&1 &
    ike_daemon=$!
    wait_for "ask near --load-all --file near/swanctl.conf"
}

for namespace in $NEAR $FAR; do
    ip netns add "$namespace"
    ip -n "$namespace" link set lo up
done
ip link add wire netns "$NEAR" type veth peer name wire netns "$FAR"
ip -n "$NEAR" link set wire up
ip -n "$FAR" addr add 10.99.0.2/24 dev wire
ip -n "$FAR" addr add 10.2.0.1/24 dev lo
ip -n "$FAR" link set wire up
configure near 10.99.0.1 10.99.0.2 10.1.0.0/24 10.2.0.0/24 "" 2s
configure far 10.99.0.2 10.99.0.1 10.2.0.0/24 10.1.0.0/24 kernel-libipsec 0

cat > towpath.toml <<CONF
[[port]]
name = "wan"
kind = "afxdp"
interface = "wire"
shadow = "wan0"
peer_offloads = "off"

[[port]]
name = "esp0"
kind = "ipsec"
mac = "02:00:00:00:00:e5"
mtu = 1400
shadow = true
xfrm = "$DIR/esp0.xfrm"

[[attach]]
port = "wan"
object = "$OBJECT"
program = "esp_outside"

[[attach]]
port = "esp0"
object = "$OBJECT"
program = "esp_done"
set = { host_mac = "hex:0200000000e5" }
CONF
near "$TOWPATH" up -c towpath.toml > towpath.log 2>&1 &
wait_for '"$TOWPATH" status > /dev/null 2>&1'
near sysctl -qw net.ipv4.ip_forward=1
near ip link set esp0 arp off
near ip addr add 10.99.0.1/24 dev wan0
near ip addr add 10.1.0.1/32 dev esp0
near ip route add 10.2.0.0/24 dev esp0 src 10.1.0.1
esp0=$(near cat /sys/class/net/esp0/ifindex)
wan0=$(near cat /sys/class/net/wan0/ifindex)
for id in $(map_ids accelerator); do "$TOWPATH" map update id "$id" key 0 value "$esp0"; done
for id in $(map_ids ports); do "$TOWPATH" map update id "$id" key "$wan0" value "$wan0"; done

far charon-systemd > far.log 2>&1 &
wait_for "ask far --load-all --file far/swanctl.conf"
start_near
wait_for "ask near --initiate --child net"
echo "first: $(pings 200)"

# The SA's soft limit makes the IKE daemon negotiate new keys.
before=$(inbound_spis | tail -n 1)
echo "while keys change: $(pings 1000)"
inbound_spis | grep -qv "$before" && echo "there are new SAs"

# An IKE daemon that dies leaves its SAs.
kill -9 "$ike_daemon"
wait "$ike_daemon" 2>> near.log || true
echo "without an IKE daemon: $(pings 100)"

# The next one begins anew.
start_near
wait_for "ask near --initiate --child net"
echo "with the next one: $(pings 100)"
echo "refusals: $("$TOWPATH" sa show | awk '$2 == "esp0" { sum += $NF } END { print sum + 0 }')"
