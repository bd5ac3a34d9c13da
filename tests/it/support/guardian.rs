//! A shell that owns a server. However this process ends, the shell ends the server and removes its
//! folder.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// The shell that owns a server and its folder. It reads one command a line, and prints one line
/// when the command is done. At the end of its input it cleans up.
///
/// The cleanup does not wait for the server's writes, because its data is deleted anyway.
const GUARDIAN: &str = r#"
# The end of the input is what ends this, nothing else. The servers handle these themselves.
trap '' HUP INT TERM PIPE
parent=$1 user=$2 end=$3
dir=$(mktemp -d "$parent/perdiem-test-XXXXXX") && cd "$dir" || exit 1
if [ -n "$user" ]; then chown "$user" "$dir"; fi
echo "$dir"
pid=

try() { "$@" >log 2>&1 </dev/null; }

launch() {
    "$@" >log 2>&1 </dev/null &
    pid=$!
    echo "$pid" >pid
}

# PostgreSQL's backends: each has a session of its own, so no signal to a group reaches them.
# The ids are parted by the shell: mind not to quote them.
children() { sed -n "s/^\([0-9]*\) (.*) [^Z] $pid .*/\1/p" /proc/[0-9]*/stat; }

# A parent that is stopped first has no more children.
pause() { kill -STOP "$pid" && kill -STOP "$pid" $(children); }

resume() { kill -CONT $(children) "$pid"; }

crash() {
    [ -n "$pid" ] || return 0
    kill -STOP "$pid"
    while family=$(children) && [ -n "$family" ]; do kill -KILL $family; done
    kill -KILL "$pid"
    wait "$pid"
    pid=
}

# PostgreSQL's immediate shutdown: it collects its children, and kills those that linger 5 s.
# It is asked again because a server that has just been started does not listen yet.
quit() {
    [ -n "$pid" ] || return 0
    resume
    tries=0
    while [ "$tries" -lt 400 ]; do
        kill -QUIT "$pid" || return 0
        sleep 0.025
        tries=$((tries + 1))
    done
    crash
}

while read -r line; do
    eval "$line"
    echo "$?"
done

"$end"
# After a crash PostgreSQL's shared memory stays: its lock file has the segment's key and id.
segment=$(sed -n '7s/.* //p' data/postmaster.pid)
if [ -n "$segment" ]; then ipcrm -m "$segment"; fi
cd / && rm -rf "$dir"
"#;

/// Owns a server and its folder, and ends both when it is dropped.
pub struct Guardian {
    shell: Mutex<Shell>,
    pub folder: PathBuf,
}

struct Shell {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Guardian {
    /// Makes a folder in `parent`, for `user` if one is given. At the end the guardian calls its
    /// function `end`.
    pub fn start(parent: &Path, user: &str, end: &str) -> Guardian {
        let mut process = Command::new("sh")
            .args(["-c", GUARDIAN, "perdiem-test-guardian"])
            .args([&path_text(parent), user, end])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal goes to the tests' whole process group.
            .process_group(0)
            .spawn()
            .expect("sh should start");
        let mut answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut folder = String::new();
        let read = answers.read_line(&mut folder);
        assert!(
            read.is_ok_and(|length| length > 1),
            "no folder could be made in {}",
            parent.display()
        );
        Guardian {
            shell: Mutex::new(Shell { process, answers }),
            folder: PathBuf::from(folder.trim_end()),
        }
    }

    /// Runs one of the guardian's functions with these words. Returns whether it succeeded.
    pub fn run(&self, function: &str, words: &[String]) -> bool {
        let mut line = function.to_owned();
        for word in words {
            assert!(!word.contains('\n'), "a command is one line: {word:?}");
            line.push_str(&format!(" '{}'", word.replace('\'', r"'\''")));
        }
        line.push('\n');

        let mut shell = self.shell.lock().unwrap_or_else(PoisonError::into_inner);
        let input = shell.process.stdin.as_mut().expect("a pipe");
        let mut answer = String::new();
        input
            .write_all(line.as_bytes())
            .and_then(|()| shell.answers.read_line(&mut answer))
            .expect("the guardian of a server was killed");
        answer == "0\n"
    }

    /// Runs a function without words, and ignores its result: a dead server can be neither killed
    /// nor paused.
    pub fn tell(&self, function: &str) {
        self.run(function, &[]);
    }

    pub fn server_pid(&self) -> u32 {
        let text = fs::read_to_string(self.folder.join("pid")).expect("the guardian wrote it");
        text.trim().parse().expect("a process id")
    }

    /// The last lines of the server's output.
    pub fn log_tail(&self) -> String {
        let log = fs::read(self.folder.join("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        let shell = self.shell.get_mut().unwrap_or_else(PoisonError::into_inner);
        // `wait` closes the guardian's input first. A failure cannot be reported here.
        let _ = shell.process.wait();
    }
}

pub fn path_text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}
