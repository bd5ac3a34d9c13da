//! The fault suite: perdiem's own processes, PostgreSQL, Redis and the network between them
//! break in the midst of load, and the judge reads what clients were told and what is stored.

mod copies;
mod counting;
mod failover;
mod instances;
mod load;
mod network;
mod postgres;
mod redis;
mod report;
mod seed;
mod setup;
mod time;
mod torture;
mod trial;
mod verdict;
