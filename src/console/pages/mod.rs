//! The pages, a file for each. Each one answers the question that its first line of text answers.

pub mod blocks;
pub mod changes;
pub mod denials;
pub mod entries;
pub mod erasure;
mod exceptions;
pub mod exports;
pub mod find;
pub mod grant;
pub mod keys;
mod known;
mod makers;
pub mod overrides;
pub mod policies;
pub mod policy;
mod policy_charts;
pub mod policy_edit;
mod policy_form;
pub mod reconciliations;
pub mod refused;
pub mod seals;
pub mod subject;
pub mod subjects;
pub mod today;
pub mod usage;
mod version;
pub mod versions;
