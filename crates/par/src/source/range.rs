//! Ranges of integers.

use std::ops::Range;

use super::Source;

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
    fn a_range_that_ends_before_it_starts_is_empty() {
        #[allow(clippy::reversed_empty_ranges, reason = "that is the point")]
        let backwards = 5..2;
        assert_eq!(Source::len(&backwards), 0);
    }
}
