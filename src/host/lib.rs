//! What a process needs of its host: the one source of time, fail points at which a test can end or stop
//! it, files that only their owner can read, the room on a disk, and errors with their causes, told once.

pub mod chain;
pub mod clock;
pub mod disk;
pub mod faults;
pub mod retried;
pub mod running;
pub mod secret_file;
pub mod zone_rules;
