//! "Did you mean": the most similar existing name.

/// `; did you mean X?` for a name that is nearly right, else the list of existing names.
pub fn among<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    if let Some(name) = near(wanted, names.iter().copied()) {
        return format!("; did you mean \"{name}\"?");
    }
    if names.is_empty() {
        return "; there are none".to_owned();
    }
    let shown = names.iter().take(LISTED_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = if names.len() > LISTED_MAX { ", ..." } else { "" };
    format!("; there are: {shown}{more}")
}

/// The most similar other name, if `wanted` is close enough to it.
pub fn near<'a>(wanted: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let nearest = names
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(wanted, name), name))
        .filter(|(distance, name)| *distance > 0 && *distance <= 1 + name.len() / 4)
        .min();
    nearest.map(|(_, name)| name)
}

const LISTED_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_anything_else_gets_the_list() {
        assert_eq!(among("couters", ["counters", "blocked"]), "; did you mean \"counters\"?");
        assert_eq!(among("x", ["counters", "blocked"]), "; there are: counters, blocked");
        assert_eq!(among("x", []), "; there are none");
    }
}
