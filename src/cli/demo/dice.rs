//! Random numbers that can be repeated: the same seed gives the same numbers.

/// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Separate dice for one part of a story.
    pub fn of(seed: u64, part: u64) -> Self {
        let mut dice = Self(seed ^ (part + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        dice.throw();
        dice
    }

    fn throw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from a range, with both ends.
    pub fn between(&mut self, least: i64, most: i64) -> i64 {
        least + (self.throw() % (most - least + 1).cast_unsigned()).cast_signed()
    }

    /// True in so many percent of the calls.
    pub fn percent(&mut self, percent: i64) -> bool {
        self.between(0, 99) < percent
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[(self.throw() % of.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let numbers = |mut dice: Dice| -> Vec<i64> { (0..8).map(|_| dice.between(1, 6)).collect() };
        assert_eq!(numbers(Dice::of(7, 1)), numbers(Dice::of(7, 1)));
        assert_ne!(numbers(Dice::of(7, 1)), numbers(Dice::of(7, 2)));
        assert!(
            numbers(Dice::of(7, 3))
                .iter()
                .all(|it| (1..=6).contains(it))
        );
    }
}
