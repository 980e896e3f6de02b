//! Files of cases: TOML or JSON (docs/test.md), and captures with verdicts as packet comments.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map as Object, Value as Json};
use towpath_capture::{LINK_TYPE_ETHERNET, Reader};
use towpath_daemon::run_config::action_number;
use towpath_document::parse_duration;
use towpath_testing::{ConnectionDocument, Hints, SocketDocument};
use towpath_xdp::KnownConnection;
use towpath_xdp::host::Socket;

use super::hex::Pattern;
use super::packet::{Expected, Source};
use crate::args::{Assignment, MapSize, ProgramArgs, ProgramCall, Selection};
use crate::error::CliError;
use crate::files;

/// Filename extensions of files of cases.
pub(super) const EXTENSIONS: [&str; 3] = ["toml", "json", "pcapng"];

/// A file, ready to run.
pub(super) struct Suite {
    pub(super) path: PathBuf,
    pub(super) subject: Subject,
    pub(super) cases: Vec<Case>,
}

/// The program that is tested.
pub(super) struct Subject {
    /// The object file.
    pub(super) path: PathBuf,
    pub(super) selection: Selection,
    pub(super) linking: ProgramArgs,
    pub(super) cpus: usize,
    /// File with interfaces, routes and neighbours.
    pub(super) fib: Option<PathBuf>,
}

/// One case, which has maps of its own.
pub(super) struct Case {
    pub(super) name: String,
    /// Name of one of the object's programs; `None` for the program of the file.
    pub(super) program: Option<String>,
    /// First contents of maps.
    pub(super) maps: Object<String, Json>,
    /// Sockets of the host.
    pub(super) sockets: Vec<Socket>,
    pub(super) connections: Vec<KnownConnection>,
    pub(super) steps: Vec<Step>,
    /// File of the case, for messages.
    pub(super) file: PathBuf,
}

/// One packet.
pub(super) struct Step {
    /// Time by which the clock advances before the packet.
    pub(super) advance: Duration,
    pub(super) ifindex: u32,
    pub(super) queue: u32,
    pub(super) metadata: Vec<u8>,
    pub(super) hints: Hints,
    /// Samples that user space puts into user ring buffers before the packet, by the maps' names.
    pub(super) send: BTreeMap<String, Vec<Vec<u8>>>,
    pub(super) packet: Vec<u8>,
    /// Dequeue program of the object to run for port `ifindex`, instead of receiving a packet.
    pub(super) dequeue: Option<String>,
    /// Program of the object to call, instead of receiving a packet.
    pub(super) call: Option<ProgramCall>,
    pub(super) expect: Expect,
}

/// Expected results; those that are absent are not compared.
#[derive(Default)]
pub(super) struct Expect {
    pub(super) returned: Option<u32>,
    pub(super) target: Option<String>,
    pub(super) packet: Option<Expected>,
    /// Header fields of the packet after the run, by their names.
    pub(super) fields: BTreeMap<String, String>,
    pub(super) metadata: Option<Pattern>,
    pub(super) maps: Object<String, Json>,
    pub(super) printed: Option<Vec<String>>,
    /// Whether a dequeue program sends a packet, and below the number of packets it drops.
    pub(super) sends: Option<bool>,
    pub(super) drops: Option<u64>,
    /// Result of a called program, and below the context that it leaves.
    pub(super) returns: Option<u32>,
    pub(super) context: Option<Pattern>,
    /// Beginnings of the records that the program puts into ring buffers and perf events, by the
    /// maps' names.
    pub(super) sent: BTreeMap<String, Vec<Pattern>>,
}

/// A file of cases as it is written.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Document {
    /// Path of the object file, relative to this file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) object: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) program: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) set: BTreeMap<String, Json>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) map_size: BTreeMap<String, u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) cpus: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) fib: Option<PathBuf>,
    #[serde(rename = "case")]
    pub(super) cases: Vec<CaseDocument>,
}

/// A case as it is written: one packet, or several as `step`s.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseDocument {
    pub(super) name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) program: Option<String>,
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub(super) maps: Object<String, Json>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) sockets: Vec<SocketDocument>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) connections: Vec<ConnectionDocument>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ifindex: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hints: Option<Hints>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) send: BTreeMap<String, Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) packet: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expect: Option<ExpectDocument>,
    #[serde(default, rename = "step", skip_serializing_if = "Vec::is_empty")]
    pub(super) steps: Vec<StepDocument>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepDocument {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) advance: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ifindex: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hints: Option<Hints>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) send: BTreeMap<String, Vec<String>>,
    pub(super) packet: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) dequeue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) call: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expect: Option<ExpectDocument>,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectDocument {
    /// Name or number of the verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) verdict: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) packet: Option<Json>,
    /// Header fields by name: texts or numbers.
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub(super) fields: Object<String, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<String>,
    #[serde(default, skip_serializing_if = "Object::is_empty")]
    pub(super) maps: Object<String, Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) printed: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sends: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) drops: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) returns: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) context: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) sent: BTreeMap<String, Vec<String>>,
}

