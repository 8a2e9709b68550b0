//! Numbers that follow from a seed.

/// xorshift64*: small, and the same everywhere.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.next();
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }

    pub fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.size_below(choices.len())]
    }

    pub fn size_below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("small");
        usize::try_from(self.below(bound)).expect("small")
    }
}
