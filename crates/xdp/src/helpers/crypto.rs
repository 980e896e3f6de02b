//! Crypto kfuncs: see [`crate::crypto`] for the ciphers.
//!
//! Checks, their order and error numbers follow `kernel/bpf/crypto.c`. A context is an object with
//! a cipher in its hidden part ([`crate::objects`]).

use towpath_bpf::Errno;
use towpath_bpf::interp::Stop;

use super::dynptr::{Dynptr, DynptrKind};
use super::objects::give_up;
use super::{Call, KfuncTable, entry};
use crate::crypto::{BLOCK_BYTES, Cipher, Direction};
use crate::memory;
use crate::objects::{Hidden, Shape};
use crate::run::Run;

pub(super) const KFUNCS: KfuncTable = &[
    ("bpf_crypto_ctx_create", entry(create)),
    ("bpf_crypto_ctx_acquire", entry(acquire)),
    ("bpf_crypto_ctx_release", entry(release)),
    ("bpf_crypto_encrypt", entry(encrypt).costing(cost_of_bytes)),
    ("bpf_crypto_decrypt", entry(decrypt).costing(cost_of_bytes)),
];

/// `bpf_crypto_ctx_create(params, params__sz, err)`: a context, or 0 and the reason in `*err`.
fn create(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let [params, size, err, ..] = args;
    let made = match cipher(call, params, size as u32)? {
        Ok(cipher) => context(call, cipher),
        Err(errno) => Err(errno),
    };
    let code = made.err().map_or(0, |errno| -errno.0);
    // The kernel's verifier lets a null pointer pass.
    if err != 0 {
        call.write(err, &code.to_le_bytes())?;
    }
    Ok(made.unwrap_or(0))
}

/// `bpf_crypto_ctx_acquire(ctx)`: the context again, or 0 if it is being freed.
fn acquire(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    let object = call.run.object(args[0]);
    Ok(if object.is_some_and(|object| object.acquire()) { args[0] } else { 0 })
}

/// `bpf_crypto_ctx_release(ctx)`
fn release(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    give_up(call.run, args[0]);
    Ok(0)
}

/// `bpf_crypto_encrypt(ctx, src, dst, siv__nullable)`
#[inline(always)]
fn encrypt(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    crypt(call, args, Direction::Encrypt)
}

/// `bpf_crypto_decrypt(ctx, src, dst, siv__nullable)`
#[inline(always)]
fn decrypt(call: &mut Call<'_, '_>, args: [u64; 5]) -> Result<u64, Stop> {
    crypt(call, args, Direction::Decrypt)
}

/// The cipher that a `struct bpf_crypto_params` asks for; the inner error is the program's.
fn cipher(call: &Call<'_, '_>, params: u64, size: u32) -> Result<Result<Cipher, Errno>, Stop> {
    if params == 0 || size != PARAMS_BYTES as u32 {
        return Ok(Err(Errno::EINVAL));
    }
    let params = call.run.view(params, PARAMS_BYTES as u64)?;
    let word = |at: usize| params[at..].first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    let (key_len, authsize) = (word(KEY_LEN), word(AUTHSIZE));
    let name = text(&params[ALGO..KEY]);
    Ok(if params[RESERVED..ALGO] != [0; 2] {
        Err(Errno::EINVAL)
    } else if text(&params[..RESERVED]) != b"skcipher" {
        Err(Errno::ENOENT)
    } else if !Cipher::is_known(name) || authsize != 0 {
        // No cipher of this type authenticates.
        Err(Errno::EOPNOTSUPP)
    } else if key_len == 0 || key_len as usize > KEY_LEN - KEY {
        Err(Errno::EINVAL)
    } else {
        Cipher::new(name, &params[KEY..][..key_len as usize])
    })
}

/// A new context with a cipher.
fn context(call: &Call<'_, '_>, cipher: Cipher) -> Result<u64, Errno> {
    let run = &*call.run;
    let code = call.callbacks.code();
    let btf = code.linked().map(|linked| &linked.kernel_btf);
    let bytes = btf.and_then(|btf| btf.size_of(btf.find_composite("bpf_crypto_ctx")?));
    // Programs that know the structure may read it: all zeros.
    let bytes = bytes.unwrap_or(CTX_BYTES).min(CTX_BYTES_MAX) as usize;
    let hidden_bytes = size_of::<Hidden>();
    let shape =
        Shape { bytes, hidden_bytes, is_counted: true, has_cipher: true, ..Shape::default() };
    let (objects, domain) = (&run.surroundings.objects, run.maps.domain());
    let class = objects.class(shape, domain);
    let object = objects.allocate(&class, run.worker.number() as usize, domain);
    let object = object.ok_or(Errno::ENOMEM)?;
    object.set_cipher(Box::new(cipher));
    Ok(object.addr())
}

