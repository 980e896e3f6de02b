use super::*;
use crate::{Error, Interface, Packet, PacketOptions, Reader};

fn packet(data: &[u8]) -> Packet<'_> {
    Packet {
        data,
        original_len: data.len() as u32,
        timestamp_ns: 1_700_000_000_123_456_789,
        interface: 0,
        link_type: crate::LINK_TYPE_ETHERNET,
        options: PacketOptions::default(),
    }
}

fn options() -> PacketOptions<'static> {
    PacketOptions {
        flags: Some(Direction::Outbound as u32),
        packet_id: Some(42),
        queue: Some(3),
        xdp_verdict: Some(4),
        comment: Some("XDP_REDIRECT to tx_ports[3]"),
    }
}

fn two_packets() -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &Section::default()).unwrap();
    writer.add_interface(&Interface::ethernet("eth0")).unwrap();
    writer.write(&Packet { options: options(), ..packet(&[1; 61]) }).unwrap();
    writer.write(&packet(&[2; 60])).unwrap();
    writer.finish().unwrap()
}

/// A block in the given byte order.
fn block(big: bool, kind: u32, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32 + EMPTY_BLOCK_BYTES;
    [&word(big, kind)[..], &word(big, length), body, &word(big, length)].concat()
}

fn word(big: bool, value: u32) -> [u8; 4] {
    if big { value.to_be_bytes() } else { value.to_le_bytes() }
}

fn section(big: bool) -> Vec<u8> {
    let version = if big { [0, 1, 0, 0] } else { [1, 0, 0, 0] };
    block(big, SECTION_HEADER, &[&word(big, BYTE_ORDER_MAGIC)[..], &version, &[0xff; 8]].concat())
}

#[test]
fn what_is_written_is_read_back() {
    let file = two_packets();
    let mut reader = Reader::new(file.as_slice()).unwrap();
    let first = Packet { options: options(), ..packet(&[1; 61]) };
    assert_eq!(reader.next_packet().unwrap(), Some(first));
    assert_eq!(reader.next_packet().unwrap(), Some(packet(&[2; 60])));
    assert_eq!(reader.next_packet().unwrap(), None);
    assert_eq!(reader.interfaces(), [Interface::ethernet("eth0")]);
    assert_eq!(reader.offset(), file.len() as u64);
}

#[test]
fn what_was_lost_is_read_back() {
    let mut writer = Writer::new(Vec::new(), &Section::default()).unwrap();
    writer.add_interface(&Interface::ethernet("eth0")).unwrap();
    writer.add_interface(&Interface::ethernet("eth1")).unwrap();
    for (interface, dropped) in [(0, 7), (0, 9), (1, 1)] {
        writer.write_dropped(interface, 1_700_000_000_123_456_789, dropped).unwrap();
    }
    assert!(matches!(writer.write_dropped(2, 0, 1), Err(Error::UnknownInterface { .. })));
    writer.write(&packet(&[2; 60])).unwrap();
    let file = writer.finish().unwrap();
    let mut reader = Reader::new(file.as_slice()).unwrap();
    assert_eq!(reader.next_packet().unwrap(), Some(packet(&[2; 60])));
    assert_eq!(reader.dropped(), 10, "the last count of each");
}

#[test]
fn sections_of_either_byte_order_follow_one_another() {
    let mut file = Vec::new();
    for big in [true, false] {
        file.extend(section(big));
        // Link type 1, snaplen 4, then if_tsresol 2^-1.
        let (one, resolution) = if big { ([0, 1], [0, 9, 0, 1]) } else { ([1, 0], [9, 0, 1, 0]) };
        let body =
            [&one[..], &[0; 2], &word(big, 4), &resolution, &[0x81, 0, 0, 0], &[0; 4]].concat();
        file.extend(block(big, INTERFACE_DESCRIPTION, &body));
        let header = [0, 0, 3, 4, 9].map(|value| word(big, value)).concat();
        file.extend(block(big, ENHANCED_PACKET, &[&header[..], b"abcd"].concat()));
        file.extend(block(big, SIMPLE_PACKET, &[&word(big, 9)[..], b"wxyz"].concat()));
        file.extend(block(big, 0x0bad, b"to be skipped   "));
        file.extend(block(big, OBSOLETE_PACKET, &[&header[..], b"ABCD"].concat()));
    }
    let mut reader = Reader::new(file.as_slice()).unwrap();
    for interface in [0, 1] {
        for (data, timestamp_ns) in
            [(b"abcd", 1_500_000_000), (b"wxyz", 0), (b"ABCD", 1_500_000_000)]
        {
            let packet = reader.next_packet().unwrap().unwrap();
            assert_eq!((packet.data, packet.original_len), (&data[..], 9));
            assert_eq!((packet.timestamp_ns, packet.interface), (timestamp_ns, interface));
        }
    }
    assert_eq!(reader.next_packet().unwrap(), None);
}

#[test]
fn every_truncation_keeps_the_frames_before_it() {
    let file = two_packets();
    let mut block_ends = Vec::new();
    let mut at = 0;
    while at < file.len() {
        at += u32::from_le_bytes(file[at + 4..at + 8].try_into().unwrap()) as usize;
        block_ends.push(at);
    }
    let [_section, _interface, first_packet, _second_packet] = block_ends[..] else { panic!() };
    for end in 1..file.len() {
        let mut count = 0;
        let result = Reader::new(&file[..end]).and_then(|mut reader| {
            while reader.next_packet()?.is_some() {
                count += 1;
            }
            Ok(())
        });
        assert_eq!(count, usize::from(end >= first_packet), "cut at {end}");
        match result {
            Err(Error::Truncated { end: found, .. }) => assert_eq!(found, end as u64),
            other => assert!(other.is_ok() && block_ends.contains(&end), "{end}: {other:?}"),
        }
    }
}

#[test]
fn damage_is_refused_with_its_offset() {
    let header = section(false);
    let at = header.len() as u64;
    let refuse = |tail: &[u8]| {
        let file = [header.as_slice(), tail].concat();
        let mut reader = Reader::new(file.as_slice()).unwrap();
        reader.next_packet().unwrap_err()
    };

    let error = refuse(&block(false, ENHANCED_PACKET, &[0; 20]));
    assert!(matches!(error, Error::UnknownInterface { offset, .. } if offset == at), "{error}");

    let error = refuse(&[6, 0, 0, 0, 13, 0, 0, 0]);
    assert!(matches!(error, Error::Malformed { offset, .. } if offset == at + 4), "{error}");

    let error = refuse(&[6, 0, 0, 0, 0, 0, 0, 0x40]);
    assert!(matches!(error, Error::TooLarge { offset, .. } if offset == at + 4), "{error}");

    let mut bad_trailer = block(false, INTERFACE_DESCRIPTION, &[1, 0, 0, 0, 0, 0, 0, 0]);
    bad_trailer[16] = 24;
    let error = refuse(&bad_trailer);
    assert!(error.to_string().contains("expected 20, as at its start"), "{error}");

    let overrun = block(false, INTERFACE_DESCRIPTION, &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 99, 0]);
    let error = refuse(&overrun);
    assert!(error.to_string().contains("option"), "{error}");
}

#[test]
fn packets_must_name_a_described_interface_when_written() {
    let mut writer = Writer::new(Vec::new(), &Section::default()).unwrap();
    let error = writer.write(&packet(&[0; 60])).unwrap_err();
    assert!(matches!(error, Error::UnknownInterface { count: 0, .. }), "{error}");
}
