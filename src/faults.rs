//! Fail points: named steps of a claim's way at which a test ends or stops the process.
//! Without the feature `faults`, which is off by default, they are nothing.
//!
//! The environment says what happens where, in the words of the crate `fail`:
//! `FAILPOINTS='append.committed=100*off->return'` aborts the process when it gets there for
//! the 101st time, and `1*return(stop)` stops it (SIGSTOP) until SIGCONT.

/// Sets the fail points that the environment names.
#[cfg(feature = "faults")]
pub fn arm() {
    // They stay set until the process ends.
    std::mem::forget(fail::FailScenario::setup());
}

/// Marks a step. What a test wants to happen here happens.
#[cfg(feature = "faults")]
pub fn reach(point: &str) {
    fail::fail_point!(point, |wish: Option<String>| match wish.as_deref() {
        None => std::process::abort(),
        Some("stop") => stop(),
        Some(other) => panic!("a fail point can abort or stop, not {other}"),
    });
}

/// Marks a step.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub fn reach(_point: &str) {}

/// Returns once somebody has let the process go on.
#[cfg(feature = "faults")]
fn stop() {
    let id = std::process::id().to_string();
    let signalled = std::process::Command::new("kill")
        .args(["-STOP", &id])
        .status();
    signalled.expect("there is a program `kill`");
}
