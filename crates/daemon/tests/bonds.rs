//! Bonds as the daemon makes them: two of them face to face, members that come, fail and go.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use towpath_daemon::State;
use towpath_daemon::file::{ObjectFiles, parse};
use towpath_daemon::live::Live;
use towpath_engine::Hook;
use towpath_ports::bond::Status;
use towpath_ports::bond::links::Mii;

fn read(text: &str, objects: &ObjectFiles) -> Result<State, Vec<String>> {
    let here = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/fixtures"));
    let loaded = parse(text, Path::new("t.toml"), here, objects);
    loaded.map(|loaded| loaded.state).map_err(|error| error.lines)
}

fn start(text: &str) -> (Live, State) {
    let objects = Arc::new(ObjectFiles::default());
    let state = read(text, &objects).expect("it is fine");
    let mut live = Live::start(&state, objects, Arc::default()).expect("there is memory");
    let report = live.reconcile(&state);
    assert_eq!(report.failures, [], "{report:?}");
    (live, state)
}

/// Two pairs, and a bond at either end of them.
fn face_to_face(keys: &str) -> String {
    let pair = |one: &str, other: &str| {
        format!("[[port]]\nname = \"{one}\"\nkind = \"pair\"\npeer = \"{other}\"\n")
    };
    let mut text = String::new();
    for (one, other) in [("a0", "b0"), ("b0", "a0"), ("a1", "b1"), ("b1", "a1")] {
        text += &pair(one, other);
    }
    for end in ["a", "b"] {
        text += &format!(
            "[[port]]\nname = \"bond{end}\"\nkind = \"bond\"\n\
             members = [\"{end}0\", \"{end}1\"]\n{keys}"
        );
    }
    text
}

