//! `bpf_fdb_lookup`: a program that knows what the bridge above its port learnt.

use std::sync::Arc;
use std::time::Duration;

use towpath_bpf::Env;
use towpath_engine::UpperName;
use towpath_kernel::Kernel;
use towpath_xdp::{Frame, LoadOptions, Program, Select};

use crate::lab::{self, Lab, Plan};
use crate::traffic::must_ping;
use crate::{kinds, programs};

/// Number of times that each result occurred.
fn results(program: &Program) -> [u64; 4] {
    let map = program.maps().by_name("results").unwrap();
    std::array::from_fn(|result| {
        let value = map.user().lookup(&(result as u32).to_ne_bytes(), 0).unwrap();
        u64::from_ne_bytes(value.bytes().try_into().unwrap())
    })
}

#[test]
fn frames_take_the_way_that_the_bridge_knows() {
    if let Some(why) = lab::unavailable().or_else(programs::unavailable) {
        return eprintln!("skipped: {why}");
    }
    let lab = Lab::new(kinds::ALL[0], Plan { hosts: 3, ..Plan::default() });
    let program = programs::load("fdb", "shortcut", 1);
    lab.attach(0, &program);
    let [a, b] = [&lab.hosts[0].namespace, &lab.hosts[1].namespace];
    must_ping(a, "10.0.0.2", 56);
    let [found, no_entry, no_bridge, other] = results(&program);
    assert!(no_bridge > 10 && (found, no_entry, other) == (0, 0, 0), "there is no bridge yet");

    let join = |port| {
        move |config: &mut towpath_engine::Config| {
            config.set_upper(port, UpperName::Named("br0".to_owned()))
        }
    };
    lab.engine.change(|config| config.add_bridge("br0", Duration::from_secs(300))).unwrap();
    for host in &lab.hosts {
        lab.engine.change(join(host.port)).unwrap();
    }
    a.run("ip neigh flush dev h1");
    must_ping(a, "10.0.0.2", 56);
    must_ping(a, "10.0.0.3", 56);
    must_ping(b, "10.0.0.3", 56);
    let [found, no_entry, _, other] = results(&program);
    assert!(found >= 20, "requests of A, to B and C: {found}");
    assert!(no_entry > 0, "broadcasts are for the bridge");
    assert_eq!(other, 0);
    lab.check();
}

#[test]
fn the_kfunc_is_checked_and_may_be_missing() {
    if let Some(why) = programs::unavailable() {
        return eprintln!("skipped: {why}");
    }
    let object = programs::object("fdb");
    let load =
        |name, env: &Env| Program::load(&object, Select::Name(name), env, &LoadOptions::default());
    let refused = load("overread", &Env::builtin()).unwrap_err();
    assert!(refused.to_string().contains("overread"), "{refused}");
    // Outside of the engine there are no bridges.
    let asks = |env: &Env| {
        let program = load("shortcut", env).unwrap();
        let mut frame = Frame::new(&[0; 64]).unwrap();
        program.run(&mut program.worker(0), &mut frame).unwrap();
        assert_eq!(results(&program), [0, 0, 1, 0]);
    };
    asks(&Env::builtin());
    // A kernel whose types don't name it changes nothing here, and loads the object without it.
    let Ok(kernel) = Kernel::open() else { return eprintln!("skipped: needs bpf(2)") };
    let running = Env::new(Arc::clone(kernel.btf()));
    asks(&running);
    let index = object.select(Some("shortcut"), None).unwrap();
    let linked = object.link(index, &running).unwrap();
    let maps = kernel.load_maps(&linked.maps).unwrap();
    if let Err(error) = kernel.load(&linked, &maps) {
        panic!("{error}");
    }
}
