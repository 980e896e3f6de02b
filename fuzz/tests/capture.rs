//! No bytes make the capture reader panic, hang or take unbounded memory.

use towpath_capture::{Error, PACKET_BYTES_MAX, Reader, pcap, pcapng};
use towpath_fuzz::corpus;

#[test]
fn what_went_wrong_before_and_each_part_of_it() {
    for file in known(&["pcap", "pcapng"]) {
        (0..=file.len()).for_each(|len| read_all(&file[..len]));
    }
    for file in known(&["gz"]) {
        (0..=file.len()).for_each(|len| read_packed(&file[..len]));
    }
}

#[test]
fn any_bytes_after_a_real_beginning() {
    let starts = starts();
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(choice, bytes)| {
        let start = &starts[usize::from(*choice) % starts.len()];
        read_all(&[start.as_slice(), bytes].concat());
    });
}

#[test]
fn a_real_file_with_bytes_changed() {
    let starts = starts();
    bolero::check!().with_type::<(u8, Vec<(u16, u8)>)>().for_each(|(choice, changes)| {
        let mut file = starts[usize::from(*choice) % starts.len()].clone();
        let len = file.len().max(1);
        for (at, value) in changes {
            if let Some(byte) = file.get_mut(usize::from(*at) % len) {
                *byte = *value;
            }
        }
        read_all(&file);
    });
}

/// Captures of `corpus/`.
fn known(extensions: &[&str]) -> Vec<Vec<u8>> {
    let files = corpus("capture", extensions).expect("they are committed");
    assert!(!files.is_empty());
    files
}

/// Nothing, a pcap file with a frame, a pcapng file with two interfaces and a frame, and files that
/// went wrong.
fn starts() -> Vec<Vec<u8>> {
    let mut classic = Vec::new();
    let mut blocks = Vec::new();
    write_starts(&mut classic, &mut blocks).expect("writing to memory does not fail");
    [vec![Vec::new(), classic, blocks], known(&["pcap", "pcapng"])].concat()
}

#[test]
fn any_bytes_behind_the_beginning_of_a_packed_file() {
    let starts = packed();
    bolero::check!().with_type::<(u8, Vec<u8>)>().for_each(|(choice, bytes)| {
        let start = &starts[usize::from(*choice) % starts.len()];
        read_packed(&[start, &bytes[..]].concat());
    });
}

#[test]
fn a_packed_file_with_bytes_changed() {
    let starts = packed();
    bolero::check!().with_type::<(u8, Vec<(u16, u8)>)>().for_each(|(choice, changes)| {
        let mut file = starts[usize::from(*choice) % starts.len()].to_vec();
        let len = file.len().max(1);
        for (at, value) in changes {
            if let Some(byte) = file.get_mut(usize::from(*at) % len) {
                *byte = *value;
            }
        }
        read_packed(&file);
    });
}

/// Magic numbers, and whole files.
fn packed() -> [&'static [u8]; 6] {
    [
        &[0x1f, 0x8b, 8, 0],
        &[0x28, 0xb5, 0x2f, 0xfd],
        &[0x50, 0x2a, 0x4d, 0x18],
        include_bytes!("../../crates/capture/tests/data/frames.pcap.gz"),
        include_bytes!("../../crates/capture/tests/data/frames.pcap.zst"),
        include_bytes!("../../crates/capture/tests/data/parts.pcap.zst"),
    ]
}

/// What comes out is limited, not by the file's length.
fn read_packed(file: &[u8]) {
    let Ok(reader) = Reader::new(file) else { return };
    let mut reader = reader.limited(UNPACKED_BYTES_MAX);
    let mut bytes = 0;
    while let Ok(Some(packet)) = reader.next_packet() {
        assert!(packet.data.len() <= PACKET_BYTES_MAX as usize);
        bytes += packet.data.len() as u64;
    }
    assert!(bytes <= UNPACKED_BYTES_MAX);
    assert!(reader.offset() <= file.len() as u64);
    assert!(matches!(reader.next_packet(), Ok(None)), "the stream has ended");
}

const UNPACKED_BYTES_MAX: u64 = 1 << 20;

fn write_starts(classic: &mut Vec<u8>, blocks: &mut Vec<u8>) -> Result<(), Error> {
    let data = &[0x55; 61];
    pcap::Writer::new(classic)?.write(data, 61, 1)?;
    let mut writer = pcapng::Writer::new(blocks, &pcapng::Section::default())?;
    writer.add_interface(&towpath_capture::Interface::ethernet("a"))?;
    let interface = writer.add_interface(&towpath_capture::Interface::ethernet("b"))?;
    let options = towpath_capture::PacketOptions {
        queue: Some(1),
        xdp_verdict: Some(2),
        comment: Some("c"),
        ..Default::default()
    };
    let packet = towpath_capture::Packet {
        data,
        original_len: 61,
        timestamp_ns: 1,
        interface,
        link_type: towpath_capture::LINK_TYPE_ETHERNET,
        options,
    };
    writer.write(&packet)
}

fn read_all(file: &[u8]) {
    let Ok(mut reader) = Reader::new(file) else { return };
    let mut count = 0;
    while let Ok(Some(packet)) = reader.next_packet() {
        assert!(packet.data.len() <= PACKET_BYTES_MAX as usize);
        assert!(packet.data.len() <= file.len());
        count += 1;
    }
    assert!(count <= file.len() / 12, "more frames than the file has room for");
    assert!(reader.offset() <= file.len() as u64);
    assert!(matches!(reader.next_packet(), Ok(None)), "the stream has ended");
}
