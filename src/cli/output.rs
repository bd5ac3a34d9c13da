//! The output of commands. Where the reader of a pipe ends first (`perdiem entries benefit | head
//! -1`), the command ends without an error message.
//!
//! These macros replace those of the standard library, which panic in that case. So no command can
//! forget it.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write, stderr, stdout};
use std::process;

/// The exit code of a command whose reader ended first, the same as a shell gives for SIGPIPE. The
/// command's own exit code may not be known yet.
const NOBODY_READS: i32 = 141;
/// The exit code of a command whose output cannot be written, for example on a full disk.
const CANNOT_WRITE: i32 = 1;

macro_rules! println {
    () => {
        $crate::output::print(format_args!("\n"))
    };
    ($($text:tt)+) => {
        $crate::output::print(format_args!("{}\n", format_args!($($text)+)))
    };
}

macro_rules! print {
    ($($text:tt)+) => {
        $crate::output::print(format_args!($($text)+))
    };
}

macro_rules! eprintln {
    ($($text:tt)+) => {
        $crate::output::tell(format_args!($($text)+))
    };
}

pub fn print(text: Arguments<'_>) {
    let mut output = stdout().lock();
    let written = output.write_fmt(text).and_then(|()| output.flush());
    let Err(error) = written else {
        return;
    };
    if error.kind() == ErrorKind::BrokenPipe {
        process::exit(NOBODY_READS);
    }
    tell(format_args!(
        "perdiem: cannot write to standard output: {error}"
    ));
    process::exit(CANNOT_WRITE);
}

/// Writes a line to standard error, if somebody reads it.
pub fn tell(text: Arguments<'_>) {
    // Nobody is left to report the error to.
    let _ = writeln!(stderr(), "{text}");
}
