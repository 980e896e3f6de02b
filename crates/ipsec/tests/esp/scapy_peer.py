#!/usr/bin/env python3
"""Encrypts and decrypts packets by Scapy's SecurityAssociation, as its standard input says.

Lines: `sa CIPHER KEY HMAC KEY TUNNEL OUTER_V6 UDP ESN` makes an SA; `encrypt SEQUENCE PACKET` and
`decrypt SEQUENCE PACKET` answer with a packet. Keys and packets are hexadecimal, `-` is no key.
"""

import sys

from scapy.config import conf
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP, SecurityAssociation

SPI = 0x12345678
# Nothing but IP, UDP and ESP is told apart, so that payloads stay as they are.
conf.debug_dissector = False


def key(text):
    return None if text == "-" else bytes.fromhex(text)


def make(cipher, cipher_key, hmac, hmac_key, tunnel, v6, udp, esn):
    header = IPv6(src="2001:db8::1", dst="2001:db8::2") if v6 else IP(src="192.0.2.1",
                                                                    dst="192.0.2.2")
    return SecurityAssociation(
        ESP, spi=SPI, crypt_algo=cipher, crypt_key=key(cipher_key), auth_algo=hmac,
        auth_key=key(hmac_key), tunnel_header=header if tunnel else None,
        nat_t_header=UDP(sport=4500, dport=4501) if udp else None, esn_en=esn, esn=0)


def parse(packet):
    return IPv6(packet) if packet[0] >> 4 == 6 else IP(packet)


def encrypt(sa, sequence, packet, udp):
    sent = bytearray(bytes(sa.encrypt(parse(packet), seq_num=sequence)))
    if udp:
        # Scapy counts the UDP header only.
        at = 40 if sent[0] >> 4 == 6 else 20
        sent[at + 4:at + 6] = (len(sent) - at).to_bytes(2, "big")
    return bytes(sent)


def decrypt(sa, packet, udp):
    ip = parse(packet)
    if udp:
        # Scapy leaves the UDP header where it is in IPv6.
        esp = bytes(ip[UDP].payload)
        ip.remove_payload()
        if ip.version == 4:
            ip.proto = 50
        else:
            ip.nh = 50
        ip = ip / ESP(esp)
    return bytes(sa.decrypt(ip))


def main():
    sa, udp = None, False
    for line in sys.stdin:
        what, *rest = line.split()
        try:
            if what == "sa":
                flags = [it == "1" for it in rest[4:]]
                udp = flags[2]
                sa = make(*rest[:4], *flags)
                answer = "ok"
            elif what == "encrypt":
                answer = encrypt(sa, int(rest[0]), bytes.fromhex(rest[1]), udp).hex()
            else:
                answer = decrypt(sa, bytes.fromhex(rest[1]), udp).hex()
        except Exception as error:  # the test prints it
            answer = f"error {error!r}"
        print(answer, flush=True)


if __name__ == "__main__":
    main()