/// `bpf_crypto_crypt`
#[inline]
fn crypt(call: &mut Call<'_, '_>, args: [u64; 5], direction: Direction) -> Result<u64, Stop> {
    let [ctx, src, dst, siv, _] = args;
    let (src, dst) = (Dynptr::load(call, src)?, Dynptr::load(call, dst)?);
    let siv = if siv == 0 { Dynptr::NULL } else { Dynptr::load(call, siv)? };
    let run = &*call.run;
    let Some(cipher) = run.cipher(ctx) else { return Ok(Errno::EINVAL.to_reg()) };
    let is_wrong = dst.read_only
        || src.size == 0
        || dst.size == 0
        || src.size > dst.size
        || siv.size as usize != cipher.iv_bytes()
        || siv.size != 0 && siv.read_only;
    let places = (place(run, src), place(run, dst), place(run, siv));
    let (Some(from), Some(to), Some(iv_at)) = places else {
        return Ok(Errno::EINVAL.to_reg());
    };
    if is_wrong {
        return Ok(Errno::EINVAL.to_reg());
    }
    let iv_bytes = u64::from(siv.size);
    let mut iv = [0; BLOCK_BYTES];
    if iv_bytes > 0 {
        memory::copy_out(run.grant(iv_at, iv_bytes, false)?, &mut iv);
    }
    let len = src.size as usize;
    let takes = cipher.takes(len);
    // Block by block, as in the kernel, if what is written is read later.
    let overlaps = from != to && from.abs_diff(to) < len as u64;
    let chunk = if overlaps { BLOCK_BYTES } else { CHUNK_BYTES };
    let mut buffer = [0; CHUNK_BYTES];
    for start in (0..takes).step_by(chunk) {
        let bytes = &mut buffer[..chunk.min(takes - start)];
        let (start, count) = (start as u64, bytes.len() as u64);
        memory::copy_out(run.grant(from + start, count, false)?, bytes);
        cipher.apply(direction, bytes, &mut iv);
        memory::copy_in(run.grant(to + start, count, true)?, bytes);
    }
    if iv_bytes > 0 {
        memory::copy_in(run.grant(iv_at, iv_bytes, true)?, &iv);
    }
    // As in the kernel, the blocks before a rest that is none have been written.
    Ok(if takes == len { 0 } else { Errno::EINVAL.to_reg() })
}

/// Address of the bytes of a dynptr if they lie in one piece; 0 of an empty one.
fn place(run: &Run<'_>, dynptr: Dynptr) -> Option<u64> {
    match dynptr.kind {
        _ if dynptr.size == 0 => Some(0),
        DynptrKind::Xdp => {
            run.frame.pointer(dynptr.offset as usize, dynptr.size as usize).ok().flatten()
        }
        _ => Some(dynptr.addr()),
    }
}

/// The cost of a call: some bytes of the source in the time of an instruction.
fn cost_of_bytes(run: &Run<'_>, _callee: u32, args: &[u64; 5]) -> u64 {
    let size = run.get(args[1].wrapping_add(8), 4).unwrap_or(0)
        & u64::from(super::dynptr::DYNPTR_SIZE_MAX);
    SETUP + size / BYTES
}

/// The text in front of the first zero byte.
fn text(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// `struct bpf_crypto_params`
const PARAMS_BYTES: usize = 408;
/// Offsets of its fields; the first is the type.
const RESERVED: usize = 14;
const ALGO: usize = 16;
const KEY: usize = 144;
const KEY_LEN: usize = 400;
const AUTHSIZE: usize = 404;
/// If BTF lacks the structure, programs can't read its fields.
const CTX_BYTES: u64 = 40;
const CTX_BYTES_MAX: u64 = 4096;
/// Bytes that are worked on at once, a multiple of a block.
const CHUNK_BYTES: usize = 512;
/// The cost of a call with few bytes, and bytes in the time of an instruction.
const SETUP: u64 = 50;
const BYTES: u64 = 4;
