//! What walks found, with as few steps as would do: it is tried again each time.

use crate::model::{Content, Kind, Lane, Link};
use crate::steps::Step;

/// A name, how the lanes begin, and the steps.
type Case = (&'static str, Vec<Lane>, &'static [Step]);

/// All of them.
pub(crate) fn all() -> Vec<Case> {
    let lanes = |kind: Kind| [27, 34, 8].map(|mask| Lane::new(kind, mask)).to_vec();
    vec![
        ("a refused program stays refused while its port isn't there", lanes(Kind::Afxdp), REFUSED),
        ("elements stay while their program's port isn't there", lanes(Kind::Packet), ELEMENTS),
        ("a start refuses what a reload would refuse", lanes(Kind::Tap), UNREAD),
        ("a change is taken while an interface goes", lanes(Kind::Afxdp), BESIDE),
        ("a port that was never open can be set", lanes(Kind::Packet), NEVER_OPEN),
    ]
}

const RESTART: Step = Step::Restart { is_killed: false, is_log_full: false };

const REFUSED: &[Step] = &[
    Step::Wire(2, Link::Gone),
    Step::Change(2, Content::Wide, 105),
    RESTART,
    Step::Wire(1, Link::Gone),
    Step::Wire(2, Link::Up),
];

const ELEMENTS: &[Step] = &[
    Step::Block { lane: 1, class: 5, is_blocked: true },
    Step::Wire(1, Link::Gone),
    RESTART,
    Step::Extra(true),
    Step::Restart { is_killed: true, is_log_full: false },
    Step::Wire(1, Link::Up),
];

const UNREAD: &[Step] = &[
    Step::Block { lane: 0, class: 1, is_blocked: true },
    Step::Object(0, Content::Wide),
    RESTART,
    Step::Object(0, Content::Refused),
    Step::Restart { is_killed: true, is_log_full: false },
];

const BESIDE: &[Step] = &[
    Step::Wire(0, Link::Gone),
    Step::Extra(true),
    Step::Wire(1, Link::Renamed),
    Step::Extra(false),
];

const NEVER_OPEN: &[Step] = &[
    Step::Wire(1, Link::Gone),
    RESTART,
    Step::SetUp(1, false),
    Step::Block { lane: 1, class: 0, is_blocked: true },
    Step::Wire(1, Link::Up),
    Step::SetUp(1, true),
];
