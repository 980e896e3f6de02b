//! Choosing a program, map or link in bpftool's words: `id 7`, `name NAME`, or just `7` or `NAME`.

use serde::de::DeserializeOwned;
use towpath_bpf::suggest;
use towpath_daemon::api::types::{LinkView, MapView, ProgramView};
use towpath_daemon::client::Client;

use super::program::utc;
use crate::error::CliError;

/// Choice of objects on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Which {
    /// All objects.
    All,
    /// The object with this id.
    Id(u32),
    /// Objects with this name.
    Name(String),
    /// Programs with this tag, the hash of their instructions.
    Tag(String),
    /// The object with this pin path.
    Pinned(String),
}

impl Which {
    /// Parses the words of the command line.
    pub(super) fn parse(words: &[String]) -> Result<Which, CliError> {
        let wrong = |said: &str| {
            CliError::Usage(format!("{said}: expected id N, name NAME, tag TAG or pinned PATH"))
        };
        match words {
            [] => Ok(Which::All),
            [one] => Ok(one.parse().map_or_else(|_no_number| Which::Name(one.clone()), Which::Id)),
            [word, id] if word == "id" => id.parse().map(Which::Id).map_err(|_no_number| wrong(id)),
            [word, name] if word == "name" => Ok(Which::Name(name.clone())),
            [word, tag] if word == "tag" => Ok(Which::Tag(tag.clone())),
            [word, path] if word == "pinned" => Ok(Which::Pinned(path.clone())),
            [word, ..] => Err(wrong(word)),
        }
    }

    /// Whether the choice includes an object of this id, name and tag.
    pub(super) fn fits(&self, id: u32, name: &str, tag: &str, pinned: &[String]) -> bool {
        match self {
            Which::All => true,
            Which::Id(wanted) => *wanted == id,
            Which::Name(wanted) => wanted == name || wanted.get(..NAME_MAX) == Some(name),
            Which::Tag(wanted) => wanted == tag,
            Which::Pinned(wanted) => {
                let is = |path: &String| path == wanted || path.strip_prefix(ROOT) == Some(wanted);
                pinned.iter().any(is)
            }
        }
    }

    /// Whether the choice is this name: that of a function, of which a program's name is only the
    /// beginning.
    pub(super) fn is_name(&self, name: &str) -> bool {
        matches!(self, Which::Name(wanted) if wanted == name)
    }

    /// Text for messages.
    pub(super) fn text(&self) -> String {
        match self {
            Which::All => "any".to_owned(),
            Which::Id(id) => format!("id {id}"),
            Which::Name(name) => format!("name {name}"),
            Which::Tag(tag) => format!("tag {tag}"),
            Which::Pinned(path) => format!("pinned {path}"),
        }
    }
}

/// Whether `word` is a keyword that says how an object is chosen.
pub(crate) fn is_word(word: &str) -> bool {
    ["id", "name", "tag", "pinned"].contains(&word)
}

/// Longest name that the kernel keeps, in bytes: a longer one is cut to this length.
const NAME_MAX: usize = 15;
/// Directory that relative paths of pins start from.
const ROOT: &str = "/sys/fs/bpf/";

/// Objects that can be chosen: programs, links and maps.
pub(super) trait Listed: DeserializeOwned {
    /// Name of the kind of object.
    const WHAT: &str;
    /// Path at which the daemon lists all of them.
    const PATH: &str;
    /// Command that lists them.
    const SHOW: &str;

    /// Id of the object.
    fn id(&self) -> u32;
    /// Name of the object: for a program the name of its function.
    fn called(&self) -> &str;
    /// Whether the choice includes the object.
    fn is_meant(&self, which: &Which) -> bool;
    /// Properties that tell the object apart from others, besides id and name.
    fn apart(&self, known: &Known) -> Vec<String>;
}

impl Listed for ProgramView {
    const WHAT: &str = "program";
    const PATH: &str = "/v1/programs";
    const SHOW: &str = "towpath prog show";

