//! Values of global variables as people write them: `10`, `-1`, `0x1f`, `true`, `hex:00ff`.

use towpath_bpf::object::GlobalValue;
use towpath_maps::typed::from_hex;

/// Parses a value; `None` if the form is unknown.
pub fn parse_value(text: &str) -> Option<GlobalValue> {
    if let Some(digits) = text.strip_prefix("hex:") {
        return parse_hex(digits).map(GlobalValue::Bytes);
    }
    match text {
        "true" => return Some(GlobalValue::Int(1)),
        "false" => return Some(GlobalValue::Int(0)),
        _ => {}
    }
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    let value = i128::from(value.ok()?);
    Some(GlobalValue::Int(if negative { -value } else { value }))
}

/// Formats bytes as hexadecimal, two digits each.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses hexadecimal digits, with or without spaces and colons between bytes.
pub fn parse_hex(text: &str) -> Option<Vec<u8>> {
    from_hex(&text.replace([' ', ':'], ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_four_forms() {
        assert_eq!(parse_value("10"), Some(GlobalValue::Int(10)));
        assert_eq!(parse_value("-1"), Some(GlobalValue::Int(-1)));
        assert_eq!(parse_value("0xff"), Some(GlobalValue::Int(255)));
        assert_eq!(parse_value("true"), Some(GlobalValue::Int(1)));
        assert_eq!(parse_value("hex:0a0b"), Some(GlobalValue::Bytes(vec![10, 11])));
        for wrong in ["", "ten", "1.5", "hex:abc", "hex:xy", "--1"] {
            assert_eq!(parse_value(wrong), None, "{wrong}");
        }
    }
}
