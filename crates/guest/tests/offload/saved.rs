//! A guest that continues on another host.

use towpath_bpf::insn::*;
use towpath_bpf::program::MapType;
use towpath_guest::{Limits, RestoreError};
use towpath_guest_client::MapSpec;
use towpath_guest_client::wire::Direction;

use super::{Scene, map, returns, uses};

#[test]
fn everything_is_there_at_the_other_host_under_the_same_handles() {
    let (here, there) = (Scene::new(Limits::default()), Scene::new(Limits::default()));
    let mut client = here.client();
    let gone = client.create_map(&map(MapType::Hash, 1)).unwrap();
    let hash = client.create_map(&map(MapType::PercpuHash, 100)).unwrap();
    let elements: Vec<_> =
        (0..100u32).map(|i| (i.to_le_bytes().to_vec(), vec![i as u8 + 1; 16])).collect();
    client.update(hash, &elements, 0).unwrap();
    let constant = client.create_map(&map(MapType::Array, 2)).unwrap();
    client.update(constant, &[(vec![1, 0, 0, 0], vec![9; 8])], 0).unwrap();
    client.freeze(constant).unwrap();
    let stack = client.create_map(&MapSpec { key_size: 0, ..map(MapType::Stack, 4) }).unwrap();
    client.update(stack, &[(vec![], vec![1; 8]), (vec![], vec![2; 8])], 0).unwrap();
    let jumps =
        client.create_map(&MapSpec { value_size: 4, ..map(MapType::ProgArray, 4) }).unwrap();
    let main = client.load_program(&uses(jumps, PSEUDO_MAP_FD)).unwrap();
    let tail = client.load_program(&returns(1)).unwrap();
    client.update(jumps, &[(vec![0; 4], tail.to_le_bytes().into())], 0).unwrap();
    client.attach(Direction::Egress, main, None).unwrap();
    client.close(gone).unwrap();
    let (saved, list) = (here.guest.save(), client.list().unwrap());

    there.guest.restore(&saved).unwrap();
    assert_eq!(there.edge.running(Direction::Egress).as_deref(), Some("prog"));
    let mut client = there.client();
    assert_eq!(client.list().unwrap(), list);
    let mut dumped = client.dump(hash).unwrap();
    dumped.sort_by_key(|(key, _)| key[0]);
    assert_eq!(dumped, elements);
    assert!(client.map_info(constant).unwrap().is_frozen);
    assert_eq!(client.lookup(constant, &[1, 0, 0, 0]).unwrap(), [9; 8]);
    assert_eq!(client.lookup_and_delete(stack, &[]).unwrap(), [2; 8]);
    assert_eq!(client.lookup(jumps, &[0; 4]).unwrap(), tail.to_le_bytes());
    assert_eq!(client.query().unwrap()[0].handle, main);
    let next = client.create_map(&map(MapType::Hash, 1)).unwrap();
    assert!(next > tail, "handles are not used again");
    assert!(matches!(there.guest.restore(&saved), Err(RestoreError::NotEmpty(_))));
}

#[test]
fn what_cannot_be_restored_leaves_nothing() {
    let here = Scene::new(Limits::default());
    let mut client = here.client();
    let handle = client.create_map(&map(MapType::Hash, 100)).unwrap();
    client.update(handle, &[(vec![1; 4], vec![1; 8])], 0).unwrap();
    let program = client.load_program(&uses(handle, PSEUDO_MAP_FD)).unwrap();
    client.attach(Direction::Ingress, program, None).unwrap();
    let saved = here.guest.save();
    for end in (0..saved.len()).step_by(7) {
        let there = Scene::new(Limits::default());
        let error = there.guest.restore(&saved[..end]).expect_err("it is cut");
        assert!(matches!(error, RestoreError::Damaged(_)), "{end}: {error}");
        assert_eq!(there.guest.status().objects, []);
        assert_eq!(there.edge.running(Direction::Ingress), None);
    }
    for at in (0..saved.len()).step_by(11) {
        let there = Scene::new(Limits::default());
        let mut damaged = saved.clone();
        damaged[at] ^= 1;
        there.guest.restore(&damaged).expect_err("it is damaged");
        assert_eq!(there.guest.status().objects, []);
    }
    let there = Scene::new(Limits { entries: 10, ..Limits::default() });
    let error = there.guest.restore(&saved).expect_err("too many entries");
    assert!(error.to_string().contains("entries"), "{error}");
}
