//! A timeline of frames, as text and as a picture.

use std::fmt::Write as _;
use std::time::Instant;

/// One millisecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Millisecond {
    /// Since the failure.
    pub(crate) at: i64,
    pub(crate) sent: u32,
    pub(crate) lost: u32,
}

/// Frames around a failure: when each was sent, and whether it was lost.
pub(crate) fn timeline(
    cut: Instant,
    frames: impl Iterator<Item = (Instant, bool)>,
) -> Vec<Millisecond> {
    let count = usize::try_from(BEFORE_MS + AFTER_MS).unwrap_or(0);
    let mut timeline: Vec<Millisecond> =
        (-BEFORE_MS..AFTER_MS).take(count).map(|at| Millisecond { at, sent: 0, lost: 0 }).collect();
    for (when, is_lost) in frames {
        let micros = |time: std::time::Duration| time.as_micros() as i64;
        let since = match when.checked_duration_since(cut) {
            Some(after) => micros(after),
            None => -micros(cut - when),
        };
        let place = usize::try_from(since.div_euclid(1000) + BEFORE_MS);
        if let Some(slot) = place.ok().and_then(|place| timeline.get_mut(place)) {
            slot.sent += 1;
            slot.lost += u32::from(is_lost);
        }
    }
    timeline
}

/// A line for each millisecond: `=` is what arrived, `x` what was lost.
pub(crate) fn text(timeline: &[Millisecond]) -> String {
    let most = timeline.iter().map(|it| it.sent).max().unwrap_or(0).max(1);
    let mut text = "    ms    sent    lost\n".to_owned();
    for Millisecond { at, sent, lost } in timeline {
        let width = |count: u32| (count * COLUMNS / most) as usize;
        let (all, gone) = (width(*sent), width(*lost).max(usize::from(*lost > 0)));
        let bar = "=".repeat(all.saturating_sub(gone)) + &"x".repeat(gone);
        let _never_fails = writeln!(text, "  {at:4} {sent:7} {lost:7}  {bar}");
    }
    text
}

/// The same as a picture.
pub(crate) fn svg(timeline: &[Millisecond], title: &str) -> String {
    let most = f64::from(timeline.iter().map(|it| it.sent).max().unwrap_or(0).max(1));
    let (bar, height) = (14.0, 200.0);
    let width = bar * timeline.len() as f64;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{}' height='{}' \
         font-family='sans-serif' font-size='11'>\n<text x='10' y='16'>{title}</text>\n",
        width + 20.0,
        height + 60.0
    );
    for (index, Millisecond { at, sent, lost }) in timeline.iter().enumerate() {
        let x = 10.0 + bar * index as f64;
        let share = |count: u32| height * f64::from(count) / most;
        let mut rect = |from: f64, tall: f64, colour: &str| {
            let y = 30.0 + height - from - tall;
            let _never_fails = writeln!(
                svg,
                "<rect x='{x:.0}' y='{y:.1}' width='{:.0}' height='{tall:.1}' fill='{colour}'/>",
                bar - 2.0
            );
        };
        rect(0.0, share(sent - lost), "#4a8");
        rect(share(sent - lost), share(*lost), "#c33");
        if at % 5 == 0 {
            let y = 30.0 + height + 14.0;
            let _never_fails = writeln!(svg, "<text x='{x:.0}' y='{y:.0}'>{at}</text>");
        }
    }
    svg + "</svg>\n"
}

const BEFORE_MS: i64 = 5;
const AFTER_MS: i64 = 25;
/// Width of the longest bar.
const COLUMNS: u32 = 50;
