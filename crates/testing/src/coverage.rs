//! Coverage of C lines and branches, derived from the instructions that were compiled from them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use towpath_bpf::Linked;

use crate::watch::{Reached, Watch, is_conditional};
use crate::{lcov, page};

/// Coverage of all runs, by C file. It can be passed as a document to another process, which merges
/// it into its own ([`Coverage::merge`]).
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    pub(crate) files: BTreeMap<Arc<str>, SourceFile>,
}

/// The lines of a C file that were compiled into instructions of programs that ran.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SourceFile {
    /// Lines by number.
    pub(crate) lines: BTreeMap<u32, SourceLine>,
}

/// A line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SourceLine {
    pub(crate) text: Arc<str>,
    /// Number of times that it was reached.
    pub(crate) hits: u64,
    /// For each of its conditional jumps, the number of times that it fell through, and that it was
    /// taken.
    #[serde(serialize_with = "as_pairs", deserialize_with = "of_pairs")]
    pub(crate) branches: Branches,
}

/// Counts of conditional jumps, by program and instruction.
type Branches = BTreeMap<(Arc<str>, usize), [u64; 2]>;

/// Summary of a file.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name, without folders.
    pub file: String,
    /// Covered lines, as `41 of 50 (82 %)`.
    pub lines: String,
    /// Covered outcomes of its conditional jumps, in the same form.
    pub branches: String,
}

impl Coverage {
    /// Adds the observations of a program, and of the programs that it called. If no program was
    /// observed, all lines of `program` count as not reached.
    pub fn add(&mut self, program: Option<&Arc<Linked>>, watch: &Watch) {
        let mut programs = watch.take();
        if programs.is_empty() {
            programs.extend(program.map(Reached::new));
        }
        programs.iter().for_each(|reached| self.add_program(reached));
    }

    fn add_program(&mut self, reached: &Reached) {
        let lines = &reached.linked.lines;
        let name: Arc<str> = reached.linked.name.as_str().into();
        for (index, line) in lines.iter().enumerate() {
            let start = line.insn as usize;
            let end = lines.get(index + 1).map_or(reached.hits.len(), |next| next.insn as usize);
            let Some(hits) = reached.hits.get(start..end) else { continue };
            let file = self.files.entry(Arc::clone(&line.file)).or_default();
            let known = file.line(line.line, &line.text);
            known.hits += hits.iter().copied().max().unwrap_or(0);
            for slot in start..end {
                if reached.linked.insns.get(slot).is_some_and(is_conditional) {
                    let taken = reached.branches.get(&slot).copied().unwrap_or_default();
                    known.add_branch((Arc::clone(&name), slot), taken);
                }
            }
        }
    }

    /// Adds the coverage of another process.
    pub fn merge(&mut self, other: Coverage) {
        for (path, file) in other.files {
            let known = self.files.entry(path).or_default();
            for (number, line) in file.lines {
                let known = known.line(number, &line.text);
                known.hits += line.hits;
                line.branches.into_iter().for_each(|(at, taken)| known.add_branch(at, taken));
            }
        }
    }

    /// Whether there is no coverage, because the programs that ran have no line information (`clang
    /// -g`).
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Summaries of all files.
    pub fn rows(&self) -> Vec<Row> {
        let row = |(path, file): (&Arc<str>, &SourceFile)| Row {
            file: file_name(path).to_owned(),
            lines: share(file.lines_reached()),
            branches: share(file.branches_reached()),
        };
        self.files.iter().map(row).collect()
    }

    /// The lines that no run reached: `filter.c:12  return XDP_DROP;`.
    pub fn unreached(&self) -> impl Iterator<Item = String> {
        self.files.iter().flat_map(|(path, file)| {
            let lines = file.lines.iter().filter(|(_, line)| line.hits == 0);
            lines.map(move |(number, line)| format!("{}:{number}  {}", file_name(path), line.text))
        })
    }

    /// An lcov tracefile, for genhtml and others.
    pub fn tracefile(&self) -> String {
        lcov::tracefile(self)
    }

    /// An HTML page, with the source of files that still exist.
    pub fn page(&self) -> String {
        page::page(self)
    }
}

impl SourceFile {
    fn line(&mut self, number: u32, text: &Arc<str>) -> &mut SourceLine {
        self.lines.entry(number).or_insert_with(|| SourceLine {
            text: Arc::clone(text),
            hits: 0,
            branches: Branches::new(),
        })
    }

    /// Number of reached lines, and of all lines.
    pub(crate) fn lines_reached(&self) -> (usize, usize) {
        (self.lines.values().filter(|line| line.hits > 0).count(), self.lines.len())
    }

    /// Number of taken outcomes of conditional jumps, and of all outcomes.
    pub(crate) fn branches_reached(&self) -> (usize, usize) {
        let ways = || self.lines.values().flat_map(|line| line.branches.values().flatten());
        (ways().filter(|&&count| count > 0).count(), ways().count())
    }
}

impl SourceLine {
    fn add_branch(&mut self, at: (Arc<str>, usize), taken: [u64; 2]) {
        let ways = self.branches.entry(at).or_default();
        (ways[0], ways[1]) = (ways[0] + taken[0], ways[1] + taken[1]);
    }
}

/// A path's last part.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn share((some, all): (usize, usize)) -> String {
    match (some * 100).checked_div(all) {
        Some(percent) => format!("{some} of {all} ({percent} %)"),
        None => "none".to_owned(),
    }
}

/// A list of pairs, because documents have no keys of two parts.
fn as_pairs<S: Serializer>(branches: &Branches, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(branches)
}

fn of_pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Branches, D::Error> {
    let pairs = Vec::<((Arc<str>, usize), [u64; 2])>::deserialize(deserializer)?;
    Ok(pairs.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coverage(hits: u64, taken: [u64; 2]) -> Coverage {
        let mut coverage = Coverage::default();
        let file = coverage.files.entry("dir/a.c".into()).or_default();
        file.line(3, &"if (x)".into()).hits = hits;
        file.line(3, &"if (x)".into()).add_branch(("p".into(), 7), taken);
        file.line(4, &"return <1>;".into());
        coverage
    }

    #[test]
    fn what_processes_reached_is_added_up() {
        let mut all = coverage(2, [2, 0]);
        let other = serde_json::to_string(&coverage(1, [0, 1])).expect("a document");
        all.merge(serde_json::from_str(&other).expect("what was just written"));
        let row = Row {
            file: "a.c".to_owned(),
            lines: "1 of 2 (50 %)".to_owned(),
            branches: "2 of 2 (100 %)".to_owned(),
        };
        assert_eq!(all.rows(), [row]);
        assert_eq!(all.unreached().collect::<Vec<_>>(), ["a.c:4  return <1>;"]);
        let traced = all.tracefile();
        assert!(traced.contains("SF:dir/a.c\nBRDA:3,0,0,2\nBRDA:3,0,1,1\n"), "{traced}");
        assert!(traced.contains("DA:3,3\nDA:4,0\nLF:2\nLH:1\n"), "{traced}");
        assert!(all.page().contains("return &lt;1&gt;;"), "{}", all.page());
    }
}
