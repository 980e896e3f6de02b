//! Whether commands print what a page says.

use serde_json::Value;

/// The first difference between what is shown and what was printed. A line `...` stands for any
/// lines, and one that ends with it for a line that goes on. JSON is compared by its shape.
pub(crate) fn difference(shown: &[String], printed: &str, without_numbers: bool) -> Option<String> {
    let form = |line: &str| if without_numbers { masked(line) } else { words(line).join(" ") };
    let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
    let (mut at, mut may_skip) = (0, false);
    for (index, line) in shown.iter().enumerate() {
        if line.trim() == "..." {
            may_skip = true;
            continue;
        }
        if line.starts_with('{') || line.starts_with('[') {
            return json_difference(&shown[index..].join("\n"), &printed[at..].join("\n"));
        }
        let (wanted, is_part) = match line.trim_end().strip_suffix("...") {
            Some(part) => (form(part), true),
            None => (form(line), false),
        };
        let fits = |found: &&str| match is_part {
            true => form(found).starts_with(wanted.trim_end()),
            false => form(found) == wanted,
        };
        let rest = &printed[at..];
        let found = match may_skip {
            true => rest.iter().position(&fits),
            false => rest.first().filter(|found| fits(found)).map(|_| 0),
        };
        let Some(found) = found else {
            let there =
                if may_skip { "nowhere" } else { rest.first().copied().unwrap_or("the end") };
            return Some(format!("shown: {line}\n  printed: {there}"));
        };
        (at, may_skip) = (at + found + 1, false);
    }
    let rest = printed[at..].iter().find(|line| !line.is_empty());
    rest.filter(|_| !may_skip).map(|line| format!("shown: the end\n  printed: {line}"))
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// A line with `#` for each word that has a digit, and for several of them in a row.
fn masked(line: &str) -> String {
    let has_digit = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    let mut words: Vec<&str> =
        words(line).into_iter().map(|word| if has_digit(word) { "#" } else { word }).collect();
    words.dedup_by(|after, before| *after == "#" && *before == "#");
    words.join(" ")
}

/// The same of two texts that are JSON: one document, or one a line.
pub(crate) fn json_difference(shown: &str, printed: &str) -> Option<String> {
    let shown = documents(shown);
    let printed = documents(printed);
    let (shown, printed) = match (shown, printed) {
        (Ok(shown), Ok(printed)) => (shown, printed),
        (Err(error), _) => return Some(format!("what is shown is no JSON: {error}")),
        (_, Err(error)) => return Some(format!("what was printed is no JSON: {error}")),
    };
    if printed.is_empty() {
        return Some("nothing was printed".to_owned());
    }
    shape(&Value::Array(shown), &Value::Array(printed), "")
}

fn documents(text: &str) -> Result<Vec<Value>, serde_json::Error> {
    serde_json::Deserializer::from_str(text).into_iter().collect()
}

/// Members and their types; `null` may be anything. Of lists, the first elements are compared.
fn shape(shown: &Value, printed: &Value, path: &str) -> Option<String> {
    match (shown, printed) {
        (Value::Null, _) | (_, Value::Null) => None,
        (Value::Object(shown), Value::Object(printed)) => {
            let lacks = |here: &serde_json::Map<String, Value>,
                         there: &serde_json::Map<String, Value>| {
                here.keys().find(|key| !there.contains_key(*key)).cloned()
            };
            if let Some(key) = lacks(shown, printed) {
                return Some(format!("{path}.{key} is shown and was not printed"));
            }
            if let Some(key) = lacks(printed, shown) {
                return Some(format!("{path}.{key} was printed and is not shown"));
            }
            shown
                .iter()
                .find_map(|(key, value)| shape(value, &printed[key], &format!("{path}.{key}")))
        }
        (Value::Array(shown), Value::Array(printed)) => match (shown.first(), printed.first()) {
            (Some(shown), Some(printed)) => shape(shown, printed, &format!("{path}[0]")),
            _ => None,
        },
        (Value::Number(_), Value::Number(_))
        | (Value::String(_), Value::String(_))
        | (Value::Bool(_), Value::Bool(_)) => None,
        _ => Some(format!("{path} is shown as {shown} and was printed as {printed}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differs(shown: &str, printed: &str, without_numbers: bool) -> bool {
        let shown: Vec<String> = shown.lines().map(str::to_owned).collect();
        difference(&shown, printed, without_numbers).is_some()
    }

    #[test]
    fn what_is_printed_is_compared() {
        assert!(!differs("a  b\nc", "a b\n c\n", false));
        assert!(differs("a\nc", "a\nb\nc\n", false));
        assert!(!differs("a\n...\nc", "a\nb\nc\n", false));
        assert!(differs("a\n...\nd", "a\nb\nc\n", false));
        assert!(differs("a", "a\nb\n", false) && !differs("a\n...", "a\nb\n", false));
        assert!(!differs("a b...", "a b c\n", false) && differs("a b...", "a c\n", false));
        assert!(differs("took 7 ms", "took 8 ms\n", false));
        assert!(!differs("took 1 007 ms, 0x7f", "took 8 ms, 12\n", true));
        assert!(differs("took 7 ms", "took 8 us\n", true));
    }

    #[test]
    fn documents_are_compared_by_their_shape() {
        let differs = |shown: &str, printed: &str| differs(shown, printed, false);
        assert!(!differs(r#"{"a": 1, "b": ["x"]}"#, r#"{"a":2,"b":["y","z"]}"#));
        assert!(differs(r#"{"a": 1}"#, r#"{"a": "1"}"#));
        assert!(differs(r#"{"a": 1}"#, r#"{"a": 1, "b": 2}"#));
        assert!(differs(r#"{"a": 1, "b": 2}"#, r#"{"a": 1}"#));
        assert!(
            differs(r#"[{"a": 1}]"#, r#"[{"b": 1}]"#) && !differs(r#"{"a": 1}"#, r#"{"a": null}"#)
        );
        assert!(differs(r#"{"a": 1}"#, "") && differs("{a}", "{}"));
    }
}
