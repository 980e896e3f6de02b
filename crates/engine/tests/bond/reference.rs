//! The bond's hash once more, written from its description and not from the code under test:
//! slow, one loop, wide arithmetic, every load checked where it is made.

#![expect(clippy::unwrap_used, reason = "a test")]

/// Hashes a frame by the kernel's number of a policy.
pub(crate) fn hash(policy: u8, p: &[u8]) -> u32 {
    if p.len() < 14 {
        return 0;
    }
    let eth = u32::from(p[5]) ^ u32::from(p[11]) ^ be16(p, 12).unwrap();
    let found = match policy {
        0 => return eth,
        5 => {
            let half = |at: usize| (0..3).fold(0, |all, i| all << 8 | u32::from(p[at + i]));
            return half(6) ^ half(9);
        }
        1 | 2 => plain(p, policy == 1),
        _ => encap(p),
    };
    let Some(found) = found else { return eth };
    let by_ports = policy == 1 || policy == 4;
    let mut h = match by_ports {
        false => eth,
        true if found.icmp_id != 0 => found.icmp_type | found.icmp_code << 8 | found.icmp_id << 16,
        true => found.ports,
    };
    h ^= found.src ^ found.dst;
    h ^= h >> 16;
    h ^= h >> 8;
    if by_ports { h >> 1 } else { h }
}

#[derive(Default)]
struct Found {
    src: u32,
    dst: u32,
    ports: u32,
    icmp_type: u32,
    icmp_code: u32,
    icmp_id: u32,
}

fn byte(p: &[u8], at: usize) -> Option<u32> {
    p.get(at).map(|byte| u32::from(*byte))
}

fn be16(p: &[u8], at: usize) -> Option<u32> {
    Some(byte(p, at)? * 256 + byte(p, at + 1)?)
}

fn le32(p: &[u8], at: usize) -> Option<u32> {
    (0..4).rev().try_fold(0u32, |all, i| Some(all * 256 + byte(p, at + i)?))
}

fn fits(p: &[u8], at: usize, bytes: usize) -> Option<()> {
    (at + bytes <= p.len()).then_some(())
}

fn ports(p: &[u8], at: usize, proto: i32) -> u32 {
    let at = match proto {
        6 | 17 | 33 | 50 | 132 | 136 => at,
        51 => at + 4,
        _ => return 0,
    };
    le32(p, at).unwrap_or(0)
}

fn take_v6(found: &mut Found, p: &[u8], at: usize) {
    let four = |at: usize| (0..4).fold(0, |all, i| all ^ le32(p, at + 4 * i).unwrap());
    found.src = four(at + 8);
    found.dst = four(at + 24);
}

fn take_icmp(found: &mut Found, p: &[u8], at: usize) {
    if fits(p, at, 8).is_none() {
        return;
    }
    found.icmp_type = u32::from(p[at]);
    found.icmp_code = u32::from(p[at + 1]);
    found.icmp_id = 0;
    if [0, 8, 13, 14, 128, 129].contains(&p[at]) {
        found.icmp_id = be16(p, at + 4).unwrap();
        if found.icmp_id == 0 {
            found.icmp_id = 1;
        }
    }
}

fn plain(p: &[u8], wants_ports: bool) -> Option<Found> {
    let mut found = Found::default();
    let mut at = 14;
    let mut proto = -1;
    for pass in 0..2 {
        match be16(p, 12)? {
            0x0800 => {
                fits(p, at, 20)?;
                found.src = le32(p, at + 12)?;
                found.dst = le32(p, at + 16)?;
                if be16(p, at + 6)? & 0x3fff == 0 {
                    proto = i32::from(p[at + 9]);
                }
                at += usize::from(p[at] % 16) * 4;
            }
            0x86dd => {
                fits(p, at, 40)?;
                take_v6(&mut found, p, at);
                proto = i32::from(p[at + 6]);
                at += 40;
            }
            _ => return None,
        }
        if wants_ports && proto >= 0 {
            found.ports = ports(p, at, proto);
        }
        if pass == 1 {
            break;
        }
        let errors: &[u32] = match proto {
            1 => &[3, 4, 5, 11, 12],
            58 => &[1, 2, 3, 4],
            _ => break,
        };
        take_icmp(&mut found, p, at);
        if !errors.contains(&found.icmp_type) {
            break;
        }
        at += 8;
    }
    Some(found)
}

/// What to look at next.
enum Look {
    Link(u32),
    Proto(i32),
    Done,
}

