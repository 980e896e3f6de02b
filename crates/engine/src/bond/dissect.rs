//! Flow dissection for transmit policies: addresses, ports and ICMP ids of a frame.
//!
//! There are two dissectors, as in the kernel, with different results for some frames. [`outer`]
//! (`bond_flow_ip`) knows two EtherTypes and no extension headers, and follows ICMP errors to the
//! flow they report. [`innermost`] (`__skb_flow_dissect` as bonds call it) looks through tags and
//! tunnels. The byte readers below check all offsets and return `None` beyond the end.

/// Length of an Ethernet header.
pub(super) const ETHERNET_BYTES: usize = 14;

/// The fields that are hashed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Flow {
    /// XOR of all 32-bit words of the source and destination addresses.
    pub(super) addresses: u32,
    /// The 4 bytes of the ports in a transport header; 0 if there are none.
    pub(super) ports: u32,
    /// `type | code << 8 | id << 16` of an ICMP header; id 0 if the type has none.
    pub(super) icmp: u32,
}

/// Dissects the outer IP header and the header behind it; ports only if `PORTS`.
///
/// Returns `None` for frames other than untagged IPv4 and IPv6, and for truncated headers.
#[inline]
pub(super) fn outer<const PORTS: bool>(frame: &[u8]) -> Option<Flow> {
    let mut flow = Flow::default();
    let ethertype = u16_at(frame, 12)?;
    let (offset, protocol) = ip::<PORTS>(frame, ethertype, ETHERNET_BYTES, None, &mut flow)?;
    if let Some(ICMP | ICMP_V6) = protocol {
        return icmp::<PORTS>(frame, ethertype, offset, protocol, flow);
    }
    Some(flow)
}

/// A fast path for the most frequent frames: unfragmented IPv4 without options, with TCP or UDP.
/// [`outer`] gives the same result, more slowly.
#[inline]
pub(super) fn plain(frame: &[u8]) -> Option<Flow> {
    let frame: &[u8; PLAIN_BYTES] = frame.first_chunk()?;
    // Two words hold all fields to check, which takes few instructions.
    let differs = (word(frame, 12) & 0xff_ffff ^ V4_WITHOUT_OPTIONS) | word(frame, 20) & PART;
    let has_ports = matches!((word(frame, 20) >> 24) as u8, TCP | UDP);
    (differs == 0 && has_ports).then(|| Flow {
        addresses: word(frame, 26) ^ word(frame, 30),
        ports: word(frame, 34),
        icmp: 0,
    })
}

/// Whether a frame is ARP, or a neighbour solicitation or advertisement right behind an IPv6 header
/// (`bond_should_broadcast_neighbor`).
pub(crate) fn is_neighbour_message(frame: &[u8]) -> bool {
    match u16_at(frame, 12) {
        Some(ETH_ARP) => true,
        Some(ETH_IPV6) => solicits_or_advertises(frame),
        _ => false,
    }
}

/// Whether an IPv6 packet without extension headers is a neighbour solicitation or advertisement.
pub(super) fn solicits_or_advertises(frame: &[u8]) -> bool {
    chunk::<{ IPV6_BYTES + 1 }>(frame, ETHERNET_BYTES)
        .is_some_and(|it| it[6] == ICMP_V6 && matches!(it[IPV6_BYTES], 135 | 136))
}

