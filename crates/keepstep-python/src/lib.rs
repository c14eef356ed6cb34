//! The border between Python and the engine: converts types and errors, and has no rules of its own.
//!
//! The interpreter is never held while something waits for the disk or for another thread, and the committer's thread
//! never touches the interpreter.

mod bell;
mod command;
mod episode;
mod errors;
mod fields;
mod group;
mod receipt;
mod references;
mod run;
mod store;
mod stream;
mod values;

use pyo3::prelude::*;

/// What the Python package is made of; not for others.
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("IS_DEBUG_BUILD", cfg!(debug_assertions))?;
    module.add_class::<store::Store>()?;
    module.add_class::<run::Run>()?;
    module.add_class::<run::Job>()?;
    module.add_class::<run::Remaining>()?;
    module.add_class::<episode::Episode>()?;
    module.add_class::<group::Group>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<receipt::Receipt>()?;
    module.add_class::<bell::LoopBell>()?;
    values::add_to(module)?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    module.add_function(wrap_pyfunction!(references::reference, module)?)?;
    module.add_function(wrap_pyfunction!(references::parse_reference, module)?)?;
    Ok(())
}
