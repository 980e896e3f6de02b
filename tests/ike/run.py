#!/usr/bin/env python3
"""strongSwan with Towpath as its data plane: every step of an IPsec gateway's life, for real.

Two gateways in network namespaces, joined by a bridge in a third one, run Debian's strongSwan,
unmodified. The data plane is Towpath at one end and strongSwan's own library at the other, or
Towpath at both ends. Each step prints a line; the result is a table in Markdown.

usage: tests/ike/run.py [--only STEP,...] [--result FILE] [--rekeys 50] [--rate 10000]
                        [--bytes 1073741824] TOWPATH OBJECT                    (root)

TOWPATH is the command, OBJECT is build/programs/esp_gateway.o.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from ends import (
    MARKER, End, Failed, LibipsecEnd, Namespace, TowpathEnd, wait_for,
)

TRAFFIC = os.path.join(os.path.dirname(os.path.abspath(__file__)), "traffic.py")
NEEDED = {
    "/usr/sbin/charon-systemd": "charon-systemd",
    "/usr/sbin/swanctl": "strongswan-swanctl",
    "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so": "libcharon-extra-plugins",
    "/usr/lib/ipsec/plugins/libstrongswan-openssl.so": "libstrongswan-standard-plugins",
    "/usr/bin/openssl": "openssl",
    "/dev/net/tun": "a kernel with tun",
}


class Lab:
    """Two gateways and the network between them."""

    def __init__(self, args, kinds: tuple[type[End], type[End]]):
        self.args = args
        self.towpath, self.object = args.towpath, args.object
        self.folder = tempfile.mkdtemp(prefix="ikelong-")
        self.prefix = f"ikelong-{os.getpid()}-{kinds[1].__name__[0].lower()}"
        self.middle = Namespace(f"{self.prefix}-middle")
        self.middle.ip("link add bridge type bridge")
        self.middle.ip("link set bridge up")
        self.near = kinds[0](self, "near", 1)
        self.far = kinds[1](self, "far", 2)
        for end in (self.near, self.far):
            self.middle.ip(
                f"link add {end.name} type veth peer name wire netns {end.namespace.name}"
            )
            self.middle.ip(f"link set {end.name} master bridge up")
            end.namespace.ip("link set wire up")
        for end in (self.near, self.far):
            end.start()

    def other(self, end: End) -> End:
        return self.far if end is self.near else self.near

    @property
    def ends(self) -> list[End]:
        return [self.near, self.far]

    def start(self, **options) -> None:
        """Starts both IKE daemons with these options, and makes a tunnel."""
        peers = options.get("peers", {})
        local = options.get("local", {})
        for end in self.ends:
            other = self.other(end)
            peer = peers.get(end.name, local.get(other.name, other.address))
            end.configure(peer, options)
            if options.get("auth") == "pubkey":
                certify(self, end)
        for end in reversed(self.ends):
            end.start_ike()
        self.initiate()

    def initiate(self) -> None:
        wait_for("the tunnel", lambda: "initiate completed" in self.near.swanctl(
            "--initiate", "--child", "net", check=False))

    def stop(self) -> None:
        for end in self.ends:
            end.stop_ike()

    def pings(self, count: int, interval: float = 0.005) -> int:
        return self.near.ping(count, self.far.inside, self.near.inside, interval)

    def all_pings(self, count: int) -> str:
        """Pings, all of which must be answered."""
        answered = self.pings(count)
        ensure(answered == count, f"{answered} of {count} pings are answered")
        return f"{count} of {count} pings"

    def close(self) -> None:
        for end in self.ends:
            end.close()
        self.middle.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def ensure(is_so: bool, why: str) -> None:
    if not is_so:
        raise Failed(why)


def certify(lab: Lab, end: End) -> None:
    """Makes a certificate of an end, and the authority's at the first call."""
    ca, key = os.path.join(lab.folder, "ca.pem"), os.path.join(lab.folder, "ca.key")

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    if not os.path.exists(ca):
        openssl("req", "-x509", *new_key, "-subj", "/CN=towpath test CA", "-days", "2",
                "-keyout", key, "-out", ca)
    name = f"{end.name}.towpath.test"
    request, extra = end.path("request.pem"), end.path("extra")
    with open(extra, "w", encoding="utf-8") as file:
        file.write(f"subjectAltName=DNS:{name}\n")
    openssl("req", *new_key, "-subj", f"/CN={name}",
            "-keyout", end.path(f"swanctl/private/{end.name}.pem"), "-out", request)
    openssl("x509", "-req", "-in", request, "-CA", ca, "-CAkey", key, "-CAcreateserial",
            "-days", "2", "-extfile", extra, "-out", end.path(f"swanctl/x509/{end.name}.pem"))
    shutil.copy(ca, end.path("swanctl/x509ca/ca.pem"))


