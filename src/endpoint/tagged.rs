//! Words that own none, one or a list of elements.
//!
//! Bit 0 of a word is its tag. It is clear in the pointer of one element. It is set in the word of
//! none, which is 1, and in the pointer to the first element of a list.

use core::mem::ManuallyDrop;
use core::ptr::without_provenance_mut;
use core::slice::{from_raw_parts, from_ref};

/// An element of a word.
///
/// # Safety
/// - The type consists of one pointer, which is not null, is aligned to at least two bytes, and is
///   what [`into_raw`](Self::into_raw) returns.
/// - [`list_shape`](Self::list_shape) returns the last value that
///   [`set_list_shape`](Self::set_list_shape) stored.
pub(super) unsafe trait Element: Sized {
    /// Returns the pointer, which owns the element.
    fn into_raw(self) -> *mut ();

    /// Returns the element that owns the pointer.
    ///
    /// # Safety
    /// `word` is from [`into_raw`](Self::into_raw) of the same type. It is passed here once.
    unsafe fn from_raw(word: *mut ()) -> Self;

    /// Returns length and capacity of the list whose first element this is.
    fn list_shape(&self) -> [usize; 2];

    /// Stores length and capacity of the list whose first element this is.
    fn set_list_shape(&mut self, shape: [usize; 2]);
}

/// The tag.
const OTHER: usize = 1;

/// The word of no element.
pub(super) const NONE: *mut () = without_provenance_mut(OTHER);

/// Returns whether the word owns a single element, which is no list of one.
#[inline(always)]
pub(super) fn is_one(word: *mut ()) -> bool {
    word.addr() & OTHER == 0
}

/// Returns whether the word owns nothing, not even an empty list.
#[inline(always)]
pub(super) fn is_none(word: *mut ()) -> bool {
    word.addr() == OTHER
}

/// Returns the address in the word of an empty list.
const fn empty<E>() -> usize {
    const { assert!(align_of::<E>() > OTHER) };
    align_of::<E>() | OTHER
}

fn first<E>(word: *mut ()) -> *mut E {
    word.map_addr(|address| address & !OTHER).cast()
}

/// Returns the word that owns one element.
#[inline(always)]
pub(super) fn of_one<E: Element>(element: E) -> *mut () {
    element.into_raw()
}

/// Returns the word that owns a list. An empty list loses its capacity.
pub(super) fn of_list<E: Element>(mut list: Vec<E>) -> *mut () {
    let shape = [list.len(), list.capacity()];
    let Some(first) = list.first_mut() else {
        return without_provenance_mut(empty::<E>());
    };
    first.set_list_shape(shape);
    let elements = ManuallyDrop::new(list).as_mut_ptr();
    elements.map_addr(|address| address | OTHER).cast()
}

/// Returns the element of a word.
///
/// # Safety
/// The word is from [`of_one`] of the same type, and does not own the element from now on.
#[inline(always)]
pub(super) unsafe fn into_one<E: Element>(word: *mut ()) -> E {
    // SAFETY: the caller guarantees that `of_one`, which calls `into_raw`, made the word, and that
    // the word is used once.
    unsafe { E::from_raw(word) }
}

/// Returns the list of a word.
///
/// # Safety
/// The word is from [`of_list`] of the same type, and does not own the list from now on.
pub(super) unsafe fn into_list<E: Element>(word: *mut ()) -> Vec<E> {
    if word.addr() == empty::<E>() {
        return Vec::new();
    }
    let elements = first::<E>(word);
    // SAFETY: the caller guarantees that `of_list` made the word. The list is not empty, so the
    // pointer, length and capacity are those of the vector that `of_list` took apart: it stored the
    // latter two in the first element.
    unsafe {
        let [length, capacity] = (*elements).list_shape();
        Vec::from_raw_parts(elements, length, capacity)
    }
}

/// Borrows the elements of a word.
///
/// # Safety
/// The word is [`NONE`] or from [`of_one`] or [`of_list`] of the same type, and owns its elements
/// as long as they are borrowed.
pub(super) unsafe fn elements<E: Element>(word: &*mut ()) -> &[E] {
    if is_one(*word) {
        // SAFETY: the tag and the caller say that `of_one` made the word. An element consists of
        // that pointer and nothing else, so the word is an element.
        return from_ref(unsafe { &*(&raw const *word).cast::<E>() });
    }
    if is_none(*word) || word.addr() == empty::<E>() {
        return &[];
    }
    let elements = first::<E>(*word);
    // SAFETY: the caller guarantees that `of_list` made the word, which owns its elements while
    // they are borrowed. The list is not empty, and `of_list` stored its length in the first
    // element.
    unsafe { from_raw_parts(elements, (*elements).list_shape()[0]) }
}

