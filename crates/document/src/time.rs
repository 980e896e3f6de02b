//! Durations as people write them.

use std::time::Duration;

/// `10s`, `500ms`, `600us`, `2m`, `10`.
///
/// # Errors
///
/// Fails if the text is not a duration; the message shows valid ones.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?}: expected a time, like 10s, 500ms or 2m");
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_not_a_number| wrong())?;
    let seconds = match unit {
        "" | "s" => number,
        "ms" => number / 1e3,
        "us" => number / 1e6,
        "ns" => number / 1e9,
        "m" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_out_of_range| wrong())
}