def python(namespace: Namespace, *words: str) -> subprocess.Popen:
    """Starts traffic.py in a namespace."""
    command = namespace.command(sys.executable, TRAFFIC, *words)
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def result_of(process: subprocess.Popen, ends: bool = True) -> dict:
    """What traffic.py printed at its end."""
    if ends:
        process.terminate()
    return json.loads(process.communicate()[0])


def datagrams(source: End, to: End, rate: float, seconds: float):
    """Starts numbered datagrams; returns a function that waits for their end and counts."""
    port = "7000"
    receiver = python(to.namespace, "receive", to.inside, port)
    time.sleep(1)
    sender = python(source.namespace, "send", source.inside, to.inside, port, str(rate),
                    str(seconds))

    def end() -> dict:
        sent = result_of(sender, ends=False)
        time.sleep(2)
        return {**result_of(receiver), **sent}

    return end


def refusals(lab: Lab) -> int:
    return sum(end.refused() for end in lab.ends if isinstance(end, TowpathEnd))


# Steps. Each gets a lab whose tunnel it makes itself, and returns what it saw.


def pings(lab: Lab, **options) -> str:
    """1,000 pings."""
    lab.start(**options)
    said = lab.all_pings(1000)
    ensure(refusals(lab) == 0, f"{refusals(lab)} packets are refused")
    calls = [end.notifications() for end in lab.ends if isinstance(end, TowpathEnd)]
    ensure(0 < max(calls) <= 10, f"{calls} system calls of an IKE daemon are answered")
    return f"{said}, system calls answered for each IKE daemon: {', '.join(map(str, calls))}"


def certificates(lab: Lab) -> str:
    """Certificates in place of a secret that both share."""
    return pings(lab, auth="pubkey")


def suites(lab: Lab) -> str:
    """Every suite that both ends have."""
    said = []
    names = ["aes128-sha1", "aes128-sha256", "aes256-sha512", "aes256gcm16"]
    if isinstance(lab.far, TowpathEnd):
        names += ["chacha20poly1305", "aes128gcm16-esn", "aes128-sha256-esn"]
    for name in names:
        lab.start(esp=name)
        lab.all_pings(200)
        ensure(refusals(lab) == 0, f"{name}: packets are refused")
        lab.stop()
        said.append(name)
    return "200 of 200 pings each: " + ", ".join(said)


def tcp(lab: Lab) -> str:
    """A gibibyte of random bytes over TCP."""
    lab.start()
    port, size = "7001", lab.args.bytes
    server = python(lab.far.namespace, "tcp-serve", lab.far.inside, port)
    wait_for("a TCP server", lambda: f":{port}" in lab.far.namespace.run("ss", "-ltn"))
    sender = python(lab.near.namespace, "tcp-send", lab.near.inside, lab.far.inside, port,
                    str(size))
    try:
        said = result_of(sender, ends=False)
    finally:
        server.kill()
        server.wait()
    ensure(said["is_same"], "what arrives is something else")
    rate = size * 8 / said["seconds"] / 1e9
    return (f"{size:,} bytes arrive as they were, {rate:.2f} Gbit/s, {said['retransmits']} "
            "segments sent again")


