//! Programs see the sockets of a case as they see the same sockets in the kernel.

use std::net::{TcpListener, TcpStream, UdpSocket};

use crate::support::Bench;

/// A packet by its headers, what a case has in place of the kernel's socket, and what is seen.
struct Look {
    packet: String,
    socket: String,
    seen: String,
}

/// Real sockets, and for each of them what a case says.
fn looks(keep: &mut Vec<Box<dyn std::any::Any>>) -> Vec<Look> {
    let v4 = "ipv4 = { src = \"127.0.0.1\", dst = \"127.0.0.1\" }";
    let v6 = "ipv6 = { src = \"::1\", dst = \"::1\" }";
    let mut looks = Vec::new();

    let listener = TcpListener::bind("127.0.0.1:0").expect("there are ports");
    let local = listener.local_addr().expect("it has one");
    looks.push(Look {
        packet: format!("{v4}, tcp = {{ sport = 9, dport = {}, flags = \"S\" }}", local.port()),
        socket: format!("protocol = \"tcp\", local = \"{local}\""),
        seen: format!(
            "found = 1, family = 2, type = 1, protocol = 6, src_ip4 = \"127.0.0.1\", \
             src_port = {}, dst_port = 0, state = 10, rx_queue_mapping = -1, cookie = -2",
            local.port()
        ),
    });
    let client = TcpStream::connect(local).expect("somebody listens");
    let from = client.local_addr().expect("it is bound");
    let packet = |ports: String| format!("{v4}, tcp = {{ {ports}, flags = \"A\" }}");
    let port = |number: u16| number.to_be().to_string();
    looks.push(Look {
        // To the client: its queue mapping depends on what came so far.
        packet: packet(format!("sport = {}, dport = {}", local.port(), from.port())),
        socket: format!("protocol = \"tcp\", local = \"{from}\", remote = \"{local}\""),
        seen: format!(
            "found = 1, family = 2, type = 1, protocol = 6, src_port = {}, dst_port = {}, \
             dst_ip4 = \"127.0.0.1\", state = 1, cookie = -22",
            from.port(),
            port(local.port())
        ),
    });
    keep.push(Box::new((listener, client)));

    let all = UdpSocket::bind("[::]:0").expect("there are ports");
    let number = all.local_addr().expect("it has one").port();
    for (network, cookie) in [(v4, -22), (v6, 0)] {
        looks.push(Look {
            packet: format!("{network}, udp = {{ sport = 9, dport = {number} }}"),
            socket: format!("protocol = \"udp\", local = \"[::]:{number}\""),
            seen: format!(
                "found = 1, family = 10, type = 2, protocol = 17, src_ip4 = \"0.0.0.0\", \
                 src_ip6 = [0, 0, 0, 0], src_port = {number}, state = 7, cookie = {cookie}"
            ),
        });
    }
    let connected = UdpSocket::bind("[::1]:0").expect("there are ports");
    connected.connect(("::1", number)).expect("UDP asks nobody");
    let from = connected.local_addr().expect("it has one");
    let one = 1u32.to_be();
    looks.push(Look {
        packet: format!("{v6}, udp = {{ sport = {number}, dport = {} }}", from.port()),
        socket: format!("protocol = \"udp\", local = \"{from}\", remote = \"[::1]:{number}\""),
        seen: format!(
            "found = 1, family = 10, src_ip6 = [0, 0, 0, {one}], src_port = {}, dst_port = {}, \
             dst_ip6 = [0, 0, 0, {one}], state = 1",
            from.port(),
            port(number)
        ),
    });
    looks.push(Look {
        // The packet is from another address than the one that the socket is connected to.
        packet: format!("{v6}, udp = {{ sport = 9, dport = {} }}", from.port()),
        socket: format!("protocol = \"udp\", local = \"{from}\", remote = \"[::1]:{number}\""),
        seen: "found = 0".to_owned(),
    });
    keep.push(Box::new((all, connected)));
    looks
}

#[test]
fn programs_see_of_a_cases_sockets_what_they_see_of_the_kernels() {
    let bench = Bench::new("cases_sockets");
    let mut keep = Vec::new();
    let looks = looks(&mut keep);
    let cases = |with_sockets: bool| {
        let mut text = "object = \"sockets.o\"\n".to_owned();
        for (number, Look { packet, socket, seen }) in looks.iter().enumerate() {
            let seen =
                seen.replace("\"127.0.0.1\"", &u32::from_le_bytes([127, 0, 0, 1]).to_string());
            let seen = seen.replace("\"0.0.0.0\"", "0");
            text +=
                &format!("[[case]]\nname = \"{number}\"\npacket = {{ {packet}, pad_to = 80 }}\n");
            if with_sockets {
                text += &format!("sockets = [{{ {socket} }}]\n");
            }
            text += &format!("expect.maps.seen = [{{ key = 0, value = {{ {seen} }} }}]\n");
        }
        text
    };
    bench.file("ours.toml", cases(true));
    let result = bench.json(&["test", "ours.toml", "--exec", "interp,jit,llvm"]);
    assert_eq!(result["failed"], 0, "{result:#}");
    assert!(result["passed"].as_u64() >= Some(2 * looks.len() as u64), "{result:#}");

    let skipped = bench.run(&["test", "ours.toml", "--exec", "kernel"]);
    assert!(skipped.stdout.contains("the kernel has its own sockets"), "{skipped:?}");
    // The same packets, for the sockets that are really there.
    bench.file("kernel.toml", cases(false));
    let ended = bench.run(&["test", "kernel.toml", "--exec", "kernel", "--json"]);
    let result: serde_json::Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!(result["failed"], 0, "{result:#}");
    if result["skipped"] != 0 {
        eprintln!("skipped: the kernel runs no programs for us");
    }
}

#[test]
fn other_namespaces_and_flags_find_nothing() {
    let bench = Bench::new("cases_sockets_flags");
    for (set, found) in [("netns = -1", 1), ("netns = 0", 0), ("netns = 3", 0), ("flags = 1", 0)] {
        let cases = format!(
            "object = \"sockets.o\"\nset = {{ {set} }}\n[[case]]\nname = \"{set}\"\n\
             sockets = [{{ protocol = \"tcp\", local = \"0.0.0.0:80\", ifindex = 1, mark = 5 }}]\n\
             packet = {{ ipv4 = {{}}, tcp = {{ dport = 80 }}, pad_to = 80 }}\n\
             expect.maps.seen = [{{ key = 0, value = {{ found = {found}, mark = {}, \
             bound_dev_if = {found} }} }}]\n",
            5 * found
        );
        bench.file("flags.toml", cases);
        let result = bench.json(&["test", "flags.toml", "--exec", "interp,jit"]);
        assert_eq!(result["failed"], 0, "{result:#}");
    }
}
