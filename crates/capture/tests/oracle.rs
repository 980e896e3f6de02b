//! Files we write, read by an independent implementation, and files it writes, read by us.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::borrow::Cow;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapTsResolution, PcapWriter};
use pcap_file::pcapng::blocks::block_common::Block;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
use pcap_file::pcapng::{PcapNgReader, PcapNgWriter};
use pcap_file::{DataLink, Endianness};
use towpath_capture::pcapng::{Direction, Section, Writer};
use towpath_capture::{Interface, LINK_TYPE_ETHERNET, Packet, PacketOptions, Reader, pcap};

const TIME_NS: u64 = 1_700_000_000_123_456_789;

/// Frames of every padding, one of them as long as frames of 17 frags get.
fn frames() -> Vec<Vec<u8>> {
    [14, 60, 61, 62, 63, 1514, 73_152].map(|len| (0..len).map(|i| i as u8).collect()).to_vec()
}

#[test]
fn our_pcapng_is_understood() {
    let section = Section { application: "towpath".to_owned(), ..Section::default() };
    let mut writer = Writer::new(Vec::new(), &section).unwrap();
    let interface = writer.add_interface(&Interface::ethernet("eth0")).unwrap();
    let options = PacketOptions {
        flags: Some(Direction::Outbound as u32),
        packet_id: Some(7),
        queue: Some(1),
        xdp_verdict: Some(3),
        comment: Some("sent back"),
    };
    for data in &frames() {
        let original_len = data.len() as u32;
        let packet = Packet {
            data,
            original_len,
            timestamp_ns: TIME_NS,
            interface,
            link_type: LINK_TYPE_ETHERNET,
            options,
        };
        writer.write(&packet).unwrap();
    }
    let file = writer.finish().unwrap();

    let mut reader = PcapNgReader::new(file.as_slice()).unwrap();
    let mut expected = frames().into_iter();
    while let Some(block) = reader.next_block() {
        let (block, _) = block.unwrap();
        match block {
            Block::EnhancedPacket(packet) => {
                assert_eq!(packet.data.as_ref(), expected.next().unwrap());
                assert_eq!(packet.timestamp, Duration::from_nanos(TIME_NS));
                assert_eq!(packet.options.len(), 5);
            }
            Block::InterfaceDescription(interface) => {
                assert_eq!(interface.linktype, DataLink::ETHERNET);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(expected.next(), None);
}

#[test]
fn our_pcap_is_understood() {
    let mut writer = pcap::Writer::new(Vec::new()).unwrap();
    for frame in frames() {
        writer.write(&frame, frame.len() as u32, TIME_NS).unwrap();
    }
    let file = writer.finish().unwrap();
    let mut reader = PcapReader::new(file.as_slice()).unwrap();
    for frame in frames() {
        let packet = reader.next_packet().unwrap().unwrap();
        assert_eq!(packet.data(), frame);
        assert_eq!(packet.timestamp(), Duration::from_nanos(TIME_NS));
    }
    assert!(reader.next_packet().is_none());
}

#[test]
fn their_pcapng_is_understood_in_both_byte_orders() {
    for endianness in [Endianness::Little, Endianness::Big] {
        let mut writer = PcapNgWriter::with_endianness(Vec::new(), endianness).unwrap();
        let options = Vec::new();
        let interface =
            InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options };
        writer.write_pcapng_block(interface).unwrap();
        for frame in frames() {
            let packet = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_nanos(TIME_NS),
                original_len: frame.len() as u32,
                data: Cow::Owned(frame),
                options: Vec::new(),
            };
            writer.write_pcapng_block(packet).unwrap();
        }
        // Their default resolution is microseconds.
        expect_frames(&writer.into_inner(), TIME_NS / 1000 * 1000);
    }
}

#[test]
fn their_pcap_is_understood_in_all_four_forms() {
    for endianness in [Endianness::Little, Endianness::Big] {
        for (ts_resolution, unit) in
            [(PcapTsResolution::MicroSecond, 1000), (PcapTsResolution::NanoSecond, 1)]
        {
            let snaplen = 1 << 18;
            let header = PcapHeader { endianness, ts_resolution, snaplen, ..Default::default() };
            let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
            for frame in frames() {
                let time = Duration::from_nanos(TIME_NS / unit * unit);
                let packet = PcapPacket::new(time, frame.len() as u32, frame).unwrap();
                writer.write_packet(&packet).unwrap();
            }
            expect_frames(&writer.into_inner(), TIME_NS / unit * unit);
        }
    }
}

fn expect_frames(file: &[u8], timestamp_ns: u64) {
    let mut reader = Reader::new(file).unwrap();
    for frame in frames() {
        let packet = reader.next_packet().unwrap().unwrap();
        assert_eq!((packet.data, packet.timestamp_ns), (frame.as_slice(), timestamp_ns));
    }
    assert_eq!(reader.next_packet().unwrap(), None);
}
