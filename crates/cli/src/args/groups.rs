//! The groups of commands in the help and the manual page.

use std::fmt::Write as _;

use clap::{Command, CommandFactory as _};

use super::Cli;

/// Groups of commands, in the order in which users need them.
pub(crate) const GROUPS: &[(&str, &[&str])] = &[
    ("Write and test programs", &["new", "test", "run", "verify", "bench", "inspect", "prog"]),
    ("Run them live", &["up", "check", "reload", "load", "unload", "demo", "exec"]),
    (
        "Inspect and change a running daemon",
        &["status", "stats", "top", "events", "dump", "map", "link", "net", "btf"],
    ),
    (
        "Ports, virtual machines and sockets",
        &["port", "features", "qualify", "bridge", "bond", "sa", "policy", "guest", "xsk", "wrap"],
    ),
    ("This command", &["help", "completions", "man"]),
];

/// The command line, with the commands in groups in its help.
pub(crate) fn command() -> Command {
    let command = Cli::command();
    let (template, mut whole) = (template(&command), command.clone());
    whole.build();
    command.help_template(template.replace(LISTED, &listed(&whole)))
}

/// The template of the help, with groups in place of clap's single list of commands.
fn template(command: &Command) -> String {
    let header = command.get_styles().get_header();
    format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{LISTED}\
         {header}Options:{header:#}\n{{options}}\n\n\
         `towpath help COMMAND` describes a command and its options.{{after-help}}"
    )
}

fn listed(whole: &Command) -> String {
    let styles = whole.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let mut text = String::new();
    for (heading, verbs) in GROUPS {
        // Writing to memory does not fail.
        let _written = writeln!(text, "{header}{heading}:{header:#}");
        for verb in *verbs {
            let about = about(whole, verb);
            let _written = writeln!(text, "  {literal}{verb:WIDTH$}{literal:#}  {about}");
        }
        text.push('\n');
    }
    text
}

/// The one-line description of a command.
pub(crate) fn about(whole: &Command, verb: &str) -> String {
    let command = whole.find_subcommand(verb);
    let about = command.and_then(Command::get_about).map(ToString::to_string);
    about.unwrap_or_default().replace("Print this message or the help", "Show this, or the help")
}

/// Placeholder of the list in the template: a character that no help text contains.
const LISTED: &str = "\u{1}";
/// Length of the longest command's name.
const WIDTH: usize = 11;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_command_is_in_one_group() {
        let mut whole = command();
        let grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, verbs)| *verbs).copied().collect();
        let is_once: BTreeSet<&str> = grouped.iter().copied().collect();
        assert_eq!(is_once.len(), grouped.len(), "{grouped:?}");
        let help = whole.render_help().to_string();
        whole.build();
        let there = whole.get_subcommands().filter(|it| !it.is_hide_set());
        let there: BTreeSet<&str> = there.map(Command::get_name).collect();
        assert_eq!(is_once, there);
        for verb in there {
            assert!(verb.len() <= WIDTH, "{verb}");
            let line = format!("  {verb:WIDTH$}  {}", about(&whole, verb));
            assert!(help.lines().any(|it| it == line), "{line:?} in {help}");
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