def rekeys(lab: Lab) -> str:
    """Changes of keys every three seconds while datagrams flow in both directions."""
    wanted, rate = lab.args.rekeys, lab.args.rate
    lab.start(rekey=3)
    seconds = wanted * 3 + 6
    there = datagrams(lab.near, lab.far, rate, seconds)
    back = datagrams(lab.far, lab.near, rate / 10, seconds)
    counts = [there(), back()]
    changes = lab.near.log.count("CHILD_SA net{") and lab.near.log.count("rekeying CHILD_SA")
    done = lab.near.log.count("outbound CHILD_SA") or changes
    for count in counts:
        lost = count["sent"] - count["received"]
        ensure(lost == 0 and count["repeated"] == 0,
               f"{lost} of {count['sent']} datagrams lost: {count}; refused: {refusals(lab)}")
    ensure(done >= wanted, f"only {done} changes of keys")
    sent = [count["sent"] for count in counts]
    rates = [f"{count['sent'] / count['seconds']:,.0f}" for count in counts]
    return (f"{done} changes of keys, {sent[0]:,} and {sent[1]:,} datagrams at {rates[0]} and "
            f"{rates[1]} a second, 0 lost, 0 repeated")


def dpd(lab: Lab) -> str:
    """Dead peer detection: none while packets come, then the end of the SAs, or a restart."""
    near, far = lab.near, lab.far
    options = {"dpd_delay": 2, "retransmit_tries": 3}
    lab.start(**options)
    far.signal_ike(signal.SIGSTOP)
    before = near.log.count("sending DPD request")
    # The data plane of the other end answers still.
    answered = lab.pings(300, 0.02)
    asked = near.log.count("sending DPD request") - before
    ensure(answered == 300, f"{answered} of 300 pings while the IKE daemon of the peer is stopped")
    ensure(asked == 0, f"{asked} times asked a peer whose packets come")
    start = time.monotonic()
    wait_for("the end of the SAs", lambda: not near.sas())
    cleared = time.monotonic() - start
    ensure(lab.pings(20) == 0, "packets pass without an SA")
    far.signal_ike(signal.SIGCONT)
    lab.stop()
    lab.start(**options, dpd_action="restart")
    far.signal_ike(signal.SIGSTOP)
    wait_for("a restart", lambda: "giving up after" in near.log)
    far.signal_ike(signal.SIGCONT)
    wait_for("pings again", lambda: lab.pings(10) == 10)
    return f"not asked while packets come; SAs gone {cleared:.0f} s later; restart makes new ones"


def kill_ike(lab: Lab) -> str:
    """`kill -9` of an IKE daemon, and the next one."""
    near = lab.near
    lab.start()
    near.stop_ike(signal.SIGKILL)
    first = lab.all_pings(200)
    near.start_ike()
    lab.initiate()
    second = lab.all_pings(200)
    return f"{first} without an IKE daemon, {second} with the next one"


