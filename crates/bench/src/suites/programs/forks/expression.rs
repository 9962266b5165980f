//! The value of a large arithmetic expression: both sides of each operator at the same time.

use crate::harness::SplitMix64;
use crate::suites::programs::inputs::rng;
use crate::suites::programs::program::{Program, Scale};

pub enum Expression {
    Number(u64),
    Negative(Box<Expression>),
    Binary(Operator, Box<Expression>, Box<Expression>),
}

pub enum Operator {
    Plus,
    Minus,
    Times,
    Divided,
}

pub struct Input {
    expression: Expression,
}

pub fn program(scale: Scale) -> Program<Input> {
    let depth = scale.pick(17, 8);
    let mut numbers = 0;
    let expression = expression(depth, &mut rng(), &mut numbers);
    Program::new("number", numbers, Input { expression })
        .sequential(|input| sequential(&input.expression))
        .ours(|input| ours(&input.expression))
        .rayon(|input| by_rayon(&input.expression))
        .chili(|scope, input| by_chili(scope, &input.expression))
}

fn expression(depth: usize, rng: &mut SplitMix64, numbers: &mut usize) -> Expression {
    if depth == 0 || rng.below(20) == 0 && depth < 12 {
        *numbers += 1;
        return Expression::Number(rng.next());
    }
    let mut operand = || Box::new(expression(depth - 1, rng, numbers));
    let (left, right) = (operand(), operand());
    match rng.below(9) {
        0 => Expression::Negative(left),
        1 | 2 => Expression::Binary(Operator::Plus, left, right),
        3 | 4 => Expression::Binary(Operator::Minus, left, right),
        5 | 6 => Expression::Binary(Operator::Times, left, right),
        _ => Expression::Binary(Operator::Divided, left, right),
    }
}

fn apply(operator: &Operator, left: u64, right: u64) -> u64 {
    match operator {
        Operator::Plus => left.wrapping_add(right),
        Operator::Minus => left.wrapping_sub(right),
        Operator::Times => left.wrapping_mul(right | 1),
        Operator::Divided => left / ((right & 7) + 1),
    }
}

fn sequential(expression: &Expression) -> u64 {
    match expression {
        Expression::Number(number) => *number,
        Expression::Negative(operand) => sequential(operand).wrapping_neg(),
        Expression::Binary(operator, left, right) => {
            apply(operator, sequential(left), sequential(right))
        }
    }
}

fn ours(expression: &Expression) -> u64 {
    match expression {
        Expression::Number(number) => *number,
        Expression::Negative(operand) => ours(operand).wrapping_neg(),
        Expression::Binary(operator, left, right) => {
            let (left, right) = jobtree::join(|| ours(left), || ours(right));
            apply(operator, left, right)
        }
    }
}

fn by_rayon(expression: &Expression) -> u64 {
    match expression {
        Expression::Number(number) => *number,
        Expression::Negative(operand) => by_rayon(operand).wrapping_neg(),
        Expression::Binary(operator, left, right) => {
            let (left, right) = rayon::join(|| by_rayon(left), || by_rayon(right));
            apply(operator, left, right)
        }
    }
}

fn by_chili(scope: &mut chili::Scope<'_>, expression: &Expression) -> u64 {
    match expression {
        Expression::Number(number) => *number,
        Expression::Negative(operand) => by_chili(scope, operand).wrapping_neg(),
        Expression::Binary(operator, left, right) => {
            let (left, right) = scope.join(
                |scope| by_chili(scope, left),
                |scope| by_chili(scope, right),
            );
            apply(operator, left, right)
        }
    }
}
