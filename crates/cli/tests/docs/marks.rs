//! A page as what is to be done with it: fenced blocks, and the comments that say how they are run.
//!
//! A comment that stands alone, `<!-- KEY: TEXT -->`, is a mark; readers don't see it.
//!
//! | mark | says of the next block, or by itself |
//! | --- | --- |
//! | `not run: REASON` | the block can't be run, or need not be |
//! | `run by: FILE` | that test runs it |
//! | `file: NAME` | the block's text is a file of that name, for what comes after it on the page |
//! | `file: NAME` and lines | those lines are; no block is meant |
//! | `before: LINES`, `after: LINES` | what a part of a file needs around it to be whole |
//! | `run: LINES` | commands that are run here, and must succeed; no block is meant |
//! | `shape: COMMAND` | the block is JSON as that command prints it, with other values |
//! | `output: numbers differ` | what commands print is compared without numbers |
//! | `needs: WHAT` | `root`, `kernel` (to run programs), `tap`, or an installed command |

/// A fenced block.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    /// Behind the fence.
    pub(crate) language: String,
    pub(crate) text: String,
    /// Key and text of each mark.
    pub(crate) marks: Vec<(String, String)>,
}

impl Block {
    /// The text of one of this block's marks.
    pub(crate) fn mark(&self, key: &str) -> Option<&str> {
        self.marks.iter().find(|(name, _)| name == key).map(|(_, text)| text.as_str())
    }
}

/// Something to do, in the order of the page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    File { name: String, text: String },
    Run(String),
    Block(Block),
}

/// Blocks and marks of a page, with line numbers; or the line of a mistake.
pub(crate) fn items(page: &str) -> Result<Vec<(usize, Item)>, String> {
    let (mut found, mut marks) = (Vec::new(), Vec::new());
    let mut lines = (1..).zip(page.lines());
    while let Some((number, line)) = lines.next() {
        let start = line.trim_start();
        if let Some(language) = start.strip_prefix("```") {
            let indent = line.len() - start.len();
            let mut text = String::new();
            loop {
                let (_, line) = lines.next().ok_or(format!("{number}: this block has no end"))?;
                if line.trim() == "```" {
                    break;
                }
                text += line.get(indent..).unwrap_or_default();
                text.push('\n');
            }
            let marks = std::mem::take(&mut marks);
            let language = language.trim().to_owned();
            found.push((number, Item::Block(Block { language, text, marks })));
        } else if let Some(first) = line.strip_prefix("<!-- ") {
            let mut comment = first.to_owned();
            while !comment.trim_end().ends_with("-->") {
                let (_, line) = lines.next().ok_or(format!("{number}: this comment has no end"))?;
                comment = format!("{comment}\n{line}");
            }
            let comment = comment.trim_end().trim_end_matches("-->").trim_end();
            let (key, text) = comment.split_once(':').ok_or(format!("{number}: no KEY: TEXT"))?;
            match (key, text.trim().split_once('\n')) {
                ("run", _) => found.push((number, Item::Run(format!("{}\n", text.trim())))),
                ("file", Some((name, text))) => {
                    let (name, text) = (name.trim().to_owned(), format!("{text}\n"));
                    found.push((number, Item::File { name, text }));
                }
                (key, _) if BLOCK_MARKS.contains(&key) => {
                    marks.push((key.to_owned(), text.trim().to_owned()));
                }
                _ => return Err(format!("{number}: no mark {key:?}; known: {BLOCK_MARKS:?}, run")),
            }
        } else if !line.trim().is_empty() && !marks.is_empty() {
            return Err(format!("{number}: a mark, and no block behind it"));
        }
    }
    Ok(found)
}

/// A command, and what a page says that it prints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) text: String,
    pub(crate) output: Vec<String>,
}

/// The commands of a block: all lines, or in a `console` those behind a prompt, with what they
/// print below.
pub(crate) fn commands(block: &Block) -> Vec<Command> {
    let is_console = block.language == "console";
    let mut found: Vec<Command> = Vec::new();
    let mut lines = block.text.lines();
    while let Some(line) = lines.next() {
        let command = match is_console {
            true => line.trim_start().strip_prefix("$ ").or(line.strip_prefix("# ")),
            false => Some(line).filter(|line| !line.is_empty() && !line.starts_with('#')),
        };
        let Some(command) = command else {
            if let Some(last) = found.last_mut().filter(|_| is_console) {
                last.output.push(line.to_owned());
            }
            continue;
        };
        let mut text = command.to_owned();
        while text.ends_with(['\\', '|']) {
            text = format!("{text}\n{}", lines.next().unwrap_or_default());
        }
        // An administrator's prompt is as good as sudo.
        if is_console && line.starts_with("# ") {
            text = format!("sudo {text}");
        }
        found.push(Command { text, output: Vec::new() });
    }
    found
}

const BLOCK_MARKS: [&str; 8] =
    ["not run", "run by", "file", "before", "after", "shape", "output", "needs"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_taken_apart() {
        let page = "# A\n\n<!-- file: a/b.toml\nx = 1\n-->\n<!-- run: true -->\n\n\
                    <!-- file: c.c -->\n<!-- before: int\nx; -->\n\n```c\nint y;\n```\n\n\
                    \x20 ```sh\n  ls\n  ```\n";
        let items = items(page).expect("it is well formed");
        let marks = [("file", "c.c"), ("before", "int\nx;")];
        let marks = marks.map(|(key, text)| (key.to_owned(), text.to_owned())).to_vec();
        let block = |language: &str, text: &str, marks| {
            Item::Block(Block { language: language.to_owned(), text: text.to_owned(), marks })
        };
        let expected = vec![
            (3, Item::File { name: "a/b.toml".to_owned(), text: "x = 1\n".to_owned() }),
            (6, Item::Run("true\n".to_owned())),
            (12, block("c", "int y;\n", marks)),
            (16, block("sh", "ls\n", Vec::new())),
        ];
        assert_eq!(items, expected);
        for bad in ["```\n", "<!-- what: x -->\n", "<!-- not run: x -->\ntext\n", "<!-- run: x\n"] {
            assert!(super::items(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn consoles_have_commands_and_output() {
        let console = |text: &str| {
            let (language, text) = ("console".to_owned(), text.to_owned());
            commands(&Block { language, text, marks: Vec::new() })
        };
        let command = |text: &str, output: &[&str]| Command {
            text: text.to_owned(),
            output: output.iter().map(|&line| line.to_owned()).collect(),
        };
        let found = console("$ a \\\n    b\none\n\ntwo\n# c\n");
        assert_eq!(found, [command("a \\\n    b", &["one", "", "two"]), command("sudo c", &[])]);
        let block = Block { text: "# why\nx\n\ny # z\n".to_owned(), ..Block::default() };
        assert_eq!(commands(&block), [command("x", &[]), command("y # z", &[])]);
    }
}
