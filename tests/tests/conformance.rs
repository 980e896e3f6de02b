//! The instruction set through the plugin of the bpf_conformance suite: as bare streams over a
//! buffer, compiled as interpreted.

use towpath_tests::programs::isa;
use towpath_xdp::Exec;
use towpath_xdp::conformance::{self, ConformanceError};

/// Operands of each instruction that go through the plugin; `parity isa` does all.
const OPERANDS: usize = 3;

#[test]
fn bare_streams_give_the_same_compiled_as_interpreted() {
    let (cases, packets) = (isa::cases(), isa::packets());
    let streams: Vec<_> =
        cases.iter().filter_map(|case| Some((&case.name, case.bare()?))).collect();
    assert!(streams.len() * 2 > cases.len(), "{} of {}", streams.len(), cases.len());
    for exec in [Exec::Jit, Exec::Llvm] {
        let mut ran = 0;
        for (index, (name, stream)) in streams.iter().enumerate() {
            // LLVM takes its time.
            if exec == Exec::Llvm && index % 8 != 0 {
                continue;
            }
            for step in 0..OPERANDS {
                let packet = &packets[(index * 7 + step * 61) % packets.len()];
                let (mut expected, mut found) = (packet.clone(), packet.clone());
                let r0 = conformance::run(stream, &mut expected, Exec::Interp);
                let r0 = r0.unwrap_or_else(|error| panic!("{name}: {error}"));
                match conformance::run(stream, &mut found, exec) {
                    Ok(compiled) => assert_eq!((compiled, &found), (r0, &expected), "{name}"),
                    Err(ConformanceError::NotCompiled { why, .. }) if exec == Exec::Llvm => {
                        println!("skipped: tier 2: {why}");
                        return;
                    }
                    Err(error) => panic!("{name}: {error}"),
                }
                ran += 1;
            }
        }
        println!("{exec:?}: {ran} runs");
    }
}
