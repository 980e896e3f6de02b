//! A script: its lines, and running them.

use crate::side::{Runner, Side};

/// A parsed script.
pub(crate) struct Script {
    /// Comments and empty lines, by the command line they stand before.
    comments: Vec<String>,
    pub(crate) lines: Vec<Line>,
}

/// One command.
pub(crate) struct Line {
    /// In the file, from 1.
    pub(crate) number: usize,
    /// As written.
    pub(crate) text: String,
    /// The command's name.
    pub(crate) command: String,
    /// Fields and their values, or a pseudo-command's arguments with empty values.
    pub(crate) arguments: Vec<(String, String)>,
    /// The name that a new descriptor gets.
    pub(crate) bind: Option<String>,
    /// The outcome that follows.
    pub(crate) expected: String,
}

impl Script {
    pub(crate) fn parse(text: &str) -> Result<Script, String> {
        let mut script = Script { comments: vec![String::new()], lines: Vec::new() };
        for (number, text) in (1..).zip(text.lines()) {
            if let Some(outcome) = text.strip_prefix("= ") {
                let line = script.lines.last_mut().ok_or(format!("{number}: no command yet"))?;
                outcome.clone_into(&mut line.expected);
            } else if text.is_empty() || text.starts_with('#') {
                let comments = script.comments.last_mut().ok_or("empty")?;
                *comments += text;
                *comments += "\n";
            } else {
                let line = Line::parse(number, text).ok_or(format!("{number}: {text:?}"))?;
                script.lines.push(line);
                script.comments.push(String::new());
            }
        }
        Ok(script)
    }

    /// Runs all commands; one outcome each.
    pub(crate) fn run(&self, side: &mut dyn Side) -> Vec<String> {
        let mut runner = Runner::new(side);
        self.lines.iter().map(|line| runner.run(line)).collect()
    }

    /// The script as text, with other outcomes.
    pub(crate) fn with_outcomes(&self, outcomes: &[String]) -> String {
        let mut text = String::new();
        for ((comment, line), outcome) in self.comments.iter().zip(&self.lines).zip(outcomes) {
            text += &format!("{comment}{}\n= {outcome}\n", line.text);
        }
        text + self.comments.last().map_or("", String::as_str)
    }
}

impl Line {
    fn parse(number: usize, text: &str) -> Option<Line> {
        let (call, bind) = match text.split_once(" -> ") {
            Some((call, name)) => (call, Some(name.trim().to_owned())),
            None => (text, None),
        };
        let mut words = words(call).into_iter();
        let command = words.next()?;
        let arguments = words.map(|word| match word.split_once('=') {
            Some((field, value)) => (field.to_owned(), value.to_owned()),
            None => (word, String::new()),
        });
        Some(Line {
            number,
            text: text.to_owned(),
            command,
            arguments: arguments.collect(),
            bind,
            expected: String::new(),
        })
    }
}

/// Words between spaces; brackets and quotes keep theirs.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut inside) = (Vec::new(), String::new(), false);
    for letter in text.chars() {
        match letter {
            '[' => inside = true,
            ']' => inside = false,
            '"' => inside = !inside,
            ' ' if !inside => {
                words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
                continue;
            }
            _ => {}
        }
        word.push(letter);
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}
