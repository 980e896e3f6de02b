//! Coverage as an lcov tracefile (geninfo(1), "FILES").

use std::fmt::Write as _;

use crate::coverage::Coverage;

/// One record for each C file.
pub(crate) fn tracefile(coverage: &Coverage) -> String {
    let mut text = String::new();
    for (path, file) in &coverage.files {
        let _written = writeln!(text, "TN:\nSF:{path}");
        for (number, line) in &file.lines {
            for (block, ways) in line.branches.values().enumerate() {
                for (way, &count) in ways.iter().enumerate() {
                    // `-` where the jump itself was never reached.
                    let count = match ways {
                        [0, 0] => "-".to_owned(),
                        _ => count.to_string(),
                    };
                    let _written = writeln!(text, "BRDA:{number},{block},{way},{count}");
                }
            }
        }
        let (branches, lines) = (file.branches_reached(), file.lines_reached());
        let _written = writeln!(text, "BRF:{}\nBRH:{}", branches.1, branches.0);
        for (number, line) in &file.lines {
            let _written = writeln!(text, "DA:{number},{}", line.hits);
        }
        let _written = writeln!(text, "LF:{}\nLH:{}\nend_of_record", lines.1, lines.0);
    }
    text
}
