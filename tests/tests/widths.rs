//! Arguments of helpers and kfuncs with bits above the lower 32: what the kernel takes as 32 bits
//! is cut, what it takes as 64 bits is not, in every way to run a program.

use towpath_kernel::{Kernel, isolate_network};
use towpath_tests::execution::{Pair, fill_slots};
use towpath_tests::history;
use towpath_tests::packets::packets;
use towpath_tests::verdict;
use towpath_tests::ways::Way;
use towpath_xdp::Exec;

#[test]
fn arguments_are_as_wide_as_in_the_kernel() {
    let kernel = match Kernel::open() {
        Ok(kernel) => kernel,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    if let Err(why) = isolate_network() {
        return eprintln!("skipped: no network namespace of our own: {why}");
    }
    let packets = packets(7, 6, true);
    let themes = history::read("tests/data/widths").expect("tables");
    let mut wrong = Vec::new();
    for program in themes.iter().flat_map(|theme| &theme.entries).flat_map(|it| &it.programs) {
        let linked = program.linked(kernel.btf()).expect(&program.name);
        for exec in [Exec::Interp, Exec::Jit, Exec::Llvm] {
            let maps = kernel.load_maps(&linked.maps).expect("maps");
            let loaded = verdict::kernel(&kernel, &linked, &maps, true);
            let Some(loaded) = loaded.program() else {
                wrong.push(format!("{}: kernel: {}", program.name, loaded.reason()));
                continue;
            };
            let ours = towpath_xdp::Program::from_linked(linked.clone(), &Way::of(exec).options());
            let ours = ours.unwrap_or_else(|error| panic!("{}: {error}", program.name));
            fill_slots(&ours);
            let mut pair = Pair::of(ours, &linked, loaded, &maps);
            if let Some(mismatch) = pair.compare(&packets) {
                wrong.push(format!("{}: {exec:?}: {mismatch:?}", program.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
