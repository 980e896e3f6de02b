//! `prog show`: loaded programs.

use towpath_daemon::api::types::ProgramView;

use super::client;
use super::which::Which;
use crate::args::ObjectArgs;
use crate::error::CliError;
use crate::output::{Align, Output, Table};

/// Lists programs.
pub(crate) fn show(args: &ObjectArgs, output: &mut Output) -> Result<(), CliError> {
    let which = Which::parse(&args.which)?;
    let programs: Vec<ProgramView> = client(&args.daemon)?.get("/v1/programs")?;
    let fits = |it: &ProgramView| which.fits(it.id, &it.name, &it.tag);
    let programs: Vec<ProgramView> = programs.into_iter().filter(fits).collect();
    if which != Which::All && programs.is_empty() {
        return Err(CliError::Usage(format!("no program with {}", which.text())));
    }
    if output.json {
        return output.json(&programs);
    }
    let mut table = Table::new(&[
        ("id", Align::Right),
        ("type", Align::Left),
        ("name", Align::Left),
        ("tag", Align::Left),
        ("insns", Align::Right),
        ("frags", Align::Left),
        ("exec", Align::Left),
        ("maps", Align::Left),
        ("object", Align::Left),
    ]);
    for program in &programs {
        let maps: Vec<String> = program.map_ids.iter().map(u32::to_string).collect();
        table.row(vec![
            program.id.to_string(),
            program.r#type.clone(),
            program.name.clone(),
            program.tag.clone(),
            program.insns.to_string(),
            if program.frags { "yes" } else { "no" }.to_owned(),
            program.exec.clone(),
            maps.join(","),
            program.object.clone(),
        ]);
    }
    output.section(&table)?;
    for program in &programs {
        if let Some(why) = &program.fallback {
            output.prose("", &format!("{} (id {}): {why}", program.name, program.id))?;
        }
    }
    Ok(())
}
