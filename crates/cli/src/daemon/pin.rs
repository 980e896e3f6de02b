//! `prog pin`, `map pin`, `link pin`: pins, which keep objects alive, and their removal.

use serde_json::{Value as Json, json};
use towpath_daemon::api::types::{PinRequest, PinView, ProgramView};
use towpath_daemon::client::{Client, encoded};

use super::client;
use super::which::{Which, only};
use crate::args::{PinArgs, UnpinArgs};
use crate::error::CliError;
use crate::output::Output;

/// `prog pin`
pub(crate) fn program(args: &PinArgs, output: &mut Output) -> Result<(), CliError> {
    let (which, path) = split(args)?;
    let client = client(&args.daemon)?;
    let program: ProgramView = only(&client, &which)?;
    pin(&client, "prog", program.id, path, output)
}

/// The choice of an object, and the path of the pin.
pub(super) fn split(args: &PinArgs) -> Result<(Which, &str), CliError> {
    match args.words.split_last() {
        Some((path, which)) if !which.is_empty() => Ok((Which::parse(which)?, path)),
        _ => Err(CliError::Usage("expected an object to pin, then a path".to_owned())),
    }
}

/// Pins an object.
pub(super) fn pin(
    client: &Client,
    kind: &str,
    id: u32,
    path: &str,
    output: &mut Output,
) -> Result<(), CliError> {
    let request = PinRequest { kind: kind.to_owned(), id, path: path.to_owned() };
    let pin: PinView = client.json("POST", "/v1/pins", &request)?;
    if output.json { output.json(&pin) } else { Ok(()) }
}

/// Removes a pin.
pub(crate) fn unpin(args: &UnpinArgs, output: &mut Output) -> Result<(), CliError> {
    let path = format!("/v1/pins?path={}", encoded(&args.path));
    let _done: Json = client(&args.daemon)?.send("DELETE", &path, [].as_slice().into())?;
    if output.json { output.json(&json!({})) } else { Ok(()) }
}
