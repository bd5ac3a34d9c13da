//! What commands print. The reader of a pipe may go away (`perdiem entries benefit | head -1`): then a
//! command ends, quietly.
//!
//! The macros take the place of the standard library's, which panic then: so no command can forget it.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::process;

/// What a command exits with whose reader went away, as a shell tells of SIGPIPE: its own exit code may
/// be unknown yet.
const NOBODY_READS: i32 = 141;
/// What it exits with when its output cannot be written, on a full disk for example.
const CANNOT_WRITE: i32 = 1;

macro_rules! println {
    () => {
        $crate::cli::output::print(format_args!("\n"))
    };
    ($($text:tt)+) => {
        $crate::cli::output::print(format_args!("{}\n", format_args!($($text)+)))
    };
}

macro_rules! print {
    ($($text:tt)+) => {
        $crate::cli::output::print(format_args!($($text)+))
    };
}

macro_rules! eprintln {
    ($($text:tt)+) => {
        $crate::cli::output::tell(format_args!($($text)+))
    };
}

/// Writes to standard output.
pub fn print(text: Arguments<'_>) {
    let mut output = stdout().lock();
    let written = output.write_fmt(text).and_then(|()| output.flush());
    let Err(error) = written else {
        return;
    };
    if error.kind() == ErrorKind::BrokenPipe {
        process::exit(NOBODY_READS);
    }
    tell(format_args!("perdiem: standard output: {error}"));
    process::exit(CANNOT_WRITE);
}

/// Writes a line to standard error, where somebody reads it.
pub fn tell(text: Arguments<'_>) {
    // Nobody is left who could be told.
    let _ = writeln!(stderr(), "{text}");
}
