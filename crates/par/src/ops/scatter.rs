//! Writing items to places that are known only at run time.

use std::error::Error;
use std::fmt;
use std::ops::ControlFlow;

use jobtree_pool::raw::{ClaimError, Claims, UserOwned};

use super::search::FirstEnd;
use super::write::Beside;
use crate::drive::{Body, drive};
use crate::looping::Loop;
use crate::source::Source;
use crate::transform::{OneToOne, Transform};

/// The reason why [`Loop::scatter_to`] has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScatterError {
    /// There is no such place in the target.
    OutOfBounds {
        /// The place of the index in the list of indices.
        position: usize,
        /// The index.
        index: usize,
        /// The length of the target.
        len: usize,
    },
    /// The index occurs twice.
    Duplicate {
        /// The place of one of the two in the list of indices.
        position: usize,
        /// The index.
        index: usize,
    },
    /// There are not as many indices as items. Nothing has been written.
    Unequal {
        /// The number of items.
        items: usize,
        /// The number of indices.
        indices: usize,
    },
}

impl fmt::Display for ScatterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ScatterError::OutOfBounds {
                position,
                index,
                len,
            } => write!(
                f,
                "index {index} at position {position} is out of bounds: the target has {len} places"
            ),
            ScatterError::Duplicate { position, index } => write!(
                f,
                "index {index} at position {position} occurs twice; a place can be written only once"
            ),
            ScatterError::Unequal { items, indices } => write!(
                f,
                "{items} items cannot go to {indices} indices; give one index for each item"
            ),
        }
    }
}

impl Error for ScatterError {}

struct Scatter<'a, T, R> {
    transform: &'a T,
    target: Claims<'a, R>,
    target_len: usize,
    first_error: FirstEnd,
}

impl<'i, S, T, R> Body<Beside<S, &'i [usize]>> for Scatter<'_, T, R>
where
    S: Source,
    T: Transform<S::Item, Out = R>,
    R: Send,
{
    type State = Option<ScatterError>;

    fn start(&self) -> Option<ScatterError> {
        None
    }

    #[inline(always)]
    fn feed(
        &self,
        state: Option<ScatterError>,
        position: usize,
        block: Beside<S, &'i [usize]>,
    ) -> Option<ScatterError> {
        let items = self.transform.apply(block.source.items());
        let mut indices = block.beside.iter().enumerate().zip(items);
        let outcome = indices.try_for_each(|((offset, &index), item)| {
            let position = position + offset;
            match self.target.claim(index) {
                Ok(place) => {
                    *place = item;
                    ControlFlow::Continue(())
                }
                Err(ClaimError::OutOfBounds) => ControlFlow::Break(ScatterError::OutOfBounds {
                    position,
                    index,
                    len: self.target_len,
                }),
                Err(ClaimError::Taken) => {
                    ControlFlow::Break(ScatterError::Duplicate { position, index })
                }
            }
        });
        match outcome {
            ControlFlow::Continue(()) => state,
            ControlFlow::Break(error) => {
                self.first_error.ends_in_block_at(position);
                Some(error)
            }
        }
    }

    fn combine(
        &self,
        left: Option<ScatterError>,
        right: Option<ScatterError>,
    ) -> Option<ScatterError> {
        left.or(right)
    }

    #[inline(always)]
    fn can_skip(&self, position: usize) -> bool {
        self.first_error.is_before(position)
    }
}

impl<S, T> Loop<S, T>
where
    S: Source,
    T: Transform<S::Item> + OneToOne,
    T::Out: Send,
{
    /// Writes each item to the place of `target` whose index stands at the item's position in `indices`.
    ///
    /// Places whose index does not occur keep their value.
    ///
    /// ```
    /// use jobtree_par as par;
    ///
    /// let mut target = ["-"; 4];
    /// par::over(&["a", "b"]).cloned().scatter_to(&[3, 1], &mut target)?;
    /// assert_eq!(target, ["-", "b", "-", "a"]);
    ///
    /// let twice = par::over(0..2).scatter_to(&[1, 1], &mut [0, 0]);
    /// assert!(matches!(twice, Err(par::ScatterError::Duplicate { index: 1, .. })));
    /// # Ok::<(), par::ScatterError>(())
    /// ```
    ///
    /// # Errors
    /// If an index is out of bounds or occurs twice; then some of the items may have been written. If there are not as
    /// many indices as items; then nothing has.
    pub fn scatter_to(self, indices: &[usize], target: &mut [T::Out]) -> Result<(), ScatterError> {
        let len = self.source.len();
        if len != indices.len() {
            return Err(ScatterError::Unequal {
                items: len,
                indices: indices.len(),
            });
        }
        let transform = UserOwned::captured(self.transform);
        let scatter = Scatter {
            transform: &*transform,
            target_len: target.len(),
            target: Claims::new(target),
            first_error: FirstEnd::none(),
        };
        let items = Beside {
            source: self.source,
            beside: indices,
        };
        drive(items, self.grain, &scatter).map_or(Ok(()), Err)
    }
}
