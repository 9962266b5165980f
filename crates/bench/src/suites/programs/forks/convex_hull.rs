//! The convex hull of many points, by quickhull: what lies outside of a line, the farthest point, and both sides of that.

use crate::suites::programs::inputs::{digest, rng};
use crate::suites::programs::program::{Program, Scale};

type Point = [i64; 2];

pub struct Input {
    points: Vec<Point>,
}

pub fn program(scale: Scale) -> Program<Input> {
    let count = scale.pick(200_000, 2000);
    let mut rng = rng();
    // In a disc, so that the hull has many corners.
    let mut coordinate = || rng.below(2_000_000) as i64 - 1_000_000;
    let points = std::iter::repeat_with(|| [coordinate(), coordinate()])
        .filter(|[x, y]| x * x + y * y <= 1_000_000_000_000)
        .take(count)
        .collect();
    Program::new("point", count, Input { points })
        .sequential(sequential)
        .ours(ours)
        .rayon(by_rayon)
        .chili(by_chili)
}

/// Returns how far `point` lies to the left of the way from `a` to `b`, times the length of that.
fn outside(a: Point, b: Point, point: Point) -> i64 {
    (b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0])
}

/// The points to the left of the way from `a` to `b`, and the farthest of them.
fn beyond(a: Point, b: Point, points: &[Point]) -> (Vec<Point>, Option<Point>) {
    let left: Vec<Point> = points
        .iter()
        .copied()
        .filter(|point| outside(a, b, *point) > 0)
        .collect();
    let farthest = left
        .iter()
        .copied()
        .max_by_key(|point| (outside(a, b, *point), *point));
    (left, farthest)
}

/// The first and the last point from left to right.
fn ends(points: &[Point]) -> (Point, Point) {
    let first = points.iter().min().expect("there are points");
    let last = points.iter().max().expect("there are points");
    (*first, *last)
}

fn joined(mut left: Vec<Point>, corner: Point, right: Vec<Point>) -> Vec<Point> {
    left.push(corner);
    left.extend(right);
    left
}

fn answer(first: Point, upper: Vec<Point>, last: Point, lower: Vec<Point>) -> u64 {
    let hull = [vec![first], upper, vec![last], lower].concat();
    digest(hull.as_flattened().iter().map(|value| *value as u64))
}

fn sequential(input: &mut Input) -> u64 {
    fn hull(a: Point, b: Point, points: &[Point]) -> Vec<Point> {
        let (points, farthest) = beyond(a, b, points);
        let Some(corner) = farthest else {
            return Vec::new();
        };
        joined(hull(a, corner, &points), corner, hull(corner, b, &points))
    }
    let points = &input.points;
    let (first, last) = ends(points);
    let (upper, lower) = (hull(first, last, points), hull(last, first, points));
    answer(first, upper, last, lower)
}

fn ours(input: &mut Input) -> u64 {
    fn hull(a: Point, b: Point, points: &[Point]) -> Vec<Point> {
        let (points, farthest) = beyond(a, b, points);
        let Some(corner) = farthest else {
            return Vec::new();
        };
        let (left, right) = jobtree::join(|| hull(a, corner, &points), || hull(corner, b, &points));
        joined(left, corner, right)
    }
    let points = &input.points;
    let (first, last) = ends(points);
    let (upper, lower) = jobtree::join(|| hull(first, last, points), || hull(last, first, points));
    answer(first, upper, last, lower)
}

fn by_rayon(input: &mut Input) -> u64 {
    fn hull(a: Point, b: Point, points: &[Point]) -> Vec<Point> {
        let (points, farthest) = beyond(a, b, points);
        let Some(corner) = farthest else {
            return Vec::new();
        };
        let (left, right) = rayon::join(|| hull(a, corner, &points), || hull(corner, b, &points));
        joined(left, corner, right)
    }
    let points = &input.points;
    let (first, last) = ends(points);
    let (upper, lower) = rayon::join(|| hull(first, last, points), || hull(last, first, points));
    answer(first, upper, last, lower)
}

fn by_chili(scope: &mut chili::Scope<'_>, input: &mut Input) -> u64 {
    fn hull(scope: &mut chili::Scope<'_>, a: Point, b: Point, points: &[Point]) -> Vec<Point> {
        let (points, farthest) = beyond(a, b, points);
        let Some(corner) = farthest else {
            return Vec::new();
        };
        let (left, right) = scope.join(
            |scope| hull(scope, a, corner, &points),
            |scope| hull(scope, corner, b, &points),
        );
        joined(left, corner, right)
    }
    let points = &input.points;
    let (first, last) = ends(points);
    let (upper, lower) = scope.join(
        |scope| hull(scope, first, last, points),
        |scope| hull(scope, last, first, points),
    );
    answer(first, upper, last, lower)
}
