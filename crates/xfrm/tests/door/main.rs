//! A door beside the running kernel, and what its answers mean for a table.

#![forbid(unsafe_code)]

mod kernel;
mod requests;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use netlink_packet_xfrm::constants::*;
use rustix::net::{RecvFlags, SendFlags, SocketAddrUnix, recvfrom, send};
use towpath_host::socket::Access;
use towpath_ipsec::{
    Action, Aead, Config, Direction, Flow, Keys, Outbound, Refusal, Sa, Suite, Table, TableLimits,
};
use towpath_xfrm::{Client, Door, Server};

use requests::{Request, answers, policy, policy_id, sa, sa_id, spi_request};

/// The clock of all tests, in seconds.
static NOW: AtomicU64 = AtomicU64::new(1000);

fn now() -> u64 {
    NOW.load(Ordering::Relaxed)
}

fn door() -> (Arc<Table>, Door, Client) {
    let table = Arc::new(Table::new(TableLimits::default()));
    let door = Door::new(Arc::clone(&table), now, |_| {});
    (table, door, Client::default())
}

/// The errno of the only answer, 0 for success.
fn errno(door: &Door, client: &mut Client, request: &Request) -> i32 {
    let answers = door.answer(client, &request.bytes);
    let parsed: Vec<_> = answers.iter().flat_map(|it| self::answers(it)).collect();
    assert_eq!(parsed.len(), 1, "{}: one answer", request.name);
    parsed[0].errno.unwrap_or(0)
}

#[test]
fn a_tunnel_of_an_ike_daemon_works_and_ends() {
    let (table, door, mut client) = door();
    let spi = answers(&door.answer(&mut client, &spi_request(300, 400).bytes)[0])[0].spi();
    assert!((300..=400).contains(&spi), "{spi}");
    for request in [
        sa(XFRM_MSG_UPDSA, spi, true),
        policy(XFRM_MSG_NEWPOLICY, XFRM_POLICY_IN),
        policy(XFRM_MSG_NEWPOLICY, XFRM_POLICY_FWD),
        policy(XFRM_MSG_NEWPOLICY, XFRM_POLICY_OUT),
        sa(XFRM_MSG_NEWSA, 0x777, false),
    ] {
        assert_eq!(errno(&door, &mut client, &request), 0, "{}", request.name);
    }
    let sas = table.list();
    let seen: Vec<_> = sas.iter().map(|sa| (sa.direction(), sa.spi(), sa.reqid())).collect();
    assert_eq!(seen, [(Direction::Inbound, spi, 7), (Direction::Outbound, 0x777, 7)]);
    assert_eq!(table.policies().len(), 1, "only packets to send have policies there");
    assert_eq!(table.policies()[0].action, Action::Protect(7));
    // Again, as after a lost answer.
    assert_eq!(errno(&door, &mut client, &sa(XFRM_MSG_NEWSA, 0x777, false)), EEXIST);
    for request in [
        sa_id(XFRM_MSG_DELSA, 0x777, false),
        sa_id(XFRM_MSG_DELSA, spi, true),
        policy_id(XFRM_MSG_DELPOLICY, XFRM_POLICY_OUT),
    ] {
        assert_eq!(errno(&door, &mut client, &request), 0, "{}", request.name);
    }
    assert_eq!(table.counts(), (0, 0));
    assert_eq!(door.counts(), (0, 2));
}

/// strongSwan changes the addresses of an SA so: it reads the SA, removes it and adds it again.
#[test]
fn an_sa_is_read_with_its_keys_and_added_again() {
    let (table, door, mut client) = door();
    let spi = answers(&door.answer(&mut client, &spi_request(300, 400).bytes)[0])[0].spi();
    assert_eq!(errno(&door, &mut client, &sa(XFRM_MSG_UPDSA, spi, true)), 0);
    let read = door.answer(&mut client, &sa_id(XFRM_MSG_GETSA, spi, true).bytes);
    let added = sa(XFRM_MSG_UPDSA, spi, true);
    let attributes = &added.bytes[16 + 224..];
    assert_eq!(&read[0][16 + 224..][..attributes.len()], attributes, "keys and all");
    assert_eq!(errno(&door, &mut client, &sa_id(XFRM_MSG_DELSA, spi, true)), 0);
    assert_eq!(errno(&door, &mut client, &sa(XFRM_MSG_NEWSA, spi, true)), 0);
    assert_eq!(table.list()[0].direction(), Direction::Inbound, "as it was");
}

