//! A descriptor in tokio's poller.

#![expect(unsafe_code, reason = "tokio trusts the owner of a descriptor to keep it open")]

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A duplicate of a descriptor, watched for reading. A poller watches a descriptor once.
pub(crate) fn watched(file: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    let file = file.try_clone_to_owned()?;
    // SAFETY: an `OwnedFd` is the same open descriptor until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(file, Interest::READABLE) }?)
}