/// Reads a file of cases. `object` is the object of files that name none.
pub(super) fn read(path: &Path, object: Option<&Path>) -> Result<Suite, CliError> {
    let refused = |message: String| CliError::Text { path: path.to_owned(), message };
    let bytes = files::read(path, "cases", FILE_BYTES_MAX)?;
    if path.extension().is_some_and(|extension| extension == "pcapng") {
        return capture(path, &bytes, object);
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| refused(format!("not text: byte {}", error.utf8_error().valid_up_to())))?;
    let document: Document = towpath_document::parse(&text).map_err(refused)?;
    let subject = subject(path, &document, object).map_err(refused)?;
    let base = path.parent().unwrap_or(Path::new("."));
    let case = |it: CaseDocument| {
        let name = it.name.clone();
        it.into_case(path, base).map_err(|message| refused(format!("case {name:?}: {message}")))
    };
    let cases = document.cases.into_iter().map(case).collect::<Result<_, _>>()?;
    Ok(Suite { path: path.to_owned(), subject, cases })
}

fn subject(path: &Path, document: &Document, object: Option<&Path>) -> Result<Subject, String> {
    let base = path.parent().unwrap_or(Path::new("."));
    let named = document.object.as_ref().map(|object| base.join(object));
    let object = named.or_else(|| object.map(Path::to_owned));
    let set = document.set.iter().map(|(name, value)| Assignment {
        name: name.clone(),
        value: value.as_str().map_or_else(|| value.to_string(), str::to_owned),
    });
    let sizes = document.map_size.iter();
    let cpus = document.cpus.unwrap_or(1);
    if !(1..=1024).contains(&cpus) {
        return Err(format!("cpus is {cpus}, expected 1 to 1024"));
    }
    Ok(Subject {
        path: object.ok_or("no object file: say `object = \"...\"`, or --object")?,
        selection: Selection { name: document.program.clone(), section: None },
        linking: ProgramArgs {
            set: set.collect(),
            map_sizes: sizes
                .map(|(name, &entries)| MapSize { name: name.clone(), entries })
                .collect(),
            btf: None,
        },
        cpus: cpus as usize,
        fib: document.fib.as_ref().map(|fib| base.join(fib)),
    })
}

/// Reads each document of a list; an error message has the index of the one that is wrong.
fn each<D, T>(
    what: &str,
    documents: Vec<D>,
    read: fn(D) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let numbered = documents.into_iter().enumerate();
    let one = |(index, document)| {
        read(document).map_err(|message| format!("{what} {}: {message}", index + 1))
    };
    numbered.map(one).collect()
}

impl CaseDocument {
    fn into_case(self, file: &Path, base: &Path) -> Result<Case, String> {
        let CaseDocument { name, program, maps, ifindex, queue, steps, .. } = self;
        let CaseDocument { metadata, hints, send, packet, expect, .. } = self;
        let sockets = each("socket", self.sockets, SocketDocument::into_socket)?;
        let connections =
            each("connection", self.connections, ConnectionDocument::into_connection)?;
        let file = file.to_owned();
        let is_single = packet.is_some();
        if is_single != steps.is_empty() {
            return Err("expected a packet, or steps that have one each".to_owned());
        }
        let single = StepDocument {
            advance: None,
            ifindex: None,
            queue: None,
            metadata,
            hints,
            send,
            packet,
            dequeue: None,
            call: None,
            context: None,
            expect,
        };
        let (ifindex, queue) = (ifindex.unwrap_or(DEFAULT_IFINDEX), queue.unwrap_or(0));
        if is_single {
            let steps = vec![single.into_step(base, ifindex, queue)?];
            return Ok(Case { name, program, maps, sockets, connections, steps, file });
        }
        let StepDocument { metadata, hints, send, expect, .. } = &single;
        if metadata.is_some() || hints.is_some() || !send.is_empty() || expect.is_some() {
            return Err("metadata, hints, send and expect belong to each step".to_owned());
        }
        let step = |(index, step): (usize, StepDocument)| {
            let step = step.into_step(base, ifindex, queue);
            step.map_err(|message| format!("step {}: {message}", index + 1))
        };
        let steps = steps.into_iter().enumerate().map(step).collect::<Result<_, _>>()?;
        Ok(Case { name, program, maps, sockets, connections, steps, file })
    }
}