    fn id(&self) -> u32 {
        self.id
    }

    fn called(&self) -> &str {
        &self.function
    }

    /// Whether the choice includes the program by its own name or by that of its function.
    fn is_meant(&self, which: &Which) -> bool {
        which.fits(self.id, &self.name, &self.tag, &self.pinned) || which.is_name(&self.function)
    }

    fn apart(&self, known: &Known) -> Vec<String> {
        let here = known.links.iter().filter(|link| link.prog_id == self.id);
        let ports: Vec<&str> = here.map(|link| link.port.as_str()).collect();
        let ports = if ports.is_empty() { "no port".to_owned() } else { ports.join(", ") };
        vec![format!("on {ports}"), format!("loaded {}", utc(self.loaded_at))]
    }
}

impl Listed for LinkView {
    const WHAT: &str = "link";
    const PATH: &str = "/v1/links";
    const SHOW: &str = "towpath link show";

    fn id(&self) -> u32 {
        self.id
    }

    fn called(&self) -> &str {
        &self.name
    }

    fn is_meant(&self, which: &Which) -> bool {
        which.fits(self.id, &self.name, &self.tag, &self.pinned)
    }

    fn apart(&self, known: &Known) -> Vec<String> {
        let port = if self.port.is_empty() { "no port" } else { &self.port };
        let mut words = vec![port.to_owned(), self.hook.to_string()];
        words.push(format!("program {}", self.prog_id));
        words.extend(known.loaded(self.prog_id));
        words
    }
}

impl Listed for MapView {
    const WHAT: &str = "map";
    const PATH: &str = "/v1/maps";
    const SHOW: &str = "towpath map show";

    fn id(&self) -> u32 {
        self.id
    }

    fn called(&self) -> &str {
        &self.name
    }

    fn is_meant(&self, which: &Which) -> bool {
        which.fits(self.id, &self.name, "", &self.pinned)
    }

    /// The programs that use the map, and the ports where they run.
    fn apart(&self, known: &Known) -> Vec<String> {
        let user = |id: &u32| {
            let here = || known.links.iter().filter(|link| link.prog_id == *id);
            let ports: Vec<&str> = here().map(|link| link.port.as_str()).collect();
            let user = match here().next() {
                Some(link) => format!("of {} on {}, program {id}", link.name, ports.join(", ")),
                None => format!("of program {id}, on no port"),
            };
            std::iter::once(user).chain(known.loaded(*id)).collect::<Vec<_>>().join(", ")
        };
        let mut words = vec![self.r#type.clone()];
        words.extend(self.prog_ids.iter().map(user));
        words.extend(self.pinned.first().map(|path| format!("pinned {path}")));
        words
    }
}

/// Links and programs of the daemon: asked for if a choice includes no object, or several.
#[derive(Default)]
pub(super) struct Known {
    links: Vec<LinkView>,
    programs: Vec<ProgramView>,
}

impl Known {
    fn ask(client: &Client) -> Result<Known, CliError> {
        Ok(Known { links: client.get(LinkView::PATH)?, programs: client.get(ProgramView::PATH)? })
    }

    fn loaded(&self, program: u32) -> Option<String> {
        let program = self.programs.iter().find(|it| it.id == program)?;
        Some(format!("loaded {}", utc(program.loaded_at)))
    }