/// Dissects one IP header; returns the offset and protocol of the next header. For fragments, whose
/// next header is unreliable, the protocol is `before`.
#[inline]
fn ip<const PORTS: bool>(
    frame: &[u8],
    ethertype: u16,
    offset: usize,
    before: Option<u8>,
    flow: &mut Flow,
) -> Option<(usize, Option<u8>)> {
    let (next, protocol) = match ethertype {
        ETH_IPV4 => {
            let header: &[u8; IPV4_BYTES] = chunk(frame, offset)?;
            flow.addresses = addresses_v4(header);
            let protocol = if is_fragment(header) { before } else { Some(header[9]) };
            // A header length below 20 is taken as it is, as in the kernel.
            (offset + header_bytes(header), protocol)
        }
        ETH_IPV6 => {
            let header: &[u8; IPV6_BYTES] = chunk(frame, offset)?;
            flow.addresses = addresses_v6(header);
            (offset + IPV6_BYTES, Some(header[6]))
        }
        _ => return None,
    };
    if PORTS && let Some(protocol) = protocol {
        flow.ports = ports(frame, next, protocol);
    }
    Some((next, protocol))
}

/// Dissects an ICMP header. For errors, the flow is that of the reported packet, so that both leave
/// by the same member.
#[cold]
fn icmp<const PORTS: bool>(
    frame: &[u8],
    ethertype: u16,
    offset: usize,
    protocol: Option<u8>,
    mut flow: Flow,
) -> Option<Flow> {
    if let Some(icmp) = icmp_word(frame, offset) {
        flow.icmp = icmp;
    }
    // A header that is cut short leaves type 0, an echo reply.
    let kind = flow.icmp as u8;
    let is_error = match protocol {
        Some(ICMP) => matches!(kind, 3 | 4 | 5 | 11 | 12),
        _ => matches!(kind, 1..=4),
    };
    if is_error {
        ip::<PORTS>(frame, ethertype, offset + ICMP_BYTES, protocol, &mut flow)?;
    }
    Some(flow)
}

/// Dissects the innermost header, through VLAN tags, PPPoE, IP in IP, GRE and more.
///
/// Returns `None` if any header in the frame has an unknown type or is truncated.
#[inline]
pub(super) fn innermost(frame: &[u8]) -> Option<Flow> {
    // Most frames have no tags or tunnels; for these `outer` gives the same result, faster.
    if is_bare(frame) { outer::<true>(frame) } else { look_through(frame) }
}

/// Whether TCP or UDP follows right behind an outer IP header of valid length.
#[inline]
fn is_bare(frame: &[u8]) -> bool {
    let Some(start) = frame.first_chunk::<24>() else { return false };
    let protocol = match u16::from_be_bytes([start[12], start[13]]) {
        ETH_IPV4 if start[14] & 0xf >= 5 => start[23],
        ETH_IPV6 => start[20],
        _ => return false,
    };
    matches!(protocol, TCP | UDP)
}

#[inline(never)]
fn look_through(frame: &[u8]) -> Option<Flow> {
    let mut reader = Reader {
        frame,
        offset: ETHERNET_BYTES,
        ethertype: u16_at(frame, 12)?,
        flow: Flow::default(),
        steps_left: STEPS_MAX,
    };
    loop {
        match reader.network()? {
            Step::End => break,
            Step::Network => {
                if !reader.may_step() {
                    break;
                }
            }
            Step::Transport(protocol) => {
                if !reader.transports(protocol)? {
                    break;
                }
            }
        }
    }
    Some(reader.flow)
}

/// Kind of the next header.
enum Step {
    /// No further header is dissected.
    End,
    /// A header of the type in `ethertype`.
    Network,
    /// A header of this IP protocol.
    Transport(u8),
}

struct Reader<'a> {
    frame: &'a [u8],
    /// Offset of the next header; may be beyond the end.
    offset: usize,
    /// EtherType of the header at `offset`, or of the last header below IP.
    ethertype: u16,
    flow: Flow,
    steps_left: u8,
}

