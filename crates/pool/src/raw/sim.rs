//! Simulated pools, and the hooks by which other layers take part in a simulation; see `src/sim/mod.rs`.

pub use crate::sim::{
    Ending, Outside, Pause, SimulatedPool, SimulationError, SimulationOptions, World, choose,
    is_simulated, note, outside_of_simulation, point, point_or_unwind, steps, undisturbed,
    unwind_if_ending,
};
