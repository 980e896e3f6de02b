"""Ends of a tunnel in network namespaces: strongSwan on Towpath, or on its own ESP."""

import json
import os
import re
import signal
import subprocess
import time

PATIENCE_S = 60
PLUGINS = (
    "random nonce openssl aes sha1 sha2 hmac gcm chapoly kdf pem pkcs1 pkcs8 x509 pubkey "
    "constraints revocation"
)


class Failed(Exception):
    """A step did not do what it must."""


def wait_for(what: str, condition, seconds: float = PATIENCE_S):
    """Waits until a condition holds, and returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"never: {what}")
        time.sleep(0.05)


class Namespace:
    """A network namespace whose processes end with it."""

    def __init__(self, name: str):
        self.name = name
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.ip("link set lo up")

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]

    def ip(self, line: str) -> None:
        subprocess.run(["ip", "-n", self.name, *line.split()], check=True)

    def run(self, *words: str, env: dict | None = None, check: bool = True) -> str:
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, env=env, check=False
        )
        if check and done.returncode:
            raise Failed(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def start(self, log: str, *words: str, env: dict | None = None) -> subprocess.Popen:
        """Starts a program in the background; `ip netns exec` becomes the program."""
        with open(log, "ab") as out:
            return subprocess.Popen(
                self.command(*words), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env
            )

    def close(self) -> None:
        pids = subprocess.run(
            ["ip", "netns", "pids", self.name], capture_output=True, text=True, check=False
        )
        for pid in pids.stdout.split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        subprocess.run(["ip", "netns", "del", self.name], check=False)


class End:
    """A gateway with an IKE daemon: the part that does not depend on the data plane."""

    plugins = "kernel-netlink"
    installs_routes = False

    def __init__(self, lab, name: str, number: int):
        self.lab, self.name = lab, name
        self.folder = os.path.join(lab.folder, name)
        os.makedirs(self.folder, exist_ok=True)
        self.address, self.address6 = f"10.99.0.{number}", f"fd99::{number}"
        self.inside, self.network = f"10.{number}.0.1", f"10.{number}.0.0/24"
        self.namespace = Namespace(f"{lab.prefix}-{name}")
        self.ike_daemon = None
        self.starts = 0

    def path(self, name: str) -> str:
        return os.path.join(self.folder, name)

    @property
    def log(self) -> str:
        """What the present IKE daemon has written."""
        with open(self.path(f"charon-{self.starts}.log"), encoding="utf-8", errors="replace") as it:
            return it.read()

    @property
    def env(self) -> dict:
        own = {
            "STRONGSWAN_CONF": self.path("strongswan.conf"),
            "SWANCTL_DIR": self.path("swanctl"),
            "TOWPATH_SOCKET": self.path("towpath.sock"),
        }
        return {**os.environ, **own}

    def configure(self, peer: str, options: dict) -> None:
        """Writes strongSwan's configuration. `peer` is the address of the other gateway."""
        with open(self.path("strongswan.conf"), "w", encoding="utf-8") as file:
            file.write(self.strongswan_conf(options))
        for folder in ("private", "x509", "x509ca"):
            os.makedirs(self.path(f"swanctl/{folder}"), exist_ok=True)
        with open(self.path("swanctl/swanctl.conf"), "w", encoding="utf-8") as file:
            file.write(self.swanctl_conf(peer, options))

    def strongswan_conf(self, options: dict) -> str:
        vici = f"plugins {{ vici {{ socket = unix://{self.path('vici')} }} }}"
        routes = "yes" if self.installs_routes else "no"
        return f"""
charon-systemd {{
    load = {PLUGINS} {self.plugins} socket-default vici
    filelog {{ stderr {{ default = 1
        knl = 2
        time_format = %s }} }}
    install_routes = {routes}
    retransmit_tries = {options.get("retransmit_tries", 5)}
    retransmit_timeout = 1.0
    retransmit_base = 1.3
    plugins {{
        vici {{ socket = unix://{self.path("vici")} }}
        kernel-libipsec {{ allow_peer_ts = yes }}
    }}
}}
swanctl {{ {vici} }}
"""

    def swanctl_conf(self, peer: str, options: dict) -> str:
        local = options.get("local", {}).get(self.name, self.address)
        mine, other = f"{self.name}.towpath.test", f"{self.lab.other(self).name}.towpath.test"
        auth = options.get("auth", "psk")
        certificate = f"certs = {self.name}.pem" if auth == "pubkey" else ""
        transport = options.get("mode") == "transport"
        networks = (self.network, self.lab.other(self).network)
        if transport:
            networks = ("dynamic[icmp]", "dynamic[icmp]")
        rekey = options.get("rekey", 0) if self.name == "near" else 0
        return f"""
connections {{ site {{
    version = 2
    mobike = no
    local_addrs = {local}
    remote_addrs = {peer}
    encap = {"yes" if options.get("encap", True) else "no"}
    proposals = aes128-sha256-x25519
    dpd_delay = {options.get("dpd_delay", 0)}
    local {{
        auth = {auth}
        id = {mine}
        {certificate}
    }}
    remote {{
        auth = {auth}
        id = {other}
    }}
    children {{ net {{
        mode = {"transport" if transport else "tunnel"}
        local_ts = {networks[0]}
        remote_ts = {networks[1]}
        esp_proposals = {options.get("esp", "aes128gcm16")}
        rekey_time = {rekey}
        rand_time = 0
        life_time = 600
        dpd_action = {options.get("dpd_action", "clear")}
    }} }}
}} }}
secrets {{ ike {{ secret = "towpath" }} }}
"""

    def swanctl(self, *words: str, check: bool = True) -> str:
        return self.namespace.run("swanctl", *words, env=self.env, check=check)

    def charon(self) -> list[str]:
        return ["charon-systemd"]

    def start_ike(self) -> None:
        self.starts += 1
        log = self.path(f"charon-{self.starts}.log")
        self.ike_daemon = self.namespace.start(log, *self.charon(), env=self.env)
        loads = ["swanctl", "--load-all"]
        command = self.namespace.command(*loads)

        def loaded() -> bool:
            done = subprocess.run(command, capture_output=True, env=self.env, check=False)
            return done.returncode == 0

        wait_for(f"the IKE daemon of {self.name}", loaded)

    def stop_ike(self, how: int = signal.SIGTERM) -> None:
        if self.ike_daemon:
            self.ike_daemon.send_signal(signal.SIGCONT)
            self.ike_daemon.send_signal(how)
            try:
                self.ike_daemon.wait(timeout=PATIENCE_S)
            finally:
                self.ike_daemon.kill()
                self.ike_daemon.wait()
                self.ike_daemon = None

    def signal_ike(self, how: int) -> None:
        self.ike_daemon.send_signal(how)

    def start(self) -> None:
        """Makes the data plane ready."""

    def ping(self, count: int, to: str, source: str, interval: float = 0.005) -> int:
        """Pings, and returns the number of answers."""
        said = self.namespace.run(
            "ping", "-q", "-n", "-c", str(count), "-i", str(interval), "-W", "1",
            "-p", MARKER.hex(), "-I", source, to, check=False,
        )
        found = re.search(r"(\d+) received", said)
        return int(found.group(1)) if found else 0

    def close(self) -> None:
        self.namespace.close()


