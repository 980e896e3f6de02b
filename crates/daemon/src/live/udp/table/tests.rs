use super::*;

fn claim(socket: u32, queue: u32, group: u64) -> Claim {
    Claim { socket, user: 0, queue, group, shares: false, server: None }
}

fn sharing(socket: u32, queue: u32, group: u64) -> Claim {
    Claim { shares: true, ..claim(socket, queue, group) }
}

fn at(text: &str) -> At {
    let address: SocketAddr = text.parse().unwrap();
    (address.port(), address.ip())
}

/// Binds as the daemon does, except that nothing is reserved.
fn bind(table: &mut Table, claim: &Claim, text: &str) -> Result<u16, Errno> {
    table.check(claim, at(text))?;
    table.add(claim, at(text), None)
}

#[test]
fn an_address_and_port_has_one_owner() {
    let mut table = Table::default();
    assert_eq!(bind(&mut table, &claim(1, 0, 7), "10.0.0.1:53"), Ok(0));
    assert_eq!(bind(&mut table, &claim(2, 1, 7), "10.0.0.1:53"), Ok(1), "on another queue");
    let taken = [claim(3, 2, 8), sharing(3, 2, 8), claim(3, 1, 7), claim(1, 0, 7)];
    for claim in taken {
        assert_eq!(bind(&mut table, &claim, "10.0.0.1:53"), Err(Errno::ADDRINUSE), "{claim:?}");
    }
    for text in ["10.0.0.1:54", "10.0.0.2:53", "[::]:53"] {
        assert!(bind(&mut table, &claim(3, 2, 8), text).is_ok(), "{text}");
    }
    assert_eq!(table.remove(2, at("10.0.0.1:53")), Some((1, None)));
    assert_eq!(table.remove(2, at("10.0.0.1:53")), None);
    assert!(table.owns(7, at("10.0.0.1:53")));
    assert_eq!(table.remove(1, at("10.0.0.1:53")), Some((0, None)));
    assert!(bind(&mut table, &claim(4, 0, 9), "10.0.0.1:53").is_ok());
}

#[test]
fn wildcards_are_for_their_family() {
    for wildcard in ["0.0.0.0:53", "[::]:53"] {
        let (own, other) = match wildcard.contains('[') {
            true => ("[2001:db8::1]:53", "10.0.0.1:53"),
            false => ("10.0.0.1:53", "[2001:db8::1]:53"),
        };
        for (first, second) in [(wildcard, own), (own, wildcard)] {
            let mut table = Table::default();
            assert!(bind(&mut table, &claim(1, 0, 7), first).is_ok());
            assert_eq!(bind(&mut table, &claim(2, 1, 7), second), Err(Errno::ADDRINUSE));
            assert_eq!(bind(&mut table, &sharing(2, 0, 8), second), Err(Errno::ADDRINUSE));
            assert!(bind(&mut table, &claim(2, 0, 8), other).is_ok());
        }
    }
}

#[test]
fn owners_that_share_have_flows_each() {
    let mut table = Table::default();
    for socket in 1..=3 {
        let claim = sharing(socket, 0, socket.into());
        assert_eq!(bind(&mut table, &claim, "0.0.0.0:53"), Ok(socket as u16 - 1));
    }
    assert_eq!(bind(&mut table, &sharing(4, 0, 1), "10.0.0.1:53"), Ok(3), "more exact");
    assert_eq!(bind(&mut table, &sharing(5, 0, 1), "0.0.0.0:53"), Ok(4), "of the same group");
    assert_eq!(bind(&mut table, &sharing(5, 0, 2), "0.0.0.0:53"), Err(Errno::ADDRINUSE));
    assert_eq!(bind(&mut table, &claim(6, 0, 6), "0.0.0.0:53"), Err(Errno::ADDRINUSE));
    let stranger = Claim { user: 1000, ..sharing(6, 0, 6) };
    assert_eq!(bind(&mut table, &stranger, "0.0.0.0:53"), Err(Errno::ADDRINUSE), "another user");
    let members = |table: &Table| table.members(at("0.0.0.0:53"), 0).unwrap().accepting;
    assert_eq!(members(&table), [0, 4, 1, 2]);
    assert_eq!(table.members(at("0.0.0.0:53"), 1), None);
    for at in table.bound(2) {
        assert_eq!(table.remove(2, at), Some((0, None)));
    }
    assert_eq!(table.free_slot(2), Some(1));
    assert_eq!(members(&table), [0, 4, 2]);
    assert_eq!(bind(&mut table, &claim(7, 0, 7), "10.0.0.1:80"), Ok(1), "its slot is free");
}