/// Drops the element or the list of a word.
///
/// # Safety
/// The word is from [`of_one`] or [`of_list`] of the same type, and is not used after this call.
#[cold]
#[inline(never)]
pub(super) unsafe fn free<E: Element>(word: *mut ()) {
    // SAFETY: the caller guarantees that `of_one` or `of_list` made the word, which the tag tells,
    // and that this is its last use.
    unsafe {
        if is_one(word) {
            drop(into_one::<E>(word));
        } else {
            drop(into_list::<E>(word));
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// An element on the heap that counts how many of its kind are alive.
    struct Counted(Box<Inner>);

    struct Inner {
        number: u32,
        shape: [usize; 2],
        alive: Rc<Cell<u32>>,
    }

    impl Counted {
        fn new(number: u32, alive: &Rc<Cell<u32>>) -> Self {
            alive.set(alive.get() + 1);
            Self(Box::new(Inner { number, shape: [0; 2], alive: Rc::clone(alive) }))
        }

        fn list(count: u32, spare: usize, alive: &Rc<Cell<u32>>) -> Vec<Self> {
            let mut list = Vec::with_capacity(count as usize + spare);
            list.extend((0..count).map(|number| Self::new(number, alive)));
            list
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.alive.set(self.0.alive.get() - 1);
        }
    }

    // SAFETY: a box is one pointer, aligned as `Inner`, and what `into_raw` returns. The shape is a
    // field.
    unsafe impl Element for Counted {
        fn into_raw(self) -> *mut () {
            let element = ManuallyDrop::new(self);
            // SAFETY: the box is not used again.
            Box::into_raw(unsafe { core::ptr::read(&element.0) }).cast()
        }

        unsafe fn from_raw(word: *mut ()) -> Self {
            // SAFETY: the caller passes a pointer of `Box::into_raw`, once.
            Self(unsafe { Box::from_raw(word.cast()) })
        }

        fn list_shape(&self) -> [usize; 2] {
            self.0.shape
        }

        fn set_list_shape(&mut self, shape: [usize; 2]) {
            self.0.shape = shape;
        }
    }

    fn numbers(elements: &[Counted]) -> Vec<u32> {
        elements.iter().map(|element| element.0.number).collect()
    }

    #[test]
    fn none_has_no_elements() {
        assert!(is_none(NONE) && !is_one(NONE));
        // SAFETY: the word of none.
        assert!(unsafe { elements::<Counted>(&NONE) }.is_empty());
    }

    #[test]
    fn one_element_comes_back_or_is_dropped() {
        let alive = Rc::default();
        let word = of_one(Counted::new(7, &alive));
        assert!(is_one(word) && !is_none(word));
        // SAFETY: the word owns one element until `into_one`.
        unsafe {
            assert_eq!(numbers(elements(&word)), [7]);
            assert_eq!(numbers(elements(&word)), [7]);
            let element = into_one::<Counted>(word);
            assert_eq!((element.0.number, alive.get()), (7, 1));
            free::<Counted>(of_one(element));
        }
        assert_eq!(alive.get(), 0);
    }

    #[test]
    fn lists_of_any_length_and_capacity_come_back_or_are_dropped() {
        let alive = Rc::default();
        for (count, spare) in [(0, 0), (0, 3), (1, 0), (1, 4), (2, 0), (5, 1), (30, 0)] {
            let list = Counted::list(count, spare, &alive);
            let capacity = list.capacity();
            let word = of_list(list);
            assert!(!is_one(word) && !is_none(word), "{count} elements");
            let expected: Vec<u32> = (0..count).collect();
            // SAFETY: the word owns a list until `into_list`.
            unsafe {
                assert_eq!(numbers(elements(&word)), expected);
                let mut list = into_list::<Counted>(word);
                assert_eq!(numbers(&list), expected);
                if count > 0 {
                    assert_eq!(list.capacity(), capacity);
                }
                // Grown and reversed, it is as good as new.
                list.push(Counted::new(count, &alive));
                list.reverse();
                let word = of_list(list);
                assert_eq!(elements::<Counted>(&word)[0].0.number, count);
                assert_eq!(alive.get(), count + 1);
                free::<Counted>(word);
            }
            assert_eq!(alive.get(), 0, "{count} elements");
        }
        // SAFETY: the word of an empty list owns nothing.
        unsafe { free::<Counted>(of_list(Counted::list(0, 2, &alive))) };
    }

    #[test]
    fn an_element_with_the_shape_of_an_earlier_list_is_one_again() {
        let alive = Rc::default();
        // SAFETY: each word is taken apart once.
        unsafe {
            let mut list = into_list::<Counted>(of_list(Counted::list(3, 0, &alive)));
            let word = of_one(list.remove(0));
            assert_eq!(numbers(elements(&word)), [0]);
            list.truncate(1);
            list.push(into_one(word));
            let word = of_list(list);
            assert_eq!(numbers(elements(&word)), [1, 0]);
            free::<Counted>(word);
        }
        assert_eq!(alive.get(), 0);
    }
}
