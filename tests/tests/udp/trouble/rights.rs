//! Applications of users without privileges.

use std::fs::Permissions;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use towpath_udp::{Options, TxDatagram, UdpStack};

use super::owners::Owner;
use super::world::World;
use crate::lab::{FAR, NEAR, at, errno, receive, wait_for};
use crate::quic::{self, Towpath};
use crate::tls;

/// A user of the group of the daemon's socket sends, receives and has QUIC connections; others are
/// refused.
#[test]
fn users_of_the_group_may_do_everything_and_others_nothing() {
    let Some(mut world) = World::new(Owner::Afxdp(1)) else { return };
    world.config.more = format!("[xsk]\nmode = \"0660\"\ngroup = \"{GROUP}\"\n");
    world.write();
    world.daemon.take().unwrap().kill();
    world.start();
    world.settle();
    let there = world.kernel(&at(FAR[0], ECHO).to_string());
    let roots = UdpStack::open(&world.options()).unwrap();
    let shared = roots.bind_shared(at(NEAR[0], SHARED)).unwrap();
    // The folder may be entered by all, as /run/towpath may.
    std::fs::set_permissions(&world.dir, Permissions::from_mode(0o755)).unwrap();
    let program = copy_of_us(&world.dir);
    std::thread::scope(|scope| {
        let user = scope.spawn(|| run(&world, &program, GROUP));
        for _ in 0..EXCHANGES {
            let it = there.receive(1).remove(0);
            there.send_to(&it.payload, it.source);
        }
        let output = user.join().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        assert!(text(&output).contains("uid 65534, no capabilities"), "{}", text(&output));
    });
    drop((shared, roots));
    let output = run(&world, &program, GROUP + 1);
    assert!(!output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("Permission denied"), "{}", text(&output));
    wait_for("end of their sockets", || world.daemon().sockets().is_empty());
}

/// The test's program where every user may run it.
fn copy_of_us(dir: &Path) -> PathBuf {
    let path = dir.join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    path
}

fn run(world: &World, program: &Path, group: u32) -> Output {
    let (uid, gid) = (format!("--reuid={USER}"), format!("--regid={group}"));
    let mut command = Command::new("setpriv");
    command.args([&uid, &gid, "--clear-groups", "--no-new-privs", "--inh-caps=-all"]);
    command.args(["--bounding-set=-all", "--"]).arg(program);
    command.args(["trouble::rights::a_user", "--exact", "--nocapture"]);
    command.env(USERS_PATH, world.path()).current_dir("/");
    // A socket of the far host, for the other end of its connection.
    command.stdin(OwnedFd::from(world.far_socket(&at(FAR[0], 0).to_string())));
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it).into_owned()).concat()
}

/// The user's application; no test otherwise.
#[test]
fn a_user() {
    let Some(path) = std::env::var_os(USERS_PATH) else { return };
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = |name: &str| status.lines().find_map(|it| it.strip_prefix(name)).unwrap().trim();
    assert_eq!(line("CapEff:"), "0000000000000000");
    assert_eq!(line("CapBnd:"), "0000000000000000");
    let uid = line("Uid:").split_whitespace().next().unwrap();
    println!("uid {uid}, no capabilities");
    let options = Options { path: path.into(), ..Options::new("p0") };
    let stack = UdpStack::open(&options).unwrap_or_else(|error| panic!("{error}"));
    let taken = stack.bind_shared(at(NEAR[0], SHARED)).unwrap_err();
    assert_eq!(errno(&taken), rustix::io::Errno::ADDRINUSE, "another user shares it");
    // A port that the kernel keeps for root.
    let socket = stack.bind(at(NEAR[0], 443)).unwrap();
    for number in 0..EXCHANGES as u32 {
        let payload = number.to_ne_bytes();
        let datagram = TxDatagram::new(&payload, at(FAR[0], ECHO));
        assert_eq!(socket.send_batch(&[datagram]).unwrap(), 1);
        assert_eq!(receive(&socket, 1)[0].payload, payload);
    }
    let far = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    transfer(stack.bind(at(NEAR[0], 0)).unwrap(), far.into());
}

/// A QUIC transfer in both directions between a socket of Towpath's and one of the kernel's.
fn transfer(near: towpath_udp::UdpSocket, far: UdpSocket) {
    let (server_config, client_config) = tls::configs().unwrap();
    let address = far.local_addr().unwrap();
    quic::run(async move {
        let server = quic::kernel(far, Some(server_config));
        let serving = tokio::spawn(async move { quic::serve(&server, TRANSFER_BYTES).await });
        let client = Towpath(near).endpoint(None);
        let connecting = client.connect_with(client_config, address, "towpath").unwrap();
        let connection = connecting.await.unwrap();
        quic::request(&connection, TRANSFER_BYTES, None).await;
        connection.close(0u32.into(), b"done");
        client.wait_idle().await;
        serving.await.unwrap();
    });
}

/// `nogroup` of no one else.
const GROUP: u32 = 6534;
const USER: u32 = 65534;
const ECHO: u16 = 7;
/// A port that root shares with root's applications.
const SHARED: u16 = 8443;
const TRANSFER_BYTES: usize = 4 << 20;
const EXCHANGES: usize = 100;
const USERS_PATH: &str = "TOWPATH_UDP_USER";