#[test]
fn a_server_id_belongs_to_one_group() {
    let mut table = Table::default();
    let [one, two] = [1, 2].map(|server| ServerId::new(0, server).unwrap());
    let of = |socket, queue, group, server| Claim {
        server: Some(server),
        ..sharing(socket, queue, group)
    };
    assert!(bind(&mut table, &of(1, 0, 7, one), "10.0.0.1:443").is_ok());
    assert!(bind(&mut table, &of(2, 1, 7, one), "10.0.0.1:443").is_ok(), "on another queue");
    let other_id = of(3, 2, 7, two);
    assert_eq!(bind(&mut table, &other_id, "10.0.0.1:443"), Err(Errno::INVAL), "of one group");
    for queue in [0, 2] {
        let taken = of(3, queue, 8, one);
        assert_eq!(bind(&mut table, &taken, "10.0.0.1:443"), Err(Errno::EXIST), "{queue}");
    }
    assert!(bind(&mut table, &of(3, 0, 8, one), "10.0.0.1:444").is_ok(), "another port");
    assert!(bind(&mut table, &of(3, 0, 8, two), "10.0.0.1:443").is_ok());
    assert!(bind(&mut table, &sharing(4, 0, 9), "10.0.0.1:443").is_ok(), "without one");
    let here = at("10.0.0.1:443");
    let members = table.members(here, 0).unwrap();
    assert_eq!(members, Members { accepting: vec![0, 2, 3], servers: vec![(one, 0), (two, 2)] });
    assert_eq!(table.remove(1, here), Some((0, Some(one))));
    assert_eq!(bind(&mut table, &of(5, 0, 10, one), "10.0.0.1:443"), Err(Errno::EXIST));
    assert_eq!(table.remove(2, here), Some((1, Some(one))));
    assert!(bind(&mut table, &of(5, 0, 10, one), "10.0.0.1:443").is_ok(), "it is free");
}

#[test]
fn a_group_that_drains_keeps_its_server_id() {
    let mut table = Table::default();
    let here = at("10.0.0.1:443");
    let one = ServerId::new(0, 1).unwrap();
    for (socket, queue) in [(1, 0), (2, 1)] {
        let claim = Claim { server: Some(one), ..sharing(socket, queue, 7) };
        bind(&mut table, &claim, "10.0.0.1:443").unwrap();
    }
    bind(&mut table, &sharing(3, 1, 8), "10.0.0.1:443").unwrap();
    assert_eq!(table.drain(4, here), Err(Errno::NOENT));
    assert_eq!(table.drain(3, here), Err(Errno::INVAL), "without a server ID");
    assert_eq!(table.drain(2, at("10.0.0.1:444")), Err(Errno::NOENT));
    assert_eq!(table.drain(2, here), Ok(vec![0, 1]));
    let of_queue = |table: &Table, queue| table.members(here, queue).unwrap();
    assert_eq!(of_queue(&table, 0), Members { accepting: vec![], servers: vec![(one, 0)] });
    assert_eq!(of_queue(&table, 1), Members { accepting: vec![2], servers: vec![(one, 1)] });
    let listed: Vec<String> = table.all().map(|binding| binding.to_string()).collect();
    let draining = "10.0.0.1:443 (server ID 070001, draining)";
    assert_eq!(listed, [draining, draining, "10.0.0.1:443"]);
    assert_eq!(table.remove(1, here), Some((0, Some(one))));
    assert_eq!(table.members(here, 0), None);
}

#[test]
fn there_are_limits() {
    let mut table = Table::default();
    for port in 1..=ENTRIES_MAX {
        bind(&mut table, &claim(1, 0, 1), &format!("10.0.0.1:{port}")).unwrap();
    }
    assert_eq!(bind(&mut table, &claim(1, 0, 1), "10.0.0.1:5000"), Err(Errno::NOBUFS));
    assert_eq!(bind(&mut table, &claim(2, 1, 1), "10.0.0.1:50"), Err(Errno::NOBUFS));
    assert_eq!(table.bound(1).len(), ENTRIES_MAX);
    assert_eq!(table.all().count(), ENTRIES_MAX);
    table.bound(1).into_iter().for_each(|at| {
        table.remove(1, at);
    });
    assert!(table.is_empty());
    for socket in 1..=MEMBERS_MAX as u32 {
        bind(&mut table, &sharing(socket, 0, 1), "10.0.0.1:50").unwrap();
    }
    let more = sharing(MEMBERS_MAX as u32 + 1, 0, 1);
    assert_eq!(bind(&mut table, &more, "10.0.0.1:50"), Err(Errno::NOBUFS));
    assert!(bind(&mut table, &sharing(more.socket, 1, 1), "10.0.0.1:50").is_ok());
    let mut table = Table::default();
    for number in 0..SERVERS_MAX as u32 {
        let server = ServerId::new(0, number as u16);
        let claim = Claim { server, ..sharing(number / 64 + 1, 0, number.into()) };
        let port = 1 + number % 64;
        bind(&mut table, &claim, &format!("10.0.0.1:{port}")).unwrap();
    }
    let more = Claim { server: ServerId::new(1, 0), ..sharing(65, 1, 1 << 32) };
    assert_eq!(bind(&mut table, &more, "10.0.0.1:1"), Err(Errno::NOBUFS));
    assert!(bind(&mut table, &sharing(65, 1, 1 << 32), "10.0.0.1:1").is_ok());
}

#[test]
fn a_free_port_is_found_wherever_the_search_begins() {
    let mut table = Table::default();
    let address = "10.0.0.1".parse().unwrap();
    let who = claim(1, 0, 1);
    let last = table.free_port(&who, address, u64::from(CLIENT_PORTS) - 1);
    assert_eq!(last, Ok(60999));
    bind(&mut table, &who, "0.0.0.0:60999").unwrap();
    assert_eq!(table.free_port(&who, address, u64::from(CLIENT_PORTS) - 1), Ok(32768));
    assert_eq!(table.free_port(&who, address, u64::from(CLIENT_PORTS) + 5), Ok(32773));
}
