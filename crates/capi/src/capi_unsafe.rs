//! The functions of `<towpath/towpath.h>`: pointers become references here, and nowhere else.

#![expect(unsafe_code, reason = "called from C")]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use towpath::{Errno, Exec};

use crate::error::{self, Error, status};
use crate::map::Map;
use crate::object::{Arrival, Object, Program, ifindex};

/// `struct towpath_load_opts`
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct LoadOpts {
    sz: usize,
    exec: u32,
    cpus: u32,
}

/// `struct towpath_run`
#[repr(C)]
pub(crate) struct Run {
    sz: usize,
    data_in: *const c_void,
    data_out: *mut c_void,
    data_size_in: u32,
    data_size_out: u32,
    ifindex: u32,
    queue_index: u32,
    cpu: u32,
    retval: u32,
    redirect_ifindex: u32,
}

/// `struct towpath_map_info`
#[repr(C)]
pub(crate) struct MapInfo {
    sz: usize,
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    cpus: u32,
}

fn invalid(what: &str) -> Error {
    Error::new(Errno::EINVAL, &what)
}

/// A reference to the value behind a pointer from C.
///
/// # Safety
///
/// It is null, or points to a value that does not change during `'a`.
unsafe fn at<'a, T>(pointer: *const T) -> Result<&'a T, Error> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_ref() }.ok_or_else(|| invalid("a pointer is NULL"))
}

/// As [`at`], for a value that is written to.
///
/// # Safety
///
/// It is null, or points to a value that no other code uses for `'a`.
unsafe fn at_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T, Error> {
    // SAFETY: as the caller says.
    unsafe { pointer.as_mut() }.ok_or_else(|| invalid("a pointer is NULL"))
}

/// A text from C.
///
/// # Safety
///
/// It is null, or points to a text that ends with a NUL and does not change during `'a`.
unsafe fn text<'a>(pointer: *const c_char) -> Result<&'a str, Error> {
    // SAFETY: as the caller says, and not null.
    let text = unsafe { CStr::from_ptr(at(pointer)?) };
    text.to_str().map_err(|error| invalid(&error.to_string()))
}

/// Bytes from C. If there are none, the pointer does not matter.
///
/// # Safety
///
/// It is null, or points to `size` bytes that do not change during `'a`.
unsafe fn bytes<'a>(pointer: *const c_void, size: usize) -> Result<&'a [u8], Error> {
    match (size, pointer.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(invalid("a pointer is NULL")),
        // SAFETY: as the caller says.
        _ => Ok(unsafe { std::slice::from_raw_parts(pointer.cast(), size) }),
    }
}

/// As [`bytes`], for bytes that are written to.
///
/// # Safety
///
/// It is null, or points to `size` bytes that no other code uses for `'a`.
unsafe fn bytes_mut<'a>(pointer: *mut c_void, size: usize) -> Result<&'a mut [u8], Error> {
    match (size, pointer.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(invalid("a pointer is NULL")),
        // SAFETY: as the caller says.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(pointer.cast(), size) }),
    }
}

/// `towpath_last_error`
#[unsafe(no_mangle)]
pub(crate) extern "C" fn towpath_last_error() -> *const c_char {
    error::last()
}

/// `towpath_object__open`
///
/// # Safety
///
/// Each pointer is null, or points to the kind of value that the header describes. This is true for
/// all functions of this file.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_object__open(
    path: *const c_char,
    out: *mut *mut Object,
) -> c_int {
    // SAFETY: as the header says.
    let opened = unsafe { at(path).and_then(|path| Ok((CStr::from_ptr(path), at_mut(out)?))) };
    status(opened.and_then(|(path, out)| {
        let object = Object::open(Path::new(OsStr::from_bytes(path.to_bytes())))?;
        *out = Box::into_raw(Box::new(object));
        Ok(())
    }))
}

/// `towpath_object__close`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_object__close(object: *mut Object) {
    if !object.is_null() {
        // SAFETY: made by `towpath_object__open`, and not closed before.
        drop(unsafe { Box::from_raw(object) });
    }
}

/// `towpath_object__set_global`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_object__set_global(
    object: *mut Object,
    name: *const c_char,
    value: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe { at(object).and_then(|it| Ok((it, text(name)?, bytes(value, size)?))) };
    status(parts.and_then(|(object, name, value)| object.set_global(name, value)))
}

