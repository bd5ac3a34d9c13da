//! The fault suite. The real processes of perdiem, PostgreSQL and Redis and the network between
//! them break under load. Afterwards the judge compares the stores with the answers to clients.

mod admin;
mod copies;
mod copy;
mod failover;
mod fault;
mod instances;
mod load;
mod postgres;
mod redis;
mod report;
mod sealing;
mod seed;
mod setup;
mod table;
mod time;
mod torture;
mod trial;
mod verdict;
mod world;
