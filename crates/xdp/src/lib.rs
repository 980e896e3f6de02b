//! Frames, `xdp_md`, verdicts, XDP helpers and kfuncs: what a program can touch.

pub mod host;