fn wait_for(live: &Live, bond: &str, what: &str, done: impl Fn(&Status) -> bool) -> Status {
    let start = Instant::now();
    loop {
        let status = live.bonds()[bond].status();
        if done(&status) {
            return status;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{bond}: no {what}: {status:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn set_up(live: &mut Live, state: &mut State, port: &str, up: bool) {
    let found = state.ports.iter_mut().find(|it| it.name == port);
    found.expect("it is there").up = up;
    let report = live.reconcile(state);
    assert_eq!(report.failures, [], "{report:?}");
}

#[test]
fn two_bonds_form_one_aggregate_by_lacp() {
    let text = face_to_face("mode = \"802.3ad\"\nlacp_rate = \"fast\"\nmiimon = 20\n");
    let (mut live, mut state) = start(&text);
    for bond in ["bonda", "bondb"] {
        let status = wait_for(&live, bond, "aggregate of two", |status| {
            status.members.iter().all(|it| it.can_send)
                && status.aggregator.is_some_and(|it| it.ports == 2 && it.partner != [0; 6])
        });
        assert!(status.carrier);
    }
    // A link that fails leaves the aggregate, and comes back into it.
    set_up(&mut live, &mut state, "a0", false);
    wait_for(&live, "bonda", "loss of a0", |status| !status.members[0].can_send);
    assert!(live.bonds()["bonda"].status().members[1].can_send, "the other goes on");
    set_up(&mut live, &mut state, "a0", true);
    wait_for(&live, "bonda", "return of a0", |status| {
        status.members.iter().all(|it| it.can_send)
            && status.aggregator.is_some_and(|it| it.ports == 2)
    });
    live.stop();
    assert_eq!(live.engine().conservation().missing(), 0);
}

#[test]
fn active_backup_fails_over_and_comes_back_to_its_primary() {
    let keys = "mode = \"active-backup\"\nmiimon = 10\nprimary_reselect = \"always\"\n";
    let (mut live, mut state) = start(&face_to_face(keys));
    let active = |name: &'static str| {
        move |status: &Status| status.active.as_deref() == Some(name) && status.carrier
    };
    wait_for(&live, "bonda", "active member", active("a0"));
    set_up(&mut live, &mut state, "a0", false);
    wait_for(&live, "bonda", "fail-over", active("a1"));
    set_up(&mut live, &mut state, "a0", true);
    let is_back = |status: &Status| status.members[0].link == Mii::Up;
    let status = wait_for(&live, "bonda", "link of a0", is_back);
    assert_eq!(status.members[0].failures, 1);
    // Without a primary, the other member stays active, as in the kernel.
    assert_eq!(status.active.as_deref(), Some("a1"));
    let bond = state.ports.iter_mut().find(|it| it.name == "bonda").expect("it is there");
    bond.options.insert("primary".to_owned(), "a0".into());
    let report = live.reconcile(&state);
    assert_eq!(report.failures, [], "{report:?}");
    wait_for(&live, "bonda", "return", active("a0"));
    set_up(&mut live, &mut state, "a0", false);
    wait_for(&live, "bonda", "fail-over", active("a1"));
    set_up(&mut live, &mut state, "a0", true);
    wait_for(&live, "bonda", "return of the primary", active("a0"));
    set_up(&mut live, &mut state, "a0", false);
    set_up(&mut live, &mut state, "a1", false);
    wait_for(&live, "bonda", "loss of all", |it| it.active.is_none() && !it.carrier);
}

#[test]
fn members_come_and_go_with_the_configuration() {
    let (mut live, mut state) = start(&face_to_face(""));
    let members = |live: &Live| -> Vec<String> {
        let id = live.ports()["bonda"].id;
        live.engine().read(|config, _| {
            let members = config.bond(id).expect("a bond").members().iter();
            members.map(|it| config.name(it.port).unwrap_or_default().to_owned()).collect()
        })
    };
    assert_eq!(members(&live), ["a0", "a1"]);
    let bond = state.ports.iter_mut().find(|it| it.name == "bonda").expect("it is there");
    bond.options.insert("members".to_owned(), serde_json::json!(["a1"]));
    let report = live.reconcile(&state);
    assert_eq!(report.changes, ["bond bonda: member a0 released"], "{report:?}");
    assert_eq!(members(&live), ["a1"]);
    // A mode is changed as in the kernel: down and empty, or not at all.
    let bond = state.ports.iter_mut().find(|it| it.name == "bonda").expect("it is there");
    bond.options.insert("mode".to_owned(), "active-backup".into());
    let report = live.reconcile(&state);
    assert_eq!(
        report.failures[0].why,
        "bonda: its mode can change only while it is down: set it down first (EBUSY)"
    );
    let bond = state.ports.iter_mut().find(|it| it.name == "bonda").expect("it is there");
    bond.options.remove("members");
    bond.up = false;
    let report = live.reconcile(&state);
    assert_eq!(report.failures, [], "{report:?}");
    // A pair that goes takes its end out of the other bond.
    state.ports.retain(|it| !["a0", "b0"].contains(&it.name.as_str()));
    let bond = state.ports.iter_mut().find(|it| it.name == "bondb").expect("it is there");
    bond.options.insert("members".to_owned(), serde_json::json!(["b1"]));
    let report = live.reconcile(&state);
    assert_eq!(report.failures, [], "{report:?}");
}

#[test]
fn a_program_on_a_bond_is_on_its_members() {
    let attach = "[[attach]]\nport = \"bonda\"\nobject = \"every_verdict.o\"\n\
                  program = \"every_verdict\"\n";
    let (live, _) = start(&format!("{}{attach}", face_to_face("")));
    let (bond, member) = (live.ports()["bonda"].id, live.ports()["a1"].id);
    live.engine().read(|config, snapshot| {
        assert_eq!(config.links(bond, Hook::Rx).expect("a port").len(), 1);
        assert!(config.links(member, Hook::Rx).expect("a port").is_empty());
        let slot = snapshot.port(member).expect("it is open");
        assert!(slot.rx_hook.is_some() && slot.member.is_some_and(|it| it.is_delegate));
    });
    let both = attach.replace("bonda", "a0");
    let text = format!("{}{attach}{both}", face_to_face(""));
    let objects = Arc::new(ObjectFiles::default());
    let state = read(&text, &objects).expect("the file is fine");
    let mut live = Live::start(&state, objects, Arc::default()).expect("there is memory");
    let report = live.reconcile(&state);
    let told: Vec<&str> = report.failures.iter().map(|it| it.why.as_str()).collect();
    let expected = "bonda: member a0 has a program of its own: unload that first (EOPNOTSUPP)";
    assert!(told.contains(&expected), "{told:?}");
}

#[test]
fn mistakes_are_told_by_line() {
    let refused = |text: String| read(&text, &ObjectFiles::default()).expect_err("it is wrong");
    let bond = |keys: &str| {
        format!(
            "[[port]]\nname = \"p0\"\nkind = \"sink\"\n\
             [[port]]\nname = \"bond0\"\nkind = \"bond\"\n{keys}\n"
        )
    };
    let cases = [
        (
            "mode = \"balance-tlb\"",
            "t.toml:7:1: port[1].mode: no bonding mode \"balance-tlb\": expected balance-rr, \
             active-backup, balance-xor, broadcast or 802.3ad (EINVAL)",
        ),
        (
            "lacp_rate = \"fast\"",
            "t.toml:7:1: port[1].lacp_rate: not in mode balance-rr: only in 802.3ad (EACCES)",
        ),
        (
            "members = [\"p1\"]",
            "t.toml:7:12: port[1].members[0]: no port \"p1\"; did you mean \"p0\"? (ENODEV)",
        ),
        (
            "members = [\"bond0\"]",
            "t.toml:7:12: port[1].members[0]: bond0 cannot be a member: the bond would be \
             inside of itself (ELOOP)",
        ),
        (
            "updelay = 5",
            "t.toml:7:1: port[1].updelay: it needs miimon: without it, links are not checked \
             (EPERM)",
        ),
        (
            "arp_interval = 100\nmiimon = 100",
            "t.toml:7:1: port[1].arp_interval: not together with miimon: choose one (EINVAL)",
        ),
        (
            "arp_interval = 100",
            "t.toml:7:1: port[1].arp_interval: there are no targets: set arp_ip_target (EINVAL)",
        ),
        (
            "mode = 4\narp_ip_target = [\"10.0.0.1\"]",
            "t.toml:8:1: port[1].arp_ip_target: not in mode 802.3ad: only in balance-rr, \
             active-backup, balance-xor, broadcast (EACCES)",
        ),
        (
            "members = [\"p0\"]\nmode = 1\nprimary = \"p1\"",
            "t.toml:9:1: port[1].primary: p1 is no member; did you mean \"p0\"? (EINVAL)",
        ),
        (
            "members = [\"p0\"]\n[[port]]\nname = \"bond1\"\nkind = \"bond\"\nmembers = [\"p0\"]",
            "t.toml:11:12: port[2].members[0]: p0 is a member of bond0 already: a port can be in \
             one bond only (EBUSY)",
        ),
    ];
    for (keys, expected) in cases {
        assert_eq!(refused(bond(keys)), [expected], "{keys}");
    }
    let above = bond("members = [\"p0\"]").replace("\"sink\"", "\"sink\"\nupper = \"bond0\"");
    assert!(refused(above)[0].ends_with("a member's frames go to its bond (EBUSY)"));
}

/// A program that drops LACPDUs keeps 802.3ad from working: that is told before it happens.
#[test]
fn programs_that_drop_lacpdus_are_warned_of() {
    let text = |keys: &str, maps: &str| {
        format!(
            "[[port]]\nname = \"p0\"\nkind = \"pair\"\npeer = \"p1\"\n\
             [[port]]\nname = \"p1\"\nkind = \"pair\"\npeer = \"p0\"\n\
             [[port]]\nname = \"bond0\"\nkind = \"bond\"\nmembers = [\"p0\"]\n{keys}\n\
             [[attach]]\nport = \"bond0\"\nobject = \"every_verdict.o\"\n\
             program = \"every_verdict\"\nmaps = {{ overrides = {{ \"2\" = {maps} }} }}\n"
        )
    };
    let warnings = |keys: &str, verdict: &str| {
        let objects = ObjectFiles::default();
        let mut state = read(&text(keys, verdict), &objects).expect("it is fine");
        let mut dry_run = towpath_daemon::dry_run::DryRun::default();
        let told = dry_run.warnings(&state, &objects);
        // The programs are not run again: the answer is known without the object's bytes, also for
        // the new generation of a program. It is not known for other contents of its maps.
        let gone = ObjectFiles::default();
        state.programs.iter_mut().for_each(|it| it.generation += 1);
        assert_eq!(dry_run.warnings(&state, &gone), told);
        state.programs.iter_mut().for_each(|it| it.maps = None);
        assert_eq!(dry_run.warnings(&state, &gone), []);
        told
    };
    let lacp = "mode = \"802.3ad\"";
    let told = warnings(lacp, "1");
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(
        told[0].text,
        "port bond0: program every_verdict says XDP_DROP to LACPDUs (ethertype 0x8809): bond0 in \
         mode 802.3ad needs them; pass them, or set protect_control = true"
    );
    assert_eq!(warnings(lacp, "2"), []);
    assert_eq!(warnings(&format!("{lacp}\nprotect_control = true"), "1"), []);
    assert_eq!(warnings("mode = \"balance-xor\"", "1"), []);
}
