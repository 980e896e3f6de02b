//! Names in C: arguments of calls, from the source lines in an object.

use towpath_bpf::Linked;
use towpath_bpf::program::Line;

/// The text of argument `number` (from 1) of the call of `function` in a slot, as far as the lines
/// in the object show it.
pub(super) fn argument(linked: &Linked, slot: usize, function: &str, number: u8) -> Option<String> {
    let line = linked.nearest_line_of(slot)?;
    let call = calls_text(linked, line, function)?;
    let argument = split(&call).into_iter().nth(usize::from(number) - 1)?;
    let argument = argument.trim();
    (!argument.is_empty() && argument.len() <= TEXT_MAX).then(|| argument.to_owned())
}

/// `x` of `&x`, if that is all there is.
pub(super) fn variable(argument: &str) -> Option<&str> {
    let name = argument.strip_prefix('&')?.trim();
    let is_name = |it: char| it.is_ascii_alphanumeric() || it == '_';
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

/// The text after `function(`, over the following lines, up to the closing parenthesis or the last
/// known line.
fn calls_text(linked: &Linked, line: &Line, function: &str) -> Option<String> {
    let at = line.text.find(&format!("{function}("))?;
    let mut text = line.text[at + function.len() + 1..].to_owned();
    let mut number = line.line;
    while !is_closed(&text) {
        number += 1;
        let next = linked.lines.iter().find(|it| it.line == number && it.file == line.file);
        match next {
            Some(next) if number - line.line < LINES_MAX => {
                text.push(' ');
                text.push_str(&next.text);
            }
            // The unknown rest may be one argument, or several.
            _ => return Some(text),
        }
    }
    Some(text)
}

fn is_closed(text: &str) -> bool {
    let mut depth = 0i32;
    text.chars().any(|it| {
        depth += i32::from(matches!(it, '(' | '[')) - i32::from(matches!(it, ')' | ']'));
        depth < 0
    })
}

/// Arguments, up to the closing parenthesis; the last one only if that is there.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut found) = (0, 0, Vec::new());
    for (at, it) in text.char_indices() {
        match it {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => {
                found.push(&text[start..at]);
                break;
            }
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    found
}

const TEXT_MAX: usize = 60;
const LINES_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_what_commas_part() {
        assert_eq!(
            split("&flows, &k, f(a, b), BPF_ANY);"),
            ["&flows", " &k", " f(a, b)", " BPF_ANY"]
        );
        assert_eq!(split("&flows, &k,"), ["&flows", " &k"]);
        assert_eq!(variable("&k"), Some("k"));
        assert_eq!(variable("&k.x"), None);
        assert_eq!(variable("k"), None);
    }
}