class LibipsecEnd(End):
    """strongSwan's own ESP, in its process."""

    plugins = "kernel-libipsec kernel-netlink"
    installs_routes = True

    def start(self) -> None:
        self.namespace.ip(f"addr add {self.address}/24 dev wire")
        self.namespace.ip(f"addr add {self.inside}/24 dev lo")


class TowpathEnd(End):
    """Towpath's port of kind `ipsec`, by the commands that docs/ipsec.md shows."""

    def __init__(self, lab, name: str, number: int):
        super().__init__(lab, name, number)
        self.daemon = None

    def charon(self) -> list[str]:
        return [self.lab.towpath, "wrap", "-v", "--xfrm", "--", "charon-systemd"]

    def towpath(self, *words: str) -> str:
        command = [self.lab.towpath, *words]
        done = subprocess.run(command, capture_output=True, text=True, env=self.env, check=False)
        if done.returncode:
            raise Failed(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def sas(self) -> list[dict]:
        return json.loads(self.towpath("sa", "show", "--json"))

    def refused(self) -> int:
        return sum(sum(sa["refused"].values()) for sa in self.sas())

    def notifications(self) -> int:
        """System calls of the present IKE daemon that the supervisor has answered."""
        return self.log.count("towpath: answered ")

    def start(self) -> None:
        with open(self.path("towpath.toml"), "w", encoding="utf-8") as file:
            file.write(CONFIGURATION.format(folder=self.folder, object=self.lab.object))
        self.start_daemon()

    def start_daemon(self) -> None:
        run, ip = self.namespace.run, self.namespace.ip
        self.daemon = self.namespace.start(
            self.path("towpath.log"), self.lab.towpath, "up", "-c", self.path("towpath.toml"),
            env=self.env,
        )

        def answers() -> bool:
            command = [self.lab.towpath, "status"]
            return subprocess.run(command, capture_output=True, env=self.env).returncode == 0

        wait_for(f"the daemon of {self.name}", answers)
        other = self.lab.other(self)
        run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        ip("link set esp0 arp off txqueuelen 20000")
        ip(f"addr add {self.address}/24 dev wan0")
        ip(f"addr add {self.address6}/64 dev wan0 nodad")
        ip(f"addr add {self.inside}/32 dev esp0")
        ip(f"route add {other.network} dev esp0 src {self.inside}")
        ifindex = {name: run("cat", f"/sys/class/net/{name}/ifindex").strip()
                   for name in ("esp0", "wan0")}
        for shown in json.loads(self.towpath("map", "show", "--json")):
            if shown["name"] == "accelerator":
                key, value = "0", ifindex["esp0"]
            elif shown["name"] == "ports":
                key, value = ifindex["wan0"], ifindex["wan0"]
            else:
                continue
            self.towpath("map", "update", "id", str(shown["id"]), "key", key, "value", value)

    def kill_daemon(self) -> None:
        self.daemon.kill()
        self.daemon.wait()


# Bytes in every ping and datagram; they are on no wire.
MARKER = b"plain!"

CONFIGURATION = """
[[port]]
name = "wan"
kind = "afxdp"
interface = "wire"
shadow = "wan0"
peer_offloads = "off"
rx_ring = 4096                      # a busy machine may not run a worker for 100 ms and more
fill_ring = 4096

[[port]]
name = "esp0"
kind = "ipsec"
mac = "02:00:00:00:00:e5"
mtu = 1400
shadow = true
xfrm = "{folder}/esp0.xfrm"

[[attach]]
port = "wan"
object = "{object}"
program = "esp_outside"

[[attach]]
port = "esp0"
object = "{object}"
program = "esp_done"
set = {{ host_mac = "hex:0200000000e5" }}
"""