/// `towpath_object__set_map_size`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_object__set_map_size(
    object: *mut Object,
    name: *const c_char,
    max_entries: u32,
) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe { at(object).and_then(|object| Ok((object, text(name)?))) };
    status(parts.and_then(|(object, name)| object.set_map_size(name, max_entries)))
}

/// `towpath_object__load`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_object__load(
    object: *mut Object,
    opts: *const LoadOpts,
) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe { at(object).map(|object| (object, opts.as_ref())) };
    status(parts.and_then(|(object, opts)| {
        let opts = match opts {
            Some(opts) if opts.sz != size_of::<LoadOpts>() => return Err(wrong_size("load_opts")),
            Some(opts) => *opts,
            None => LoadOpts { sz: 0, exec: 0, cpus: 0 },
        };
        let exec = match opts.exec {
            0 => Exec::Jit,
            1 => Exec::Llvm,
            2 => Exec::Interp,
            other => return Err(invalid(&format!("exec is {other}: not enum towpath_exec"))),
        };
        object.load(exec, opts.cpus.max(1))
    }))
}

fn wrong_size(name: &str) -> Error {
    invalid(&format!("sz is not the size of struct towpath_{name}"))
}

/// `towpath_object__program`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_object__program(
    object: *mut Object,
    name: *const c_char,
    out: *mut *mut Program,
) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe {
        at(object).and_then(|object| {
            let name = if name.is_null() { None } else { Some(text(name)?) };
            Ok((object, name, at_mut(out)?))
        })
    };
    status(parts.and_then(|(object, name, out)| {
        *out = object.program(name)?;
        Ok(())
    }))
}

/// `towpath_object__map`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_object__map(
    object: *mut Object,
    name: *const c_char,
    out: *mut *mut Map,
) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe { at(object).and_then(|object| Ok((object, text(name)?, at_mut(out)?))) };
    status(parts.and_then(|(object, name, out)| {
        *out = object.map(name)?;
        Ok(())
    }))
}

/// `towpath_object__set_clock`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_object__set_clock(object: *mut Object, ns: u64) -> c_int {
    // SAFETY: as the header says.
    status(unsafe { at(object) }.and_then(|object| object.set_clock(ns)))
}

/// `towpath_object__printed`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_object__printed(
    object: *mut Object,
    line: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe { at(object).and_then(|it| Ok((it, bytes_mut(line.cast(), size)?))) };
    status(parts.and_then(|(object, room)| {
        let text = object.printed()?;
        let Some((end, room)) = room.split_last_mut() else { return Ok(()) };
        let length = text.len().min(room.len());
        room[..length].copy_from_slice(&text.as_bytes()[..length]);
        *room.get_mut(length).unwrap_or(end) = 0;
        Ok(())
    }))
}

/// `towpath_program__run`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_program__run(
    program: *mut Program,
    run: *mut Run,
) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe { at(program).and_then(|program| Ok((program, at_mut(run)?))) };
    status(parts.and_then(|(program, run)| {
        if run.sz != size_of::<Run>() {
            return Err(wrong_size("run"));
        }
        // SAFETY: as the header says; copied into a frame before anything is written.
        let packet = unsafe { bytes(run.data_in, run.data_size_in as usize) }?;
        let arrival =
            Arrival { ifindex: run.ifindex.max(1), queue_index: run.queue_index, cpu: run.cpu };
        let (verdict, frame) = program.run(packet, &arrival)?;
        (run.retval, run.redirect_ifindex) = (verdict.returned, ifindex(&verdict));
        let room = if run.data_out.is_null() { 0 } else { run.data_size_out as usize };
        let packet = frame.to_vec();
        run.data_size_out = packet.len() as u32;
        let fits = packet.len().min(room);
        // SAFETY: as the header says; the input packet is not used any more.
        let out = unsafe { bytes_mut(run.data_out, fits) }?;
        out.copy_from_slice(&packet[..fits]);
        if !run.data_out.is_null() && fits < packet.len() {
            let text = format!("the packet has {} bytes, data_out {room}", packet.len());
            return Err(Error::new(Errno::ENOSPC, &text));
        }
        Ok(())
    }))
}

