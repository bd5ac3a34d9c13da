//! The binary: reads the command line and runs it.

use std::process::ExitCode;
use std::thread;

use host::zone_rules;
use tokio::runtime::Builder;

/// A claim allocates on one thread and frees on another. glibc's allocator took an eighth of the
/// service's time for that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
        Ok(runtime) => cli::run(cli, &runtime),
        Err(error) => {
            eprintln!("perdiem: cannot start threads: {error}");
            ExitCode::FAILURE
        }
    }
}
