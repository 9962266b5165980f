//! Simulated pools, and the hooks by which other layers take part in a simulation; see `src/sim/mod.rs`.

pub use crate::sim::{
    Pause, SimulatedPool, SimulationError, SimulationOptions, World, choose, is_simulated, note,
    point, steps, undisturbed,
};
