//! The code of `examples/proto`, which is under version control so that no build needs a compiler of `.proto` files.

use std::path::{Path, PathBuf};

#[test]
fn it_is_what_the_proto_file_gives() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/proto");
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let descriptors = protox::compile(["echo.proto"], [&proto]).unwrap();
    tonic_prost_build::configure().out_dir(&out).compile_fds(descriptors).unwrap();

    let (kept, fresh) = (proto.join("echo.v1.rs"), out.join("echo.v1.rs"));
    let same = std::fs::read_to_string(&kept).ok() == std::fs::read_to_string(&fresh).ok();
    assert!(same, "{} is not what echo.proto gives: copy {} there", kept.display(), fresh.display());
}
