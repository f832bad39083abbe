//! A wire that injects faults, always the same ones for the same seed.

use std::collections::VecDeque;

use super::Frame;
use crate::clock::Random;

/// Frames in flight on a wire that loses, repeats, delays and damages them.
///
/// Each rate is in thousandths of all frames and is rolled by itself.
#[derive(Clone, Debug)]
pub struct Lossy {
    random: Random,
    /// Lost.
    pub drop: u64,
    /// Arrive twice.
    pub duplicate: u64,
    /// Are overtaken by up to seven frames behind them.
    pub reorder: u64,
    /// Arrive with one bit wrong.
    pub corrupt: u64,
    flight: VecDeque<Frame>,
}

impl Lossy {
    /// A wire with all rates the same.
    pub fn new(seed: u64, rate: u64) -> Self {
        Self {
            random: Random::seeded(seed),
            drop: rate,
            duplicate: rate,
            reorder: rate,
            corrupt: rate,
            flight: VecDeque::new(),
        }
    }

    fn roll(&mut self, rate: u64) -> bool {
        self.random.draw() % 1000 < rate
    }

    /// Puts a frame on the wire.
    pub fn send(&mut self, mut frame: Frame) {
        if self.roll(self.drop) {
            return;
        }
        if self.roll(self.corrupt) && !frame.0.is_empty() {
            let bit = self.random.draw() as usize % (frame.0.len() * 8);
            frame.0[bit / 8] ^= 1 << (bit % 8);
        }
        if self.roll(self.duplicate) {
            self.flight.push_back(frame.clone());
        }
        self.flight.push_back(frame);
    }

    /// Takes the next frame that arrives.
    pub fn receive(&mut self) -> Option<Frame> {
        if self.flight.len() > 1 && self.roll(self.reorder) {
            let behind = 1 + self.random.draw() as usize % (self.flight.len() - 1).min(7);
            return self.flight.remove(behind);
        }
        self.flight.pop_front()
    }
}
