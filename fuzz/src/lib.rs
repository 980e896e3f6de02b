//! Fuzz targets, one file each in `tests/`: short under `cargo test`, longer under `make fuzz`.

#![forbid(unsafe_code)]
