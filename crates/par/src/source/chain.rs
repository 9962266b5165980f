//! Two sources one after the other.

use super::Source;

/// The items of the first, then those of the second; see [`Loop::chain`](crate::Loop::chain).
#[derive(Clone, Copy, Debug)]
pub struct Chain<A, B> {
    // A part that a cut has left without items is gone, so that going through a block that lies in one of them costs no
    // more than if there were no other.
    first: Option<A>,
    second: Option<B>,
}

impl<A, B> Chain<A, B>
where
    A: Source,
    B: Source<Item = A::Item>,
{
    pub(crate) fn new(first: A, second: B) -> Chain<A, B> {
        first
            .len()
            .checked_add(second.len())
            .expect("a loop has at most as many items as fit into memory");
        Chain {
            first: Some(first),
            second: Some(second),
        }
    }
}

impl<A, B> Source for Chain<A, B>
where
    A: Source,
    B: Source<Item = A::Item>,
{
    type Item = A::Item;

    #[inline]
    fn len(&self) -> usize {
        self.first.as_ref().map_or(0, A::len) + self.second.as_ref().map_or(0, B::len)
    }

    #[inline]
    fn split_at(self, index: usize) -> (Self, Self) {
        let Chain { first, second } = self;
        let first_len = first.as_ref().map_or(0, A::len);
        if index < first_len {
            let (left, right) = split(first, index);
            let left = Chain {
                first: left,
                second: None,
            };
            let right = Chain {
                first: right,
                second,
            };
            (left, right)
        } else {
            let (left, right) = split(second, index - first_len);
            let left = Chain {
                first,
                second: left,
            };
            let right = Chain {
                first: None,
                second: right,
            };
            (left, right)
        }
    }

    #[inline]
    fn items(self) -> impl Iterator<Item = A::Item> {
        let first = self.first.into_iter().flat_map(A::items);
        first.chain(self.second.into_iter().flat_map(B::items))
    }

    #[inline]
    fn items_from_back(self) -> impl Iterator<Item = A::Item> {
        let second = self.second.into_iter().flat_map(B::items_from_back);
        second.chain(self.first.into_iter().flat_map(A::items_from_back))
    }
}

fn split<S: Source>(source: Option<S>, index: usize) -> (Option<S>, Option<S>) {
    source.map_or((None, None), |source| {
        let (left, right) = source.split_at(index);
        (Some(left), Some(right))
    })
}
