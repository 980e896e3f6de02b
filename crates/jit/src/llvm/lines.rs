//! The BPF instruction of each machine instruction: LLVM gets the number of the slot as the line of
//! a source file, and its object file maps addresses to these "lines".

use std::collections::HashMap;

use gimli::{DebugLine, DebugLineOffset, LittleEndian};

use super::function::line;

/// Debug nodes of a module's text, which give the origins of instructions.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Functions and slots by number of their nodes, less [`FIRST_PLACE`].
    places: Vec<(usize, u32)>,
    known: HashMap<(usize, u32), usize>,
}

impl Lines {
    /// Text to append to an instruction of a function that was made from a slot.
    pub(super) fn suffix(&mut self, function: usize, slot: u32) -> String {
        let place = (function, slot);
        let next = self.places.len();
        let number = *self.known.entry(place).or_insert(next);
        if number == next {
            self.places.push(place);
        }
        format!(", !dbg !{}", FIRST_PLACE + number)
    }

    /// Writes the nodes for a text with this number of functions.
    pub(super) fn write(&self, functions: usize, out: &mut String) {
        let mut say = |text: String| line(out, text);
        say(format!("!llvm.dbg.cu = !{{!{UNIT}}}"));
        say(format!("!llvm.module.flags = !{{!{}, !{}}}", UNIT + 1, UNIT + 2));
        say(format!(
            "!{UNIT} = distinct !DICompileUnit(language: DW_LANG_C99, file: !{FILE}, \
             isOptimized: true, emissionKind: LineTablesOnly)"
        ));
        say(format!("!{} = !{{i32 2, !\"Debug Info Version\", i32 3}}", UNIT + 1));
        say(format!("!{} = !{{i32 2, !\"Dwarf Version\", i32 {DWARF}}}", UNIT + 2));
        say(format!("!{FILE} = !DIFile(filename: \"bpf\", directory: \"\")"));
        say(format!("!{TYPE} = !DISubroutineType(types: !{{}})"));
        for index in 0..functions {
            say(format!(
                "!{} = distinct !DISubprogram(name: \"f{index}\", scope: !{FILE}, file: !{FILE}, \
                 line: 1, type: !{TYPE}, spFlags: DISPFlagDefinition | DISPFlagOptimized, \
                 unit: !{UNIT})",
                FIRST_FUNCTION + index
            ));
        }
        for (number, (function, slot)) in self.places.iter().enumerate() {
            say(format!(
                "!{} = !DILocation(line: {}, scope: !{})",
                FIRST_PLACE + number,
                // Line numbers begin with 1.
                slot + 1,
                FIRST_FUNCTION + function
            ));
        }
    }
}

/// Text to append to the head of function `index` of the text.
pub(super) fn of_function(index: usize) -> String {
    format!(" !dbg !{}", FIRST_FUNCTION + index)
}

/// Reads the line table of an object file: the addresses at which code of another BPF instruction
/// begins, with its slot, in order. Unreadable parts are left out.
pub(super) fn read(section: &[u8]) -> Vec<(u64, u32)> {
    let unit = DebugLine::new(section, LittleEndian);
    let program = unit.program(DebugLineOffset(0), size_of::<u64>() as u8, None, None);
    let Ok(program) = program else { return Vec::new() };
    let mut rows = program.rows();
    let mut found: Vec<(u64, u32)> = Vec::new();
    while let Ok(Some((_, row))) = rows.next_row() {
        // Code without a line belongs to the instruction in front of it.
        let Some(slot) = row.line().and_then(|line| u32::try_from(line.get() - 1).ok()) else {
            continue;
        };
        if !row.end_sequence() {
            found.push((row.address(), slot));
        }
    }
    found.sort_by_key(|&(address, _)| address);
    found.dedup_by_key(|&mut (_, slot)| slot);
    found
}

/// DWARF version 4 has file names in the line table itself.
const DWARF: u32 = 4;
/// Numbers of nodes, above all others.
const UNIT: usize = 1 << 22;
const FILE: usize = UNIT + 3;
const TYPE: usize = UNIT + 4;
const FIRST_FUNCTION: usize = UNIT + 16;
const FIRST_PLACE: usize = 1 << 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_table_says_nothing() {
        assert_eq!(read(&[]), []);
        assert_eq!(read(&[0xff; 64]), []);
        assert_eq!(read(&[10, 0, 0, 0, 4, 0, 200, 0, 0, 0, 1, 2, 3, 4]), []);
    }

    #[test]
    fn places_are_written_once() {
        let mut lines = Lines::default();
        assert_eq!(lines.suffix(0, 7), lines.suffix(0, 7));
        assert_ne!(lines.suffix(0, 7), lines.suffix(1, 7));
        let mut text = String::new();
        lines.write(2, &mut text);
        assert_eq!(text.matches("!DILocation(line: 8,").count(), 2);
    }
}
