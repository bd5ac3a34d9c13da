//! Fail points: named steps at which a test ends or stops the process. Without the feature
//! `faults`, which is off by default, they do nothing.
//!
//! The environment says what happens where, in the syntax of the crate `fail`:
//! `FAILPOINTS='append.committed=100*off->return'` aborts the process when it reaches the step for
//! the 101st time, and `1*return(stop)` stops the process (SIGSTOP) until SIGCONT.

/// Sets the fail points of the environment.
#[cfg(feature = "faults")]
pub fn arm() {
    // They stay set until the process ends.
    std::mem::forget(fail::FailScenario::setup());
}

/// Marks a step. If the environment names it, the process ends or stops here.
#[cfg(feature = "faults")]
pub fn reach(point: &str) {
    fail::fail_point!(point, |wish: Option<String>| match wish.as_deref() {
        None => std::process::abort(),
        Some("stop") => stop(),
        Some(other) => panic!("a fail point can abort or stop, not {other}"),
    });
}

#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn reach(_point: &str) {}

/// Stops the process. Returns when the process is continued.
#[cfg(feature = "faults")]
fn stop() {
    let id = std::process::id().to_string();
    let signalled = std::process::Command::new("kill")
        .args(["-STOP", &id])
        .status();
    signalled.expect("there is a program `kill`");
}
