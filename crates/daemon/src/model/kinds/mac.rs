//! Ethernet addresses in configuration.

use sha2::{Digest as _, Sha256};
use towpath_maps::typed;

use towpath_document::Problem;

/// Parses `02:00:00:00:00:01`; without a text, makes an address that is always the same for a name.
pub(super) fn parse_or_make(text: Option<&str>, name: &str) -> Result<[u8; 6], Problem> {
    let Some(text) = text else { return Ok(made_for(name)) };
    let wrong = || {
        Problem::new(
            "mac",
            format!("\"{text}\" is not an Ethernet address, like 02:00:00:00:00:01"),
        )
    };
    let mac = typed::mac(text).ok_or_else(wrong)?;
    if mac[0] & 1 == 1 {
        let message = format!("\"{text}\" is a group address: the first byte must be even");
        return Err(Problem::new("mac", message));
    }
    Ok(mac)
}

/// A locally administered address derived from the name.
fn made_for(name: &str) -> [u8; 6] {
    let digest = Sha256::digest(name.as_bytes());
    let mut mac = [0x02, 0, 0, 0, 0, 0];
    mac[1..].copy_from_slice(&digest[..5]);
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_six_bytes_and_not_of_groups() {
        let parse = |text| parse_or_make(Some(text), "p0");
        assert_eq!(parse("02:00:00:00:00:1f"), Ok([2, 0, 0, 0, 0, 0x1f]));
        for wrong in ["", "02:00:00:00:00", "02:00:00:00:00:0g", "2:0:0:0:0:1", "01:00:00:00:00:00"]
        {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert_ne!(parse_or_make(None, "p0"), parse_or_make(None, "p1"));
    }
}
