//! No frame makes a bond's hash panic, and every frame's is that of a second implementation.

#[path = "../../crates/engine/tests/bond/reference.rs"]
mod reference;

use towpath_engine::bond::{XmitPolicy, hash};

#[test]
fn any_frame_any_policy() {
    bolero::check!().for_each(|frame: &[u8]| {
        for policy in XmitPolicy::ALL {
            assert_eq!(hash(policy, frame), reference::hash(policy as u8, frame), "{policy}");
        }
    });
}
