//! The fault suite: perdiem's own processes, PostgreSQL, Redis and the network between them
//! break in the midst of load, and the judge reads what clients were told and what is stored.

mod copies;
mod copy;
mod failover;
mod fault;
mod instances;
mod load;
mod postgres;
mod redis;
mod report;
mod seed;
mod setup;
mod table;
mod time;
mod torture;
mod trial;
mod verdict;
mod world;
