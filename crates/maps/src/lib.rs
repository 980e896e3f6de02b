//! Placeholder until the first content lands.
