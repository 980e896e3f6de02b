//! Captures that the `gzip` and `zstd` commands packed, as a whole and in parts.

use std::io::{self, Read};

use towpath_capture::{Error, Reader};

const GZIP: &[u8] = include_bytes!("data/frames.pcap.gz");
const ZSTD: &[u8] = include_bytes!("data/frames.pcap.zst");
const GZIP_PARTS: &[u8] = include_bytes!("data/parts.pcap.gz");
/// Two frames, with skippable ones before each.
const ZSTD_PARTS: &[u8] = include_bytes!("data/parts.pcap.zst");

/// 300 frames to 02:00:00:00:00:NN, one a second.
fn check(input: impl Read) {
    let mut reader = Reader::new(input).expect("a capture");
    for number in 0..300_u64 {
        let packet = reader.next_packet().expect("it is whole").expect("300 frames");
        assert_eq!(packet.data.len(), 60);
        assert_eq!(packet.data[..6], [2, 0, 0, 0, 0, number as u8]);
        assert_eq!(packet.timestamp_ns, number * 1_000_000_000);
    }
    assert_eq!(reader.next_packet().expect("it is whole"), None);
}

/// Gives out one byte at a time.
struct Slowly<'a>(&'a [u8]);

impl Read for Slowly<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = bytes.len().min(1);
        self.0.read(&mut bytes[..count])
    }
}

#[test]
fn whatever_the_packer_made_of_it_is_read() {
    for packed in [GZIP, ZSTD, GZIP_PARTS, ZSTD_PARTS] {
        check(packed);
        check(Slowly(packed));
    }
}

#[test]
fn a_cut_or_damaged_file_is_an_error_and_no_end() {
    let outcome = |bytes: &[u8]| -> Result<u64, Error> {
        let mut reader = Reader::new(bytes)?;
        let mut count = 0;
        while reader.next_packet()?.is_some() {
            count += 1;
        }
        Ok(count)
    };
    for packed in [GZIP, ZSTD, GZIP_PARTS, ZSTD_PARTS] {
        assert_eq!(outcome(packed).expect("it is whole"), 300);
        for cut in [5, packed.len() / 2, packed.len() - 1] {
            assert!(outcome(&packed[..cut]).is_err(), "{cut} of {}", packed.len());
        }
        let mut damaged = packed.to_vec();
        let last = damaged.len() - 2;
        damaged[last] ^= 1;
        assert!(outcome(&damaged).is_err(), "its checksum is wrong");
    }
}

#[test]
fn progress_counts_what_is_packed_and_limits_what_is_not() {
    let mut reader = Reader::new(GZIP).expect("a capture");
    while reader.next_packet().expect("whole").is_some() {}
    assert!(reader.offset() <= GZIP.len() as u64);

    let mut reader = Reader::new(ZSTD).expect("a capture").limited(10_000);
    let error = loop {
        match reader.next_packet() {
            Ok(packet) => assert!(packet.is_some(), "it has 22 KiB"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::TooLarge { limit: 10_000, .. }), "{error}");
}
