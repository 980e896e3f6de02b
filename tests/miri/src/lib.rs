//! What Miri can run of raw access to memory that others write (`make miri`): the module itself and
//! its tests, over memory of the heap. Miri knows no mapping that is shared with another process.

mod heap_unsafe;
#[path = "../../../crates/xdp/src/memory/shared_unsafe.rs"]
pub mod shared_unsafe;

pub use heap_unsafe::Block;