/// The other end's SA, which sends to the inbound one of this SPI.
fn peer(spi: u32) -> Arc<Sa> {
    let suite = Suite::Aead(Aead::Aes128Gcm);
    let (near, far) = (IpAddr::from(requests::NEAR), IpAddr::from(requests::FAR));
    let keys = Keys::new(requests::KEY.to_vec(), Vec::new());
    let peer = Sa::new(9, Config::outbound(spi, far, near, suite, keys), now());
    Arc::new(peer.expect("it is as the other one"))
}

/// strongSwan asks for a policy's last packet before it asks the peer whether it is alive.
#[test]
fn a_policy_tells_when_its_last_packet_came() {
    let (table, door, mut client) = door();
    let spi = answers(&door.answer(&mut client, &spi_request(300, 400).bytes)[0])[0].spi();
    let directions = [XFRM_POLICY_IN, XFRM_POLICY_FWD, XFRM_POLICY_OUT];
    let policies = directions.map(|direction| policy(XFRM_MSG_NEWPOLICY, direction));
    for request in [sa(XFRM_MSG_UPDSA, spi, true)].iter().chain(&policies) {
        assert_eq!(errno(&door, &mut client, request), 0, "{}", request.name);
    }
    let mut used = || {
        directions.map(|direction| {
            let asked = policy_id(XFRM_MSG_GETPOLICY, direction);
            answers(&door.answer(&mut client, &asked.bytes)[0])[0].use_time()
        })
    };
    assert_eq!(used(), [0; 3]);
    requests::through(&peer(spi), &table.list()[0], [10, 2, 0, 9], now()).expect("it is allowed");
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let [inward, forward, out] = used();
    assert!(inward.abs_diff(wall.as_secs()) < 60, "{inward}");
    assert_eq!((forward, out), (inward, 0));
}

#[test]
fn an_inbound_sa_carries_what_its_policies_select() {
    let (table, door, mut client) = door();
    let spi = answers(&door.answer(&mut client, &spi_request(300, 400).bytes)[0])[0].spi();
    assert_eq!(errno(&door, &mut client, &sa(XFRM_MSG_UPDSA, spi, true)), 0);
    let peer = peer(spi);
    let arrives = |source: [u8; 4]| requests::through(&peer, &table.list()[0], source, now());
    assert_eq!(arrives([10, 2, 0, 9]), Err(Refusal::SelectorMismatch), "no policy yet");
    let allow = policy(XFRM_MSG_NEWPOLICY, XFRM_POLICY_IN);
    assert_eq!(errno(&door, &mut client, &allow), 0);
    assert_eq!(arrives([10, 2, 0, 9]), Ok(()));
    assert_eq!(arrives([10, 3, 0, 9]), Err(Refusal::SelectorMismatch), "another network");
    let remove = policy_id(XFRM_MSG_DELPOLICY, XFRM_POLICY_IN);
    assert_eq!(errno(&door, &mut client, &remove), 0);
    assert_eq!(arrives([10, 2, 0, 9]), Err(Refusal::SelectorMismatch), "no policy any more");
}

/// A flow that the policies of direction `out` select.
fn flow() -> Flow {
    Flow {
        is_v6: false,
        source: u32::from_be_bytes([10, 1, 0, 5]).into(),
        destination: u32::from_be_bytes([10, 2, 0, 5]).into(),
        protocol: 17,
        source_port: 1,
        destination_port: 2,
    }
}

#[test]
fn a_policy_that_changes_is_never_missing() {
    let (table, door, mut client) = door();
    assert_eq!(errno(&door, &mut client, &policy(XFRM_MSG_NEWPOLICY, XFRM_POLICY_OUT)), 0);
    assert_eq!(errno(&door, &mut client, &policy(XFRM_MSG_NEWPOLICY, XFRM_POLICY_OUT)), EEXIST);
    assert_eq!(errno(&door, &mut client, &policy(XFRM_MSG_UPDPOLICY, XFRM_POLICY_OUT)), 0);
    assert_eq!(table.policies().len(), 1);
    let flow = flow();
    let view = table.read();
    assert_eq!(view.outbound(&flow).err(), Some(Refusal::NoSa));
    drop(view);
    let wanted = table.take_wanted();
    assert_eq!((wanted.len(), wanted[0].reqid, wanted[0].flow), (1, 7, flow));
    assert_eq!(errno(&door, &mut client, &sa(XFRM_MSG_NEWSA, 0x777, false)), 0);
    assert!(matches!(table.read().outbound(&flow), Ok(Outbound::Protect(sa)) if sa.spi() == 0x777));
    assert!(table.take_wanted().is_empty());
}

