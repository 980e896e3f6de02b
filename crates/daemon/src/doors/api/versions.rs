//! Matching of a request's programs with the attachments that they replace.

use crate::live::LiveLink;
use crate::live::files::ObjectFiles;
use crate::model::messages::{AttachMode, LinkRequest, ProgramRequest};
use crate::model::refusal::Refusal;
use crate::model::state::{ProgramState, State};

/// A request, and the state of its hook.
pub(super) struct Versions<'a, 'l> {
    state: &'a State,
    /// Links on the hook.
    links: &'a [&'l LiveLink],
    request: &'a LinkRequest,
    /// The C function of each program in the request; `None` where loading will fail.
    functions: Vec<Option<String>>,
}

impl<'a, 'l> Versions<'a, 'l> {
    pub(super) fn new(
        state: &'a State,
        links: &'a [&'l LiveLink],
        objects: &ObjectFiles,
        request: &'a LinkRequest,
    ) -> Versions<'a, 'l> {
        let function = |program: &ProgramRequest| {
            let (object, index) =
                objects.program(&request.program_state(program, String::new())).ok()?;
            Some(object.programs()[index].name.clone())
        };
        let functions = request.programs.iter().map(function).collect();
        Versions { state, links, request, functions }
    }

    /// The link that each program replaces; `None` for an additional program.
    pub(super) fn find(&self) -> Result<Vec<Option<&'l LiveLink>>, Refusal> {
        let count = self.request.programs.len();
        match (self.request.mode, self.request.expected) {
            (AttachMode::Add, _) => self.refuse_twins().map(|()| vec![None; count]),
            (AttachMode::Exclusive, _) => self.refuse_any().map(|()| vec![None; count]),
            (AttachMode::Replace, Some(expected)) => self.expected(expected),
            (AttachMode::Replace, None) => self.versions(),
            (AttachMode::ReplaceAll, _) => Ok(self.versions_or_none()),
        }
    }

    /// Refuses a program that is already attached at the same priority, probably by mistake.
    fn refuse_twins(&self) -> Result<(), Refusal> {
        let twins = |(index, program): (usize, &ProgramRequest)| {
            let is_twin = |link: &&&LiveLink| {
                self.has_function(link, index)
                    && self.is_of_file(link, program)
                    && program.prio.is_none_or(|prio| prio == link.link.priority)
            };
            self.links.iter().find(is_twin).copied()
        };
        match self.request.programs.iter().enumerate().find_map(twins) {
            None => Ok(()),
            Some(twin) => Err(self.refusal(&format!(
                "{} is attached already: {}; --replace replaces it and keeps its maps, -P with \
                 another priority attaches a second copy",
                twin.link.program.name(),
                text(twin)
            ))),
        }
    }

    fn refuse_any(&self) -> Result<(), Refusal> {
        let Some(link) = self.links.first() else { return Ok(()) };
        let (port, name) = (&self.request.port, link.link.program.name());
        Err(Refusal::conflict(format!("{port}: program {name} is attached already (EBUSY)")))
    }

    /// The link with the given id is replaced by the program of the same name, or else by the
    /// first.
    fn expected(&self, expected: u32) -> Result<Vec<Option<&'l LiveLink>>, Refusal> {
        let is_expected = |link: &&&LiveLink| link.program == expected || link.id == expected;
        let Some(link) = self.links.iter().find(is_expected).copied() else {
            let there = match self.links.len() {
                0 => "nothing is attached".to_owned(),
                1 => format!("program {} is attached", self.links[0].program),
                _ => format!("these are attached: {}", self.all()),
            };
            return Err(self.refusal(&format!("{there}, not {expected}")));
        };
        let functions = 0..self.functions.len();
        let heir = functions.clone().find(|&index| self.has_function(link, index)).unwrap_or(0);
        Ok(functions.map(|index| (index == heir).then_some(link)).collect())
    }

    /// Matches each program with its previous version; refuses if there is none, or several.
    fn versions(&self) -> Result<Vec<Option<&'l LiveLink>>, Refusal> {
        if let Some(places) = self.plain() {
            return Ok(places);
        }
        let mut places: Vec<Option<&LiveLink>> = Vec::new();
        for (index, program) in self.request.programs.iter().enumerate() {
            let name = self.functions[index].as_deref().unwrap_or(&program.object);
            match self.like(index, &places)[..] {
                [link] => places.push(Some(link)),
                [] => {
                    return Err(self.refusal(&format!(
                        "no program {name} to replace; these are attached: {}; say which one with \
                         --replace=ID, or --replace=all",
                        self.all()
                    )));
                }
                ref several => {
                    return Err(self.refusal(&format!(
                        "{} programs {name} are attached: {}; say which one with --replace=ID",
                        several.len(),
                        list(several)
                    )));
                }
            }
        }
        Ok(places)
    }

    /// Matches each program with its previous version; without a unique one, the program is new.
    fn versions_or_none(&self) -> Vec<Option<&'l LiveLink>> {
        if let Some(places) = self.plain() {
            return places;
        }
        let mut places = Vec::new();
        for index in 0..self.request.programs.len() {
            let like = self.like(index, &places);
            places.push(like.first().copied().filter(|_| like.len() == 1));
        }
        places
    }

    /// The match in cases without a choice: an empty hook, or one link and one program.
    fn plain(&self) -> Option<Vec<Option<&'l LiveLink>>> {
        let count = self.request.programs.len();
        match self.links {
            [] => Some(vec![None; count]),
            [only] if count == 1 => Some(vec![Some(*only)]),
            _ => None,
        }
    }

    /// Free links of programs with the same name. If there are several, those of the same file are
    /// preferred, then those with the requested priority.
    fn like(&self, index: usize, taken: &[Option<&LiveLink>]) -> Vec<&'l LiveLink> {
        let program = &self.request.programs[index];
        let is_free = |link: &LiveLink| taken.iter().flatten().all(|it| it.id != link.id);
        let links = self.links.iter().copied();
        let mut found: Vec<&LiveLink> =
            links.filter(|it| is_free(it) && self.has_function(it, index)).collect();
        narrow(&mut found, |link| self.is_of_file(link, program));
        narrow(&mut found, |link| program.prio == Some(link.link.priority));
        found
    }

    fn has_function(&self, link: &LiveLink, index: usize) -> bool {
        self.functions[index].as_deref() == Some(link.link.program.name())
    }

    /// Whether a link's program came from the same file, or from one with the same contents.
    fn is_of_file(&self, link: &LiveLink, program: &ProgramRequest) -> bool {
        let is_same =
            |it: &ProgramState| it.object == program.object || it.sha256 == program.sha256;
        let mut programs = self.state.programs.iter();
        programs.find(|it| it.key == link.attach.program).is_some_and(is_same)
    }

    fn all(&self) -> String {
        list(self.links)
    }

    fn refusal(&self, why: &str) -> Refusal {
        Refusal::conflict(format!("{}: {why} (EEXIST)", self.request.port))
    }
}

/// Keeps only the links for which `is_so` is true, if there is any.
fn narrow(links: &mut Vec<&LiveLink>, is_so: impl Fn(&LiveLink) -> bool) {
    if links.len() > 1 && links.iter().any(|link| is_so(link)) {
        links.retain(|link| is_so(link));
    }
}

/// Lists links in the order in which they run.
fn list(links: &[&LiveLink]) -> String {
    let mut links = links.to_vec();
    links.sort_by_key(|link| link.link.priority);
    let each = links.iter().map(|it| format!("{} ({})", it.link.program.name(), text(it)));
    each.collect::<Vec<_>>().join(", ")
}

fn text(link: &LiveLink) -> String {
    format!("program {}, link {}, priority {}", link.program, link.id, link.link.priority)
}
