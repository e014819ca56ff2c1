//! Clients and a proxy that others have written, with what they make of the layers' answers.

mod grpcio;
mod nginx;
mod ratelimit_header_parser;
mod urllib3;

use std::path::PathBuf;

use tokio::process::Command;

/// What a script beside this file prints, line by line.
async fn script(name: &str, arguments: &[&str]) -> Vec<String> {
    let tests = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let program = std::env::current_exe().unwrap();
    let packages = program.ancestors().nth(3).unwrap().join("clients");
    assert!(packages.exists(), "{} is missing: `tests/run` installs it", packages.display());
    let script = tests.join("clients").join(name);
    let is_python = script.extension().is_some_and(|extension| extension == "py");
    let mut command = Command::new(if is_python { "python3" } else { "node" });
    command.env("PYTHONPATH", packages.join("python")).env("NODE_PATH", packages.join("node_modules"));
    let output = command.arg(script).args(arguments).output().await.expect(name);
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}
