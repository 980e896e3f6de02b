//! `prog show`: loaded programs; and their code, for `prog dump`.

use towpath_daemon::api::types::ProgramView;
use towpath_daemon::client::Client;
use towpath_daemon::code::{CodeForm, CodeView};

use super::which::{BEGIN, Which, only, some};
use super::{bpftool, client};
use crate::args::{ObjectArgs, SocketArgs};
use crate::error::CliError;
use crate::output::Output;

/// Lists programs.
pub(crate) fn show(args: &ObjectArgs, output: &mut Output) -> Result<(), CliError> {
    let which = Which::parse(&args.which)?;
    let programs: Vec<ProgramView> = some(&client(&args.daemon)?, &which)?;
    if output.json {
        let all = programs.iter().map(bpftool::program).collect();
        return output.json(&bpftool::shown(all, which != Which::All));
    }
    if programs.is_empty() {
        output.note(&format!("no programs: {BEGIN}"));
    }
    programs.iter().try_for_each(|program| print(program, output))
}

/// Prints a program as bpftool does; further lines hold properties that only Towpath has.
fn print(program: &ProgramView, output: &mut Output) -> Result<(), CliError> {
    let ProgramView { id, r#type, name, tag, uid, bytes_xlated, bytes_jited, .. } = program;
    let gpl = if program.gpl_compatible { "  gpl" } else { "" };
    output.line(&format!("{id}: {type}  name {name}  tag {tag}{gpl}"))?;
    let time = utc(program.loaded_at);
    output.line(&format!("\tloaded_at {time}  uid {uid}"))?;
    let jited =
        if program.jited { format!("jited {bytes_jited}B") } else { "not jited".to_owned() };
    let maps: Vec<String> = program.map_ids.iter().map(u32::to_string).collect();
    let maps =
        if maps.is_empty() { String::new() } else { format!("  map_ids {}", maps.join(",")) };
    output.line(&format!("\txlated {bytes_xlated}B  {jited}{maps}"))?;
    if let Some(port) = &program.bound_to {
        output.line(&format!("\tbound_to {}", if port.is_empty() { "nothing" } else { port }))?;
    }
    if program.btf_id != 0 {
        output.line(&format!("\tbtf_id {}", program.btf_id))?;
    }
    let frags = if program.frags { "  frags" } else { "" };
    let object = program.object.as_ref().map_or(String::new(), |it| format!("  object {it}"));
    let function = &program.function;
    output.line(&format!("\tfunction {function}  exec {}{frags}{object}", program.exec))?;
    if let Some(why) = &program.fallback {
        output.line(&format!("\tnot as it was to be: {why}"))?;
    }
    if let Some(why) = &program.measured {
        output.line(&format!("\tchosen by measuring: {why}"))?;
    }
    pins(&program.pinned, output)
}

/// Prints the paths of an object's pins.
pub(super) fn pins(pinned: &[String], output: &mut Output) -> Result<(), CliError> {
    pinned.iter().try_for_each(|path| output.line(&format!("\tpinned {path}")))
}

/// `2026-11-22T08:30:00+0000`, from seconds since 1970 (Howard Hinnant's `civil_from_days`).
pub(super) fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let (year, hour, minute) = (year + era * 400 + next, second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}+0000", second % 60)
}

/// The program that the words choose.
pub(crate) fn chosen(client: &Client, words: &[String]) -> Result<ProgramView, CliError> {
    only(client, &Which::parse(words)?)
}

/// The code of the program that the words choose.
pub(crate) fn code(
    words: &[String],
    form: CodeForm,
    daemon: &SocketArgs,
) -> Result<CodeView, CliError> {
    let client = client(daemon)?;
    let program = chosen(&client, words)?;
    let form = serde_json::to_value(form).unwrap_or_default();
    let form = form.as_str().unwrap_or_default();
    Ok(client.get(&format!("/v1/programs/{}/code?form={form}", program.id))?)
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_as_bpftool_writes_them() {
        assert_eq!(utc(0), "1970-01-01T00:00:00+0000");
        assert_eq!(utc(951_827_696), "2000-02-29T12:34:56+0000");
        assert_eq!(utc(1_795_336_200), "2026-11-22T08:30:00+0000");
    }
}