def kill_daemon(lab: Lab) -> str:
    """`kill -9` of Towpath's daemon: nothing leaves in the clear, and a restart goes on."""
    near = lab.near
    lab.start()
    lab.all_pings(50)
    # Pings between the gateways themselves are in the clear, and seen to be so.
    control = python(lab.middle, "watch", near.name, MARKER.hex())
    time.sleep(1)
    near.ping(5, lab.far.address, near.address)
    seen = result_of(control)
    ensure(seen["plain"] >= 10, f"only {seen['plain']} plain frames are seen")
    watcher = python(lab.middle, "watch", near.name, MARKER.hex())
    time.sleep(1)
    sender = subprocess.Popen(
        near.namespace.command("ping", "-q", "-n", "-c", "600", "-i", "0.01", "-W", "1",
                               "-p", MARKER.hex(), "-I", near.inside, lab.far.inside),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(1)
    near.kill_daemon()
    time.sleep(2)
    near.start_daemon()
    # The IKE daemon's connection is gone: it is restarted, as docs/ipsec.md says.
    near.stop_ike()
    near.start_ike()
    lab.initiate()
    # The new daemon reads the host's routes meanwhile.
    wait_for("a ping", lambda: lab.pings(1) == 1)
    said = lab.all_pings(200)
    sender.terminate()
    sender.wait()
    seen = result_of(watcher)
    ensure(seen["plain"] == 0, f"{seen['plain']} of {seen['frames']} frames in the clear")
    ensure(seen["frames"] > 100, f"only {seen['frames']} frames were seen")
    return f"{said} after a restart of both; of {seen['frames']:,} frames 0 in the clear"


def transport(lab: Lab) -> str:
    """Transport mode between the gateways themselves."""
    for end in lab.ends:
        other = lab.other(end)
        end.namespace.ip("rule add ipproto icmp table 77")
        end.namespace.ip(f"route add {other.address}/32 dev esp0 src {end.address} table 77")
    lab.start(mode="transport", encap=False)
    answered = lab.near.ping(500, lab.far.address, lab.near.address)
    modes = {sa["mode"] for end in lab.ends for sa in end.sas()}
    for end in lab.ends:
        end.namespace.ip("rule del ipproto icmp table 77")
    ensure(answered == 500, f"{answered} of 500 pings")
    ensure(modes == {"transport"}, f"modes: {modes}")
    ensure(refusals(lab) == 0, "packets are refused")
    return "500 of 500 pings"


def ipv6(lab: Lab) -> str:
    """IPv6 between the gateways, without UDP."""
    local = {end.name: end.address6 for end in lab.ends}
    lab.start(local=local, encap=False)
    said = lab.all_pings(500)
    outer = {sa["destination"] for end in lab.ends for sa in end.sas()}
    ensure(outer == set(local.values()), f"outer addresses: {outer}")
    return said


def nat(lab: Lab) -> str:
    """A NAT between the gateways that changes its ports."""
    middle, near, far = lab.middle, lab.near, lab.far
    for end, address in ((near, "10.99.0.254"), (far, "10.99.0.253")):
        middle.ip(f"link set {end.name} nomaster")
        middle.ip(f"addr add {address}/32 dev {end.name}")
        middle.ip(f"route add {end.address}/32 dev {end.name} src {address}")
    box = python(middle, "nat", "10.99.0.254", "10.99.0.253", far.address)
    try:
        lab.start(peers={"near": "10.99.0.254", "far": "%any"}, encap=False)
        lab.all_pings(200)
        before = far.log.count("NAT mappings of CHILD_SA")
        box.send_signal(signal.SIGUSR1)
        wait_for("pings again", lambda: lab.pings(10) == 10)
        wait_for("a new mapping", lambda: far.log.count("NAT mappings of CHILD_SA") > before)
        said = lab.all_pings(200)
    finally:
        box.terminate()
        box.wait()
        for end, address in ((near, "10.99.0.254"), (far, "10.99.0.253")):
            middle.ip(f"route del {end.address}/32 dev {end.name}")
            middle.ip(f"addr del {address}/32 dev {end.name}")
            middle.ip(f"link set {end.name} master bridge")
    return f"{said} after the move, by one mapping"


def two_ike(lab: Lab) -> str:
    """A second IKE daemon at the same door."""
    near = lab.near
    lab.start()
    sas = len(near.sas())
    second = Namespace(f"{lab.prefix}-second")
    try:
        env = {**near.env, "STRONGSWAN_CONF": near.path("second.conf")}
        with open(near.path("second.conf"), "w", encoding="utf-8") as file:
            conf = near.strongswan_conf({}).replace(near.path("vici"), near.path("vici2"))
            file.write(conf)
        log = near.path("second.log")
        process = second.start(log, *near.charon(), env=env)
        command = second.command("swanctl", "--load-all")
        wait_for("the second IKE daemon", lambda: subprocess.run(
            command, env=env, capture_output=True, check=False).returncode == 0)
        lab.all_pings(200)
        process.terminate()
        process.wait()
        ensure(len(near.sas()) == sas, f"{len(near.sas())} SAs are left of {sas}")
        return f"{lab.all_pings(200)} after the second one came and went; {sas} SAs stay"
    finally:
        second.close()


BOTH = [
    pings, certificates, suites, tcp, rekeys, dpd, kill_ike, kill_daemon, transport, ipv6, nat,
    two_ike,
]
ONE = [pings, certificates, suites, tcp, rekeys]


def missing(args) -> str | None:
    """Why it can't run here."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for path, package in NEEDED.items():
        if not os.path.exists(path):
            return f"{path} is missing ({package})"
    for path in (args.towpath, args.object):
        if not os.path.exists(path):
            return f"{path} is missing"
    return None


def run(args) -> list[tuple[str, str, str, bool, float]]:
    rows = []
    for label, kinds, steps in (
        ("both ends", (TowpathEnd, TowpathEnd), BOTH),
        ("one end", (TowpathEnd, LibipsecEnd), ONE),
    ):
        chosen = [step for step in steps if not args.only or step.__name__ in args.only]
        if args.ends and args.ends != label:
            chosen = []
        if not chosen:
            continue
        lab = Lab(args, kinds)
        try:
            for step in chosen:
                rows.append(attempt(lab, label, step))
        finally:
            if not args.keep:
                lab.close()
    return rows


def attempt(lab: Lab, label: str, step) -> tuple[str, str, str, bool, float]:
    start = time.monotonic()
    try:
        said, is_good = step(lab), True
    except (Failed, subprocess.SubprocessError, OSError, ValueError, KeyError) as error:
        said, is_good = f"FAILED: {error}", False
    finally:
        lab.stop()
    seconds = time.monotonic() - start
    print(f"{label}, {step.__name__}: {said} ({seconds:.0f} s)", flush=True)
    return (label, step.__doc__.splitlines()[0], said, is_good, seconds)


def report(args, rows) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True,
                            text=True, check=False, cwd=os.path.dirname(TRAFFIC)).stdout.strip()
    version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", "charon-systemd"],
                             capture_output=True, text=True, check=False).stdout
    lines = [
        "# strongSwan with Towpath",
        "",
        f"{datetime.date.today()}, `make ike`, commit `{commit}`; strongSwan {version}, Linux "
        f"{platform.release()}, {os.cpu_count()} virtual processors. Towpath is the data plane of "
        "both ends, or of one end, with strongSwan's `kernel-libipsec` as the other.",
        "",
        "| Towpath at | step | result | seconds |",
        "| --- | --- | --- | ---: |",
    ]
    lines += [f"| {label} | {what} | {said} | {seconds:.0f} |"
              for label, what, said, _, seconds in rows]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="strongSwan with Towpath as its data plane")
    parser.add_argument("towpath", type=os.path.abspath)
    parser.add_argument("object", type=os.path.abspath)
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of steps")
    parser.add_argument("--ends", choices=["both ends", "one end"])
    parser.add_argument("--rekeys", type=int, default=50)
    parser.add_argument("--rate", type=float, default=10_000)
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--result", help="a file for the table")
    parser.add_argument("--keep", action="store_true", help="leave namespaces and logs behind")
    args = parser.parse_args()
    why = missing(args)
    if why:
        print(f"skipped: {why}")
        return 0
    rows = run(args)
    text = report(args, rows)
    if args.result:
        with open(args.result, "w", encoding="utf-8") as file:
            file.write(text)
    return 0 if all(row[3] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