fn encap(p: &[u8]) -> Option<Found> {
    let mut found = Found::default();
    let mut at = 14;
    let mut l2 = be16(p, 12)?;
    let mut look = Look::Link(l2);
    let mut again = 0;
    loop {
        let (next, counts) = match look {
            Look::Done => return Some(found),
            Look::Link(kind) => {
                l2 = kind;
                let next = link(&mut found, p, &mut at, kind)?;
                let counts = matches!(next, Look::Link(_));
                (next, counts)
            }
            Look::Proto(proto) => {
                let is_fragment = proto == 44 && l2 == 0x86dd;
                let next = transport(&mut found, p, &mut at, l2, proto)?;
                if !is_fragment {
                    let now = if let Look::Proto(proto) = next { proto } else { proto };
                    found.ports = ports(p, at, now);
                }
                (next, true)
            }
        };
        if counts && !matches!(next, Look::Done) {
            again += 1;
            if again > 15 {
                return Some(found);
            }
        }
        look = next;
    }
}

fn link(found: &mut Found, p: &[u8], at: &mut usize, kind: u32) -> Option<Look> {
    let start = *at;
    match kind {
        0x0800 => {
            fits(p, start, 20)?;
            let words = usize::from(p[start] & 15);
            if words < 5 {
                return None;
            }
            found.src = le32(p, start + 12)?;
            found.dst = le32(p, start + 16)?;
            *at += words * 4;
            if be16(p, start + 6)? & 0x3fff != 0 {
                return Some(Look::Done);
            }
            Some(Look::Proto(i32::from(p[start + 9])))
        }
        0x86dd => {
            fits(p, start, 40)?;
            take_v6(found, p, start);
            *at += 40;
            Some(Look::Proto(i32::from(p[start + 6])))
        }
        0x8100 | 0x88a8 => {
            *at += 4;
            be16(p, start + 2).map(Look::Link)
        }
        0x8864 => {
            fits(p, start, 8)?;
            if p[start] != 0x11 || p[start + 1] != 0 {
                return None;
            }
            *at += 8;
            match be16(p, start + 6)? {
                0x0021 => Some(Look::Link(0x0800)),
                0x0057 => Some(Look::Link(0x86dd)),
                0x0281 | 0x0283 => Some(Look::Link(0x8847)),
                _ if !p[start + 7].is_multiple_of(2) && p[start + 6].is_multiple_of(2) => {
                    Some(Look::Done)
                }
                _ => None,
            }
        }
        0x88ca => {
            fits(p, start, 16)?;
            (found.src, found.dst) = (le32(p, start + 12)?, 0);
            Some(Look::Done)
        }
        0x8847 | 0x8848 | 0x0806 | 0x8035 | 0x8902 => Some(Look::Done),
        0x8906 => fits(p, start, 38).map(|()| Look::Done),
        0x88f7 => fits(p, start, 34).map(|()| Look::Done),
        0x88fb | 0x892f => {
            *at += 6;
            be16(p, start + 4).map(Look::Link)
        }
        0x4305 => {
            fits(p, start, 24)?;
            *at += 24;
            let is_unicast = p[start] == 0x40 && p[start + 1] == 15;
            if is_unicast { be16(p, start + 22).map(Look::Link) } else { None }
        }
        _ => None,
    }
}

fn transport(found: &mut Found, p: &[u8], at: &mut usize, l2: u32, proto: i32) -> Option<Look> {
    let start = *at;
    match proto {
        4 => Some(Look::Link(0x0800)),
        41 => Some(Look::Link(0x86dd)),
        137 => Some(Look::Link(0x8847)),
        0 | 43 | 60 if l2 == 0x86dd => {
            fits(p, start, 2)?;
            *at += 8 * (usize::from(p[start + 1]) + 1);
            Some(Look::Proto(i32::from(p[start])))
        }
        44 if l2 == 0x86dd => fits(p, start, 8).map(|()| Look::Done),
        1 | 58 => {
            take_icmp(found, p, start);
            Some(Look::Done)
        }
        47 => gre(p, at),
        _ => Some(Look::Done),
    }
}

fn gre(p: &[u8], at: &mut usize) -> Option<Look> {
    let (flags, kind) = (be16(p, *at)?, be16(p, *at + 2)?);
    let version = flags & 7;
    if flags & 0x4000 != 0 || version > 1 {
        return Some(Look::Done);
    }
    if version == 1 && (kind != 0x880b || flags & 0x2000 == 0) {
        return Some(Look::Done);
    }
    let mut start = *at + 4;
    for optional in [0x8000, 0x2000, 0x1000] {
        if flags & optional != 0 {
            if optional == 0x2000 {
                fits(p, start, 4)?;
            }
            start += 4;
        }
    }
    let mut inner = kind;
    if version == 1 {
        if flags & 0x0080 != 0 {
            start += 4;
        }
        fits(p, start, 4)?;
        match be16(p, start + 2)? {
            0x0021 => inner = 0x0800,
            0x0057 => inner = 0x86dd,
            _ => {}
        }
        start += 4;
    } else if kind == 0x6558 {
        fits(p, start, 14)?;
        inner = be16(p, start + 12)?;
        start += 14;
    }
    *at = start;
    Some(Look::Link(inner))
}