    fn label<T: Listed>(&self, it: &T) -> String {
        format!("id {} ({})", it.id(), it.apart(self).join(", "))
    }
}

/// All objects of the choice: at least one, unless all are chosen.
pub(super) fn some<T: Listed>(client: &Client, which: &Which) -> Result<Vec<T>, CliError> {
    let all: Vec<T> = client.get(T::PATH)?;
    let (found, others): (Vec<T>, Vec<T>) = all.into_iter().partition(|it| it.is_meant(which));
    match *which != Which::All && found.is_empty() {
        true => Err(none(&others, which, &Known::ask(client)?)),
        false => Ok(found),
    }
}

/// The only object of the choice; if there are several, the error lists each with its id and the
/// properties that tell it apart.
pub(super) fn only<T: Listed>(client: &Client, which: &Which) -> Result<T, CliError> {
    let mut found: Vec<T> = some(client, which)?;
    match found.len() {
        0 => Err(none(&found, which, &Known::default())),
        1 => Ok(found.remove(0)),
        _ => Err(several(&found, which, &Known::ask(client)?)),
    }
}

/// The error for an empty choice: the objects that exist instead, and a command to type.
fn none<T: Listed>(others: &[T], which: &Which, known: &Known) -> CliError {
    let (what, text) = (T::WHAT, which.text());
    let hint = match which {
        _ if others.is_empty() => format!(": there are none; {BEGIN}"),
        Which::Name(name) => {
            format!("{}; {} shows all", suggest::among(name, others.iter().map(T::called)), T::SHOW)
        }
        _ => {
            let label = |it: &T| format!("{} {}", it.called(), known.label(it));
            format!("; there are: {}; {} shows all", listed(others, label), T::SHOW)
        }
    };
    CliError::Usage(format!("no {what} with {text}{hint}"))
}

fn several<T: Listed>(found: &[T], which: &Which, known: &Known) -> CliError {
    let (count, what, text) = (found.len(), T::WHAT, which.text());
    let labels = listed(found, |it| known.label(it));
    CliError::Usage(format!("{count} {what}s with {text}, choose one by id: {labels}"))
}

fn listed<T>(all: &[T], label: impl Fn(&T) -> String) -> String {
    let mut labels: Vec<String> = all.iter().take(LISTED_MAX).map(label).collect();
    if all.len() > LISTED_MAX {
        labels.push("...".to_owned());
    }
    labels.join(", ")
}

/// Advice for a daemon that runs no program yet.
pub(super) const BEGIN: &str = "towpath load PORT OBJ attaches a program to a port";
/// Largest number of objects that an error lists.
const LISTED_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn link(id: u32, name: &str) -> LinkView {
        let link = json!({
            "id": id, "type": "xdp", "port": "p0", "ifindex": 1, "hook": "rx", "prog_id": 3,
            "name": name, "tag": "", "prio": 50, "actions": [], "pinned": [], "exec": "jit",
            "runs": 0, "verdicts": {}, "faults": 0,
        });
        serde_json::from_value(link).expect("all that a link has")
    }

    #[test]
    fn of_several_each_is_told_with_its_id() {
        let (which, known) = (Which::Name("pass".to_owned()), Known::default());
        let said = |found: &[LinkView]| several(found, &which, &known).to_string();
        let two = "2 links with name pass, choose one by id: id 7 (p0, rx, program 3), \
                   id 9 (p0, rx, program 3)";
        assert_eq!(said(&[link(7, "pass"), link(9, "pass")]), two);
        let many: Vec<LinkView> = (0..20).map(|id| link(id, "pass")).collect();
        assert!(said(&many).ends_with("id 7 (p0, rx, program 3), ..."), "{}", said(&many));
    }

    #[test]
    fn of_none_it_is_told_what_there_is() {
        let known = Known::default();
        let said = |others: &[LinkView], which: &Which| none(others, which, &known).to_string();
        let name = Which::Name("pas".to_owned());
        assert_eq!(
            said(&[], &name),
            "no link with name pas: there are none; towpath load PORT OBJ attaches a program to a port"
        );
        assert_eq!(
            said(&[link(7, "pass")], &name),
            "no link with name pas; did you mean \"pass\"?; towpath link show shows all"
        );
        assert_eq!(
            said(&[link(7, "pass")], &Which::Id(8)),
            "no link with id 8; there are: pass id 7 (p0, rx, program 3); towpath link show shows all"
        );
    }
}
