//! The binary: reads the command line and runs it.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use host::zone_rules;
use tokio::runtime::Builder;

/// A claim allocates on one thread and frees on another. glibc's allocator took an eighth of the
/// service's time for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long threads may hold up the end of the process.
const END_WAIT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    #[cfg(feature = "faults")]
    host::faults::arm();
    zone_rules::install();
    let cli = cli::read();
    // HTTP also has one thread a core (http/server/application.rs). On two cores, two engine
    // threads wake each other for nothing: with one thread a claim costs a seventh less.
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let runtime = Builder::new_multi_thread()
        .worker_threads(cores.div_ceil(2))
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => {
            let code = cli::run(cli, &runtime);
            // A thread that reads a file from a network that is away must not hold up the end.
            runtime.shutdown_timeout(END_WAIT);
            code
        }
        Err(error) => {
            eprintln!("perdiem: cannot start threads: {error}");
            ExitCode::FAILURE
        }
    }
}
