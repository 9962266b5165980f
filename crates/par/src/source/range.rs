//! Ranges of integers.

use std::ops::{Range, RangeInclusive};

use super::{Chain, IntoSource, Source};

/// The last number of an inclusive range, if that is not empty.
#[derive(Clone, Copy, Debug)]
pub struct Last<T>(Option<T>);

macro_rules! ranges {
    ($($integer:ty, $unsigned:ty;)*) => {$(
        impl Source for Range<$integer> {
            type Item = $integer;

            #[inline(always)]
            fn len(&self) -> usize {
                if self.start >= self.end {
                    return 0;
                }
                // The distance may not fit into a signed type, but always into the unsigned one of the same width.
                let distance = self.end.wrapping_sub(self.start) as $unsigned;
                usize::try_from(distance).expect("a loop has at most as many items as fit into memory")
            }

            #[inline(always)]
            fn split_at(self, index: usize) -> (Self, Self) {
                let middle = self.start.wrapping_add(index as $integer);
                (self.start..middle, middle..self.end)
            }

            #[inline(always)]
            fn items(self) -> impl Iterator<Item = $integer> {
                self
            }

            #[inline(always)]
            fn items_from_back(self) -> impl Iterator<Item = $integer> {
                self.rev()
            }
        }

        impl Source for Last<$integer> {
            type Item = $integer;

            #[inline(always)]
            fn len(&self) -> usize {
                usize::from(self.0.is_some())
            }

            #[inline(always)]
            fn split_at(self, index: usize) -> (Self, Self) {
                match index {
                    0 => (Last(None), self),
                    _ => (self, Last(None)),
                }
            }

            #[inline(always)]
            fn items(self) -> impl Iterator<Item = $integer> {
                self.0.into_iter()
            }

            #[inline(always)]
            fn items_from_back(self) -> impl Iterator<Item = $integer> {
                self.0.into_iter()
            }
        }

        /// # Panics
        /// If there are more than [`usize::MAX`] numbers.
        impl IntoSource for RangeInclusive<$integer> {
            type Source = Chain<Range<$integer>, Last<$integer>>;
            type Item = $integer;

            fn into_source(self) -> Self::Source {
                // One that has been iterated over to its end is empty, whatever its bounds say.
                let last = (!self.is_empty()).then_some(*self.end());
                Chain::new(*self.start()..*self.end(), Last(last))
            }
        }
    )*};
}

ranges! {
    u8, u8; u16, u16; u32, u32; u64, u64; usize, usize;
    i8, u8; i16, u16; i32, u32; i64, u64; isize, usize;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_right_where_they_do_not_fit_the_signed_type() {
        assert_eq!(Source::len(&(i8::MIN..i8::MAX)), 255);
        assert_eq!(Source::len(&(i64::MIN..i64::MAX)), u64::MAX as usize);
        let (left, right) = Source::split_at(i8::MIN..i8::MAX, 200);
        assert_eq!((left, right), (-128..72, 72..127));
    }

    #[test]
    fn an_inclusive_range_has_its_last_number() {
        let numbers = |range: RangeInclusive<u8>| Vec::from_iter(range.into_source().items());
        assert_eq!(numbers(3..=5), [3, 4, 5]);
        assert_eq!(numbers(7..=7), [7]);
        assert_eq!(numbers(0..=255).len(), 256);
        #[allow(clippy::reversed_empty_ranges, reason = "that is the point")]
        let backwards = 5..=2;
        assert!(numbers(backwards).is_empty());
        let mut used_up = 7..=7;
        used_up.next();
        assert!(numbers(used_up).is_empty());
        let (left, right) = (3..=5_u8).into_source().split_at(2);
        let halves = (
            Vec::from_iter(left.items()),
            Vec::from_iter(right.items_from_back()),
        );
        assert_eq!(halves, (vec![3, 4], vec![5]));
    }

    #[test]
    fn a_range_that_ends_before_it_starts_is_empty() {
        #[allow(clippy::reversed_empty_ranges, reason = "that is the point")]
        let backwards = 5..2;
        assert_eq!(Source::len(&backwards), 0);
    }
}
