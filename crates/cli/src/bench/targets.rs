//! Objects to measure, with their frames and map contents.

use std::path::{Path, PathBuf};

use towpath_capture::Reader;
use towpath_workload::packets::packets;

use crate::args::BenchArgs;
use crate::error::CliError;

/// One object file.
#[derive(Debug)]
pub(super) struct BenchObject {
    pub(super) path: PathBuf,
    /// File with the first contents of its maps.
    pub(super) map_init: Option<PathBuf>,
}

/// The objects that the arguments name, or those of this repository.
pub(super) fn targets(args: &BenchArgs) -> Result<Vec<BenchObject>, CliError> {
    if !args.objects.is_empty() {
        let files = args.objects.iter().map(|path| object_files(path));
        let files: Vec<Vec<PathBuf>> = files.collect::<Result<_, _>>()?;
        let target = |path| BenchObject { path, map_init: args.map_init.clone() };
        return Ok(files.into_iter().flatten().map(target).collect());
    }
    let with_maps = |path: PathBuf| {
        let map_init = args.map_init.clone().or_else(|| own_maps(&path));
        BenchObject { path, map_init }
    };
    Ok(own_objects(OWN_OBJECTS)?.into_iter().map(with_maps).collect())
}

/// The objects whose programs do one thing many times: those that the arguments name, or those of
/// this repository.
pub(super) fn price_targets(args: &BenchArgs) -> Result<Vec<BenchObject>, CliError> {
    let files = if args.objects.is_empty() {
        own_objects(PRICE_OBJECTS)?
    } else {
        let files: Vec<Vec<PathBuf>> =
            args.objects.iter().map(|path| object_files(path)).collect::<Result<_, _>>()?;
        files.into_iter().flatten().collect()
    };
    let target = |path: PathBuf| {
        let map_init = beside(&path, PRICE_SOURCES);
        BenchObject { path, map_init }
    };
    Ok(files.into_iter().map(target).collect())
}

/// Objects that `make programs` compiled below `folder`.
fn own_objects(folder: &str) -> Result<Vec<PathBuf>, CliError> {
    let folder = Path::new(folder);
    if !folder.is_dir() {
        let message = "no such folder: name object files, or run `make programs` where the \
                       repository is"
            .to_owned();
        return Err(CliError::Text { path: folder.to_owned(), message });
    }
    object_files(folder)
}

/// The file itself, or every object below a folder.
fn object_files(path: &Path) -> Result<Vec<PathBuf>, CliError> {
    let failed = |source| CliError::File { path: path.to_owned(), source };
    if !std::fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?.path();
        if entry.is_dir() {
            found.extend(object_files(&entry)?);
        } else if entry.extension().is_some_and(|extension| extension == "o") {
            found.push(entry);
        }
    }
    found.sort();
    Ok(found)
}

/// `tests/data/NAME.json`, the map contents for a program of this repository.
fn own_maps(object: &Path) -> Option<PathBuf> {
    let stem = object.file_stem()?.to_str()?;
    let name = stem.strip_suffix("_unrolled").unwrap_or(stem);
    contents(name, OWN_DATA)
}

/// File in `folder` with the first contents of an object's maps, by the object's name.
fn beside(object: &Path, folder: &str) -> Option<PathBuf> {
    contents(object.file_stem()?.to_str()?, folder)
}

fn contents(name: &str, folder: &str) -> Option<PathBuf> {
    let path = Path::new(folder).join(format!("{name}.json"));
    path.exists().then_some(path)
}

/// Frames to choose from: those of the capture in the arguments; else generated ones and, for the
/// programs of this repository, those of its captures, which the programs' maps are made for.
pub(super) fn candidates(args: &BenchArgs) -> Result<Vec<Vec<u8>>, CliError> {
    let mut frames = match &args.input {
        Some(path) => capture_frames(path, 1)?,
        None => packets(PACKETS_SEED, PACKETS, false),
    };
    if args.input.is_none() && args.objects.is_empty() {
        for (name, stride) in OWN_CAPTURES {
            let capture = Path::new(OWN_DATA).join(name);
            if capture.exists() {
                frames.extend(capture_frames(&capture, stride)?);
            }
        }
    }
    // Frames that fit a port's usual MTU.
    frames.retain(|frame| (ETHERNET_HEADER..=ETHERNET_MAX).contains(&frame.len()));
    Ok(frames)
}

fn capture_frames(path: &Path, stride: usize) -> Result<Vec<Vec<u8>>, CliError> {
    let failed = |source| CliError::Capture { path: path.to_owned(), source };
    let mut reader = Reader::open(path).map_err(failed)?;
    let mut frames = Vec::new();
    let mut number = 0;
    while let Some(packet) = reader.next_packet().map_err(failed)? {
        if number % stride == 0 && frames.len() < CAPTURE_FRAMES_MAX {
            frames.push(packet.data.to_vec());
        }
        number += 1;
    }
    Ok(frames)
}

const OWN_OBJECTS: &str = "build/programs";
const PRICE_OBJECTS: &str = "build/prices";
const PRICE_SOURCES: &str = "bench/prices";
const OWN_DATA: &str = "tests/data";
const PACKETS_SEED: u64 = 1;
const PACKETS: usize = 256;
/// Captures, each with its stride n: every n-th frame is used.
const OWN_CAPTURES: [(&str, usize); 2] = [("edge.pcap", 4), ("services.pcap", 1)];
const CAPTURE_FRAMES_MAX: usize = 4096;
const ETHERNET_HEADER: usize = 14;
const ETHERNET_MAX: usize = 1514;
