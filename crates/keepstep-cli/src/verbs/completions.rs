//! `keepstep completions`: a script that teaches a shell the verbs and options.

use std::io::Write;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::args::Cli;
use crate::failure::{Exit, Outcome};
use crate::screen::Screen;

/// Arguments of `keepstep completions`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Examples:
  keepstep completions bash >> ~/.bash_completion
  keepstep completions zsh > ~/.zfunc/_keepstep
  keepstep completions fish > ~/.config/fish/completions/keepstep.fish")]
pub(crate) struct Args {
    /// Your shell
    #[arg(value_enum)]
    shell: Shell,
}

/// The command without its hidden verbs: nobody should be offered those.
fn visible(all: &Command) -> Command {
    let verbs = all.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    Command::new("keepstep").version(env!("CARGO_PKG_VERSION")).subcommands(verbs)
}

pub(crate) fn run(args: &Args, screen: &mut Screen) -> Outcome {
    // Into memory first: clap_complete panics when a reader goes away.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut visible(&Cli::command()), "keepstep", &mut script);
    screen.out().write_all(&script)?;
    Ok(Exit::Done)
}
