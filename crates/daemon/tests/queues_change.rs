//! An interface of a port gets more queues (`ethtool -L`): no frame goes
//! around the port into the host's stack, and the new queues are opened.

mod namespaces;
mod served;

use std::process::Command;
use std::time::Duration;

use namespaces::{Namespaces, ip};
use served::Served;

const LIMIT: Duration = Duration::from_secs(10);

/// A command in a namespace; gives what it printed.
fn within(namespace: &str, command: &[&str]) -> String {
    let mut all = Command::new("ip");
    let done = all.args(["netns", "exec", namespace]).args(command).output().expect("iproute2");
    assert!(done.status.success(), "{command:?}: {done:?}");
    String::from_utf8(done.stdout).expect("text")
}

/// IP packets that the host's stack has seen.
fn in_stack(namespaces: &Namespaces) -> u64 {
    let text = within(&namespaces.near, &["cat", "/proc/net/snmp"]);
    let line = text.lines().filter(|line| line.starts_with("Ip:")).nth(1).expect("numbers");
    line.split_whitespace().nth(3).expect("InReceives").parse().expect("a number")
}

/// Sends datagrams of `flows` flows.
fn send(namespaces: &Namespaces, flows: u32) {
    let script = format!(
        "for port in $(seq 20000 {}); do echo x >/dev/udp/10.9.0.1/$port; done",
        20000 + flows - 1
    );
    within(&namespaces.far, &["bash", "-c", &script]);
}

fn received(served: &Served) -> u64 {
    served.get("/v1/stats")["ports"]["q0"]["rx_packets"].as_u64().expect("a number")
}

#[test]
fn frames_of_new_queues_go_nowhere_or_to_the_port() {
    let Some(namespaces) = Namespaces::new("queues") else {
        return println!("skipped: network namespaces need root and /dev/net/tun");
    };
    let (near, far) = (namespaces.near.clone(), namespaces.far.clone());
    // No more than four: a veth makes as many as there are CPUs otherwise.
    let four = "numtxqueues 4 numrxqueues 4";
    namespaces.wire("q0", "f0", four);
    within(&far, &["ethtool", "-L", "f0", "rx", "4", "tx", "2"]);
    within(&near, &["ethtool", "-L", "q0", "rx", "2", "tx", "4"]);
    namespaces.ip("address add 10.9.0.1/24 dev q0");
    namespaces.ip("link set q0 up address 02:00:00:00:00:01");
    ip(&["-n", &far, "address", "add", "10.9.0.2/24", "dev", "f0"]);
    let neighbour = ["10.9.0.1", "lladdr", "02:00:00:00:00:01", "dev", "f0"];
    ip(&[&["-n", &far, "neigh", "replace"][..], &neighbour].concat());
    let config = format!("[[port]]\nname = \"q0\"\nkind = \"afxdp\"\nnetns = \"{near}\"\n");
    let served = Served::start("queues", &config);
    served.wait("the port", LIMIT, || served.get("/v1/ports/q0")["queues"] == 2);
    served.wait("the guard", LIMIT, || served.get("/v1/ports/q0")["details"]["guard"] == "on");
    let before = in_stack(&namespaces);
    send(&namespaces, 50);
    served.wait("frames", LIMIT, || received(&served) >= 50);

    for (queues, flows) in [("3", 300), ("4", 400)] {
        within(&near, &["ethtool", "-L", "q0", "rx", queues]);
        within(&far, &["ethtool", "-L", "f0", "tx", queues]);
        // These datagrams arrive before the daemon has noticed.
        send(&namespaces, flows);
        let wanted: u64 = queues.parse().expect("a number");
        served.wait("queues", LIMIT, || served.get("/v1/ports/q0")["queues"] == wanted);
        let open = || {
            let text = served.get("/v1/ports/q0")["details"]["mode"].to_string();
            text.matches("queue ").count() as u64
        };
        served.wait("sockets", LIMIT, || open() == wanted);
        let seen = received(&served);
        send(&namespaces, flows);
        served.wait("all of them", LIMIT, || received(&served) >= seen + u64::from(flows));
        assert_eq!(in_stack(&namespaces), before, "a frame went around the port");
    }
    served.end();
}