impl StepDocument {
    fn into_step(self, base: &Path, ifindex: u32, queue: u32) -> Result<Step, String> {
        let packet = match (&self.packet, &self.dequeue, &self.call) {
            (Some(packet), None, None) => Source::parse(packet)
                .and_then(|source| source.bytes(base))
                .map_err(|message| format!("packet: {message}"))?,
            (None, Some(_), None) | (None, None, Some(_)) => Vec::new(),
            _ => {
                return Err("expected a packet, a dequeue program, or a program to call".to_owned());
            }
        };
        let bytes = |text: Option<String>| text.map(|text| super::hex::bytes(&text)).transpose();
        let context = bytes(self.context).map_err(|message| format!("context: {message}"))?;
        if context.is_some() && self.call.is_none() {
            return Err("context belongs to a program to call".to_owned());
        }
        let context = context.unwrap_or_default();
        let advance = self.advance.as_deref().map(parse_duration).transpose()?;
        Ok(Step {
            advance: advance.unwrap_or_default(),
            ifindex: self.ifindex.unwrap_or(ifindex),
            queue: self.queue.unwrap_or(queue),
            metadata: bytes(self.metadata)
                .map_err(|message| format!("metadata: {message}"))?
                .unwrap_or_default(),
            hints: self.hints.unwrap_or_default(),
            send: lists(self.send, super::hex::bytes)
                .map_err(|message| format!("send: {message}"))?,
            expect: self.expect.unwrap_or_default().into_expect(&packet, base)?,
            packet,
            dequeue: self.dequeue,
            call: self.call.map(|name| ProgramCall { name, context }),
        })
    }
}

impl ExpectDocument {
    fn into_expect(self, sent: &[u8], base: &Path) -> Result<Expect, String> {
        let packet = self.packet.map(|packet| Expected::parse(&packet, sent, base)).transpose();
        let pattern = |text: Option<String>| text.map(|it| super::hex::pattern(&it)).transpose();
        let (metadata, context) = (pattern(self.metadata), pattern(self.context));
        Ok(Expect {
            returned: self.verdict.as_ref().map(returned).transpose()?,
            target: self.target,
            packet: packet.map_err(|message| format!("expect.packet: {message}"))?,
            metadata: metadata.map_err(|message| format!("expect.metadata: {message}"))?,
            fields: self.fields.into_iter().map(field).collect::<Result<_, _>>()?,
            maps: self.maps,
            printed: self.printed,
            sends: self.sends,
            drops: self.drops,
            returns: self.returns,
            context: context.map_err(|message| format!("expect.context: {message}"))?,
            sent: lists(self.sent, super::hex::pattern)
                .map_err(|message| format!("expect.sent: {message}"))?,
        })
    }
}

/// Lists of texts, each read by `read`.
fn lists<T>(
    texts: BTreeMap<String, Vec<String>>,
    read: fn(&str) -> Result<T, String>,
) -> Result<BTreeMap<String, Vec<T>>, String> {
    let one = |(name, texts): (String, Vec<String>)| {
        let list = texts.iter().map(|text| read(text)).collect::<Result<_, _>>();
        list.map_err(|message| format!("{name}: {message}")).map(|list| (name, list))
    };
    texts.into_iter().map(one).collect()
}

/// A header field's name and the text of its value.
fn field((name, value): (String, Json)) -> Result<(String, String), String> {
    super::fields::check_name(&name)?;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Ok((name, text))
}

/// A verdict by name (`XDP_DROP`, `drop`) or number.
fn returned(verdict: &Json) -> Result<u32, String> {
    let number = verdict.as_u64().and_then(|number| u32::try_from(number).ok());
    let number = number.or_else(|| verdict.as_str()?.parse().ok());
    number.or_else(|| action_number(verdict.as_str()?)).ok_or_else(|| {
        format!("verdict {verdict}: expected XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT")
    })
}

