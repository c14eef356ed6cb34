//! The `keepstep` program; everything is in the library, so that the Python package can carry it too.

use std::process::ExitCode;

fn main() -> ExitCode {
    keepstep_cli::main(std::env::args_os())
}
