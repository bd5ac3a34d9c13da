//! How old something is, for people.

use chrono::TimeDelta;

/// An age in its largest unit.
pub fn describe_age(age: TimeDelta) -> String {
    match age.num_seconds().max(0) {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7200 => format!("{} min", seconds / 60),
        seconds @ ..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_has_one_unit() {
        let told = [-5, 0, 119, 120, 7200, 172_800].map(|it| describe_age(TimeDelta::seconds(it)));
        assert_eq!(told, ["0 s", "0 s", "119 s", "2 min", "2 h", "2 days"]);
    }
}