impl Reader<'_> {
    /// Limits the number of headers (`skb_flow_dissect_allowed`), also for frames of tags only.
    fn may_step(&mut self) -> bool {
        let may = self.steps_left > 0;
        self.steps_left = self.steps_left.saturating_sub(1);
        may
    }

    /// Dissects the header at `offset`, of type `ethertype`.
    #[inline]
    fn network(&mut self) -> Option<Step> {
        match self.ethertype {
            ETH_IPV4 => {
                let header: &[u8; IPV4_BYTES] = chunk(self.frame, self.offset)?;
                if header_bytes(header) < IPV4_BYTES {
                    return None;
                }
                self.flow.addresses = addresses_v4(header);
                self.offset += header_bytes(header);
                let protocol = header[9];
                Some(if is_fragment(header) { Step::End } else { Step::Transport(protocol) })
            }
            ETH_IPV6 => {
                let header: &[u8; IPV6_BYTES] = chunk(self.frame, self.offset)?;
                self.flow.addresses = addresses_v6(header);
                self.offset += IPV6_BYTES;
                Some(Step::Transport(header[6]))
            }
            _ => self.below_ip(),
        }
    }

    fn below_ip(&mut self) -> Option<Step> {
        // Length of the header, and offset in it of the next header's type.
        let (bytes, type_at) = match self.ethertype {
            ETH_VLAN | ETH_SERVICE_VLAN => (4, 2),
            ETH_PRP | ETH_HSR => (6, 4),
            ETH_BATMAN => {
                let header: &[u8; BATMAN_BYTES] = chunk(self.frame, self.offset)?;
                // A unicast packet (0x40) of compatibility version 15.
                if header[..2] != [0x40, 15] {
                    return None;
                }
                (BATMAN_BYTES, 22)
            }
            ETH_PPPOE => return self.pppoe(),
            ETH_TIPC => {
                let header: &[u8; 16] = chunk(self.frame, self.offset)?;
                // The sending node. The kernel uses a random number for keepalives; a pure function
                // has none, and any member is suitable.
                self.flow.addresses = word(header, 12);
                return Some(Step::End);
            }
            ETH_FCOE => return ends_with(chunk::<38>(self.frame, self.offset)),
            ETH_PTP => return ends_with(chunk::<34>(self.frame, self.offset)),
            // Not dissected, and so not required to be complete.
            ETH_MPLS | ETH_MPLS_MULTICAST | ETH_ARP | ETH_RARP | ETH_CFM => {
                return Some(Step::End);
            }
            _ => return None,
        };
        let header = self.frame.get(self.offset..)?.get(..bytes)?;
        self.ethertype = u16_at(header, type_at)?;
        self.offset += bytes;
        Some(Step::Network)
    }

    fn pppoe(&mut self) -> Option<Step> {
        let header: &[u8; PPPOE_BYTES] = chunk(self.frame, self.offset)?;
        // Version 1, type 1, code 0: session data.
        if header[..2] != [0x11, 0] {
            return None;
        }
        self.offset += PPPOE_BYTES;
        self.ethertype = match u16_at(header, 6)? {
            PPP_IPV4 => ETH_IPV4,
            PPP_IPV6 => ETH_IPV6,
            PPP_MPLS => ETH_MPLS,
            PPP_MPLS_MULTICAST => ETH_MPLS_MULTICAST,
            // RFC 1661 section 2: the low byte is odd, the high byte even.
            other if other & 0x0101 == 0x0001 => return Some(Step::End),
            _ => return None,
        };
        Some(Step::Network)
    }

    /// Dissects transport and extension headers; returns whether a network header follows.
    #[inline]
    fn transports(&mut self, mut protocol: u8) -> Option<bool> {
        loop {
            let step = match protocol {
                GRE => self.gre()?,
                HOP_BY_HOP | ROUTING | DESTINATION if self.ethertype == ETH_IPV6 => {
                    let header: &[u8; 2] = chunk(self.frame, self.offset)?;
                    protocol = header[0];
                    self.offset += (usize::from(header[1]) + 1) * 8;
                    Step::Transport(protocol)
                }
                FRAGMENT if self.ethertype == ETH_IPV6 => {
                    chunk::<8>(self.frame, self.offset)?;
                    // Even the ports of a first fragment are ignored, so that all fragments leave
                    // by one member.
                    return Some(false);
                }
                IP_IN_IP => self.network_follows(ETH_IPV4),
                IPV6_IN_IP => self.network_follows(ETH_IPV6),
                MPLS_IN_IP => self.network_follows(ETH_MPLS),
                ICMP | ICMP_V6 => {
                    if let Some(icmp) = icmp_word(self.frame, self.offset) {
                        self.flow.icmp = icmp;
                    }
                    Step::End
                }
                _ => Step::End,
            };
            self.flow.ports = ports(self.frame, self.offset, protocol);
            match step {
                Step::End => return Some(false),
                Step::Network => return Some(self.may_step()),
                Step::Transport(_) if self.may_step() => {}
                Step::Transport(_) => return Some(false),
            }
        }
    }

    fn network_follows(&mut self, ethertype: u16) -> Step {
        self.ethertype = ethertype;
        Step::Network
    }

    /// Dissects a GRE header (RFC 2784, RFC 2890; version 1 is RFC 2637, PPTP).
    fn gre(&mut self) -> Option<Step> {
        let header: &[u8; 4] = chunk(self.frame, self.offset)?;
        let flags = u16_at(header, 0)?;
        let inner = u16_at(header, 2)?;
        let version = flags & 7;
        let is_pptp = version == 1 && inner == GRE_PPP && flags & GRE_KEY != 0;
        if flags & GRE_ROUTING != 0 || !(version == 0 || is_pptp) {
            return Some(Step::End);
        }
        let mut offset = self.offset + 4;
        // The key is the only optional word that must be present, because the kernel reads no
        // other.
        offset += if flags & GRE_CHECKSUM != 0 { 4 } else { 0 };
        if flags & GRE_KEY != 0 {
            chunk::<4>(self.frame, offset)?;
            offset += 4;
        }
        offset += if flags & GRE_SEQUENCE != 0 { 4 } else { 0 };
        self.ethertype = inner;
        if is_pptp {
            offset += if flags & GRE_ACKNOWLEDGE != 0 { 4 } else { 0 };
            let ppp: &[u8; 4] = chunk(self.frame, offset)?;
            self.ethertype = match u16_at(ppp, 2)? {
                PPP_IPV4 => ETH_IPV4,
                PPP_IPV6 => ETH_IPV6,
                _ => inner,
            };
            offset += 4;
        } else if inner == ETH_TRANSPARENT {
            let ethernet: &[u8; ETHERNET_BYTES] = chunk(self.frame, offset)?;
            self.ethertype = u16_at(ethernet, 12)?;
            offset += ETHERNET_BYTES;
        }
        self.offset = offset;
        Some(Step::Network)
    }
}

