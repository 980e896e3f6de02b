//! The layouts, compared with what a C compiler makes of the installed header.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::PathBuf;
use std::process::Command;

use super::{
    CIPHER_CBC, DECRYPT, ENCRYPT, HMAC_SHA_1, HMAC_SHA_256, HMAC_SHA_384, HMAC_SHA_512, Job, State,
    VERSIONS, parts,
};

#[test]
fn known_versions_are_all_different() {
    for (index, version) in VERSIONS.iter().enumerate() {
        let same = |it: &super::Version| (it.major, it.minor) == (version.major, version.minor);
        assert_eq!(VERSIONS.iter().position(same), Some(index));
        assert!(version.job_len.is_multiple_of(align_of::<Job>()));
        assert!(version.job_len >= size_of::<Job>());
    }
    assert_eq!(parts(0x10300), [1, 3, 0]);
    assert_eq!(parts(0x20001), [2, 0, 1]);
}

#[test]
fn offsets_are_those_of_the_header() {
    let expected = expected();
    let numbers = match compiled(&expected) {
        Ok(numbers) => numbers,
        Err(reason) => return skip(&reason),
    };
    let [version, job_len, rest @ ..] = &numbers[..] else { panic!("the program prints two more") };
    let [major, minor, _patch] = parts(u32::try_from(*version).expect("three bytes"));
    let known = VERSIONS.iter().find(|known| (known.major, known.minor) == (major, minor));
    let Some(known) = known else {
        return skip(&format!("the header is of version {major}.{minor}, which is not known"));
    };
    assert_eq!(*job_len, known.job_len, "sizeof(IMB_JOB) in version {major}.{minor}");
    let found: Vec<_> = expected.iter().map(|(what, _)| *what).zip(rest.iter().copied()).collect();
    assert_eq!(found, expected);
}

/// C expressions, and the values that they must have.
#[rustfmt::skip]
fn expected() -> Vec<(&'static str, usize)> {
    let constants = [
        ("IMB_CIPHER_CBC", CIPHER_CBC),
        ("IMB_DIR_ENCRYPT", ENCRYPT),
        ("IMB_DIR_DECRYPT", DECRYPT),
        ("IMB_AUTH_HMAC_SHA_1", HMAC_SHA_1),
        ("IMB_AUTH_HMAC_SHA_256", HMAC_SHA_256),
        ("IMB_AUTH_HMAC_SHA_384", HMAC_SHA_384),
        ("IMB_AUTH_HMAC_SHA_512", HMAC_SHA_512),
    ];
    let offsets = [
        ("offsetof(IMB_JOB, enc_keys)", offset_of!(Job, enc_keys)),
        ("offsetof(IMB_JOB, dec_keys)", offset_of!(Job, dec_keys)),
        ("offsetof(IMB_JOB, key_len_in_bytes)", offset_of!(Job, key_len)),
        ("offsetof(IMB_JOB, src)", offset_of!(Job, src)),
        ("offsetof(IMB_JOB, dst)", offset_of!(Job, dst)),
        ("offsetof(IMB_JOB, cipher_start_src_offset_in_bytes)", offset_of!(Job, cipher_offset)),
        ("offsetof(IMB_JOB, msg_len_to_cipher_in_bytes)", offset_of!(Job, cipher_len)),
        ("offsetof(IMB_JOB, hash_start_src_offset_in_bytes)", offset_of!(Job, hash_offset)),
        ("offsetof(IMB_JOB, msg_len_to_hash_in_bytes)", offset_of!(Job, hash_len)),
        ("offsetof(IMB_JOB, iv)", offset_of!(Job, iv)),
        ("offsetof(IMB_JOB, iv_len_in_bytes)", offset_of!(Job, iv_len)),
        ("offsetof(IMB_JOB, auth_tag_output)", offset_of!(Job, tag)),
        ("offsetof(IMB_JOB, auth_tag_output_len_in_bytes)", offset_of!(Job, tag_len)),
        ("offsetof(IMB_JOB, u.HMAC._hashed_auth_key_xor_ipad)", offset_of!(Job, inner)),
        ("offsetof(IMB_JOB, u.HMAC._hashed_auth_key_xor_opad)", offset_of!(Job, outer)),
        ("offsetof(IMB_JOB, status)", offset_of!(Job, status)),
        ("offsetof(IMB_MGR, imb_errno)", offset_of!(State, errno)),
        ("offsetof(IMB_MGR, keyexp_128)", offset_of!(State, expand)),
        ("offsetof(IMB_MGR, keyexp_192)", offset_of!(State, expand) + 8),
        ("offsetof(IMB_MGR, keyexp_256)", offset_of!(State, expand) + 16),
        ("offsetof(IMB_MGR, sha1_one_block)", offset_of!(State, sha1_one_block)),
        ("offsetof(IMB_MGR, sha256_one_block)", offset_of!(State, sha256_one_block)),
        ("offsetof(IMB_MGR, sha384_one_block)", offset_of!(State, sha384_one_block)),
        ("offsetof(IMB_MGR, sha512_one_block)", offset_of!(State, sha512_one_block)),
        ("offsetof(IMB_MGR, submit_cipher_burst)", offset_of!(State, submit_cipher_burst)),
        ("offsetof(IMB_MGR, submit_hash_burst)", offset_of!(State, submit_hash_burst)),
    ];
    let constants = constants.into_iter().map(|(what, value)| (what, value as usize));
    constants.chain(offsets).collect()
}

/// The header's version, the size of its jobs, and the values of the expressions; or the reason why
/// nothing could be compiled.
fn compiled(expressions: &[(&str, usize)]) -> Result<Vec<usize>, String> {
    let header = "/usr/include/intel-ipsec-mb.h";
    let has_other = std::env::var_os("CPATH").is_some();
    if !has_other && !PathBuf::from(header).exists() {
        return Err(format!("there is no {header} (package libipsec-mb-dev)"));
    }
    let mut source = String::from("#include <stddef.h>\n#include <stdio.h>\n");
    source += "#include <intel-ipsec-mb.h>\nint main(void)\n{\n";
    let first = ["IMB_VERSION_NUM", "sizeof(IMB_JOB)"];
    for expression in first.into_iter().chain(expressions.iter().map(|(what, _)| *what)) {
        writeln!(source, "\tprintf(\"%zu\\n\", (size_t)({expression}));").expect("a string");
    }
    source += "\treturn 0;\n}\n";
    let folder = std::env::temp_dir().join(format!("towpath-ipsec-mb-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder for temporary files");
    let (file, program) = (folder.join("offsets.c"), folder.join("offsets"));
    std::fs::write(&file, source).expect("a file can be written");
    let compiled = Command::new("cc").arg("-o").arg(&program).arg(&file).output();
    let compiled = compiled.map_err(|error| format!("there is no C compiler: {error}"))?;
    let messages = String::from_utf8_lossy(&compiled.stderr).into_owned();
    assert!(compiled.status.success(), "the header lacks a member: {messages}");
    let output = Command::new(&program).output().expect("it was compiled just now");
    std::fs::remove_dir_all(&folder).expect("it is ours");
    let text = String::from_utf8(output.stdout).expect("numbers");
    Ok(text.lines().map(|line| line.parse().expect("a number")).collect())
}

fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}
