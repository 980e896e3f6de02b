//! Manual pages, made from the same types as the parser: one for `towpath`, one for each command.

mod examples;

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::{self, GROUPS};
use crate::error::CliError;
use crate::output::Output;
use examples::{EXAMPLES, VARIABLES};

/// Prints the page of `towpath`, or writes those of all commands into `dir`.
pub(crate) fn manual(dir: Option<&Path>, output: &mut Output) -> Result<(), CliError> {
    let Some(dir) = dir else {
        let page = page(&whole(), "").map_err(CliError::Stdout)?;
        return output.bytes(&page);
    };
    fs::create_dir_all(dir)
        .and_then(|()| write_all(&whole(), "", dir))
        .map_err(|source| CliError::File { path: dir.to_owned(), source })
}

/// The command with all inherited options, so that each page lists the global ones.
fn whole() -> Command {
    let mut command = args::command().disable_help_subcommand(true);
    command.build();
    command
}

/// Writes the pages of a command and of those below it; `verb` is its words after `towpath`.
fn write_all(command: &Command, verb: &str, dir: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        write_all(below, format!("{verb} {}", below.get_name()).trim_start(), dir)?;
    }
    fs::write(dir.join(format!("{}.1", page_name(verb))), page(command, verb)?)
}

fn page_name(verb: &str) -> String {
    format!("towpath {verb}").trim_end().replace(' ', "-")
}

