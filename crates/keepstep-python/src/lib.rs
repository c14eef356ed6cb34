//! The border between Python and the engine: converts types and errors, and has no rules of its own.
//!
//! The interpreter is never held while something waits for the disk or for another thread, and the committer's thread
//! never touches the interpreter.

mod command;
mod episode;
mod errors;
mod fields;
mod follow;
mod group;
mod interrupt;
mod listing;
mod numbers;
mod receipt;
mod run;
mod store;
mod stream;
mod table;
mod tokens;
mod values;
mod view;
mod waker;

use pyo3::prelude::*;

/// What the Python package is made of; not for others.
#[pymodule(gil_used = false)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("IS_DEBUG_BUILD", cfg!(debug_assertions))?;
    let endings =
        keepstep::Why::ALL.map(|why| (why.name(), why.is_final(), why.is_resumable(), why.is_said()));
    module.add("ENDINGS", pyo3::types::PyTuple::new(module.py(), endings)?)?;
    listing::make_names(module.py())?;
    module.add_class::<store::Store>()?;
    module.add_class::<store::Closer>()?;
    module.add_class::<run::Run>()?;
    module.add_class::<run::Job>()?;
    module.add_class::<run::Remaining>()?;
    module.add_class::<episode::Episode>()?;
    module.add_class::<group::Group>()?;
    module.add_class::<stream::Stream>()?;
    module.add_class::<stream::StreamReader>()?;
    module.add_class::<receipt::Receipt>()?;
    module.add_class::<waker::LoopBell>()?;
    module.add_class::<view::View>()?;
    module.add_class::<listing::Listing>()?;
    module.add_class::<follow::StepFollow>()?;
    module.add_class::<follow::RunFollow>()?;
    module.add_class::<table::Table>()?;
    values::add_to(module)?;
    module.add_function(wrap_pyfunction!(receipt::look_up_all, module)?)?;
    module.add_function(wrap_pyfunction!(fields::_step_fields, module)?)?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    module.add_function(wrap_pyfunction!(store::refuse_address, module)?)?;
    module.add_function(wrap_pyfunction!(store::check_name, module)?)?;
    module.add_function(wrap_pyfunction!(numbers::int32_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(numbers::float32_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(view::find, module)?)?;
    module.add_function(wrap_pyfunction!(listing::list_episodes, module)?)?;
    module.add_function(wrap_pyfunction!(listing::follow_run, module)?)?;
    Ok(())
}
