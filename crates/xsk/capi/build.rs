//! The name that programs linked with the C library ask the loader for.

fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtowpath_xsk_client.so.0");
    println!("cargo::rerun-if-changed=build.rs");
}
