//! The seed of a trial's random numbers, and the command that repeats the trial.

use std::io::Write;

/// A seed that prints how to repeat a failed trial.
pub struct Seed {
    pub name: &'static str,
    pub number: u64,
    /// The command that repeats the trial.
    pub again: String,
}

impl Seed {
    /// The seed from `PERDIEM_FAULTS_SEED`, or a new one.
    pub fn choose(name: &'static str) -> Self {
        let named = std::env::var("PERDIEM_FAULTS_SEED");
        let number = named.map_or_else(
            |_| getrandom::u64().expect("the system has randomness") % 1_000_000_000,
            |text| text.parse().expect("PERDIEM_FAULTS_SEED is a number"),
        );
        let filter = name.split(' ').next().unwrap_or_default();
        Self {
            name,
            number,
            again: format!("PERDIEM_FAULTS_SEED={number} scripts/test {filter}"),
        }
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(
                std::io::stderr(),
                "to run {} again: {}",
                self.name,
                self.again
            );
        }
    }
}
