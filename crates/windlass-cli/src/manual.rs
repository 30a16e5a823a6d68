//! What the program prints of itself: the manual page, and completions for shells.

use std::error::Error;
use std::io::{self, Write};

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use crate::Arguments;

/// Prints the completions of `shell` on standard output.
pub(crate) fn print_completions(shell: clap_complete::Shell) -> Result<(), Box<dyn Error>> {
    let mut script = Vec::new();
    let program = Arguments::command();
    // Hidden subcommands are nobody's to type.
    let shown = program.get_subcommands().filter(|one| !one.is_hide_set());
    let mut command = Command::new("windlass")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(shown.cloned());
    clap_complete::generate(shell, &mut command, "windlass", &mut script);
    print(&script)
}

/// Prints the manual page on standard output, in the language of man(7).
pub(crate) fn print_manual() -> Result<(), Box<dyn Error>> {
    let mut program = Arguments::command();
    program.build();
    let mut page = Vec::new();
    // The subcommands have no pages of their own: one page has all.
    let summary = Man::new(program.clone()).date("");
    summary.render_title(&mut page)?;
    summary.render_name_section(&mut page)?;
    summary.render_synopsis_section(&mut page)?;
    summary.render_description_section(&mut page)?;
    for command in program
        .get_subcommands()
        .filter(|command| command.get_name() != "help" && !command.is_hide_set())
    {
        render(command, &mut page)?;
    }
    page.extend_from_slice(FILES.as_bytes());
    print(&page)
}

/// A section for one subcommand.
fn render(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let name = format!("windlass {}", command.get_name());
    writeln!(page, ".SH \"{}\"", name.to_uppercase())?;
    let mut text = Vec::new();
    let man = Man::new(command.clone());
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if command
        .get_arguments()
        .any(|argument| argument.get_id() != "help")
    {
        man.render_options_section(&mut text)?;
    }
    if command.get_after_long_help().is_some() {
        man.render_extra_section(&mut text)?;
    }
    // The sections of a subcommand are subsections of the page.
    for line in String::from_utf8_lossy(&text).lines() {
        let line = line
            .strip_prefix(".SH ")
            .map_or_else(|| line.to_owned(), |title| format!(".SS {title}"));
        writeln!(page, "{line}")?;
    }
    Ok(())
}

const FILES: &str = "\
.SH \"SEE ALSO\"
systemd.socket(5), htpasswd(1), logrotate(8)
";

/// Writes to standard output. A reader that has gone away, such as `head`, is no failure.
pub(crate) fn print(bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let mut output = io::stdout().lock();
    match output.write_all(bytes).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("write to standard output: {error}").into())
        }
        _ => Ok(()),
    }
}
