//! Choosing one program of an object by name or section.

use super::{Program, ProgramKind, SelectError};
use crate::program::AttachType;

/// The only program that matches, or an error with the candidates.
pub(super) fn select(
    programs: &[Program],
    name: Option<&str>,
    section: Option<&str>,
) -> Result<usize, SelectError> {
    if programs.is_empty() {
        return Err(SelectError::Empty);
    }
    let fits = |program: &Program| {
        name.is_none_or(|name| program.name == name)
            && section.is_none_or(|section| program.section == section)
    };
    let mut matching: Vec<usize> = (0..programs.len()).filter(|&i| fits(&programs[i])).collect();
    if matching.len() > 1 && name.is_none() && section.is_none() {
        prefer_xdp(programs, &mut matching);
    }
    match matching[..] {
        [index] => Ok(index),
        [] => Err(SelectError::Missing {
            wanted: wanted(name, section),
            candidates: list(programs.iter()),
        }),
        [first, ..] => Err(SelectError::Ambiguous {
            count: matching.len(),
            by: match matching.iter().all(|&index| programs[index].name == programs[first].name) {
                true => "section",
                false => "name",
            },
            candidates: list(matching.iter().map(|&index| &programs[index])),
        }),
    }
}

/// Keeps only programs for ports if the user made no choice: programs of other kinds, and those for
/// entries of devmaps and cpumaps, are run by them.
fn prefer_xdp(programs: &[Program], matching: &mut Vec<usize>) {
    let is_xdp = |&index: &usize| programs[index].kind == ProgramKind::Xdp;
    let is_for_ports = |index: &usize| is_xdp(index) && programs[*index].attach == AttachType::Xdp;
    if matching.iter().any(is_for_ports) {
        matching.retain(is_for_ports);
    } else if matching.iter().any(is_xdp) {
        matching.retain(is_xdp);
    }
}

fn wanted(name: Option<&str>, section: Option<&str>) -> String {
    match (name, section) {
        (Some(name), Some(section)) => format!("named {name} in section {section}"),
        (Some(name), None) => format!("named {name}"),
        (None, Some(section)) => format!("in section {section}"),
        (None, None) => String::new(),
    }
}

fn list<'a>(programs: impl Iterator<Item = &'a Program>) -> String {
    let names = programs.map(|program| format!("{} ({})", program.name, program.section));
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, section: &str, kind: ProgramKind) -> Program {
        Program {
            name: name.to_owned(),
            section: section.to_owned(),
            kind,
            attach: AttachType::Xdp,
            has_frags: false,
            insn_count: 1,
        }
    }

    #[test]
    fn the_only_program_or_the_only_xdp_one_needs_no_choice() {
        let mut programs = vec![program("a", "prog", ProgramKind::Unknown)];
        assert_eq!(select(&programs, None, None), Ok(0));
        programs.push(program("b", "tc", ProgramKind::Other("tc")));
        assert!(matches!(select(&programs, None, None), Err(SelectError::Ambiguous { .. })));
        programs.push(program("c", "xdp", ProgramKind::Xdp));
        assert_eq!(select(&programs, None, None), Ok(2));
        assert_eq!(select(&programs, Some("b"), None), Ok(1));
        assert_eq!(select(&programs, None, Some("prog")), Ok(0));
    }

    #[test]
    fn programs_of_other_hooks_are_no_choice() {
        let of =
            |attach, section| Program { attach, ..program(section, section, ProgramKind::Xdp) };
        let mut programs = vec![
            of(AttachType::Devmap, "xdp/devmap"),
            of(AttachType::Cpumap, "xdp/cpumap"),
            program("ext", "freplace/xdp_pass", ProgramKind::Other("freplace")),
            of(AttachType::Xdp, "xdp"),
        ];
        assert_eq!(select(&programs, None, None), Ok(3));
        assert_eq!(select(&programs, None, Some("xdp/devmap")), Ok(0));
        programs.pop();
        assert!(matches!(
            select(&programs, None, None),
            Err(SelectError::Ambiguous { count: 2, .. })
        ));
    }

    #[test]
    fn programs_of_one_name_are_told_apart_by_section() {
        let tail = |section| program("handle", section, ProgramKind::Unknown);
        let programs = [tail("2/1"), tail("2/2")];
        let error = select(&programs, Some("handle"), None).unwrap_err().to_string();
        let expected = "2 programs match, choose one by section: handle (2/1), handle (2/2)";
        assert_eq!(error, expected);
        assert_eq!(select(&programs, Some("handle"), Some("2/2")), Ok(1));
    }

    #[test]
    fn a_wrong_choice_lists_what_there_is() {
        let programs =
            [program("a", "xdp", ProgramKind::Xdp), program("b", "xdp", ProgramKind::Xdp)];
        let error = select(&programs, Some("c"), Some("xdp")).unwrap_err().to_string();
        assert_eq!(error, "no program named c in section xdp; the object has: a (xdp), b (xdp)");
        assert!(
            select(&programs, None, Some("xdp")).unwrap_err().to_string().contains("2 programs")
        );
    }
}
