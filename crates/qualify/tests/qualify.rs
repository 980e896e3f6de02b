//! `docs/features.md` is the output of `towpath qualify`. `TOWPATH_BLESS=1` writes it.
//!
//! It needs root, `ip` and `nsenter`, and Linux 6.18, whose devices are in it.

#![forbid(unsafe_code)]

use std::path::Path;

use towpath_qualify::kinds::Lab;
use towpath_qualify::{Choice, Report, Verdict, page, qualify};

#[test]
fn the_page_is_what_comes_out() {
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    if !rustix::process::geteuid().is_root() || !kernel.starts_with("6.18.") {
        eprintln!("skipped: it takes root and Linux 6.18");
        return;
    }
    let lab = match Lab::new(true) {
        Ok(lab) => lab,
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let tried = |choice: Choice| qualify(&*choice.subject(&lab)).unwrap();
    let reports: Vec<Report> = Choice::all().into_iter().map(tried).collect();
    for report in &reports {
        let failed = report.rows.iter().filter(|row| row.verdict() == Verdict::Fails);
        let failed: Vec<_> = failed.map(|row| (row.feature.name(), row.note())).collect();
        // The features that a driver advertises are not ours to check.
        let is_ours = !report.port.starts_with("kernel") && !report.port.contains("driver");
        assert!(failed.is_empty() || !is_ours, "{}: {failed:?}", report.port);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/features.md");
    let made = page(&reports);
    if std::env::var_os("TOWPATH_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let new: Vec<_> = made.lines().filter(|&line| there.lines().all(|it| it != line)).collect();
    assert!(
        there == made,
        "docs/features.md: TOWPATH_BLESS=1 cargo test --workspace --test qualify\n{new:#?}"
    );
}
