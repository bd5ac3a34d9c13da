//! Statistics: the figures of policies' local days, made along the record, and denials.

mod busiest;
mod day_closer;
mod days;
mod denial_writer;
mod denials;
mod figure_follower;
mod quarters;
mod recount;
mod subjects;
mod tally;

pub use busiest::BusiestPolicies;
pub use day_closer::DayCloser;
pub use days::{FigureOfDay, FigurePage, FigureQuery};
pub use denial_writer::DenialWriter;
pub use denials::DenialQuery;
pub use figure_follower::FigureFollower;
pub use quarters::{QuarterPage, QuarterQuery};
pub use recount::{CheckedFigures, FigureFailure, check_figures};
