//! The fault suite: perdiem's own processes, PostgreSQL, Redis and the network between them
//! break in the midst of load, and a checker reads what clients were told and what stands.

mod checker;
mod copies;
mod counting;
mod failover;
mod history;
mod instances;
mod load;
mod network;
mod planted;
mod postgres;
mod redis;
mod report;
mod stores;
mod time;
mod torture;
mod trial;