fn page(command: &Command, verb: &str) -> io::Result<Vec<u8>> {
    let source = concat!("towpath ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone())
        .title(page_name(verb))
        .source(source)
        .manual("Towpath: XDP in user space");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut rest = Roff::new();
    match verb {
        "" => groups(&mut rest, command),
        _ if command.get_subcommands().any(|below| !below.is_hide_set()) => {
            man.render_subcommands_section(&mut page)?;
        }
        _ => {}
    }
    examples(&mut rest, verb);
    environment(&mut rest, command, verb);
    exit_status(&mut rest);
    see_also(&mut rest, verb);
    // The title's part already has the preamble, which defines macros that other parts need.
    rest.to_writer(&mut page)?;
    Ok(page)
}

/// The commands in groups, as `towpath help` shows them.
fn groups(page: &mut Roff, whole: &Command) {
    page.control("SH", ["COMMANDS"]);
    for (heading, verbs) in GROUPS {
        page.control("SS", [*heading]);
        for verb in verbs.iter().filter(|verb| whole.find_subcommand(verb).is_some()) {
            page.control("TP", []);
            page.text([bold(page_name(verb)), roman("(1)")]);
            page.text([roman(args::about(whole, verb))]);
        }
    }
}

/// Examples of a command; a command without its own (`map`) has those of the commands below it.
fn examples(page: &mut Roff, verb: &str) {
    let is_below = |of: &str| of == verb || of.starts_with(&format!("{verb} "));
    let mut found = EXAMPLES.iter().filter(|(of, _, _)| is_below(of)).peekable();
    let first = [EXAMPLES[0], EXAMPLES[2], EXAMPLES[4], EXAMPLES[5]];
    page.control("SH", ["EXAMPLES"]);
    let mut show = |(_, what, words): &(&str, &str, &str)| {
        page.control("TP", []);
        page.text([roman(format!("{what}:"))]);
        page.text([bold(format!("towpath {words}"))]);
    };
    match found.peek() {
        Some(_) => found.for_each(show),
        None => first.iter().for_each(&mut show),
    }
}

fn environment(page: &mut Roff, command: &Command, verb: &str) {
    page.control("SH", ["ENVIRONMENT"]);
    let mut say = |name: &str, what: &str| {
        page.control("TP", []);
        page.text([bold(name)]);
        page.text([roman(what)]);
    };
    for argument in command.get_arguments() {
        let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
        if let (Some(name), Some(option)) = (argument.get_env(), argument.get_long()) {
            say(&name.to_string_lossy(), &format!("{help}; --{option} overrides it."));
        }
    }
    for (of, name, what) in VARIABLES {
        if of.is_empty() || verb.is_empty() || of.contains(&verb) {
            say(name, what);
        }
    }
}

fn exit_status(page: &mut Roff) {
    page.control("SH", ["EXIT STATUS"]);
    page.text([roman(
        "0 on success; 1 if a program was refused, the daemon refused the request, or a check \
         failed; 2 if the command line or a file has a mistake, or no daemon answers.",
    )]);
}

fn see_also(page: &mut Roff, verb: &str) {
    page.control("SH", ["SEE ALSO"]);
    let above = verb.rsplit_once(' ').map(|(above, _)| page_name(above));
    let mut named = vec![bold(page_name("")), roman("(1)")];
    if let Some(above) = above {
        named.extend([roman(", "), bold(above), roman("(1)")]);
    }
    page.text(named);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn leaves(command: &Command, verb: &str, found: &mut BTreeSet<String>) {
        let below: Vec<_> = command.get_subcommands().filter(|it| !it.is_hide_set()).collect();
        if below.is_empty() {
            found.insert(verb.to_owned());
        }
        for command in below {
            leaves(command, format!("{verb} {}", command.get_name()).trim_start(), found);
        }
    }

    #[test]
    fn every_command_has_an_example_that_the_parser_takes() {
        let mut commands = BTreeSet::new();
        leaves(&whole(), "", &mut commands);
        let named: BTreeSet<String> = EXAMPLES.iter().map(|(of, _, _)| (*of).to_owned()).collect();
        assert_eq!(named, commands);
        for (verb, _what, words) in EXAMPLES {
            assert!(words.starts_with(verb), "{words}");
            let words = std::iter::once("towpath").chain(words.split(' '));
            if let Err(error) = args::command().try_get_matches_from(words) {
                panic!("{verb}: {error}");
            }
        }
        for (of, name, _what) in VARIABLES {
            of.iter().for_each(|of| assert!(commands.contains(*of), "{name}: {of}"));
        }
    }

    /// Commands and their options, a line each.
    fn said(command: &Command, verb: &str, found: &mut BTreeSet<String>) {
        let options = command.get_arguments().filter(|it| !it.is_hide_set());
        for option in options {
            found.extend(option.get_long().map(|name| format!("{verb} --{name}")));
            found.extend(option.get_short().map(|name| format!("{verb} -{name}")));
        }
        for below in command.get_subcommands() {
            for name in std::iter::once(below.get_name()).chain(below.get_all_aliases()) {
                let verb = format!("{verb} {name}");
                found.insert(verb.clone());
                said(below, &verb, found);
            }
        }
    }

    #[test]
    fn stable_commands_and_options_are_still_there() {
        let mut new = BTreeSet::new();
        said(&whole(), "towpath", &mut new);
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/stable/cli.txt");
        if std::env::var_os("TOWPATH_BLESS").is_some() {
            let text = new.iter().fold(String::new(), |text, line| text + line + "\n");
            fs::write(&path, text).expect("the repository is writable");
        }
        let old = fs::read_to_string(path).expect("it is in the repository");
        let gone: Vec<&str> = old.lines().filter(|line| !new.contains(*line)).collect();
        assert_eq!(gone, [""; 0], "see docs/stability.md");
        assert!(old.lines().count() > 300, "{old}");
    }

    #[test]
    fn pages_have_examples_and_the_environment() {
        let command = whole();
        let map = command.find_subcommand("map").expect("it is there");
        let update = map.find_subcommand("update").expect("it is there");
        let page = String::from_utf8(page(update, "map update").expect("memory")).expect("text");
        for part in [
            ".TH towpath-map-update 1",
            ".SH EXAMPLES",
            "towpath map update name limits key 10.0.0.0/8 value 5",
            ".SH ENVIRONMENT",
            "\\fBTOWPATH_SOCKET\\fR",
            "\\fBNO_COLOR\\fR",
            "\\fBtowpath\\-map\\fR(1)",
        ] {
            assert!(page.contains(part), "{part:?} in {page}");
        }
        assert!(!page.contains("LIBLLVM"), "`map update` compiles no program");
    }
}