/// In a change of keys, an SA is added before the peer can decrypt its packets.
#[test]
fn a_policy_with_an_spi_is_served_by_no_newer_sa() {
    let (table, door, mut client) = door();
    let flow = flow();
    let policy = |kind, spi| requests::policy_by(kind, XFRM_POLICY_OUT, spi);
    for request in [
        sa(XFRM_MSG_NEWSA, 0x777, false),
        policy(XFRM_MSG_NEWPOLICY, 0x777),
        sa(XFRM_MSG_NEWSA, 0x888, false),
    ] {
        assert_eq!(errno(&door, &mut client, &request), 0, "{}", request.name);
    }
    let spi = || match table.read().outbound(&flow) {
        Ok(Outbound::Protect(sa)) => Ok(sa.spi()),
        Ok(Outbound::Bypass) => Ok(0),
        Err(refusal) => Err(refusal),
    };
    assert_eq!(spi(), Ok(0x777));
    assert_eq!(errno(&door, &mut client, &policy(XFRM_MSG_UPDPOLICY, 0x888)), 0);
    assert_eq!(spi(), Ok(0x888));
    assert_eq!(errno(&door, &mut client, &sa_id(XFRM_MSG_DELSA, 0x888, false)), 0);
    assert_eq!(spi(), Err(Refusal::NoSa), "the old keys are not used again");
    assert_eq!(table.take_wanted().len(), 1);
    assert_eq!(errno(&door, &mut client, &policy(XFRM_MSG_UPDPOLICY, 0)), 0);
    assert_eq!(spi(), Ok(0x777), "any of them");
}

#[test]
fn others_sas_stay() {
    let (table, door, mut client) = door();
    let (near, far) = (IpAddr::from(requests::NEAR), IpAddr::from(requests::FAR));
    let keys = Keys::new(requests::KEY.to_vec(), Vec::new());
    let ours = Config::outbound(0x4242, near, far, Suite::Aead(Aead::Aes128Gcm), keys);
    table.add(ours, now()).expect("it can be");
    assert_eq!(errno(&door, &mut client, &sa_id(XFRM_MSG_DELSA, 0x4242, false)), ESRCH);
    assert_eq!(errno(&door, &mut client, &Request::flush_sas()), 0);
    assert_eq!(table.counts().0, 1);
    assert_eq!(errno(&door, &mut client, &sa(XFRM_MSG_NEWSA, 0x777, false)), 0);
    door.flush();
    assert_eq!(table.list()[0].spi(), 0x4242);
}

/// Every request that the kernel answers here too gets the same answer from both.
#[test]
fn the_kernel_answers_alike() {
    let Some(mut kernel) = kernel::Kernel::in_a_namespace() else {
        return eprintln!("skipped: netlink for XFRM needs root and CONFIG_XFRM_USER");
    };
    let (_table, door, mut client) = door();
    for request in requests::script() {
        let theirs = kernel.ask(&request.bytes);
        let ours: Vec<_> = door.answer(&mut client, &request.bytes);
        let ours: Vec<_> = ours.iter().flat_map(|it| answers(it)).collect();
        let kinds = |all: &[requests::Answer]| {
            let mut kinds: Vec<_> = all.iter().map(|it| (it.kind, it.errno)).collect();
            kinds.sort();
            kinds
        };
        assert_eq!(kinds(&ours), kinds(&theirs), "{}", request.name);
    }
}

/// An IKE daemon takes a message only if its sender's netlink address has the port number 0.
#[test]
fn a_served_client_takes_the_sender_for_the_kernel() {
    let (table, door, _) = door();
    let path = std::env::temp_dir().join(format!("towpath-xfrm-{}", std::process::id()));
    let server = Server::start(&Arc::new(door), &path, &Access::default()).expect("it is free");
    let socket = towpath_supervise::connect(&path).expect("a socket of the door");
    let mut address = [0xff; 12];
    let ask = |request: &Request, address: &mut [u8; 12]| {
        send(&socket, &request.bytes, SendFlags::empty()).expect("the door is there");
        let mut bytes = [0; 4096];
        let (len, _, peer) = recvfrom(&socket, &mut bytes[..], RecvFlags::empty()).expect("served");
        let peer = SocketAddrUnix::try_from(peer.expect("it has a name")).expect("of unix");
        let name = peer.abstract_name().expect("an abstract one");
        // Family, a zero, and the name: as the client reads it.
        address[3..].copy_from_slice(name);
        answers(&bytes[..len])
    };
    let spi = ask(&spi_request(300, 400), &mut address)[0].spi();
    assert_eq!(address[3..8], [0; 5], "padding and port number of a netlink address");
    assert_eq!(ask(&sa(XFRM_MSG_UPDSA, spi, true), &mut address)[0].errno, Some(0));
    assert_eq!(table.counts().0, 1);
    // SAs stay without a client, and without a server.
    drop((socket, server));
    assert_eq!(table.counts().0, 1);
    assert!(!path.exists());
}

const ESRCH: i32 = 3;
const EEXIST: i32 = 17;