/// Ends dissection with a header that must be complete.
fn ends_with<const N: usize>(header: Option<&[u8; N]>) -> Option<Step> {
    header.map(|_| Step::End)
}

/// The ports, or the SPI of an IPsec header (`skb_flow_get_ports`).
#[inline]
fn ports(frame: &[u8], offset: usize, protocol: u8) -> u32 {
    let within = match protocol {
        TCP | UDP | DCCP | ESP | SCTP | UDP_LITE => 0,
        AUTHENTICATION => 4,
        _ => return 0,
    };
    chunk::<4>(frame, offset + within).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// The ICMP fields as in [`Flow::icmp`] (`skb_flow_get_icmp_tci`). Id 0 becomes 1, because 0 means
/// no id.
fn icmp_word(frame: &[u8], offset: usize) -> Option<u32> {
    let header: &[u8; ICMP_BYTES] = chunk(frame, offset)?;
    let id = match header[0] {
        // Echo and timestamp of ICMP, and echo of ICMPv6, for either IP version.
        0 | 8 | 13 | 14 | 128 | 129 => u16_at(header, 4)?.max(1),
        _ => 0,
    };
    Some(u32::from(header[0]) | u32::from(header[1]) << 8 | u32::from(id) << 16)
}

#[inline]
fn header_bytes(header: &[u8; IPV4_BYTES]) -> usize {
    usize::from(header[0] & 0xf) * 4
}

/// Whether a packet is a fragment: more follow, or its offset is not 0.
#[inline]
fn is_fragment(header: &[u8; IPV4_BYTES]) -> bool {
    u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0
}

#[inline]
fn addresses_v4(header: &[u8; IPV4_BYTES]) -> u32 {
    word(header, 12) ^ word(header, 16)
}

#[inline]
fn addresses_v6(header: &[u8; IPV6_BYTES]) -> u32 {
    (8..IPV6_BYTES).step_by(4).fold(0, |all, at| all ^ word(header, at))
}

/// A 32-bit word as the kernel loads it on a little-endian machine.
#[inline]
fn word<const N: usize>(header: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    chunk::<2>(bytes, at).map(|bytes| u16::from_be_bytes(*bytes))
}

#[inline]
fn chunk<const N: usize>(bytes: &[u8], offset: usize) -> Option<&[u8; N]> {
    bytes.get(offset..)?.first_chunk()
}

/// EtherType, IP version and header length, as [`word`] loads them. `PART` masks the fragment bits
/// in the word with the TTL.
const V4_WITHOUT_OPTIONS: u32 = u32::from_le_bytes([0x08, 0x00, 0x45, 0]);
const PART: u32 = u32::from_le_bytes([0x3f, 0xff, 0, 0]);
/// Bytes of Ethernet header, IPv4 header without options, and ports.
const PLAIN_BYTES: usize = 38;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const ICMP_BYTES: usize = 8;
const PPPOE_BYTES: usize = 8;
const BATMAN_BYTES: usize = 24;

/// `MAX_FLOW_DISSECT_HDRS`
const STEPS_MAX: u8 = 15;

const ETH_IPV4: u16 = 0x0800;
const ETH_ARP: u16 = 0x0806;
const ETH_BATMAN: u16 = 0x4305;
const ETH_TRANSPARENT: u16 = 0x6558;
const ETH_RARP: u16 = 0x8035;
const ETH_VLAN: u16 = 0x8100;
const ETH_IPV6: u16 = 0x86dd;
const ETH_MPLS: u16 = 0x8847;
const ETH_MPLS_MULTICAST: u16 = 0x8848;
const ETH_PPPOE: u16 = 0x8864;
const ETH_SERVICE_VLAN: u16 = 0x88a8;
const ETH_TIPC: u16 = 0x88ca;
const ETH_PTP: u16 = 0x88f7;
const ETH_PRP: u16 = 0x88fb;
const ETH_CFM: u16 = 0x8902;
const ETH_FCOE: u16 = 0x8906;
const ETH_HSR: u16 = 0x892f;

const PPP_IPV4: u16 = 0x0021;
const PPP_IPV6: u16 = 0x0057;
const PPP_MPLS: u16 = 0x0281;
const PPP_MPLS_MULTICAST: u16 = 0x0283;

const HOP_BY_HOP: u8 = 0;
const ICMP: u8 = 1;
const IP_IN_IP: u8 = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const IPV6_IN_IP: u8 = 41;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const GRE: u8 = 47;
const ESP: u8 = 50;
const AUTHENTICATION: u8 = 51;
const ICMP_V6: u8 = 58;
const DESTINATION: u8 = 60;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;
const MPLS_IN_IP: u8 = 137;

const GRE_CHECKSUM: u16 = 0x8000;
const GRE_ROUTING: u16 = 0x4000;
const GRE_KEY: u16 = 0x2000;
const GRE_SEQUENCE: u16 = 0x1000;
const GRE_ACKNOWLEDGE: u16 = 0x0080;
/// The type in a GRE header that carries PPP.
const GRE_PPP: u16 = 0x880b;
