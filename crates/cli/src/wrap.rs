//! `wrap`: runs an unmodified program on a port's SAs and policies.

use std::path::PathBuf;

use towpath_daemon::State;
use towpath_daemon::state::PortState;

use crate::args::WrapArgs;
use crate::daemon::client;
use crate::error::CliError;
use crate::output::Output;

/// Replaces this process by the program; it returns only if that fails.
pub(crate) fn wrap(args: &WrapArgs, output: &Output) -> Result<(), CliError> {
    let name = args.xfrm.as_deref().filter(|name| !name.is_empty());
    let state: State = client(&args.daemon)?.get("/v1/state")?;
    let door = door(&state.ports, name).map_err(CliError::Daemon)?;
    let Some((program, rest)) = args.program.split_first() else { return Ok(()) };
    let error = towpath_supervise::exec(program, rest, &door, output.verbose > 0);
    Err(CliError::Daemon(format!("{}: {error}", program.display())))
}

/// The socket of the chosen port's door, or of the only one.
fn door(ports: &[PortState], name: Option<&str>) -> Result<PathBuf, String> {
    let doors = ports.iter().filter_map(|port| {
        let path = port.options.get("xfrm")?.as_str()?;
        name.is_none_or(|name| name == port.name).then_some((port.name.as_str(), path))
    });
    match (doors.collect::<Vec<_>>().as_slice(), name) {
        ([(_, path)], _) => Ok(PathBuf::from(path)),
        ([], Some(name)) => Err(format!("port {name} has no key xfrm, or is missing")),
        ([], None) => Err("no port has a key xfrm: one of kind ipsec needs it".to_owned()),
        (several, _) => {
            let names: Vec<&str> = several.iter().map(|(name, _)| *name).collect();
            Err(format!("choose one of {} with --xfrm=PORT", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(doors: &[(&str, Option<&str>)]) -> Vec<PortState> {
        let port = |(name, door): &(&str, Option<&str>)| {
            let mut port = serde_json::json!({ "name": name, "kind": "ipsec" });
            if let Some(door) = door {
                port["options"] = serde_json::json!({ "xfrm": door });
            }
            serde_json::from_value(port).expect("a port")
        };
        doors.iter().map(port).collect()
    }

    #[test]
    fn the_only_door_needs_no_name() {
        let one = ports(&[("a", None), ("b", Some("/run/b"))]);
        assert_eq!(door(&one, None), Ok("/run/b".into()));
        assert_eq!(door(&one, Some("b")), Ok("/run/b".into()));
        assert!(door(&one, Some("a")).is_err());
        assert!(door(&ports(&[("a", None)]), None).is_err());
        let two = ports(&[("a", Some("/run/a")), ("b", Some("/run/b"))]);
        assert_eq!(door(&two, Some("a")), Ok("/run/a".into()));
        let why = door(&two, None).expect_err("which one?");
        assert_eq!(why, "choose one of a, b with --xfrm=PORT");
    }
}
