//! The tools of the tests: servers, instances, clients and ledgers.

pub mod app;
pub mod asking;
pub mod authority;
pub mod books;
pub mod command_line;
pub mod crowd;
pub mod desk;
pub mod dice;
pub mod direct;
pub mod disk;
pub mod guardian;
pub mod hand;
pub mod migrated;
pub mod operations;
pub mod process;
pub mod proxy;
pub mod quiet;
pub mod rate_limits;
pub mod redis_groups;
pub mod servers;
pub mod terminal;
pub mod waiting;
pub mod wall_clock;
