//! Bodies that attract each other, two steps: the accelerations of all, then all are moved.

use jobtree::par;
use rayon::iter::{
    IndexedParallelIterator, IntoParallelRefIterator, IntoParallelRefMutIterator, ParallelIterator,
};

use crate::suites::programs::inputs::{digest, rng};
use crate::suites::programs::program::{Program, Scale};

type Vector = [f64; 3];

#[derive(Clone)]
pub struct Body {
    position: Vector,
    velocity: Vector,
    mass: f64,
}

pub struct Input {
    given: Vec<Body>,
    bodies: Vec<Body>,
}

const STEPS: usize = 2;
const SECONDS: f64 = 0.01;

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(800, 40);
    let mut rng = rng();
    let given: Vec<Body> = (0..count)
        .map(|_| Body {
            position: [(); 3].map(|()| rng.unit()),
            velocity: [0.0; 3],
            mass: 1.0 + rng.unit(),
        })
        .collect();
    let bodies = given.clone();
    Program::new("body", count, Input { given, bodies })
        .prepare(|input| input.bodies.clone_from(&input.given))
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
}

fn acceleration(body: &Body, bodies: &[Body]) -> Vector {
    let mut sum = [0.0; 3];
    for other in bodies {
        let way: Vector = std::array::from_fn(|axis| other.position[axis] - body.position[axis]);
        let square = way.iter().map(|part| part * part).sum::<f64>() + 1e-4;
        let pull = other.mass / (square * square.sqrt());
        for (sum, part) in sum.iter_mut().zip(way) {
            *sum += pull * part;
        }
    }
    sum
}

fn step(body: &mut Body, acceleration: &Vector) {
    for (axis, change) in acceleration.iter().enumerate() {
        body.velocity[axis] += SECONDS * change;
        body.position[axis] += SECONDS * body.velocity[axis];
    }
}

fn answer(bodies: &[Body]) -> u64 {
    let positions = bodies.iter().flat_map(|body| body.position);
    digest(positions.map(f64::to_bits))
}

fn sequential(input: &mut Input) -> u64 {
    let bodies = &mut input.bodies;
    for _ in 0..STEPS {
        let accelerations: Vec<Vector> = bodies
            .iter()
            .map(|body| acceleration(body, bodies))
            .collect();
        for (body, acceleration) in bodies.iter_mut().zip(&accelerations) {
            step(body, acceleration);
        }
    }
    answer(bodies)
}

fn ours(input: &mut Input) -> u64 {
    let bodies = &mut input.bodies;
    for _ in 0..STEPS {
        let accelerations = par::map(&*bodies, |body| acceleration(body, bodies));
        par::over(&mut *bodies)
            .zip(&accelerations)
            .for_each(|(body, acceleration)| step(body, acceleration));
    }
    answer(bodies)
}

fn by_rayon(input: &mut Input) -> u64 {
    let bodies = &mut input.bodies;
    for _ in 0..STEPS {
        let accelerations: Vec<Vector> = bodies
            .par_iter()
            .map(|body| acceleration(body, bodies))
            .collect();
        bodies
            .par_iter_mut()
            .zip(&accelerations)
            .for_each(|(body, acceleration)| step(body, acceleration));
    }
    answer(bodies)
}
