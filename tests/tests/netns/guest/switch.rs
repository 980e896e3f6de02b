//! A guest's bond over two ports of a bridge: only the guest knows that there is a bond.

use std::time::Duration;

use towpath_engine::UpperName;

use super::scene::{self, Scene, Wire, until};

#[test]
fn a_guest_fails_over_between_two_ports_of_a_bridge() {
    if let Some(why) = scene::unavailable() {
        return eprintln!("skipped: {why}");
    }
    for wire in [Wire::Packet, Wire::Tap] {
        eprintln!("{wire:?}:");
        let mut scene = Scene::new(wire, 2);
        let engine = &scene.engine;
        engine.change(|config| config.add_bridge("br0", Duration::from_secs(300))).unwrap();
        for &port in [scene.up].iter().chain(&scene.members) {
            let upper = UpperName::Named("br0".to_owned());
            engine.change(|config| config.set_upper(port, upper)).unwrap();
        }
        scene.vm.run("bond active-backup 10.0.0.2/24 miimon=20 -- eth0 eth1");
        scene.until_answered();
        scene.must_ping_both_ways();
        assert_eq!(active(&mut scene), "eth0");

        scene.cut(0);
        until("the guest fails over", || active(&mut scene) == "eth1");
        // The bridge learns where it is now from the guest's announcement.
        scene.until_answered();
        scene.must_ping_both_ways();
        scene.mend(0);
        scene.cut(1);
        until("the guest comes back", || active(&mut scene) == "eth0");
        scene.until_answered();
        scene.must_ping_both_ways();
        scene.check();
    }
}

/// The member that the guest uses.
fn active(scene: &mut Scene) -> String {
    let state = scene.vm.run("state");
    let line = state.lines().find_map(|line| line.strip_prefix("Currently Active Slave: "));
    line.unwrap_or_default().to_owned()
}
