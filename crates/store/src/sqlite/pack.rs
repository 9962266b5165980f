//! Numbers and texts, one after the other in a few bytes. A row of some wide columns costs SQLite several times what it
//! costs with one: what no statement asks for lies packed in one column.
//!
//! Numbers are written seven bits a byte, low ones first, the eighth bit meaning that more follow; signed ones are folded
//! first so that small ones stay short; texts and bytes have their length before them.

use uuid::Uuid;

use super::codec::damaged;
use crate::tables::Result;

pub(crate) fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The number as it is put, and how many bytes of it.
pub(crate) fn packed_number(mut number: u64) -> ([u8; 10], usize) {
    let (mut bytes, mut last) = ([0; 10], 0);
    while number >= 0x80 {
        bytes[last] = number as u8 | 0x80;
        number >>= 7;
        last += 1;
    }
    bytes[last] = number as u8;
    (bytes, last + 1)
}

pub(crate) fn put_signed(bytes: &mut Vec<u8>, number: i64) {
    put_number(bytes, ((number << 1) ^ (number >> 63)) as u64);
}

pub(crate) fn put_bytes(bytes: &mut Vec<u8>, part: &[u8]) {
    put_number(bytes, part.len() as u64);
    bytes.extend_from_slice(part);
}

pub(crate) fn put_id(bytes: &mut Vec<u8>, id: &Uuid) {
    bytes.extend_from_slice(id.as_bytes());
}

/// Reads what the functions above wrote. Whatever else it finds is an error, never a panic.
pub(crate) struct Unpack<'a> {
    rest: &'a [u8],
}

impl<'a> Unpack<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.rest.split_first().ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn raw_number(&mut self) -> Result<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            if shift > 63 || (shift == 63 && byte > 1) {
                return Err(damaged("a packed number"));
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
            shift += 7;
        }
    }

    pub(crate) fn number<T: TryFrom<u64>>(&mut self) -> Result<T> {
        T::try_from(self.raw_number()?).map_err(|_| damaged("a packed number"))
    }

    pub(crate) fn signed(&mut self) -> Result<i64> {
        let folded = self.raw_number()?;
        Ok((folded >> 1) as i64 ^ -((folded & 1) as i64))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (part, rest) = self.rest.split_at_checked(count).ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(part)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let count = self.number()?;
        self.take(count)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| damaged("a packed text"))
    }

    /// Bytes without their length before them.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many as were taken"))
    }

    pub(crate) fn id(&mut self) -> Result<Uuid> {
        self.array().map(Uuid::from_bytes)
    }
}

fn cut_short() -> crate::error::StoreError {
    damaged("a packed row that is cut short")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked() {
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        let signed = [0, -1, 1, i64::MIN, i64::MAX, -300];
        let mut bytes = Vec::new();
        numbers
            .iter()
            .for_each(|number| put_number(&mut bytes, *number));
        signed
            .iter()
            .for_each(|number| put_signed(&mut bytes, *number));
        put_bytes(&mut bytes, "größer".as_bytes());
        put_id(&mut bytes, &Uuid::max());
        let mut unpack = Unpack::new(&bytes);
        for number in numbers {
            assert_eq!(unpack.raw_number(), Ok(number));
        }
        for number in signed {
            assert_eq!(unpack.signed(), Ok(number));
        }
        assert_eq!(unpack.text(), Ok("größer"));
        assert_eq!(unpack.id(), Ok(Uuid::max()));
        assert!(unpack.is_empty());
        assert!(unpack.byte().is_err());
    }

    #[test]
    fn nonsense_is_an_error() {
        assert!(Unpack::new(&[0xff; 11]).raw_number().is_err(), "too long");
        assert!(Unpack::new(&[0x80]).raw_number().is_err(), "cut short");
        assert!(Unpack::new(&[5, b'a']).text().is_err(), "cut short");
        assert!(Unpack::new(&[1, 0xff]).text().is_err(), "not a text");
        assert!(Unpack::new(&[200, 1]).number::<u8>().is_ok());
        assert!(Unpack::new(&[200, 2]).number::<u8>().is_err(), "too large");
    }
}