/// `towpath_program__id`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_program__id(program: *const Program) -> u32 {
    // SAFETY: as the header says.
    unsafe { program.as_ref() }.map_or(0, Program::id)
}

/// `towpath_map__info`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_map__info(map: *const Map, info: *mut MapInfo) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe { at(map).and_then(|map| Ok((map, at_mut(info)?))) };
    status(parts.and_then(|(map, info)| {
        if info.sz != size_of::<MapInfo>() {
            return Err(wrong_size("map_info"));
        }
        let it = map.map();
        *info = MapInfo {
            sz: info.sz,
            kind: it.kind() as u32,
            key_size: it.key_size(),
            value_size: it.value_size(),
            max_entries: it.max_entries(),
            cpus: map.cpus() as u32,
        };
        Ok(())
    }))
}

/// Copies an element to C; with `is_taken` it is removed from the map.
///
/// # Safety
///
/// As [`towpath_object__open`].
unsafe fn look_up(
    map: *const Map,
    (key, key_size): (*const c_void, usize),
    (value, value_size): (*mut c_void, usize),
    flags: u64,
    is_taken: bool,
) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe {
        at(map).and_then(|map| Ok((map, bytes(key, key_size)?, bytes_mut(value, value_size)?)))
    };
    status(parts.and_then(|(map, key, value)| map.lookup(key, value, flags, is_taken)))
}

/// `towpath_map__lookup_elem`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_map__lookup_elem(
    map: *const Map,
    key: *const c_void,
    key_size: usize,
    value: *mut c_void,
    value_size: usize,
    flags: u64,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { look_up(map, (key, key_size), (value, value_size), flags, false) }
}

/// `towpath_map__lookup_and_delete_elem`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_map__lookup_and_delete_elem(
    map: *const Map,
    key: *const c_void,
    key_size: usize,
    value: *mut c_void,
    value_size: usize,
    flags: u64,
) -> c_int {
    // SAFETY: as the header says.
    unsafe { look_up(map, (key, key_size), (value, value_size), flags, true) }
}

/// `towpath_map__update_elem`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_map__update_elem(
    map: *const Map,
    key: *const c_void,
    key_size: usize,
    value: *const c_void,
    value_size: usize,
    flags: u64,
) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe {
        at(map).and_then(|map| Ok((map, bytes(key, key_size)?, bytes(value, value_size)?)))
    };
    status(parts.and_then(|(map, key, value)| map.update(key, value, flags)))
}

/// `towpath_map__delete_elem`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_map__delete_elem(
    map: *const Map,
    key: *const c_void,
    key_size: usize,
) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe { at(map).and_then(|map| Ok((map, bytes(key, key_size)?))) };
    status(parts.and_then(|(map, key)| map.delete(key)))
}

/// `towpath_map__get_next_key`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_map__get_next_key(
    map: *const Map,
    key: *const c_void,
    next: *mut c_void,
    key_size: usize,
) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe {
        at(map).and_then(|map| {
            let key = if key.is_null() { None } else { Some(bytes(key, key_size)?) };
            Ok((map, key))
        })
    };
    status(parts.and_then(|(map, key)| {
        let found = map.next_key(key)?;
        if found.len() != key_size {
            return Err(invalid(&format!("a key has {} bytes, not {key_size}", found.len())));
        }
        // SAFETY: as the header says; `key` may be the same memory and is not used any more.
        unsafe { bytes_mut(next, key_size) }?.copy_from_slice(&found);
        Ok(())
    }))
}

/// `towpath_map__record`
///
/// # Safety
///
/// As [`towpath_object__open`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn towpath_map__record(
    map: *mut Map,
    record: *mut c_void,
    size: *mut usize,
) -> c_int {
    // SAFETY: as the header says.
    let parts = unsafe {
        at(map).and_then(|map| {
            let size = at_mut(size)?;
            Ok((map, bytes_mut(record, *size)?, size))
        })
    };
    status(parts.and_then(|(map, room, size)| {
        let (bytes, result) = match map.record(room) {
            Ok(bytes) => (bytes, Ok(())),
            Err((bytes, error)) => (bytes, Err(error)),
        };
        *size = bytes;
        result
    }))
}
