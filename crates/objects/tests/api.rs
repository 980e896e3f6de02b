//! The typed API over an object file's programs and maps: what the daemon does.

#![forbid(unsafe_code)]

use std::sync::Arc;

use towpath_bpf::{Env, Errno, Object};
use towpath_maps::Value;
use towpath_objects::{Object as Pinned, Objects, Selector, Session, Settings};
use towpath_xdp::{LoadOptions, Loader, Program, Select};

#[test]
fn programs_of_an_object_file_are_found_and_shown() {
    let bytes = include_bytes!("../../../tests/data/kernel-oracle/xdp_helpers.bpf.o");
    let object = Object::open(bytes, "xdp_helpers.bpf.o").expect("a good object");
    let objects = Arc::new(Objects::new(&Settings::new()));
    let (env, options) = (Env::builtin(), LoadOptions { workers: 1, ..LoadOptions::default() });
    let alone = Program::load(&object, Select::Name("prog"), &env, &options);
    let alone = alone.expect("the kernel loads it, too");
    let refused = objects.register_program(&alone, 7, None).expect_err("its id is another's");
    assert_eq!(refused, Errno::EINVAL);
    let loader = Loader::within(&object, &env, &options, objects.shared()).expect("as before");
    let program = loader.program(Select::Name("prog")).expect("as before");
    let registered = objects.register_program(&program, 7, None).expect("ids are left");

    let mut session = Session::new(&objects, 7);
    let shown = session.progs();
    assert_eq!(shown.len(), 1);
    let (id, name, uid) = (shown[0].id(), shown[0].name().to_string(), shown[0].uid());
    assert_eq!((id, name.as_str(), uid), (1, "prog", 7));
    assert_eq!(shown[0].maps().len(), program.maps().maps().len());
    assert_eq!((&*shown[0].kind_name(), shown[0].is_gpl_compatible()), ("xdp", true));
    drop(shown);
    let tag = Selector::Tag(registered.tag());
    assert!(Arc::ptr_eq(&session.program(&tag).expect("the only one"), &registered));

    let results = Selector::Name("resm".to_owned());
    let entries = session.dump(&results, usize::MAX).expect("an array");
    assert!(!entries.is_empty());
    let (key, value) = &entries[0];
    let fives: Value = vec![5; value.bytes().len()].into();
    session.update(&results, key, &fives, 0).expect("a value of this size");
    assert_eq!(session.lookup(&results, key).expect("it is there"), fives);
    let cleared = session.map(&results).expect("it is there").clear(key);
    cleared.expect("an array's element stays");
    assert!(session.lookup(&results, key).expect("it is there").bytes().iter().all(|&it| it == 0));
    let error = session.update(&results, key, &vec![1].into(), 0).expect_err("a short value");
    assert_eq!(error.errno(), Errno::EINVAL);
    let error = session.map(&Selector::Id(99)).expect_err("no such map");
    assert_eq!(error.to_string(), "there is no map id 99; `towpath map show` lists existing ones");

    let path = "/sys/fs/bpf/prog";
    session.pin(&tag, path).expect("a free name");
    drop(registered);
    assert_eq!(session.progs().len(), 1, "the pin keeps it");
    assert_eq!(session.paths(|it| matches!(it, Pinned::Program(_))), [path]);
    session.unpin(path).expect("it is there");
    assert!(session.progs().is_empty() && session.maps().is_empty(), "nothing else did");
}