/// Cases from a capture: its frames in order, on the same maps; a comment that is a verdict is
/// expected.
fn capture(path: &Path, bytes: &[u8], object: Option<&Path>) -> Result<Suite, CliError> {
    let broken = |source| CliError::Capture { path: path.to_owned(), source };
    let refused = |message: String| CliError::Text { path: path.to_owned(), message };
    let mut reader = Reader::new(bytes).map_err(broken)?.limited(FILE_BYTES_MAX);
    let mut steps = Vec::new();
    while let Some(packet) = reader.next_packet().map_err(broken)? {
        if packet.link_type != LINK_TYPE_ETHERNET {
            continue;
        }
        let comment = packet.options.comment.and_then(|it| it.split_whitespace().next());
        let number = steps.len() + 1;
        let verdict = comment.map(|word| returned(&Json::from(word))).transpose();
        let verdict = verdict.map_err(|message| refused(format!("frame {number}: {message}")))?;
        steps.push(Step {
            advance: Duration::ZERO,
            ifindex: DEFAULT_IFINDEX,
            queue: packet.options.queue.unwrap_or(0),
            metadata: Vec::new(),
            hints: Hints::default(),
            send: BTreeMap::new(),
            packet: packet.data.to_vec(),
            dequeue: None,
            call: None,
            expect: Expect { returned: verdict, ..Expect::default() },
        });
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let case = Case {
        name,
        program: None,
        maps: Object::new(),
        sockets: Vec::new(),
        connections: Vec::new(),
        steps,
        file: path.to_owned(),
    };
    let subject = subject(path, &Document::default(), object).map_err(refused)?;
    Ok(Suite { path: path.to_owned(), subject, cases: vec![case] })
}

const DEFAULT_IFINDEX: u32 = 1;
const FILE_BYTES_MAX: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A file with every item that has a parser of its own.
    const CASES: &str = r#"
[[case]]
name = "one"
send = { commands = ["0100 ab"] }
hints = { hash = 7 }
packet = { vlan = [1], ipv4 = { tos = 3 }, tcp = { flags = "SA", options = "01 01" }, pad_to = 90 }
expect = { verdict = "drop", metadata = "..", sent = { ring = ["00.."] } }
[[case]]
name = "two"
sockets = [{ protocol = "tcp", local = "[::]:80", remote = "[2001:db8::1]:5", mark = 1 }]
connections = [
    { protocol = "udp", source = "192.0.2.1:1", destination = "192.0.2.2:53", timeout = "9s" },
]
[[case.step]]
advance = "10ms"
packet = { ipv6 = { next_header = 41 }, inside = { ipv6 = {}, udp = {} }, payload_bytes = 3 }
expect.fields = { "inner.udp.dport" = 5 }
"#;

    fn read(text: &str) -> Result<Vec<Case>, String> {
        let document: Document = towpath_document::parse(text)?;
        let case = |it: CaseDocument| it.into_case(Path::new("a.toml"), Path::new("."));
        document.cases.into_iter().map(case).collect()
    }

    #[test]
    fn hosts_that_make_no_sense_are_refused_with_what_is_wrong() {
        let refused = |host: &str| {
            let text = format!("[[case]]\nname = \"a\"\npacket = \"00\"\n{host}\n");
            read(&text).err().expect("it is wrong")
        };
        let socket = |rest: &str| refused(&format!("sockets = [{{ {rest} }}]"));
        assert_eq!(
            socket("protocol = \"tcp\", local = \"192.0.2.1\""),
            "socket 1: local \"192.0.2.1\": expected an address and a port, like 192.0.2.1:80 or \
             [2001:db8::1]:80"
        );
        let two = socket("protocol = \"tcp\", local = \"[::]:1\", remote = \"192.0.2.1:1\"");
        assert_eq!(two, "socket 1: local is [::]:1 and remote is 192.0.2.1:1: of two families");
        let sctp = socket("protocol = \"sctp\", local = \"[::]:1\"");
        assert!(
            sctp.contains("sockets[0].protocol: unknown word \"sctp\"; there are: tcp, udp"),
            "{sctp}"
        );
        let unknown = socket("protocol = \"tcp\", local = \"[::]:1\", state = \"LISTEN\"");
        assert!(
            unknown.contains("sockets[0].state: unknown key \"state\"; there are: protocol, local"),
            "{unknown}"
        );
        let late = refused(
            "connections = [{ protocol = \"udp\", source = \"192.0.2.1:1\", \
             destination = \"192.0.2.2:1\", timeout = \"soon\" }]",
        );
        assert!(late.starts_with("connection 1: timeout: "), "{late}");
    }

    #[test]
    fn whatever_is_in_a_file_is_read_or_refused() {
        assert_eq!(read(CASES).expect("it is right").len(), 2);
        bolero::check!().with_type::<(u16, u8, String)>().for_each(|(at, removed, inserted)| {
            let mut text = CASES.to_owned();
            let start = usize::from(*at) % text.len();
            let end = (start + usize::from(*removed)).min(text.len());
            text.replace_range(start..end, inserted);
            let _refused = read(&text);
        });
    }
}
